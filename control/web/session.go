package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// session is one login of one user. It ends by itself.
type session struct {
	key  [sha256.Size]byte // of its ID
	user user
	csrf string
	credentials

	ctx context.Context // ends with the session
	end context.CancelCauseFunc

	mu     sync.Mutex
	used   time.Time
	idle   *time.Timer
	events int // streams under way
	asked  int // requests under way
}

// Why a session ends, as the page is told.
var (
	errLoggedOut = errors.New("logged out")
	errIdle      = errors.New("not used for too long")
	errExpired   = errors.New("expired")
	errReplaced  = errors.New("the user has too many sessions")
)

// sessions are all that there are, in memory alone.
type sessions struct {
	o Options

	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*session
}

func newSessions(o Options) *sessions {
	return &sessions{o: o, byKey: map[[sha256.Size]byte]*session{}}
}

// secret returns 256 random bits.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) // which does not fail
	return base64.RawURLEncoding.EncodeToString(b)
}

var errTooMany = errors.New("too many people are logged in: try again later")

// add begins a session, which ends with parent, and at until if that is not zero.
func (x *sessions) add(parent context.Context, u user, c credentials, until time.Time) (id string, s *session, err error) {
	id = secret()
	s = &session{key: sha256.Sum256([]byte(id)), user: u, csrf: secret(), credentials: c, used: time.Now()}
	if end := s.used.Add(x.o.Life); until.IsZero() || until.After(end) {
		until = end
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var own []*session
	for _, other := range x.byKey {
		if other.user.Name == u.Name {
			own = append(own, other)
		}
	}
	for len(own) >= x.o.PerUser {
		oldest := 0
		for i := range own {
			if own[i].lastUsed().Before(own[oldest].lastUsed()) {
				oldest = i
			}
		}
		own[oldest].end(errReplaced)
		delete(x.byKey, own[oldest].key)
		own = append(own[:oldest], own[oldest+1:]...)
	}
	if len(x.byKey) >= x.o.Sessions {
		return "", nil, errTooMany
	}
	dated, release := context.WithDeadlineCause(parent, until, errExpired)
	s.ctx, s.end = context.WithCancelCause(dated)
	s.idle = time.AfterFunc(x.o.Idle, func() { s.end(errIdle) })
	context.AfterFunc(s.ctx, func() {
		release()
		s.idle.Stop()
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.byKey, s.key)
	})
	x.byKey[s.key] = s
	return id, s, nil
}

// find returns the session with an ID, or nil.
func (x *sessions) find(id string) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.byKey[sha256.Sum256([]byte(id))]
	if s == nil || s.ctx.Err() != nil {
		return nil
	}
	return s
}

// streams counts the events of a user's sessions.
func (x *sessions) streams(name string) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.byKey {
		if s.user.Name == name {
			s.mu.Lock()
			n += s.events
			s.mu.Unlock()
		}
	}
	return n
}

func (s *session) lastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// use begins the time anew after which the session is idle.
func (s *session) use(idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	if s.ctx.Err() == nil {
		s.idle.Reset(idle)
	}
}

// why says why a session has ended.
func (s *session) why() string {
	err := context.Cause(s.ctx)
	for _, known := range []error{errLoggedOut, errIdle, errExpired, errReplaced, errRefused} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the server ends"
}

// cookieName is the name of the cookie. Cookies of one address are sent to each of its ports: without TLS the name tells
// servers on one machine apart.
func (s *Server) cookieName(r *http.Request) string {
	if s.isSecure() {
		return "__Host-isobar-console"
	}
	_, port, _ := strings.Cut(r.Host, ":")
	return "isobar-console-" + strings.Map(func(c rune) rune {
		if c < '0' || c > '9' {
			return -1
		}
		return c
	}, port)
}

func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, id string) {
	c := &http.Cookie{Name: s.cookieName(r), Value: id, Path: "/", HttpOnly: true, Secure: s.isSecure(), SameSite: http.SameSiteStrictMode}
	if id == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// sessionOf returns the session that a request belongs to, or nil.
func (s *Server) sessionOf(r *http.Request) *session {
	for _, c := range r.CookiesNamed(s.cookieName(r)) {
		if found := s.sessions.find(c.Value); found != nil {
			return found
		}
	}
	return nil
}

// backgroundHeader is of requests that the page makes by itself, which do not keep a session from being idle.
const backgroundHeader = "X-Isobar-Background"

// withSession answers requests of a session. What writes must come from a page of ours, which alone knows the session's
// second secret.
func (s *Server) withSession(h func(http.ResponseWriter, *http.Request, *session)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := s.sessionOf(r)
		if x == nil {
			refuse(w, http.StatusUnauthorized, "nobody is logged in")
			return
		}
		if r.Method != http.MethodGet {
			if !s.fromOwnPage(r) {
				refuse(w, http.StatusForbidden, "the request was not made by a page of this console")
				return
			}
			given := r.Header.Values(csrfHeader)
			if len(given) != 1 || subtle.ConstantTimeCompare([]byte(given[0]), []byte(x.csrf)) != 1 {
				refuse(w, http.StatusForbidden, csrfHeader+" is not that of the session")
				return
			}
		}
		if r.Header.Get(backgroundHeader) == "" {
			x.use(s.o.Idle)
		}
		h(w, r, x)
	})
}
