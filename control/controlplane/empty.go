package controlplane

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// emptyKind is a resource that agents wait for and that has nothing here: what it
// stands for is not done.
type emptyKind struct {
	storage
	resource string
	makeList func() runtime.Object
}

var nameColumn = []metav1.TableColumnDefinition{{Name: "NAME", Type: "string", Format: "name", Description: "Name"}}

var egressGroups = emptyKind{
	resource: "egressgroups", makeList: func() runtime.Object { return &controlplanev1beta2.EgressGroupList{} },
	storage: storage{
		singular: "egressgroup", make: func() runtime.Object { return &controlplanev1beta2.EgressGroup{} }, columns: nameColumn,
		cells: cellsOf(func(x *controlplanev1beta2.EgressGroup) []any { return []any{x.Name} }),
	},
}

var bundles = emptyKind{
	resource: "supportbundlecollections", makeList: func() runtime.Object { return &controlplanev1beta2.SupportBundleCollectionList{} },
	storage: storage{
		singular: "supportbundlecollection", make: func() runtime.Object { return &controlplanev1beta2.SupportBundleCollection{} }, columns: nameColumn,
		cells: cellsOf(func(x *controlplanev1beta2.SupportBundleCollection) []any { return []any{x.Name} }),
	},
}

// empty serves an emptyKind. It tells nobody anything, so whose Node is asked for does
// not matter.
type empty struct {
	emptyKind
	watches *watches
}

var (
	_ rest.Getter  = (*empty)(nil)
	_ rest.Lister  = (*empty)(nil)
	_ rest.Watcher = (*empty)(nil)
)

func newEmpty(k emptyKind, w *watches) *empty { return &empty{k, w} }

// NewList returns an empty list.
func (e *empty) NewList() runtime.Object { return e.makeList() }

// Get finds nothing.
func (e *empty) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(controlplanev1beta2.Resource(e.resource), name)
}

// List returns an empty list.
func (e *empty) List(_ context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	_, err := asked(o)
	return e.makeList(), err
}

// Watch sends the bookmark that says that all is there, and nothing else.
func (e *empty) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	x, err := asked(o)
	if err != nil {
		return nil, err
	}
	return e.watches.begin(ctx, e.resource, x, func() watch.Interface {
		events := make(chan watch.Event, 1)
		events <- watch.Event{Type: watch.Bookmark, Object: e.mark(x.marksEnd)}
		return &still{events: events}
	})
}

// mark returns the object of the bookmark.
func (e *empty) mark(namesEnd bool) runtime.Object {
	o := e.make()
	if m, ok := o.(metav1.Object); ok {
		m.SetResourceVersion("1") // there is no other
		if namesEnd {
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	}
	return o
}

// still is a watch in which nothing more happens.
type still struct {
	events chan watch.Event
	once   sync.Once
}

// ResultChan has the events.
func (s *still) ResultChan() <-chan watch.Event { return s.events }

// Stop ends the watch.
func (s *still) Stop() { s.once.Do(func() { close(s.events) }) }
