package web

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// contentPolicy lets the page load what this server has, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// csrfHeader has the session's secret in what writes.
const csrfHeader = "X-Isobar-CSRF"

func isAPI(p string) bool { return p == "/api" || strings.HasPrefix(p, "/api/") }

// cleanPath is that of a path from the root.
func cleanPath(p string) string { return path.Clean("/" + p) }

// harden sets the headers of every answer.
func (s *Server) harden(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY") // of browsers that do not know frame-ancestors
	if s.isSecure() {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// isSecure says whether browsers come by TLS, ours or that of a proxy before us.
func (s *Server) isSecure() bool {
	return s.o.Certificates != nil || s.o.URL != nil && s.o.URL.Scheme == "https"
}

// origins are those of our own pages, for a request.
func (s *Server) isOwnOrigin(r *http.Request, origin string) bool {
	if u := s.o.URL; u != nil && strings.EqualFold(origin, u.Scheme+"://"+u.Host) {
		return true
	}
	scheme := "http://"
	if s.isSecure() {
		scheme = "https://"
	}
	return strings.EqualFold(origin, scheme+r.Host)
}

// fromOwnPage says whether a browser says that a request was made by a page of ours. A request of which
// nothing is said was made by no browser, or by one that is too old.
func (s *Server) fromOwnPage(r *http.Request) bool {
	origins, sites := r.Header.Values("Origin"), r.Header.Values("Sec-Fetch-Site")
	if len(origins)+len(sites) == 0 || len(origins) > 1 || len(sites) > 1 {
		return false
	}
	return (len(origins) == 0 || s.isOwnOrigin(r, origins[0])) && (len(sites) == 0 || sites[0] == "same-origin")
}

// isTaken refuses what comes by another name than ours, from other users of the machine, or from pages of others.
func (s *Server) isTaken(w http.ResponseWriter, r *http.Request) bool {
	if s.here != nil {
		if why := s.here.refuses(r); why != "" {
			refuse(w, http.StatusForbidden, why)
			return false
		}
	}
	if !isAPI(r.URL.Path) || r.Method != http.MethodGet || r.URL.Path == callbackPath || r.URL.Path == startPath {
		return true // what writes is looked at where it is answered
	}
	// "none" is an address that a person has typed. Others have no business to ask, even if they could not read the answer.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	refuse(w, http.StatusForbidden, "the request was made by a page of another site")
	return false
}

// refuse answers with a Status, as the API server does.
func refuse(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonUnknown
	switch code {
	case http.StatusBadRequest:
		reason = metav1.StatusReasonBadRequest
	case http.StatusUnauthorized:
		reason = metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		reason = metav1.StatusReasonForbidden
	case http.StatusNotFound:
		reason = metav1.StatusReasonNotFound
	case http.StatusRequestEntityTooLarge:
		reason = metav1.StatusReasonRequestEntityTooLarge
	case http.StatusUnsupportedMediaType:
		reason = metav1.StatusReasonUnsupportedMediaType
	case http.StatusTooManyRequests:
		reason = metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		reason = metav1.StatusReasonInternalError
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		reason = metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout:
		reason = metav1.StatusReasonTimeout
	}
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code),
	})
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, code int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the answer cannot be written","code":500}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(text) // an error means that the browser is gone
}
