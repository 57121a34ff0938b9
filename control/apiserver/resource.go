package apiserver

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// kind is what differs between the kinds that are served.
type kind[T object] struct {
	resource   string // singular, as all names of this group
	shortNames []string
	notRead    string // says why it is not served yet
	make       func() T
	makeList   func() runtime.Object
	list       func(items []T, meta metav1.ListMeta) runtime.Object
	copy       func(T) T // shallow
	// fields are what field selectors may ask for, besides the name and namespace.
	fields  func(T) fields.Set
	columns []metav1.TableColumnDefinition
	cells   func(T) []any // one for each column
}

// resource serves one kind: reads and watches.
type resource[T object] struct {
	kind[T]
	store   *store[T]
	ready   chan struct{}   // closed when the store has all that there is
	closing <-chan struct{} // closed when the server ends
}

// newResource returns a resource of which nothing is known yet.
func newResource[T object](k kind[T], closing <-chan struct{}) resource[T] {
	return resource[T]{kind: k, store: newStore(k.copy), ready: make(chan struct{}), closing: closing}
}

// What an API server asks of it.
var (
	_ rest.Storage              = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.Scoper               = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.SingularNameProvider = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.ShortNamesProvider   = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.Getter               = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.Lister               = (*resource[*runtimev1alpha1.Vpc])(nil)
	_ rest.Watcher              = (*resource[*runtimev1alpha1.Vpc])(nil)
)

// New returns an empty object.
func (r *resource[T]) New() runtime.Object { return r.make() }

// NewList returns an empty list.
func (r *resource[T]) NewList() runtime.Object { return r.makeList() }

// Destroy does nothing: there is nothing to close.
func (r *resource[T]) Destroy() {}

// NamespaceScoped is true.
func (r *resource[T]) NamespaceScoped() bool { return true }

// GetSingularName is the resource's name, which is singular already.
func (r *resource[T]) GetSingularName() string { return r.resource }

// ShortNames are what kubectl takes for the resource's name.
func (r *resource[T]) ShortNames() []string { return r.shortNames }

const notRead = "the inventory of the clouds has not been read yet"

// isReady returns an error until the inventory is known: an empty list would say
// that there is nothing.
func (r *resource[T]) isReady() error {
	select {
	case <-r.ready:
		return nil
	default:
		return apierrors.NewServiceUnavailable(r.notRead)
	}
}

// Get returns one object.
func (r *resource[T]) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := r.isReady(); err != nil {
		return nil, err
	}
	o, ok := r.store.get(genericapirequest.NamespaceValue(ctx) + "/" + name)
	if !ok {
		return nil, apierrors.NewNotFound(runtimev1alpha1.Resource(r.resource), name)
	}
	return r.copy(o), nil
}

// List returns the objects that a request asks for, by namespace and name. With a
// limit it returns so many, and what the next request continues with: that one
// sees the objects as they were for the first.
func (r *resource[T]) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if err := r.isReady(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &internalversion.ListOptions{}
	}
	table, at, after, err := r.listed(o)
	if err != nil {
		return nil, err
	}
	matches := r.matcher(ctx, o)
	var items []T
	for _, x := range table.All() {
		if matches(x) && after.isBefore(x) {
			items = append(items, x)
		}
	}
	slices.SortFunc(items, compareObjects[T])
	meta := metav1.ListMeta{ResourceVersion: at.String()}
	if o.Limit > 0 && int64(len(items)) > o.Limit {
		left := int64(len(items)) - o.Limit
		items = items[:o.Limit]
		last := items[len(items)-1]
		if meta.Continue, err = (place{last.GetNamespace(), last.GetName()}).token(at); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		meta.RemainingItemCount = &left
	}
	return r.list(items, meta), nil
}

// listed returns the objects of the version that a list asks for, and where in
// them the list goes on.
func (r *resource[T]) listed(o *internalversion.ListOptions) (policy.Table[T], version, place, error) {
	table, now := r.store.now()
	if o.Continue == "" {
		want, err := r.checkVersion(o, now)
		if err != nil || want == now {
			return table, now, place{}, err
		}
		return r.past(want, place{})
	}
	from, want, err := parseToken(o.Continue)
	if err != nil {
		return table, now, place{}, apierrors.NewBadRequest(err.Error())
	}
	return r.past(want, from)
}

func (r *resource[T]) past(v version, from place) (policy.Table[T], version, place, error) {
	table, ok := r.store.at(v)
	if !ok {
		return table, v, from, &apierrors.StatusError{ErrStatus: *expired(v)}
	}
	return table, v, from, nil
}

// checkVersion returns which version a list is to be of, now being the newest.
func (r *resource[T]) checkVersion(o *internalversion.ListOptions, now version) (version, error) {
	want, err := parseVersion(o.ResourceVersion)
	switch {
	case err != nil:
		return now, apierrors.NewBadRequest(err.Error())
	case want > now:
		return now, storage.NewTooLargeResourceVersionError(uint64(want), uint64(now), 1)
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return want, nil
	}
	return now, nil
}

// compareObjects orders by namespace and name.
func compareObjects[T object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// matcher says which objects a request asks for.
func (r *resource[T]) matcher(ctx context.Context, o *internalversion.ListOptions) func(T) bool {
	namespace := genericapirequest.NamespaceValue(ctx)
	label, field := labels.Everything(), fields.Everything()
	if o != nil && o.LabelSelector != nil {
		label = o.LabelSelector
	}
	if o != nil && o.FieldSelector != nil {
		field = o.FieldSelector
	}
	return func(x T) bool {
		if namespace != "" && x.GetNamespace() != namespace || !label.Matches(labels.Set(x.GetLabels())) {
			return false
		}
		return field.Empty() || field.Matches(r.fieldsOf(x))
	}
}

func (r *resource[T]) fieldsOf(x T) fields.Set {
	set := r.fields(x)
	set["metadata.name"], set["metadata.namespace"] = x.GetName(), x.GetNamespace()
	return set
}

// Watch sends the objects of now and then changes, or the changes after a version.
// Between the objects of now and the changes there is a bookmark, whether it was
// asked for or not: that is how clients of this API know that they have all. Those
// that list first, and watch from there, do not get it.
func (r *resource[T]) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	if err := r.isReady(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &internalversion.ListOptions{}
	}
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	initial := from == 0
	if o.SendInitialEvents != nil {
		if initial = *o.SendInitialEvents; initial {
			if _, err := r.checkVersion(o, r.currentVersion()); err != nil {
				return nil, err
			}
			from = 0
		}
	}
	w, err := newWatcher(r.store, from, initial, r.matcher(ctx, o))
	if err != nil {
		return nil, err
	}
	w.closing = r.closing
	w.marks = r.bookmark
	w.wantsMarks = o.AllowWatchBookmarks
	w.initialEnd = initial && from == 0
	w.namesEnd = w.wantsMarks && o.SendInitialEvents != nil && *o.SendInitialEvents
	go w.run(ctx)
	return w, nil
}

func (r *resource[T]) currentVersion() version {
	_, now := r.store.now()
	return now
}

func (r *resource[T]) bookmark(v version) runtime.Object {
	o := r.make()
	o.SetResourceVersion(v.String())
	return o
}

// ConvertToTable makes the table that kubectl prints.
func (r *resource[T]) ConvertToTable(_ context.Context, in, options runtime.Object) (*metav1.Table, error) {
	return TableOf(in, options, r.columns, func(o runtime.Object) ([]any, error) {
		x, ok := o.(T)
		if !ok {
			return nil, ErrNoTable(o)
		}
		return r.cells(x), nil
	})
}
