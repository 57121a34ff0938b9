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
	// reportsAtOnce is how many reports one user may have under way. An agent has
	// about five.
	reportsAtOnce = 16
)

// reports bounds what those may take who report to the Groups: agents on machines
// that may have been taken over. An element of two bytes becomes a hundred when it
// is read, so large reports are read one at a time.
type reports struct {
	next   http.Handler
	groups map[string]Group // by name
	large  chan struct{}    // holds one while a large report is read

	mu   sync.Mutex
	open map[string]int // under way, by user
}

func limitReports(next http.Handler, groups []Group) http.Handler {
	r := &reports{next: next, groups: map[string]Group{}, large: make(chan struct{}, 1), open: map[string]int{}}
	for _, g := range groups {
		r.groups[g.Version.Group] = g
	}
	return r
}

// ServeHTTP comes after authentication.
func (r *reports) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
	if !ok || req.Method != http.MethodPost {
		r.next.ServeHTTP(w, req)
		return
	}
	who, _ := request.UserFrom(req.Context())
	if !r.begin(userKey(who)) {
		refuse(w, req, apierrors.NewTooManyRequests(fmt.Sprintf("%d reports of this user are under way already", reportsAtOnce), 1))
		return
	}
	defer r.end(userKey(who))
	// Read before anybody waits, so that who sends slowly holds up nobody.
	body, err := io.ReadAll(io.LimitReader(req.Body, maxReport+1))
	if err != nil {
		refuse(w, req, apierrors.NewBadRequest("the body cannot be read"))
		return
	}
	if len(body) > maxReport {
		refuse(w, req, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReport)))
		return
	}
	if len(body) > smallReport {
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

func (r *reports) begin(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[who] >= reportsAtOnce {
		return false
	}
	r.open[who]++
	return true
}

func (r *reports) end(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[who]--; r.open[who] == 0 {
		delete(r.open, who)
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
