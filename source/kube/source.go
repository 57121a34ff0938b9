package kube

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

// Options configure a Source. The zero value is ready to use.
type Options struct {
	// PageSize is how many objects are read at once where the API server cannot
	// stream them; 0 means 500.
	PageSize int64
	Networks Networks
}

// Networks say in which networks of a cloud the cluster's own workloads have their
// addresses, as [policy.Workload] has them; empty is a network of the cluster's own.
type Networks struct {
	// Pods is that of Pods with an address of their own.
	Pods string
	// Nodes is that of Nodes, and of Pods on their Node's network.
	Nodes string
}

// place returns a Pod or a Node with its network.
func (n Networks) place(w *policy.Workload) *policy.Workload {
	w.Network = n.Pods
	if w.Kind == policy.KindNode || w.HostNetwork {
		w.Network = n.Nodes
	}
	return w
}

// Source feeds the world of one API server into Snapshots. Its methods may be
// called at any time, from any goroutine.
type Source struct {
	options Options
	store   *store
	intern  *intern.Interner
	readers []*reader

	mu       sync.Mutex // guards status, and closing synced
	status   []KindStatus
	isSynced bool
	synced   chan struct{}
}

// KindStatus is how reading one kind goes.
type KindStatus struct {
	Kind     string // such as Pod
	Resource schema.GroupVersionResource
	// Missing: the API server has no definition of the kind, and so no objects.
	Missing bool
	// Synced: all objects were read at least once.
	Synced bool
	// Err is why the kind cannot be read now, and nil while it can or is Missing. What
	// was read before stays. A connection that is cut is seen at once, one that
	// falls silent after 45 s, client-go's check of connections.
	Err error
}

// New returns a Source that reads from the API server of config, whose user needs
// list and watch of the kinds, and get of customresourcedefinitions. It starts
// nothing; call Run.
func New(config *rest.Config, o Options) (*Source, error) {
	if o.PageSize == 0 {
		o.PageSize = 500
	}
	s := &Source{options: o, store: newStore(), intern: intern.New(), synced: make(chan struct{})}
	all := kinds(o.Networks)
	scheme, err := newScheme(all)
	if err != nil {
		return nil, err
	}
	clients := clients{config: config, scheme: scheme, made: map[schema.GroupVersion]rest.Interface{}}
	for i, k := range all {
		client, err := clients.of(k)
		if err != nil {
			return nil, fmt.Errorf("client of %v: %w", k, err)
		}
		s.readers = append(s.readers, &reader{source: s, index: i, kind: k, client: client, parameters: clients.parameters()})
		s.status = append(s.status, KindStatus{Kind: k.name, Resource: k.gvr})
	}
	return s, nil
}

// Run reads until ctx is done, whatever happens to the API server. It is called
// once, and returns nil.
func (s *Source) Run(ctx context.Context) error {
	// What client-go would log is in Status.
	ctx = klog.NewContext(ctx, logr.Discard())
	var all sync.WaitGroup
	for _, r := range s.readers {
		all.Go(func() { r.run(ctx) })
	}
	all.Wait()
	return nil
}

// Snapshot returns the world as it is known now. It never waits, and one
// Snapshot has all or nothing of each object and each first read.
func (s *Source) Snapshot() policy.Snapshot { return *s.store.snapshot.Load() }

// World returns the same, and where it stands: all that [controlplanev1beta2.Position]
// says is true of just that Snapshot. It may wait for a list that is being taken.
func (s *Source) World() (policy.Snapshot, controlplanev1beta2.Position) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return *s.store.snapshot.Load(), s.store.position.told()
}

// Changed has a message when Snapshot may return another one than before; many
// changes may be one message. It is for one receiver, which calls Snapshot
// after it receives.
func (s *Source) Changed() <-chan struct{} { return s.store.changed }

// Synced is closed when all kinds that are installed were read once, and stays so.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Notices returns what could not be taken of objects as they are written, by a
// key that stays with the object. Compare two with [policy.Diff].
func (s *Source) Notices() policy.Table[*Notice] { return *s.store.notices.Load() }

// Noticed has a message when Notices or Status may return something else than
// before. It is for one receiver.
func (s *Source) Noticed() <-chan struct{} { return s.store.noticed }

// Status returns how reading goes, one entry for each kind, in a fixed order.
func (s *Source) Status() []KindStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]KindStatus(nil), s.status...)
}

// report changes the status of the kind with that index.
func (s *Source) report(index int, f func(*KindStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status[index]
	now := old
	f(&now)
	if now.Missing == old.Missing && now.Synced == old.Synced && text(now.Err) == text(old.Err) {
		return
	}
	s.status[index] = now
	s.store.noticed.send()
	if s.isSynced {
		return
	}
	for _, k := range s.status {
		if !k.Synced && !k.Missing {
			return
		}
	}
	s.isSynced = true
	close(s.synced)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
