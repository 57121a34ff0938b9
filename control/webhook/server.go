package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"isobar.dev/control/authority"
)

const (
	// decideTimeout is less than the timeout that Install asks for, so that the API
	// server gets our reason and not a silence.
	decideTimeout = 8 * time.Second
	// warnTimeout is how long a write waits for what it may be warned of.
	warnTimeout = 2 * time.Second
	// atOnce bounds the decisions under way, and so the memory of their bodies.
	atOnce      = 64
	stopTimeout = 5 * time.Second
)

// Certificates are what a Server shows, and what the API server is to believe
// them by.
type Certificates interface {
	Bundle() []byte // PEM
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// Options configure a Server. The zero value is ready to use.
type Options struct {
	// Dir keeps the certificate authority, so that what is installed stays right
	// after a restart, and for every replica that shares Dir. Empty means that it
	// lives as long as the Server.
	Dir string
	// Certificates are shown instead of those of an authority in Dir. nil means the latter.
	Certificates Certificates
	// Hosts are the DNS names and addresses that the API server dials; none means
	// localhost, 127.0.0.1 and ::1.
	Hosts []string
	// Controller is the user that alone may repair built-in tiers. Empty means nobody.
	Controller string
	// Warn returns what will not be enforced once a policy, or a tier or group that
	// policies use, is written as in the manifest. It has about two seconds, and an
	// answer that comes later is not told; nil means nothing is.
	Warn func(ctx context.Context, manifest []byte) []string
	// NoLayer7 refuses rules with l7Protocols.
	NoLayer7 bool
	Log      *slog.Logger // nil means slog.Default()
}

// Server answers the admission webhooks.
type Server struct {
	client  dynamic.Interface
	options Options
	certs   Certificates
	slots   chan struct{}
	handler http.Handler
}

// New returns a Server that reads other objects with client, which should have
// no rate limit. It makes the certificate authority, or reads it, and starts
// nothing; call Run.
func New(client dynamic.Interface, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := o.Certificates
	if c == nil {
		var err error
		if c, err = authority.New("webhook", o.Dir, o.Hosts); err != nil {
			return nil, err
		}
	}
	s := &Server{client: client, options: o, certs: c, slots: make(chan struct{}, atOnce)}
	mux := http.NewServeMux()
	for _, k := range kinds() {
		if k.validate != "" {
			mux.Handle("POST "+k.validate, s.answer(k, s.decide))
		}
		if k.mutate != "" {
			mux.Handle("POST "+k.mutate, s.answer(k, s.fill))
		}
	}
	s.handler = mux
	return s, nil
}

// Handler returns what Run serves.
func (s *Server) Handler() http.Handler { return s.handler }

// CABundle is the PEM of the certificate authority, for [Install].
func (s *Server) CABundle() []byte { return s.certs.Bundle() }

// Run serves TLS on l until ctx is done, lets decisions under way finish, and
// closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certs.Certificate},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 16,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhooks on %v: %w", l.Addr(), err)
	}
	return nil
}

// answer makes a handler of AdmissionReviews out of a decision. Whatever it does not
// answer with 200, the API server takes as a refusal.
func (s *Server) answer(k kind, decide func(context.Context, kind, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		ctx, cancel := context.WithTimeout(in.Context(), decideTimeout)
		defer cancel()
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			http.Error(out, "too many requests at once", http.StatusTooManyRequests)
			return
		}
		if t, _, err := mime.ParseMediaType(in.Header.Get("Content-Type")); err != nil || t != "application/json" {
			http.Error(out, "Content-Type: want application/json", http.StatusUnsupportedMediaType)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(out, in.Body, maxReview))
		if err != nil {
			code := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(out, "read AdmissionReview: "+err.Error(), code)
			return
		}
		request, err := parseReview(body)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		review := admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
			Response: s.safely(ctx, k, request, decide),
		}
		review.Response.UID = request.UID
		text, err := json.Marshal(review)
		if err != nil {
			http.Error(out, "write AdmissionReview: "+err.Error(), http.StatusInternalServerError)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		// An error means that the API server is gone; it refuses by itself.
		out.Write(text)
	})
}

// safely decides, and refuses when the decision panics: one object must not end
// the decisions about others.
func (s *Server) safely(ctx context.Context, k kind, r *admissionv1.AdmissionRequest, decide func(context.Context, kind, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) (answer *admissionv1.AdmissionResponse) {
	defer func() {
		if p := recover(); p != nil {
			s.options.Log.LogAttrs(ctx, slog.LevelError, "admission decision panicked",
				slog.String("kind", k.gvk.Kind), slog.String("namespace", r.Namespace), slog.String("name", r.Name), slog.Any("panic", p))
			answer = unable(errors.New("the decision failed, by a fault of isobar"))
		}
	}()
	return decide(ctx, k, r)
}
