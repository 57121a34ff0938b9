package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// minWatch is how long a watch lasts at least.
	minWatch = 2 * time.Hour
	// maxReport is how many bytes one report to a Group may have: that is what
	// 5,000 policies of a Node have matched.
	maxReport = 1 << 20
	// smallReport is how many bytes a report may have that need not wait for others.
	smallReport = 64 << 10
	// maxElements is how many elements one report may have: twice as many as there are
	// in a report of 5,000 policies with two rules each.
	maxElements = 1 << 16
	// smallElements is how many a report may have that need not wait for others.
	smallElements = 1 << 10
	// reportsAtOnce is how many reports one user may have under way. An agent has
	// about five.
	reportsAtOnce = 16
	// largeAtOnce is how many of them may be of more than smallReport bytes, and largeHeld how
	// many of all users' are held in memory.
	largeAtOnce = 4
	largeHeld   = 64
)

// reports bounds what those may take who report to the Groups: agents on machines
// that may have been taken over. An element of two bytes becomes 450 when it is read,
// copied and answered, so elements are counted before that, and what is large in bytes or
// elements is dealt with one at a time.
type reports struct {
	next   http.Handler
	groups map[string]Group // by name
	large  chan struct{}    // holds one while a large report is dealt with

	mu   sync.Mutex
	open map[string]int // under way, by user
	big  map[string]int // of these, those of many bytes
	held int            // those of many bytes, of all users
}

func limitReports(next http.Handler, groups []Group) http.Handler {
	r := &reports{next: next, groups: map[string]Group{}, large: make(chan struct{}, 1), open: map[string]int{}, big: map[string]int{}}
	for _, g := range groups {
		r.groups[g.Version.Group] = g
	}
	return r
}

// ServeHTTP comes after authentication and authorization.
func (r *reports) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	endTurn(req.Context())
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		r.next.ServeHTTP(w, req)
		return
	}
	g, ok := r.groups[info.APIGroup]
	if ok && g.Elsewhere != nil {
		if err := g.Elsewhere(info); err != nil {
			w.Header().Set("Connection", "close") // of HTTP/2: no new request, and what is under way goes on
			refuse(w, req, err)
			return
		}
	}
	if !ok || g.BoundsItself || req.Method != http.MethodPost {
		r.next.ServeHTTP(w, req)
		return
	}
	u, _ := request.UserFrom(req.Context())
	who := userKey(u)
	if !r.begin(who) {
		refuse(w, req, apierrors.NewTooManyRequests(fmt.Sprintf("%d reports of this user are under way already", reportsAtOnce), 1))
		return
	}
	defer r.end(who)
	body, release, err := r.read(who, req)
	defer release()
	if err != nil {
		refuse(w, req, err)
		return
	}
	n, ok := elements(req.Header.Get("Content-Type"), body)
	switch {
	case !ok:
		refuse(w, req, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the body is of a type that is not read here: want %s or %s", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)}})
		return
	case n > maxElements:
		refuse(w, req, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d elements", maxElements)))
		return
	case n > smallElements || len(body) > smallReport:
		select {
		case r.large <- struct{}{}:
			defer func() { <-r.large }()
		case <-req.Context().Done():
			return
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.next.ServeHTTP(w, req)
}

// read returns the body of a request, and what says that it is held no more. It is read
// before anybody waits, so that who sends slowly holds up nobody.
func (r *reports) read(who string, req *http.Request) (body []byte, release func(), err error) {
	release = func() {}
	errUnread := apierrors.NewBadRequest("the body cannot be read")
	first, err := io.ReadAll(io.LimitReader(req.Body, smallReport+1))
	if err != nil {
		return nil, release, errUnread
	}
	if len(first) <= smallReport {
		return first, release, nil
	}
	if !r.hold(who) {
		return nil, release, apierrors.NewTooManyRequests("as many large reports as may be are under way already", 1)
	}
	release = func() { r.release(who) }
	rest, err := io.ReadAll(io.LimitReader(req.Body, maxReport+1-int64(len(first))))
	if err != nil {
		return nil, release, errUnread
	}
	if body = append(first, rest...); len(body) > maxReport {
		return nil, release, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReport))
	}
	return body, release, nil
}

func (r *reports) begin(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return add(r.open, who, reportsAtOnce)
}

func (r *reports) end(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	remove(r.open, who)
}

func (r *reports) hold(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held >= largeHeld || !add(r.big, who, largeAtOnce) {
		return false
	}
	r.held++
	return true
}

func (r *reports) release(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
	remove(r.big, who)
}

// add counts one more of a user's, unless there are as many as there may be.
func add(of map[string]int, who string, limit int) bool {
	if of[who] >= limit {
		return false
	}
	of[who]++
	return true
}

func remove(of map[string]int, who string) {
	if of[who]--; of[who] == 0 {
		delete(of, who)
	}
}

// userKey tells users apart, and agents that share an account by their Nodes.
func userKey(u user.Info) string {
	if u == nil {
		return ""
	}
	return u.GetName() + "\x00" + strings.Join(u.GetExtra()[serviceaccount.NodeNameKey], ",")
}

// refuse answers with an error, in JSON.
func refuse(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, statuses, schema.GroupVersion{Version: "v1"}, w, req)
}

// statuses writes errors. It is made once, and never changed.
var statuses = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return serializer.NewCodecFactory(s)
}()
