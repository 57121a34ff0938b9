package identity

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"golang.org/x/time/rate"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
)

// Authority makes and vouches for certificates of agents; *authority.Clients does.
type Authority interface {
	Bundle() []byte // PEM
	Issue(template x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error)
}

// Options configure Agents. The zero value is ready to use.
type Options struct {
	// Life is how long a certificate is good for; 0 means 24 hours. The authority has a bound.
	Life time.Duration
	Log  *slog.Logger // nil means slog.Default()
}

const (
	defaultLife = 24 * time.Hour
	// asks bounds what is asked of the API server for one request of an agent.
	askTimeout = 5 * time.Second
	// tries bounds how often an AgentIdentity is written that another replica writes too.
	tries = 5
)

// Bounds on what those may cause who hold nothing that is good. A hundred machines that start
// together have their certificates at once, a thousand in a minute; of 2^160 secrets nobody finds one at that rate.
const (
	joinsPerSecond, joinsAtOnce = 20, 100
	// looksPerSecond bounds how often it is looked whether a certificate is of a key that this replica has not
	// heard of yet.
	looksPerSecond, looksAtOnce = 20, 100
)

// What is followed.
var (
	identities = isobarv1alpha2.GroupVersion.WithResource(isobarv1alpha2.ResourceAgentIdentities)
	nodes      = antreav1alpha1.GroupVersion.WithResource("externalnodes")
)

// Agents knows the agents.
type Agents struct {
	authority Authority
	o         Options
	ids       dynamic.Interface
	machines  metadata.Interface

	known, there cache.SharedIndexInformer // AgentIdentities, and the metadata of ExternalNodes
	queue        workqueue.TypedRateLimitingInterface[use]
	joins, looks *rate.Limiter
	serverBundle func() []byte
	mu           sync.Mutex
	open         map[types.NamespacedName]map[*session]struct{}
	pool         *x509.CertPool // of poolOf
	poolOf       string
}

// use is that a key is used which is the next of its machine; without a fingerprint, that sessions of a
// machine are to be looked at again.
type use struct {
	of          types.NamespacedName
	fingerprint string
}

// session is a request under way of an agent.
type session struct {
	fingerprint string
	end         context.CancelCauseFunc
}

// New returns Agents whose AgentIdentities are at the API server that config reaches. It starts nothing; call
// Run.
func New(config *rest.Config, authority Authority, o Options) (*Agents, error) {
	o.Life = cmp.Or(o.Life, defaultLife)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1 // the server has limits of its own, and so has what asks
	a := &Agents{
		authority: authority, o: o, open: map[types.NamespacedName]map[*session]struct{}{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[use]()),
		joins: rate.NewLimiter(joinsPerSecond, joinsAtOnce), looks: rate.NewLimiter(looksPerSecond, looksAtOnce),
		serverBundle: func() []byte { return nil },
	}
	var err error
	if a.ids, err = dynamic.NewForConfig(unlimited); err != nil {
		return nil, fmt.Errorf("identities of agents: %w", err)
	}
	if a.machines, err = metadata.NewForConfig(unlimited); err != nil {
		return nil, fmt.Errorf("identities of agents: %w", err)
	}
	a.known = dynamicinformer.NewFilteredDynamicInformer(a.ids, identities, "", 0, cache.Indexers{}, nil).Informer()
	a.there = metadatainformer.NewFilteredMetadataInformer(a.machines, nodes, "", 0, cache.Indexers{}, nil).Informer()
	return a, errors.Join(a.prepare(a.known, toIdentity), a.prepare(a.there, toUID))
}

// ServersBy has agents told, with each certificate, by which authorities to verify the servers. It is called before
// anything is served.
func (a *Agents) ServersBy(bundle func() []byte) { a.serverBundle = bundle }

// prepare has sessions end with what an informer hears.
func (a *Agents) prepare(i cache.SharedIndexInformer, transform cache.TransformFunc) error {
	told := false
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: a.review, UpdateFunc: func(_, o any) { a.review(o) }, DeleteFunc: a.review,
	})
	return errors.Join(err, i.SetTransform(transform), i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !told && ctx.Err() == nil {
			a.o.Log.LogAttrs(ctx, slog.LevelWarn, "identities of agents are not followed; will try again", slog.String("error", err.Error()))
		}
		told = true
	}))
}

// toIdentity reads what is followed. What cannot be read lists no key.
func toIdentity(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out, err := readIdentity(u)
	if err != nil {
		out = &isobarv1alpha2.AgentIdentity{}
	}
	out.ObjectMeta = metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), DeletionTimestamp: u.GetDeletionTimestamp()}
	return out, nil
}

func readIdentity(u *unstructured.Unstructured) (*isobarv1alpha2.AgentIdentity, error) {
	out := &isobarv1alpha2.AgentIdentity{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("read AgentIdentity %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return out, nil
}

// toUID leaves out what is not asked for.
func toUID(o any) (any, error) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}}, nil
}

// Run follows the identities until ctx is done.
func (a *Agents) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { a.known.RunWithContext(ctx) })
	parts.Go(func() { a.there.RunWithContext(ctx) })
	parts.Go(func() {
		for a.settleNext(ctx) {
		}
	})
	<-ctx.Done()
	a.queue.ShutDown()
	parts.Wait()
	return nil
}

