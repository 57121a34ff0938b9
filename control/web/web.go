package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Certificates are what a Server shows; the authorities of a replica are some.
type Certificates interface {
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// Options configure a Server. The zero value is ready to use.
type Options struct {
	// Cluster is what the page calls the world that it shows.
	Cluster string
	// ReadOnly: nothing can be applied.
	ReadOnly bool
	// URL is where browsers find the server, if that is not what they send as Host. Only its
	// scheme and host count.
	URL *url.URL
	// Certificates for TLS; nil means plain HTTP, which must not leave the machine.
	Certificates Certificates
	// OnlyHere: only programs of the user who runs this process, on this machine, may connect, and only
	// by the address that the server listens at. For plain HTTP.
	OnlyHere bool
	// OIDC is a second way to log in, with [Tokens].
	OIDC *OIDC

	// Idle ends a session that nobody uses; 0 means 30 minutes. Life ends every session; 0 means 12 hours.
	Idle, Life time.Duration
	// Sessions bounds them; 0 means 1000. Each user has at most PerUser, of which a login ends the
	// one that was not used the longest; 0 means 10.
	Sessions, PerUser int
	// Assets are the built page; nil means that which is embedded.
	Assets fs.FS
	Log    *slog.Logger // nil means slog.Default()
}

// Server serves the console.
type Server struct {
	access   Access
	o        Options
	log      *slog.Logger
	assets   *assets
	sessions *sessions
	logins   *limits       // of tries to log in
	applying chan struct{} // holds one for each apply under way
	provider *provider     // nil without OIDC
	handler  http.Handler
	closing  context.Context // ends what lasts, such as events
	close    context.CancelFunc
	here     *here // nil without OnlyHere
}

const (
	defaultIdle     = 30 * time.Minute
	defaultLife     = 12 * time.Hour
	defaultSessions = 1000
	defaultPerUser  = 10
	stopTimeout     = 2 * time.Second
	bodyTimeout     = 30 * time.Second
)

// New returns a Server. It starts nothing; call Run, or serve its Handler.
func New(access Access, o Options) (*Server, error) {
	o.Idle, o.Life = cmp.Or(o.Idle, defaultIdle), cmp.Or(o.Life, defaultLife)
	o.Sessions, o.PerUser = cmp.Or(o.Sessions, defaultSessions), cmp.Or(o.PerUser, defaultPerUser)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Assets == nil {
		built, err := fs.Sub(dist, "dist")
		if err != nil {
			return nil, err
		}
		o.Assets = built
	}
	s := &Server{access: access, o: o, log: o.Log, logins: newLimits(), applying: make(chan struct{}, appliedAtOnce)}
	var err error
	if s.assets, err = readAssets(o.Assets); err != nil {
		return nil, fmt.Errorf("the console's page: %w", err)
	}
	if o.OIDC != nil {
		if s.provider, err = newProvider(*o.OIDC, o.URL, access); err != nil {
			return nil, err
		}
	}
	s.sessions = newSessions(o)
	s.closing, s.close = context.WithCancel(context.Background())
	if o.OnlyHere {
		s.here = &here{}
	}
	s.handler = s.routes()
	return s, nil
}

// Handler returns what Run serves. With OnlyHere it answers only connections of Run.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends all sessions. Run does so at its end.
func (s *Server) Close() { s.close() }

// Run serves on l until ctx is done, and closes l. It is called once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	defer s.close()
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		// Bodies and answers have deadlines of their own: events last.
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 1 << 16,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.here != nil {
		s.here.listen(l.Addr())
		server.ConnContext = s.here.connected
	}
	stop := context.AfterFunc(ctx, func() {
		s.close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	})
	defer stop()
	var err error
	if s.o.Certificates != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.o.Certificates.Certificate}
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console on %v: %w", l.Addr(), err)
	}
	return nil
}

// routes are all that a browser may ask.
func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/session", s.showSession)
	api.HandleFunc("POST /api/session", s.logIn)
	api.Handle("DELETE /api/session", s.withSession(s.logOut))
	api.Handle("GET /api/views/{name}", s.withSession(s.view))
	api.Handle("POST /api/views/{name}", s.withSession(s.view))
	api.Handle("GET /api/events", s.withSession(s.events))
	if !s.o.ReadOnly {
		api.Handle("POST /api/apply", s.withSession(s.apply))
	}
	if s.o.OIDC != nil {
		api.HandleFunc("GET /api/oidc/start", s.startOIDC)
		api.HandleFunc("GET "+callbackPath, s.finishOIDC)
	}
	api.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no such path, or not by this method")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.harden(w)
		c := http.NewResponseController(w) // not every writer has deadlines
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
		if r.ContentLength != 0 {
			_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if !s.isTaken(w, r) {
			return
		}
		if isAPI(r.URL.Path) {
			w.Header().Set("Cache-Control", "no-store")
			// The multiplexer would lead to the clean form of a path: there is nothing that
			// should be asked by another.
			if r.URL.Path != cleanPath(r.URL.Path) || r.URL.RawPath != "" {
				refuse(w, http.StatusNotFound, "there is no such path")
				return
			}
			api.ServeHTTP(w, r)
			return
		}
		s.assets.ServeHTTP(w, r)
	})
}
