package controlplane_test

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controlplane"
	"isobar.dev/policy"
)

// inventory is that of no clouds.
type inventory struct{}

func (inventory) VirtualMachines() (t policy.Table[*runtimev1alpha1.VirtualMachine]) { return t }
func (inventory) Vpcs() (t policy.Table[*runtimev1alpha1.Vpc])                       { return t }
func (inventory) SecurityGroups() (t policy.Table[*runtimev1alpha1.SecurityGroup])   { return t }
func (inventory) VirtualMachinePolicies() (t policy.Table[*runtimev1alpha1.VirtualMachinePolicy]) {
	return t
}
func (inventory) Synced() <-chan struct{}               { return closed }
func (inventory) SecurityGroupsSynced() <-chan struct{} { return closed }
func (inventory) PoliciesSynced() <-chan struct{}       { return closed }
func (inventory) Changed() <-chan struct{}              { return nil }
func (inventory) SetTags(context.Context, *runtimev1alpha1.VirtualMachine, apiserver.Tagging) error {
	return apiserver.ErrNotReady
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// feed has objects, and spans: who sees an object of that resource and name.
type feed struct {
	synced chan struct{}

	mu      sync.Mutex
	objects map[string][]runtime.Object
	spans   map[string][]string
	open    map[*feedWatch]struct{}
}

func newFeed() *feed {
	return &feed{synced: make(chan struct{}), objects: map[string][]runtime.Object{}, spans: map[string][]string{}, open: map[*feedWatch]struct{}{}}
}

var _ controlplane.Feed = (*feed)(nil)

func (f *feed) Synced() <-chan struct{} { return f.synced }

func (f *feed) List(resource string) []runtime.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]runtime.Object(nil), f.objects[resource]...)
}

func (f *feed) Get(resource, name string) (runtime.Object, bool) {
	for _, o := range f.List(resource) {
		if o.(metav1.Object).GetName() == name {
			return o, true
		}
	}
	return nil, false
}

func (f *feed) put(resource string, o runtime.Object, span ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[resource] = append(f.objects[resource], o)
	f.spans[resource+"/"+o.(metav1.Object).GetName()] = span
}

// send sends an event to who sees the object.
func (f *feed) send(resource string, e watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.open {
		if w.resource == resource && f.sees(w, e.Object) {
			w.events <- e
		}
	}
}

func (f *feed) sees(w *feedWatch, o runtime.Object) bool {
	name := o.(metav1.Object).GetName()
	if w.name != "" && w.name != name {
		return false
	}
	if w.node == "" {
		return true
	}
	for _, n := range f.spans[w.resource+"/"+name] {
		if n == w.node {
			return true
		}
	}
	return false
}

type feedWatch struct {
	f                    *feed
	resource, node, name string
	events               chan watch.Event
}

func (w *feedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *feedWatch) Stop() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if _, ok := w.f.open[w]; ok {
		delete(w.f.open, w)
		close(w.events)
	}
}

func (f *feed) Watch(resource, node, name string) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &feedWatch{f: f, resource: resource, node: node, name: name, events: make(chan watch.Event, 100)}
	f.open[w] = struct{}{}
	for _, o := range f.objects[resource] {
		if f.sees(w, o) {
			w.events <- watch.Event{Type: watch.Added, Object: o.DeepCopyObject()}
		}
	}
	mark := map[string]runtime.Object{
		controlplane.NetworkPolicies: &controlplanev1beta2.NetworkPolicy{}, controlplane.AddressGroups: &controlplanev1beta2.AddressGroup{},
		controlplane.AppliedToGroups: &controlplanev1beta2.AppliedToGroup{},
	}[resource]
	w.events <- watch.Event{Type: watch.Bookmark, Object: mark}
	return w, nil
}

func (f *feed) watches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}
