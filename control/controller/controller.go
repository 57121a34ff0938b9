package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	"isobar.dev/control/leader"
	"isobar.dev/control/machines"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
	"isobar.dev/source/kube"
)

// Factory makes an account of one provider from its object and the credentials
// in its Secret, which are a JSON object. Its error becomes the status of the
// account, and quotes no secret. The account's Enforcers take the Rulesets of
// Targets named "provider/namespace/name/region/network". What they make must be
// marked as that object's: two objects may name one account of the cloud, and
// each undoes what is marked as its own and not in its Rulesets.
type Factory func(ctx context.Context, account *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error)

// Options configure a Controller. The zero value is ready to use, with no cloud.
type Options struct {
	// Clouds makes the accounts of each provider, as cloudv1alpha1.Cloud names it.
	Clouds map[string]Factory
	// Every is the time between two reads of what a Target has; 0 means 5 minutes.
	Every time.Duration
	// PollEvery is the time between two listings of an account, whatever the
	// account says; 0 means that it decides, with 30 s as the least.
	PollEvery time.Duration
	// PollTimeout bounds one listing of a region; 0 means 2 minutes.
	PollTimeout time.Duration
	// SyncTimeout bounds one sync of a Target; 0 means 15 minutes.
	SyncTimeout time.Duration
	// Parallel bounds the syncs under way at once; 0 means 16.
	Parallel int
	// Namespaces are the only ones whose accounts and selectors count, for a
	// controller that shares its API server with others; none means all. Policies
	// apply wherever they are; the status of one that is elsewhere is written only
	// while it concerns these accounts.
	Namespaces []string
	// Networks are those of the cluster's own workloads where they have addresses of a
	// cloud's network.
	Networks kube.Networks
	// Office says when the Controller may write; nil means always. Meanwhile it
	// reads and compares all the same, so that what it shows is true and it can
	// take over at once.
	Office *leader.Office
	// LeavePolicyStatus: another controller writes the statuses of Antrea policies.
	// What is to be said of them is in Events and in VirtualMachinePolicies alone.
	LeavePolicyStatus bool
	// Computed, when it is set, says what the VMs of all clouds have to enforce, by the
	// policies of the controller that it follows: those of our API server are not
	// compiled, and LeavePolicyStatus is set. Run runs it.
	Computed *antrea.Source
	// ShowSecurityGroups: the security groups of networks with imported VMs are
	// listed for the runtime API.
	ShowSecurityGroups bool
	// Reports are what agents say of policies. nil: none are served, and statuses are of
	// clouds alone.
	Reports *controlplane.Reports
	// Machines is what the agents of VMs say of themselves. With it the ExternalEntities of
	// ExternalNodes are made here, unless LeaveExternalNodes is set, and the cloud enforces on
	// a VM with an agent until that says that it does. nil: another controller has to do with
	// agents, and the ExternalEntity that it makes is the sign that they enforce.
	Machines           *machines.Told
	LeaveExternalNodes bool
	Meter              Meter        // nil for none
	Log                *slog.Logger // nil means slog.Default()
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, 5*time.Minute)
	o.PollTimeout = cmp.Or(o.PollTimeout, 2*time.Minute)
	o.SyncTimeout = cmp.Or(o.SyncTimeout, 15*time.Minute)
	o.Parallel = cmp.Or(o.Parallel, 16)
	o.LeavePolicyStatus = o.LeavePolicyStatus || o.Computed != nil
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Controller runs all loops of one API server and its clouds.
type Controller struct {
	o        Options
	clients  *clients
	core     kubernetes.Interface
	source   *kube.Source
	stats    counters
	events   atomic.Pointer[recorder]
	away     atomic.Bool            // the API server does not answer
	recalled atomic.Pointer[string] // the term in which agents have had time to say again what they have said before

	accountMirror  *mirror[*cloudv1alpha1.CloudProviderAccount]
	selectorMirror *mirror[*cloudv1alpha1.CloudEntitySelector]
	entityMirror   *mirror[entity] // ExternalEntities
	nodeMirror     *mirror[entity] // ExternalNodes
	policyMirrors  []*policyMirror
	secrets        *secrets

	accountQueue  *queue[types.NamespacedName]
	selectorQueue *queue[types.NamespacedName]
	entityQueue   *queue[types.NamespacedName]
	nodeQueue     *queue[types.NamespacedName] // of ExternalNodes
	policyQueue   *queue[string]               // by Policy.ID

	syncer  *syncer
	world   world
	feed    *feed.Feed
	runtime *Runtime
	preview previewer
	pace    pace // of warnings

	mu         sync.Mutex
	accounts   map[types.NamespacedName]*account
	imports    policy.Table[*imported]           // by workload ID
	valid      map[types.NamespacedName]selector // the last readable form of each CloudEntitySelector
	targets    map[string]*target
	known      map[string]bool // targets of which the inventory is known; it stays so
	unread     string          // a policy that the targets wait for
	entityErrs map[types.NamespacedName]string
	agentSides map[string]agentSide                                   // by workload ID, of VMs with an agent
	derived    map[types.NamespacedName]map[types.NamespacedName]bool // ExternalEntities made here, by their ExternalNode
	awaiting   map[types.NamespacedName]bool                          // VMs of which something waits until a cloud enforces
	refused    map[types.NamespacedName]string                        // what does not count of an ExternalNode
	notices    map[string]*kube.Notice                                // by Policy.ID
	told       map[string]map[complaint]bool                          // by Policy.ID

	loops sync.WaitGroup
}