// isSynced says whether all identities have been read, and the authority.
func (a *Agents) isSynced() bool {
	return len(a.authority.Bundle()) > 0 && a.known.HasSynced() && a.there.HasSynced()
}

// believes says whether a key is listed for a machine, as far as this replica has heard. isNext says
// that it is the one after another one.
func (a *Agents) believes(of types.NamespacedName, fingerprint string) (ok, isNext bool) {
	o, found, err := a.known.GetStore().GetByKey(of.String())
	if err != nil || !found {
		return false, false
	}
	m, found, err := a.there.GetStore().GetByKey(of.String())
	if err != nil || !found {
		return false, false
	}
	id, ok := o.(*isobarv1alpha2.AgentIdentity)
	node, ok2 := m.(*metav1.PartialObjectMetadata)
	if !ok || !ok2 {
		return false, false
	}
	return lists(id, node.UID, fingerprint)
}

// lists says whether an identity has a key, and its machine is that which has joined.
func lists(id *isobarv1alpha2.AgentIdentity, node types.UID, fingerprint string) (ok, isNext bool) {
	if id.DeletionTimestamp != nil || node == "" || id.Status.ExternalNodeUID != string(node) {
		return false, false
	}
	i := slices.IndexFunc(id.Status.Keys, func(k isobarv1alpha2.AgentKey) bool { return k.Fingerprint == fingerprint })
	return i >= 0, i > 0
}

// read asks the API server for an identity, and for the UID of its machine. Either is empty when it is not there.
func (a *Agents) read(ctx context.Context, of types.NamespacedName) (*isobarv1alpha2.AgentIdentity, types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	u, err := a.ids.Resource(identities).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read AgentIdentity %s: %w", of, err)
	}
	id, err := readIdentity(u)
	if err != nil {
		return nil, "", err
	}
	node, err := a.machines.Resource(nodes).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return id, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read ExternalNode %s: %w", of, err)
	}
	return id, node.UID, nil
}

// write keeps the status of an identity, unless it is another one by now.
func (a *Agents) write(ctx context.Context, id *isobarv1alpha2.AgentIdentity) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id.APIVersion, id.Kind = isobarv1alpha2.GroupVersion.String(), "AgentIdentity"
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(id)
	if err != nil {
		return fmt.Errorf("keep AgentIdentity %s/%s: %w", id.Namespace, id.Name, err)
	}
	_, err = a.ids.Resource(identities).Namespace(id.Namespace).UpdateStatus(ctx, &unstructured.Unstructured{Object: o}, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("keep AgentIdentity %s/%s: %w", id.Namespace, id.Name, err)
	}
	return nil
}

// settleNext ends what was known of a machine before the key that it uses now. It returns false at the end.
func (a *Agents) settleNext(ctx context.Context) bool {
	u, end := a.queue.Get()
	if end {
		return false
	}
	defer a.queue.Done(u)
	do := a.settle
	if u.fingerprint == "" {
		do = a.endRevoked
	}
	if err := do(ctx, u); err != nil && ctx.Err() == nil {
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "will try again", slog.String("part", "identities of agents"), slog.String("error", err.Error()))
		a.queue.AddRateLimited(u)
		return true
	}
	a.queue.Forget(u)
	return true
}

func (a *Agents) settle(ctx context.Context, u use) error {
	id, node, err := a.read(ctx, u.of)
	if err != nil || id == nil {
		return err
	}
	if ok, isNext := lists(id, node, u.fingerprint); !ok || !isNext {
		return nil // somebody else has seen to it
	}
	id.Status.Keys = slices.DeleteFunc(id.Status.Keys, func(k isobarv1alpha2.AgentKey) bool { return k.Fingerprint != u.fingerprint })
	return a.write(ctx, id)
}

// errRevoked is why what an agent has open ends.
var errRevoked = errors.New("the identity was revoked, or is used by another machine")

// review has the sessions of a machine looked at whose keys are not listed any more.
func (a *Agents) review(o any) {
	name, err := cache.DeletionHandlingObjectToName(o)
	if err != nil {
		return
	}
	of := types.NamespacedName{Namespace: name.Namespace, Name: name.Name}
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.open[of] {
		if ok, _ := a.believes(of, s.fingerprint); !ok {
			a.queue.Add(use{of: of})
			return
		}
	}
}

// endRevoked ends the sessions of a machine whose keys are not listed. It looks itself: what was heard may be older than
// what a session began by.
func (a *Agents) endRevoked(ctx context.Context, u use) error {
	id, node, err := a.read(ctx, u.of)
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.open[u.of] {
		ok := false
		switch {
		case err != nil:
			ok, _ = a.believes(u.of, s.fingerprint)
		case id != nil:
			ok, _ = lists(id, node, s.fingerprint)
		}
		if !ok {
			s.end(errRevoked)
		}
	}
	return err
}

// begin keeps a session until done is called. It is kept before it is looked whether its key is
// listed, so that no revocation falls in between.
func (a *Agents) begin(of types.NamespacedName, s *session) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[of] == nil {
		a.open[of] = map[*session]struct{}{}
	}
	a.open[of][s] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open[of], s)
		if len(a.open[of]) == 0 {
			delete(a.open, of)
		}
	}
}
