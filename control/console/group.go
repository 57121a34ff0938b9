package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	consolev1alpha1 "isobar.dev/api/console/v1alpha1"
	"isobar.dev/control/apiserver"
)

// Group is what an apiserver.Server is to serve of s.
func (s *Service) Group() apiserver.Group {
	return apiserver.Group{
		Version: consolev1alpha1.GroupVersion, AddToScheme: consolev1alpha1.AddToScheme, Definitions: GetOpenAPIDefinitions, BoundsItself: true,
		Storage: func(who authorizer.Authorizer, closing <-chan struct{}) map[string]rest.Storage {
			return map[string]rest.Storage{consolev1alpha1.ResourceViews: &storage{Service: s, reviews: newReviews(who), closing: closing, watches: map[string]int{}}}
		},
	}
}

// storage serves the views as a resource: each is read at its name, and a watch of all tells when
// they may be others.
type storage struct {
	*Service
	reviews *reviews
	closing <-chan struct{} // closed when the server ends

	watchMu sync.Mutex
	watches map[string]int // that are open, by user
}

var (
	_ rest.Storage              = (*storage)(nil)
	_ rest.Scoper               = (*storage)(nil)
	_ rest.SingularNameProvider = (*storage)(nil)
	_ rest.Connecter            = (*storage)(nil)
	_ rest.Lister               = (*storage)(nil)
	_ rest.Watcher              = (*storage)(nil)
)

// New returns an empty View.
func (*storage) New() runtime.Object { return &consolev1alpha1.View{} }

// NewList returns an empty list.
func (*storage) NewList() runtime.Object { return &consolev1alpha1.ViewList{} }

// Destroy does nothing: there is nothing to close.
func (*storage) Destroy() {}

// NamespaceScoped is false.
func (*storage) NamespaceScoped() bool { return false }

// GetSingularName is what kubectl takes for the resource's name too.
func (*storage) GetSingularName() string { return "view" }

// ConnectMethods are those by which views are asked for.
func (*storage) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// NewConnectOptions returns none: each view reads its query itself.
func (*storage) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect answers the view of that name for the user of the request.
func (s *storage) Connect(ctx context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("who asks is not known")
	}
	v, err := s.reviews.viewer(u)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.serve(w, withoutTimeout(req), name, v)
	}), nil
}

// withoutTimeout returns a request without the parameter that clients of Kubernetes add to every query. The
// server has dealt with it.
func withoutTimeout(req *http.Request) *http.Request {
	values, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil || !values.Has("timeout") {
		return req
	}
	values.Del("timeout")
	out := *req
	at := *req.URL
	at.RawQuery = values.Encode()
	out.URL = &at
	return &out
}

// viewOf returns the one object that there is.
func viewOf(revision string) *consolev1alpha1.View {
	return &consolev1alpha1.View{
		ObjectMeta: metav1.ObjectMeta{Name: consolev1alpha1.ConsoleName, ResourceVersion: revision}, Status: consolev1alpha1.ViewStatus{Revision: revision},
	}
}

// List returns of what revision the views are.
func (s *storage) List(_ context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if err := checkSelectors(o); err != nil {
		return nil, err
	}
	revision, _ := s.source.Revision()
	return &consolev1alpha1.ViewList{ListMeta: metav1.ListMeta{ResourceVersion: revision}, Items: []consolev1alpha1.View{*viewOf(revision)}}, nil
}

// checkSelectors returns an error for a selection that leaves the one object out, or cannot be.
func checkSelectors(o *internalversion.ListOptions) error {
	if o == nil {
		return nil
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return apierrors.NewBadRequest("views have no labels")
	}
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		if name, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || name != consolev1alpha1.ConsoleName || len(o.FieldSelector.Requirements()) > 1 {
			return apierrors.NewBadRequest("views cannot be selected: there is one of the name " + consolev1alpha1.ConsoleName)
		}
	}
	return nil
}

const (
	// watchesOfOne is how many watches of views one user may have open.
	watchesOfOne = 64
	// pause is the least time between two events of a watch.
	pause = 250 * time.Millisecond
)

// Watch tells each revision; changes that come together are told as one.
func (s *storage) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	if err := checkSelectors(o); err != nil {
		return nil, err
	}
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("who asks is not known")
	}
	w := &watcher{s: s, user: u.GetName(), out: make(chan watch.Event), done: make(chan struct{})}
	if o != nil {
		w.told = o.ResourceVersion
		if w.wantsEnd = o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks; w.wantsEnd {
			w.told = ""
		}
	}
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	if s.watches[w.user] >= watchesOfOne {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d watches of this user are open already", watchesOfOne), 1)
	}
	s.watches[w.user]++
	go w.run(ctx)
	return w, nil
}

func (s *storage) ended(user string) {
	s.watchMu.Lock()
	defer s.watchMu.Unlock()
	if s.watches[user]--; s.watches[user] == 0 {
		delete(s.watches, user)
	}
}

// watcher tells one client of revisions.
type watcher struct {
	s        *storage
	user     string
	told     string // the revision that the client knows
	wantsEnd bool   // a bookmark is to follow the first event

	out  chan watch.Event
	done chan struct{}
	once sync.Once
}

// ResultChan is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch.
func (w *watcher) Stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher) run(ctx context.Context) {
	defer w.s.ended(w.user)
	defer close(w.out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-w.done:
		case <-w.s.closing:
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		revision, changed := w.s.source.Revision()
		if revision != w.told && !w.tell(ctx, revision) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell sends a revision; false means that the watch is over.
func (w *watcher) tell(ctx context.Context, revision string) bool {
	events := []watch.Event{{Type: watch.Modified, Object: viewOf(revision)}}
	if w.told == "" || w.told == "0" {
		events[0].Type = watch.Added
	}
	if w.wantsEnd {
		w.wantsEnd = false
		mark := viewOf(revision)
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		events = append(events, watch.Event{Type: watch.Bookmark, Object: mark})
	}
	w.told = revision
	for _, e := range events {
		select {
		case w.out <- e:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// ConvertToTable makes the table that kubectl prints.
func (*storage) ConvertToTable(_ context.Context, in, options runtime.Object) (*metav1.Table, error) {
	return apiserver.TableOf(in, options, []metav1.TableColumnDefinition{
		{Name: "NAME", Type: "string", Format: "name", Description: "Name of the object"},
		{Name: "REVISION", Type: "string", Description: "Of what version views are"},
	}, func(o runtime.Object) ([]any, error) {
		x, ok := o.(*consolev1alpha1.View)
		if !ok {
			return nil, apiserver.ErrNoTable(o)
		}
		return []any{x.Name, x.Status.Revision}, nil
	})
}
