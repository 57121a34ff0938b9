package acceptance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/controller"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	heard "isobar.dev/control/machines"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// vmAgent stands for the agent of a VM, and for the kernel under it. It speaks to the controller
// that runs, if one does.
type vmAgent struct {
	w     *world
	name  string // of the ExternalNode
	addrs []netip.Addr
	to    atomic.Pointer[controller.Controller]
	told  atomic.Pointer[controlplane.Reports]

	mu       sync.Mutex
	kernel   map[string]nft.Object // nil: nothing is enforced
	isOff    bool                  // it is to be switched off
	isGone   bool                  // its process is not there
	rnd      *rand.Rand
	denied   []policy.Flow // what policies deny, of which one end is the VM
	cloudOf  []sim.Flow    // the same, as the cloud is asked
	open     []string      // moments at which nobody denied it
	samples  int
	alone    [3]int // how often it was denied by the cloud alone, by the agent alone, by both
	location string // what the walk is doing
	heard    string // what the kernel was last given
}

func (a *vmAgent) node() string { return a.w.ns + "/" + a.name }

// serve connects the agent to a controller; nil to none.
func (a *vmAgent) serve(c *controller.Controller) {
	a.told.Store(a.w.o.Reports)
	a.to.Store(c)
}

// run is the agent's life.
func (a *vmAgent) run(ctx context.Context) {
	for ctx.Err() == nil {
		a.mu.Lock()
		wait := time.Duration(5+a.rnd.IntN(40)) * time.Millisecond
		isOff, isGone := a.isOff, a.isGone
		a.mu.Unlock()
		time.Sleep(wait)
		if c := a.to.Load(); c != nil && !isGone {
			a.turn(ctx, c, isOff)
		}
	}
}

func (a *vmAgent) turn(ctx context.Context, c *controller.Controller, isOff bool) {
	if isOff {
		if answer, err := a.say(ctx, c, runtimev1alpha1.AgentOff, 0); err == nil && isTrue(answer, runtimev1alpha1.ConditionCloudEnforces) {
			a.enforce(nil)
		}
		return
	}
	world, ok := c.KnownWorld()
	in, err := a.hear(c.Feed())
	if !ok || err != nil {
		return
	}
	rs, problems := convert.FromControlPlane(convert.AgentTarget(a.w.ns, a.name), in, world.Services)
	if len(problems) > 0 || len(in.Policies) == 0 {
		state := runtimev1alpha1.AgentEnforcing
		if a.objects() == nil {
			state = runtimev1alpha1.AgentWaiting
		}
		_, _ = a.say(ctx, c, state, 0) // it says it again
		return
	}
	place := nft.Place{}
	for _, e := range rs.Workloads {
		place.Locals = append(place.Locals, nft.Local{ID: e.Workload.ID, Addrs: a.addrs})
	}
	objects, _ := nft.Lower(place, rs)
	a.set("", func() {
		a.heard = fmt.Sprintf("%d policies, %d workloads, %d rules", len(in.Policies), len(rs.Workloads), len(rs.Rules))
	})
	a.enforce(objects)
	for i := range in.Policies {
		p := &in.Policies[i]
		if p.SourceRef != nil && p.SourceRef.Type == controlplanev1beta2.AntreaNetworkPolicy {
			_ = a.told.Load().Put(policy.PolicyID(policy.AntreaNetworkPolicy, p.SourceRef.Namespace, p.SourceRef.Name), a.node(), controlplane.NodeStatus{Generation: p.Generation})
		}
	}
	_, _ = a.say(ctx, c, runtimev1alpha1.AgentEnforcing, len(in.Policies))
}

func isTrue(in *runtimev1alpha1.VirtualMachineRuntimeInfo, condition string) bool {
	return slices.ContainsFunc(in.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition && c.Status == metav1.ConditionTrue })
}

