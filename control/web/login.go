package web

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// loginState tells how to log in.
type loginState struct {
	Login   string `json:"login"` // "token" or "code"
	OIDC    bool   `json:"oidc"`
	Cluster string `json:"cluster"`
}

// sessionState tells who is logged in.
type sessionState struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	CSRF   string   `json:"csrf"`
	loginState
	ReadOnly bool `json:"readOnly"`
}

func (s *Server) loginState() loginState {
	l := loginState{Login: "token", OIDC: s.o.OIDC != nil, Cluster: s.o.Cluster}
	if s.access.codes != nil {
		l.Login = "code"
	}
	return l
}

func (s *Server) stateOf(x *session) sessionState {
	groups := x.user.Groups
	if groups == nil {
		groups = []string{}
	}
	return sessionState{User: x.user.Name, Groups: groups, CSRF: x.csrf, loginState: s.loginState(), ReadOnly: s.o.ReadOnly}
}

func (s *Server) showSession(w http.ResponseWriter, r *http.Request) {
	x := s.sessionOf(r)
	if x == nil {
		answer(w, http.StatusUnauthorized, s.loginState())
		return
	}
	if r.Header.Get(backgroundHeader) == "" {
		x.use(s.o.Idle)
	}
	answer(w, http.StatusOK, s.stateOf(x))
}

func (s *Server) logOut(w http.ResponseWriter, r *http.Request, x *session) {
	x.end(errLoggedOut)
	s.setCookie(w, r, "")
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "logged out", slog.String("user", x.user.Name), slog.String("address", r.RemoteAddr))
	w.WriteHeader(http.StatusNoContent)
}

// loginForm is what is sent to log in.
type loginForm struct {
	Token string `json:"token"`
	Code  string `json:"code"`
}

// maxLogin bounds what is read of it.
const maxLogin = 2 * maxToken

// logIn takes a token, or a code. Of a page of ours it takes JSON. The form of a file, which the program has written for
// the browser of its user alone, has a code; its origin is "null".
func (s *Server) logIn(w http.ResponseWriter, r *http.Request) {
	isForm := mediaType(r) == "application/x-www-form-urlencoded"
	switch {
	case isForm && (s.access.codes == nil || r.Header.Get("Origin") != "null"):
		refuse(w, http.StatusForbidden, "the form was not made by this program")
		return
	case !isForm && !s.fromOwnPage(r):
		refuse(w, http.StatusForbidden, "the request was not made by a page of this console")
		return
	}
	back, ok := s.logins.try(r)
	if !ok {
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "too many tries to log in: try again in a few seconds")
		return
	}
	form, code, err := readLogin(w, r, isForm)
	if err != nil {
		refuse(w, code, err.Error())
		return
	}
	var c credentials
	var until time.Time
	if s.access.codes != nil {
		if form.Token != "" || form.Code == "" {
			refuse(w, http.StatusBadRequest, "log in by the code that the program has told")
			return
		}
		if !s.access.codes.take(form.Code) {
			s.log.LogAttrs(r.Context(), slog.LevelWarn, "login refused", slog.String("address", r.RemoteAddr), slog.String("error", "the code is not good"))
			refuse(w, http.StatusUnauthorized, "the code is not good, or was used: the program tells the one that is")
			return
		}
		c = credentials{transport: s.access.transport}
	} else {
		token := strings.TrimSpace(form.Token)
		if err := checkToken(token); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		c, until = credentials{token: fixedToken(token), transport: s.access.transport}, expiryOf(token)
	}
	x, code, err := s.begin(w, r, c, until)
	if err != nil {
		refuse(w, code, err.Error())
		return
	}
	back()
	if isForm {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	answer(w, http.StatusOK, s.stateOf(x))
}

// begin makes the session of credentials, in place of the one that the browser has had. The code is that to answer an error with.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, c credentials, until time.Time) (x *session, code int, err error) {
	u, err := s.access.whoIs(r.Context(), &c)
	if err != nil {
		s.log.LogAttrs(r.Context(), slog.LevelWarn, "login refused", slog.String("address", r.RemoteAddr), slog.String("error", err.Error()))
		if errors.Is(err, errRefused) {
			return nil, http.StatusUnauthorized, err
		}
		return nil, http.StatusBadGateway, err
	}
	if old := s.sessionOf(r); old != nil {
		old.end(errLoggedOut)
	}
	id, x, err := s.sessions.add(s.closing, u, c, until)
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	s.setCookie(w, r, id)
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "logged in", slog.String("user", u.Name), slog.String("address", r.RemoteAddr))
	return x, 0, nil
}

// mediaType is that of a request's body; empty when there is none that can be read, or more than one.
func mediaType(r *http.Request) string {
	v := r.Header.Values("Content-Type")
	if len(v) != 1 {
		return ""
	}
	t, _, err := mime.ParseMediaType(v[0])
	if err != nil {
		return ""
	}
	return t
}

// readBody reads a body of a type, bounded. The code is that to answer an error with.
func readBody(w http.ResponseWriter, r *http.Request, want string, most int64) (text []byte, code int, err error) {
	if mediaType(r) != want {
		return nil, http.StatusUnsupportedMediaType, errors.New("Content-Type: want " + want)
	}
	text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	// What is read while an answer is made has no deadline: to meet it would end the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every writer has one
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, errors.New("what was sent is too large")
	}
	if err != nil {
		return nil, http.StatusBadRequest, errors.New("what was sent did not arrive whole")
	}
	return text, 0, nil
}

func readLogin(w http.ResponseWriter, r *http.Request, isForm bool) (form loginForm, code int, err error) {
	want := "application/json"
	if isForm {
		want = "application/x-www-form-urlencoded"
	}
	text, code, err := readBody(w, r, want, maxLogin)
	if err != nil {
		return form, code, err
	}
	if !isForm {
		// What is wrong may be a token, which no message repeats.
		if err := strictJSON(text, &form); err != nil {
			return loginForm{}, http.StatusBadRequest, errors.New("what was sent is no JSON with token or code alone")
		}
		return form, 0, nil
	}
	form.Code, err = parseForm(text)
	if err != nil {
		return loginForm{}, http.StatusBadRequest, err
	}
	return form, 0, nil
}

// parseForm returns the code of a form that has nothing else.
func parseForm(text []byte) (code string, err error) {
	values, err := url.ParseQuery(string(text))
	if err != nil || len(values) != 1 || len(values["code"]) != 1 || values["code"][0] == "" {
		return "", errors.New("the form has not one code alone")
	}
	return values["code"][0], nil
}

// strictJSON reads one value that has no fields but those of into, and nothing behind it.
func strictJSON(text []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something behind it")
	}
	return nil
}