// New returns a Controller of the API server that config reaches. It starts
// nothing; call Run.
func New(config *rest.Config, o Options) (*Controller, error) {
	c := &Controller{
		o:        o.withDefaults(),
		accounts: map[types.NamespacedName]*account{}, valid: map[types.NamespacedName]selector{},
		targets: map[string]*target{}, known: map[string]bool{},
		entityErrs: map[types.NamespacedName]string{}, agentSides: map[string]agentSide{},
		derived: map[types.NamespacedName]map[types.NamespacedName]bool{}, awaiting: map[types.NamespacedName]bool{}, refused: map[types.NamespacedName]string{}, notices: map[string]*kube.Notice{}, told: map[string]map[complaint]bool{},
	}
	var err error
	if c.clients, err = newClients(config, c.o.Office); err != nil {
		return nil, err
	}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of events: %w", err)
	}
	if c.source, err = kube.New(config, kube.Options{Networks: c.o.Networks}); err != nil {
		return nil, err
	}
	own := newEngine()
	var by compiler = own
	if c.o.Computed != nil {
		by = &computed{engine: own, source: c.o.Computed, log: c.o.Log}
	}
	c.feed = own.feed
	c.world.init(by, func(i *imported) map[string]string {
		e, _ := c.nodeMirror.get(i.key())
		return e.userTags()
	})
	if c.servesAgents() {
		c.world.side = c.sideOf
	}
	c.runtime = newRuntime(c)
	if c.preview, err = newPreviewer(c.o.Networks); err != nil {
		return nil, err
	}
	c.accountQueue = newQueue("accounts", c.reconcileAccount)
	c.selectorQueue = newQueue("selectors", c.reconcileSelector)
	c.entityQueue = newQueue("entities", c.reconcileEntity)
	c.nodeQueue = newQueue("nodes", c.reconcileNode)
	c.policyQueue = newQueue("policies", c.reconcilePolicy)
	c.mirrors()
	c.syncer = &syncer{
		every: c.o.Every, timeout: c.o.SyncTimeout, slots: make(chan struct{}, c.o.Parallel),
		log: c.o.Log, stats: &c.stats, enforcer: c.enforcer, mayWrite: c.mayWrite, siblings: c.siblingsOf, scrubbed: c.scrubbed, changed: c.targetChanged,
		office: c.o.Office, meter: c.o.Meter,
	}
	return c, nil
}