func (a *vmAgent) say(ctx context.Context, c *controller.Controller, s runtimev1alpha1.AgentState, policies int) (*runtimev1alpha1.VirtualMachineRuntimeInfo, error) {
	info := &runtimev1alpha1.VirtualMachineRuntimeInfo{}
	info.Namespace, info.Name = a.w.ns, a.name
	info.Status.State, info.Status.Policies, info.Status.RealizedPolicies = s, int32(policies), int32(policies)
	return c.Runtime().Report(ctx, info)
}

// hear is what the agent is told now.
func (a *vmAgent) hear(f *feed.Feed) (out convert.ControlPlane, err error) {
	for _, r := range []feed.Resource{feed.NetworkPolicies, feed.AppliedToGroups, feed.AddressGroups} {
		list, _ := f.List(r, feed.SpanOf(a.node()))
		for _, o := range list {
			if c, ok := o.(runtime.CacheableObject); ok {
				o = c.GetObject()
			}
			switch o := o.(type) {
			case *controlplanev1beta2.NetworkPolicy:
				out.Policies = append(out.Policies, *o)
			case *controlplanev1beta2.AppliedToGroup:
				out.AppliedTo = append(out.AppliedTo, *o)
			case *controlplanev1beta2.AddressGroup:
				out.Addresses = append(out.Addresses, *o)
			default:
				return out, fmt.Errorf("got a %T", o)
			}
		}
	}
	return out, nil
}

func (a *vmAgent) objects() map[string]nft.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kernel
}

// enforce changes the kernel, and looks.
func (a *vmAgent) enforce(objects map[string]nft.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kernel = objects
	a.look()
}

// sample looks. The simulator waits for it.
func (a *vmAgent) sample() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
}

// look notes what nobody denies now. The caller holds a.mu: the agent changes nothing meanwhile.
func (a *vmAgent) look() {
	a.samples++
	for i, r := range a.w.verdicts(a.cloudOf) {
		byCloud, byAgent := r != sim.Allowed, false
		if a.kernel != nil {
			j, err := nft.Judge(a.kernel, nft.PacketOf(nft.Forward, a.denied[i]))
			byAgent = err == nil && j.Action != policy.Allow
		}
		switch {
		case byCloud && byAgent:
			a.alone[2]++
		case byCloud:
			a.alone[0]++
		case byAgent:
			a.alone[1]++
		default:
			a.open = append(a.open, fmt.Sprintf("%s: %+v (look %d, %d objects in the kernel: %s; last call %v)", a.location, a.cloudOf[i], a.samples, len(a.kernel), a.heard, a.w.written()))
		}
	}
}

func (a *vmAgent) set(what string, f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if what != "" {
		a.location = what
	}
	f()
}

// Who enforces on a VM changes, in random orders, and at every moment what policies deny is denied
// by the cloud or by an agent that enforces. The agent is switched off when it is told that the
// cloud enforces; one that falls silent leaves its rules until the cloud has taken over.
func TestModes(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walkModes(t, seed) })
	}
}

