// Package web serves the console to browsers: its page, sessions, and the way to
// the API server with each user's own credentials.
//
// It knows nothing of policies, and has no rights. What a browser may see and do is
// decided by the API server, for the user whose credentials a session has:
// those that the user has logged in with ([Tokens]), or those of the one user whose
// program it is ([Fixed]). Credentials stay in the memory of this process: a browser
// has nothing but a random session ID, in a cookie that scripts cannot read.
//
// # What a browser may ask
//
//	GET    /, /map, ...        the page
//	GET    /assets/NAME        what the page loads
//	GET    /api/session        who is logged in; 401 tells how to
//	POST   /api/session        log in, by a token or a code
//	DELETE /api/session        log out
//	*      /api/views/NAME     a view of the console's API, and nothing else of the API server
//	GET    /api/events         server-sent events: the world has changed, the session has ended
//	POST   /api/apply          server-side apply of policies
//	GET    /api/oidc/start     log in by the OpenID Connect provider, if there is one
//
// Errors are a Kubernetes Status, as the API server's own. What writes needs the
// session's X-Isobar-CSRF and must come from a page of this origin.
package web