// Run runs until ctx is done, whatever happens to the API server and the
// clouds. It is called once, and returns nil.
func (c *Controller) Run(ctx context.Context) error {
	defer c.startEvents(ctx)()
	c.loops.Go(func() { _ = c.source.Run(ctx) }) // it has no error to give
	if c.o.Computed != nil {
		c.loops.Go(func() { _ = c.o.Computed.Run(ctx) }) // nor has this
		c.loops.Go(func() { c.tellComputed(ctx) })
		c.loops.Go(func() { c.reportComputed(ctx) })
	}
	c.loops.Go(func() { c.accountMirror.run(ctx) })
	c.loops.Go(func() { c.selectorMirror.run(ctx) })
	c.loops.Go(func() { c.entityMirror.run(ctx) })
	c.loops.Go(func() { c.nodeMirror.run(ctx) })
	for _, m := range c.policyMirrors {
		c.loops.Go(func() { m.mirror.run(ctx) })
	}
	c.loops.Go(func() { c.runPolicies(ctx) })
	c.loops.Go(func() { c.runOffice(ctx) })
	if c.wait(ctx, c.accountMirror.synced, c.selectorMirror.synced, c.entityMirror.synced) {
		c.accountQueue.start(ctx, &c.loops, 4, c.report)
		c.selectorQueue.start(ctx, &c.loops, 2, c.report)
		c.entityQueue.start(ctx, &c.loops, 8, c.report)
		c.nodeQueue.start(ctx, &c.loops, 4, c.report)
		c.loops.Go(func() { c.runWorld(ctx) })
		c.loops.Go(func() { c.runStaged(ctx) })
		if c.o.Reports != nil {
			c.loops.Go(func() { c.runReports(ctx) })
		}
		c.loops.Go(func() { c.addAgented(ctx) })
		if c.o.Machines != nil {
			c.loops.Go(func() { c.o.Machines.Run(ctx) })
			c.loops.Go(func() { c.runMachines(ctx) })
		}
		c.runtime.poke() // there may be nothing to read
	}
	<-ctx.Done()
	c.loops.Wait()
	return nil
}

func (c *Controller) wait(ctx context.Context, all ...<-chan struct{}) bool {
	for _, ch := range all {
		select {
		case <-ctx.Done():
			return false
		case <-ch:
		}
	}
	return true
}

// report logs what a queue could not do. It will be tried again.
func (c *Controller) report(ctx context.Context, queue, key string, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, leader.ErrFollower) || apierrors.IsConflict(err) {
		return
	}
	c.o.Log.LogAttrs(ctx, slog.LevelWarn, "will try again", slog.String("queue", queue), slog.String("key", key), slog.String("error", errText(err)))
}

// Feed has what those who enforce policies themselves, on Nodes and VMs, have to know of the world. It is
// empty until World is known.
func (c *Controller) Feed() *feed.Feed { return c.feed }

// World returns the world as the Targets' Rulesets were last made of it.
func (c *Controller) World() policy.Snapshot {
	if m := c.world.current.Load(); m != nil {
		return m.Snapshot
	}
	return policy.Snapshot{}
}

// KnownWorld returns the same; ok is false while nothing is known yet.
func (c *Controller) KnownWorld() (s policy.Snapshot, ok bool) {
	return c.World(), c.world.current.Load() != nil
}

// isMine says whether no other controller has to do with the accounts,
// selectors and policies of a namespace.
func (c *Controller) isMine(namespace string) bool {
	return len(c.o.Namespaces) == 0 || slices.Contains(c.o.Namespaces, namespace)
}

// counters count what has been done since the start.
type counters struct {
	Polls, PollErrors              atomic.Uint64 // of regions
	EntityWrites, EntityErrors     atomic.Uint64
	StatusWrites                   atomic.Uint64
	Syncs, SyncErrors, CloudWrites atomic.Uint64
	WorldUpdates, RulesetsMade     atomic.Uint64
}