func walkModes(t *testing.T, seed uint64) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db", more: [][]string{nil}}}})))
	rnd := rand.New(rand.NewPCG(seed, 15))
	a := &vmAgent{w: w, name: "virtualmachine-i-db", rnd: rand.New(rand.NewPCG(seed, 16)), addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")}}
	web := netip.MustParseAddr("10.0.0.4")
	for _, x := range []struct {
		from string
		addr netip.Addr
		to   string
		port uint16
	}{
		{"web", web, "db", 22}, {"198.51.100.77", netip.MustParseAddr("198.51.100.77"), "db", 5432}, {"198.51.100.77", netip.MustParseAddr("198.51.100.77"), "db", 22}, {"web", web, "db#1", 22},
	} {
		to := a.addrs[0]
		if x.to == "db#1" {
			to = a.addrs[1]
		}
		a.cloudOf = append(a.cloudOf, w.flow(x.from, fmt.Sprintf("%s:%d", x.to, x.port)))
		a.denied = append(a.denied, policy.Flow{From: policy.Endpoint{Addr: x.addr}, To: policy.Endpoint{Addr: to}, Protocol: policy.TCP, Port: x.port})
	}
	start := func() {
		w.o.Reports = controlplane.NewReports(nil)
		w.o.Machines = heard.New(heard.Options{Lost: 400 * time.Millisecond, Silent: 800 * time.Millisecond, Recall: 600 * time.Millisecond})
		a.serve(w.start())
	}
	stop := func() { a.to.Store(nil); w.stop() }
	start()
	w.account()
	set := func(agented bool) {
		t.Helper()
		w.importOf("some", "aws", fmt.Sprintf("- vpcMatch: {}\n- vmMatch: [{matchID: i-db}]\n  agented: %t", agented))
	}
	set(false)
	w.mustImport(w.ns, "i-db", "i-web")
	serveDB(w)
	w.settle()
	ctx, cancel := context.WithCancel(t.Context())
	var life sync.WaitGroup
	life.Go(func() { a.run(ctx) })
	t.Cleanup(func() { cancel(); life.Wait() })
	w.sim.OnChange(a.sample)
	life.Go(func() {
		for ctx.Err() == nil {
			a.sample()
			time.Sleep(20 * time.Millisecond)
		}
	})

	agented := false
	state := func(want string) {
		t.Helper()
		w.is(selectors, "some", "Agents", want, "")
	}
	steps := map[string]func(){
		"agent": func() {
			agented = true
			set(true)
			w.mustList(nodes, w.ns, "i-db")
		},
		"cloud": func() {
			agented = false
			set(false)
			w.mustList(nodes, w.ns)
			w.mustList(entities, w.ns, "i-db", "i-web")
		},
		"off": func() {
			a.set("off", func() { a.isOff = true })
			if agented {
				state("False Off")
				w.eventually("the agent enforces nothing", func() error {
					if a.objects() != nil {
						return fmt.Errorf("it does")
					}
					return nil
				})
			}
			a.set("on", func() { a.isOff = false })
		},
		"silent": func() {
			a.set("silent", func() { a.isGone = true })
			if agented {
				state("False Silent")
				w.settle()
				a.enforce(nil) // it starts anew, without its agent
			}
			a.set("back", func() { a.isGone = false })
		},
		"restart":     func() { stop(); start() },
		"kill":        func() { a.to.Store(nil); w.kill(); start() },
		"generations": func() { w.patch(policies, "serve", fmt.Sprintf(`{"spec":{"priority":%d}}`, 2+rnd.IntN(90))) },
	}
	fixed := []string{"agent", "taken", "cloud", "agent", "taken", "off", "taken", "silent", "taken", "restart", "taken", "cloud"}
	steps["taken"] = func() {
		if agented {
			state("True Taken")
			w.settle()
		}
	}
	walk := fixed
	if seed > 0 {
		names := []string{"agent", "cloud", "off", "silent", "restart", "kill", "generations", "taken"}
		walk = nil
		for range 14 {
			walk = append(walk, names[rnd.IntN(len(names))])
		}
		walk = append(walk, "agent", "taken", "cloud")
	}
	for i, name := range walk {
		a.set(fmt.Sprintf("step %d %s of %s", i, name, strings.Join(walk[:i+1], " ")), func() {})
		steps[name]()
	}
	w.settle()
	a.mu.Lock()
	t.Logf("%v: %d looks, denied by the cloud alone %d, the agent alone %d, both %d", walk, a.samples, a.alone[0], a.alone[1], a.alone[2])
	open, byAgent := slices.Clone(a.open), a.alone[1]
	a.mu.Unlock()
	if len(open) > 0 {
		t.Errorf("%d moments at which nobody denied what policies deny; the first %s", len(open), open[0])
	}
	if byAgent == 0 {
		t.Error("the agent was never alone")
	}
	set(true)
	steps["taken"]()
	w.removeNamed(selectors, "some")
	w.mustList(nodes, w.ns)
	w.mustList(machines, w.ns)
}
