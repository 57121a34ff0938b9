package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
)

// app selects Pods by their label.
func app(names ...string) policy.Set {
	return policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces,
		Labels: policy.Selector{{Key: "app", Op: policy.In, Values: names}}}}}
}

func peers(names ...string) policy.Peers { return policy.Peers{Set: app(names...)} }

var everyone = policy.Peers{All: true}

func tcp(ports ...uint16) []policy.Traffic {
	var out []policy.Traffic
	for _, p := range ports {
		out = append(out, policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: p, Last: p}})
	}
	return out
}

func rule(a policy.Action, p policy.Peers, t []policy.Traffic) policy.Rule {
	return policy.Rule{Action: a, Peers: p, Traffic: t}
}

// shop has Pods web-0, web-1, db-0 and idle-0 on the machine, and far-0 elsewhere.
func shop(policies ...*policy.Policy) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i, name := range []string{"web-0", "web-1", "db-0", "idle-0", "far-0"} {
		a := netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)})
		b := netip.MustParseAddr(fmt.Sprint("fd01::", i+1))
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindPod, "shop", name), Kind: policy.KindPod, Namespace: "shop", Name: name, Node: "n", Target: target,
			Labels: policy.LabelsOf(map[string]string{"app": name[:len(name)-2]}), Addrs: []netip.Addr{a, b},
			Ports: []policy.NamedPort{{Name: "main", Protocol: policy.TCP, Port: uint16(8000 + i)}},
		}
		if name == "far-0" {
			w.Node, w.Target = "other", ""
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	for _, p := range policies {
		if p.Dialect == 0 {
			p.Dialect, p.Tier = policy.AntreaClusterNetworkPolicy, "application"
		}
		p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// isolating is a NetworkPolicy that selects Pods and allows ingress.
func isolating(name string, to policy.Set, rules ...policy.Rule) *policy.Policy {
	return &policy.Policy{Name: name, Namespace: "shop", Dialect: policy.KubernetesNetworkPolicy, Tier: policy.TierKubernetes, AppliedTo: to, IsolatesIngress: true, Ingress: rules}
}

// worlds are what the shop may have to enforce, by name.
var worlds = map[string]func() policy.Snapshot{
	"nothing": func() policy.Snapshot { return shop() },
	"db": func() policy.Snapshot {
		return shop(isolating("db", app("db"), rule(policy.Allow, peers("web"), tcp(5432))))
	},
	"tiers": func() policy.Snapshot {
		return shop(isolating("db", app("db"), rule(policy.Allow, peers("web", "far"), tcp(5432, 5433))),
			&policy.Policy{Name: "order", AppliedTo: app("db", "web"), Priority: 1, Ingress: []policy.Rule{
				rule(policy.Reject, peers("far"), tcp(5433)), rule(policy.Pass, peers("idle"), policy.AllTraffic), rule(policy.Drop, peers("idle"), policy.AllTraffic)}})
	},
	"egress": func() policy.Snapshot {
		// So many rules that they are asked by port.
		var ports []policy.Rule
		for i := range uint16(12) {
			ports = append(ports, rule(policy.Allow, peers([]string{"web", "far", "idle"}[i%3]), tcp(5425+i)))
		}
		return shop(isolating("ports", app("db"), ports...), &policy.Policy{Name: "out", AppliedTo: app("web", "idle"), Priority: 2, Egress: []policy.Rule{
			rule(policy.Allow, peers("db"), []policy.Traffic{{Protocol: policy.TCP, PortName: "main"}}),
			rule(policy.Drop, policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.4/31")}}}}, policy.AllTraffic)}})
	},
}

// states are the worlds, in the order in which they are walked.
func states() []plantest.State {
	var out []plantest.State
	for _, name := range []string{"nothing", "db", "tiers", "egress"} {
		out = append(out, plantest.State{Name: name, Ruleset: ruleset(worlds[name]())})
	}
	return out
}

// all are flows between everybody in a shop, to ports that matter and beside.
func all(s policy.Snapshot) []probe {
	var flows []policy.Flow
	for _, a := range s.Workloads.All() {
		for _, b := range s.Workloads.All() {
			for i := range a.Addrs {
				f := policy.Flow{From: policy.Endpoint{Addr: a.Addrs[i]}, To: policy.Endpoint{Addr: b.Addrs[i]}, SourcePort: 40000}
				for _, port := range []uint16{5432, 5433, 8002} {
					f.Protocol, f.Port = policy.TCP, port
					flows = append(flows, f)
				}
				f.Protocol = policy.UDP
				flows = append(flows, f)
			}
		}
	}
	return probes(s, flows)
}

// verify says whether the router does what s means.
func (r *router) verify(s policy.Snapshot) error {
	list := all(s)
	r.forget()
	for i, got := range r.ask(list) {
		if got != list[i].want {
			return fmt.Errorf("%+v: %v", list[i], got)
		}
	}
	return nil
}

// process is a Driver whose process may die.
type process struct {
	*nft.Driver
	writes     *int
	failAfter  *int
	unreadable *bool
}

func (p process) Read(ctx context.Context) (map[string]nft.Object, error) {
	if *p.unreadable {
		return nil, errors.New("unreadable")
	}
	return p.Driver.Read(ctx)
}

func (p process) Apply(ctx context.Context, changes []plan.Change[nft.Object]) error {
	*p.writes++
	if *p.failAfter == 0 {
		return errors.New("died")
	}
	err := p.Driver.Apply(ctx, changes)
	if *p.failAfter > 0 {
		*p.failAfter--
		if *p.failAfter == 0 && *p.writes%2 == 0 {
			return errors.New("died after it was done")
		}
	}
	return err
}

func TestPlan(t *testing.T) {
	plantest.Run(t, states(), func(tb testing.TB) plantest.Place[nft.Object] {
		r := newRouter(tb)
		kernel := nft.Kernel{NetNS: int(r.ns)}
		must := func(err error) {
			tb.Helper()
			if err != nil {
				tb.Fatal(err)
			}
		}
		writes, failAfter, unreadable := 0, -1, false
		r.place = place(shop())
		return plantest.Place[nft.Object]{
			Driver: func() plan.Driver[nft.Object] {
				d := r.newDriver()
				tb.Cleanup(d.Close)
				return process{d, &writes, &failAfter, &unreadable}
			},
			Plant: func() {
				must(kernel.Make(2, "isobar"))
				must(kernel.Make(1, "isobar2"))
				must(kernel.Add("isobar2", map[string]nft.Object{
					"chain/forward": {Chain: &nft.Chain{Name: "forward", Hook: nft.Forward, Rules: []nft.Rule{{Verdict: nft.Return}}, Marks: []string{"0123456789abcdef"}}},
				}, false))
			},
			Foreign: func() string {
				s, err := kernel.Foreign("isobar")
				must(err)
				return s
			},
			Writes:     func() int { return writes },
			FailAfter:  func(n int) { failAfter = n },
			Unreadable: func(is bool) { unreadable = is },
			Verify:     func(s plantest.State, _ plan.Report) error { return r.verify(worlds[s.Name]()) },
			Watch:      func(from, to plantest.State) func() error { return r.watch(worlds[from.Name](), worlds[to.Name]()) },
		}
	})
}

// watch insists on what both worlds say the same of.
func (r *router) watch(from, to policy.Snapshot) func() error {
	before := all(from)
	return r.insist(slices.DeleteFunc(all(to), func(p probe) bool {
		return !slices.ContainsFunc(before, func(q probe) bool { return q.Flow == p.Flow && q.want == p.want })
	}))
}

// insist asks all the time, until the function that it returns is called.
func (r *router) insist(list []probe) func() error {
	stop, done := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		rounds := 0
		for {
			for i, got := range r.ask(list) {
				if got != list[i].want {
					done <- fmt.Errorf("round %d: %+v: %v", rounds, list[i], got)
					return
				}
			}
			rounds++
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	return func() error {
		once.Do(func() { close(stop) })
		return <-done
	}
}

// ranged is a world whose denial and allow are each of ranges, which others do not have.
func ranged(n int) policy.Snapshot {
	denied := policy.Peers{Blocks: []policy.Block{
		{Prefix: netip.MustParsePrefix("10.1.0.0/24")}, {Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), 32)},
	}}
	ports := tcp(5432, uint16(10000+n))
	ports[0].Ports.Last++ // 5432 and 5433
	return shop(isolating("db", app("db"), rule(policy.Allow, peers("far"), ports)),
		&policy.Policy{Name: "out", AppliedTo: app("web"), Egress: []policy.Rule{rule(policy.Drop, denied, policy.AllTraffic)}})
}

// The kernel fills a set of ranges after it has begun to ask the rules that are made with it. No packet ever
// finds such a set empty, neither of a denial nor of an allow.
func TestRangesAreFullBeforeTheyAreAsked(t *testing.T) {
	changes := 800
	if testing.Short() {
		changes = 150
	}
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	y := plan.NewSyncer("", r.driver)
	r.sync(y, ranged(0))
	var asked []probe
	for _, p := range all(ranged(0)) {
		if f := p.Flow; f.Protocol == policy.TCP && f.From.Addr != f.To.Addr && f.From.Addr.Is4() &&
			(f.From.Addr.As4()[3] == 5 && f.To.Addr.As4()[3] == 3 && f.Port == 5433 || f.From.Addr.As4()[3] == 1 && f.To.Addr.As4()[3] == 4 && f.Port == 8002) {
			asked = append(asked, p)
		}
	}
	if len(asked) != 2 || asked[0].want == asked[1].want {
		t.Fatalf("it asks %+v, and not of one that is allowed and one that is denied", asked)
	}
	end := r.insist(asked)
	for n := range changes {
		r.sync(y, ranged(n+1))
	}
	if err := end(); err != nil {
		t.Error("while rules change: ", err)
	}
	asked = slices.DeleteFunc(asked, func(p probe) bool { return p.want == policy.Allow }) // a table that is replaced is shut for a moment
	end = r.insist(asked)
	for n := range changes / 10 {
		spoil := &nft.Chain{Name: "mine", Hook: nft.Forward, Rules: []nft.Rule{{Verdict: nft.Return}}, Marks: []string{""}}
		if err := k.Add("isobar", map[string]nft.Object{"chain/mine": {Chain: spoil}}, false); err != nil {
			t.Fatal(err)
		}
		y.Forget()
		r.sync(y, ranged(n))
	}
	if err := end(); err != nil {
		t.Error("while the table is replaced: ", err)
	}
}
