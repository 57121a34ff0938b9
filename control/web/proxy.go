package web

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

const (
	viewsGroup   = "console.isobar.dev/v1alpha1"
	viewTimeout  = 60 * time.Second
	writeTimeout = 2 * time.Minute
	maxQuery     = 16 << 10
	maxQuestion  = 3 << 20 // as API servers take
	maxView      = 64 << 20
	// maxAsked are the requests of one session at a time.
	maxAsked = 16
)

// viewName is what a view may be called: no path, whatever it is encoded as.
var viewName = regexp.MustCompile(`^[a-z]{1,32}$`)

// view passes on a question to the API server, and its answer back: of the question the name, the query and the
// body, of the answer the body. No header of either passes but the type.
func (s *Server) view(w http.ResponseWriter, r *http.Request, x *session) {
	name := r.PathValue("name")
	if !viewName.MatchString(name) {
		refuse(w, http.StatusNotFound, "there is no such view")
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(r.URL.RawQuery) > maxQuery {
		refuse(w, http.StatusBadRequest, "the query cannot be read, or is too long")
		return
	}
	if query.Has("watch") {
		refuse(w, http.StatusBadRequest, "a view is not watched: ask for /api/events")
		return
	}
	var body []byte
	if r.Method == http.MethodPost {
		var code int
		if body, code, err = readBody(w, r, "application/json", maxQuestion); err != nil {
			refuse(w, code, err.Error())
			return
		}
	}
	done, ok := x.ask()
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too many questions at once")
		return
	}
	defer done()
	ctx, cancel := s.bounded(r, x)
	defer cancel()
	ask, err := s.access.request(ctx, r.Method, query, body, "apis", viewsGroup, "views", name)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the question cannot be passed on")
		return
	}
	got, err := x.do(ask)
	if err != nil {
		s.tellFailed(w, r, x, err)
		return
	}
	defer got.Body.Close()
	pass(w, r, got)
}

// ask counts a request of the session, until done is called.
func (x *session) ask() (done func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked >= maxAsked {
		return nil, false
	}
	x.asked++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.asked--
	}, true
}

// bounded returns the context of a question, which ends with the session too.
func (s *Server) bounded(r *http.Request, x *session) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	stop := context.AfterFunc(x.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// tellFailed answers a question to which the API server has given no answer. Credentials that it does not take any more end
// the session.
func (s *Server) tellFailed(w http.ResponseWriter, r *http.Request, x *session, err error) {
	switch {
	case errors.Is(err, errRefused):
		x.end(errRefused)
		s.setCookie(w, r, "")
		s.log.LogAttrs(r.Context(), slog.LevelInfo, "session ended", slog.String("user", x.user.Name), slog.String("error", err.Error()))
		refuse(w, http.StatusUnauthorized, "the session has ended: "+err.Error())
	case x.ctx.Err() != nil:
		refuse(w, http.StatusUnauthorized, "the session has ended: "+x.why())
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusGatewayTimeout, "the API server has not answered in time")
	default:
		s.log.LogAttrs(r.Context(), slog.LevelWarn, "API server not reached", slog.String("error", err.Error()))
		refuse(w, http.StatusBadGateway, "the API server cannot be reached")
	}
}

// pass gives an answer back. One that is no JSON was made by something else than the API server.
func pass(w http.ResponseWriter, r *http.Request, got *http.Response) {
	kind, _, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || got.StatusCode < 200 || got.StatusCode >= 300 && got.StatusCode < 400 {
		code := got.StatusCode
		if code < 400 {
			code = http.StatusBadGateway
		}
		refuse(w, code, "the API server has answered with "+strconv.Itoa(got.StatusCode)+", which is no view")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	var out io.Writer = w
	var packed *gzip.Writer
	// How long a packed answer is tells how far it repeats itself, which gives a secret away beside which somebody else can have texts put of
	// their choice (BREACH). Views have no secrets in them (no token, no cookie, and the sign against forged requests is in /api/session
	// alone, which is not packed), and a page of another site cannot have one asked for: it is sent no cookie, and isTaken refuses it.
	if takesGzip(r) && (got.ContentLength < 0 || got.ContentLength > 1<<10) {
		h.Set("Content-Encoding", "gzip")
		packed, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
		out = packed
	}
	w.WriteHeader(got.StatusCode)
	n, err := io.Copy(out, io.LimitReader(got.Body, maxView+1))
	if err == nil && n <= maxView && packed != nil {
		err = packed.Close()
	}
	if err != nil || n > maxView {
		panic(http.ErrAbortHandler) // what was sent is not taken for the whole answer
	}
}
