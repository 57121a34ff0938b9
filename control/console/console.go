package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxBody is how many bytes a question may have: about 1,000 manifests.
	maxBody = 1 << 20
	// maxAnswer is how many bytes an answer may have.
	maxAnswer = 16 << 20
	// timeout bounds an answer. It is less than what an API server gives a request.
	timeout = 25 * time.Second
	// viewsAtOnce is how many views are computed at a time, viewsOfOne how many of one viewer.
	viewsAtOnce = 8
	viewsOfOne  = 4
)

// Viewer is who asks.
type Viewer interface {
	Name() string
	Groups() []string
	// May says whether the viewer has a right. The error is that it cannot be said now.
	May(context.Context, Right) (bool, error)
}

// Right is to do what a verb says with the objects of a resource.
type Right struct {
	Verb, Group, Resource string
	Namespace             string // empty means in all, or of the cluster
}

// All returns the viewer of that name who may do everything.
func All(name string) Viewer { return all(name) }

type all string

func (a all) Name() string                             { return string(a) }
func (a all) Groups() []string                         { return nil }
func (a all) May(context.Context, Right) (bool, error) { return true, nil }

// Service answers views.
type Service struct {
	source Source
	free   chan struct{} // holds one for each view that is computed

	worldMu sync.Mutex
	world   *world // the last that was asked about

	mu   sync.Mutex
	busy map[string]int // views under way, by viewer
}

// New returns a Service. It starts nothing.
func New(source Source) *Service {
	return &Service{source: source, free: make(chan struct{}, viewsAtOnce), busy: map[string]int{}}
}

// Handler answers the views of a source for one viewer. The last part of a request's path is the
// view's name.
func Handler(source Source, v Viewer) http.Handler { return New(source).Handler(v) }

// Handler answers the views for one viewer.
func (s *Service) Handler(v Viewer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.serve(w, req, path.Base(req.URL.Path), v)
	})
}

func (s *Service) serve(w http.ResponseWriter, req *http.Request, name string, v Viewer) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), timeout, errTimeout)
	defer cancel()
	body, err := s.answer(ctx, req.WithContext(ctx), name, v)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

var errTimeout = apierrors.NewTimeoutError(fmt.Sprintf("the view takes more than %v", timeout), 0)

// answer returns what a view says, in JSON.
func (s *Service) answer(ctx context.Context, req *http.Request, name string, v Viewer) ([]byte, error) {
	what, ok := views[name]
	if !ok {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: fmt.Sprintf("there is no view of that name: there are %s", strings.Join(viewNames(), ", "))}}
	}
	if method := what.method(); req.Method != method {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: fmt.Sprintf("the view %s is asked for by %s", name, method)}}
	}
	params, err := parseQuery(req.URL.RawQuery, what)
	if err != nil {
		return nil, err
	}
	var body []byte
	if what.isPost {
		if body, err = readBody(req.Body); err != nil {
			return nil, err
		}
	}
	done, err := s.begin(ctx, v)
	if err != nil {
		return nil, err
	}
	defer done()
	world, err := s.now()
	if err != nil {
		return nil, err
	}
	see, err := look(ctx, v, world)
	if err != nil {
		return nil, err
	}
	told, err := what.answer(ctx, &request{world: world, sight: see, query: params, body: body, source: s.source})
	if err != nil {
		return nil, err
	}
	return marshal(world.revision, told)
}

// begin waits for a turn, and returns what ends it.
func (s *Service) begin(ctx context.Context, v Viewer) (done func(), err error) {
	who := v.Name()
	s.mu.Lock()
	if s.busy[who] >= viewsOfOne {
		s.mu.Unlock()
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d views of this user are under way already", viewsOfOne), 1)
	}
	s.busy[who]++
	s.mu.Unlock()
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy[who]--; s.busy[who] == 0 {
			delete(s.busy, who)
		}
	}
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free; end() }, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// now returns the world of now.
func (s *Service) now() (*world, error) {
	s.worldMu.Lock()
	defer s.worldMu.Unlock()
	revision, _ := s.source.Revision() // before what it is of
	snapshot, ok := s.source.KnownWorld()
	if !ok {
		return nil, apierrors.NewServiceUnavailable("the policies and workloads have not been read yet")
	}
	s.world = s.world.next(snapshot, revision)
	return s.world, nil
}

func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("the body cannot be read")
	case len(body) > maxBody:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", maxBody))
	}
	return body, nil
}

// marshal returns an answer, which is an object, with its revision.
func marshal(revision string, answer any) ([]byte, error) {
	head, err := json.Marshal(revision)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`{"revision":`)
	b.Write(head)
	start := b.Len()
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // who shows it shows it as text
	if err := e.Encode(answer); err != nil {
		return nil, err
	}
	out := b.Bytes()
	if out[start] != '{' {
		return nil, fmt.Errorf("the answer %T is no object", answer)
	}
	if out[start] = ','; out[start+1] == '}' {
		out = slices.Delete(out, start, start+1)
	}
	if len(out) > maxAnswer {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the answer has more than %d bytes: ask for less", maxAnswer))
	}
	return out, nil
}

// writeError answers with an error as a Status. What is not meant for users is not told.
func writeError(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "the view cannot be made"}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		status = errTimeout.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	if err != nil {
		body = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}
