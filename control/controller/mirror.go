package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// mirrorBackoff is the wait between two tries to read: short enough to see soon
// that the API server is back.
var mirrorBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 2 * time.Second}

// mirror holds what the API server has of one resource, each object as the
// value that the loops need of it. While it cannot read, it keeps what it has.
type mirror[V any] struct {
	client     rest.Interface
	resource   string
	namespaces []string // none for all
	fields     string   // a field selector
	labels     string   // a label selector
	of         func(runtime.Object) (V, error)
	// changed is told of each object that came, went or changed; old or now is
	// nil. It must not block.
	changed func(key types.NamespacedName, old, now *V)
	// failed is told what cannot be read, and nil when it can again.
	failed func(error)

	mu     sync.Mutex
	items  map[types.NamespacedName]V
	once   sync.Once
	synced chan struct{} // closed after the first complete read
}

func newMirror[V any](client rest.Interface, resource string, of func(runtime.Object) (V, error), changed func(types.NamespacedName, *V, *V)) *mirror[V] {
	return &mirror[V]{
		client: client, resource: resource, of: of, changed: changed,
		failed: func(error) {},
		items:  map[types.NamespacedName]V{}, synced: make(chan struct{}),
	}
}

// run reads until ctx ends, whatever happens to the API server.
func (m *mirror[V]) run(ctx context.Context) {
	backoff, silent := mirrorBackoff, logr.Discard()
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			// Not what a cache may have: after a restart an old answer would undo things.
			o.ResourceVersion, o.ResourceVersionMatch = "", ""
			list, err := m.request(&o).Timeout(time.Minute).Do(ctx).Get()
			return list, m.note(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := m.request(&o).Watch(ctx)
			return w, m.note(ctx, err)
		},
	}, nil, m, cache.ReflectorOptions{Name: "controller", TypeDescription: m.resource, Backoff: &backoff, Logger: &silent})
	reflector.RunWithContext(ctx)
}

func (m *mirror[V]) request(o *metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = m.fields, m.labels
	namespace := ""
	if len(m.namespaces) == 1 {
		namespace = m.namespaces[0]
	}
	return m.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(m.resource).VersionedParams(o, metav1.ParameterCodec)
}

// takes says whether objects of a namespace count: a request is for one, or for all.
func (m *mirror[V]) takes(namespace string) bool {
	return len(m.namespaces) < 2 || slices.Contains(m.namespaces, namespace)
}

func (m *mirror[V]) note(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		m.failed(err)
	}
	return err
}

// get returns the value of an object, and whether there is one.
func (m *mirror[V]) get(key types.NamespacedName) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.items[key]
	return v, ok
}

// keys returns the keys of all objects, sorted.
func (m *mirror[V]) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.items), compareKeys)
}

func compareKeys(a, b types.NamespacedName) int {
	if a.Namespace != b.Namespace {
		if a.Namespace < b.Namespace {
			return -1
		}
		return 1
	}
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

func (m *mirror[V]) isSynced() bool {
	select {
	case <-m.synced:
		return true
	default:
		return false
	}
}

func (m *mirror[V]) convert(obj any) (types.NamespacedName, V, error) {
	var zero V
	o, ok := obj.(runtime.Object)
	if !ok {
		return types.NamespacedName{}, zero, fmt.Errorf("read %s: got a %T", m.resource, obj)
	}
	a, err := meta.Accessor(o)
	if err != nil {
		return types.NamespacedName{}, zero, fmt.Errorf("read %s: %w", m.resource, err)
	}
	key := types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}
	v, err := m.of(o)
	if err != nil {
		return key, zero, fmt.Errorf("read %s %s: %w", m.resource, key, err)
	}
	return key, v, nil
}

// Add takes an object that is there.
func (m *mirror[V]) Add(obj any) error {
	key, v, err := m.convert(obj)
	if err != nil {
		return err
	}
	if !m.takes(key.Namespace) {
		return nil
	}
	m.mu.Lock()
	var old *V
	if was, ok := m.items[key]; ok {
		old = &was
	}
	m.items[key] = v
	m.mu.Unlock()
	m.changed(key, old, &v)
	return nil
}

// Update is Add.
func (m *mirror[V]) Update(obj any) error { return m.Add(obj) }

// Delete takes an object that is gone.
func (m *mirror[V]) Delete(obj any) error {
	a, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("delete %s: %w", m.resource, err)
	}
	key := types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}
	m.mu.Lock()
	was, ok := m.items[key]
	delete(m.items, key)
	m.mu.Unlock()
	if ok {
		m.changed(key, &was, nil)
	}
	return nil
}

// Replace takes all objects that are there.
func (m *mirror[V]) Replace(objs []any, _ string) error {
	next := make(map[types.NamespacedName]V, len(objs))
	for _, obj := range objs {
		key, v, err := m.convert(obj)
		if err != nil {
			return err
		}
		if m.takes(key.Namespace) {
			next[key] = v
		}
	}
	m.mu.Lock()
	before := m.items
	m.items = next
	m.mu.Unlock()
	m.once.Do(func() { close(m.synced) })
	for key, was := range before {
		if _, ok := next[key]; !ok {
			m.changed(key, &was, nil)
		}
	}
	for key, v := range next {
		var old *V
		if was, ok := before[key]; ok {
			old = &was
		}
		m.changed(key, old, &v)
	}
	return nil
}

// Resync does nothing: the mirror is never behind.
func (m *mirror[V]) Resync() error { return nil }
