package nft_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/compile"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// target is the machine of the tests' worlds.
const target = "node/n"

// onNode puts all Pods and Nodes that policies are enforced on on one machine.
func onNode(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		c := *w
		switch {
		case w.Kind == policy.KindExternal && w.Target != "":
			c.Target = "cloud/c"
		case w.Target != "":
			c.Target = target
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// ruleset returns what is enforced on the machine.
func ruleset(s policy.Snapshot) policy.Ruleset {
	for _, rs := range compile.Rulesets(s) {
		if rs.Target == target {
			return rs
		}
	}
	return policy.Ruleset{Target: target}
}

// dump is all Objects, for people.
func dump(objects map[string]nft.Object) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		switch o := objects[key]; {
		case o.Chain != nil:
			b.WriteString(o.Chain.String())
		case o.Set != nil:
			b.WriteString(o.Set.String())
		case o.Counter != nil:
			fmt.Fprintf(&b, "counter %s %s\n", o.Counter.Name, o.Counter.Rule)
		}
	}
	return b.String()
}

// probe is a flow that a packet can be, and what the machine has to do with it.
type probe struct {
	policy.Flow
	want  policy.Action
	needs []policy.Need
}

// probes returns those of the flows whose ends are told by their addresses, with what both ends
// decide that are on the machine.
func probes(s policy.Snapshot, flows []policy.Flow) []probe {
	return namedProbes(s, flows, func(netip.Addr) string { return "" })
}

// namedProbes are probes to addresses that were found by names.
func namedProbes(s policy.Snapshot, flows []policy.Flow, nameOf func(netip.Addr) string) []probe {
	shared := map[netip.Addr]int{}
	for _, w := range s.Workloads.All() {
		if w.Network == "" && !w.Terminated && !w.HostNetwork {
			for _, a := range w.Addrs {
				shared[a]++
			}
		}
	}
	var out []probe
	for _, f := range flows {
		from, to, err := s.Ends(f)
		if err != nil || from.Addr == to.Addr || shared[from.Addr] > 1 || shared[to.Addr] > 1 {
			continue
		}
		if f.Protocol.HasPorts() && f.SourcePort == 0 {
			f.SourcePort = 40000
		}
		f.From, f.To, f.ToName = policy.Endpoint{Addr: from.Addr}, policy.Endpoint{Addr: to.Addr}, nameOf(to.Addr)
		v, err := policy.Evaluate(s, f)
		a, b, errEnds := s.Ends(f)
		if err != nil || errEnds != nil || a.Owner != from.Owner || b.Owner != to.Owner {
			continue
		}
		// A Pod on a Node's network with an address that the Node has not is not of this world.
		odd := func(e policy.End) bool { return e.Subject != nil && !slices.Contains(e.Subject.Addrs, e.Addr) }
		if odd(a) || odd(b) {
			continue
		}
		p := probe{Flow: f, want: policy.Allow, needs: v.Needs}
		if b.Subject != nil && b.Subject.Target == target {
			p.want = v.Ingress.Action
		}
		if a.Subject != nil && a.Subject.Target == target && v.Egress.Action != policy.Allow {
			p.want = v.Egress.Action
		}
		out = append(out, p)
	}
	return out
}

// The Objects of a Node say what Evaluate says.
func TestLowerIsEvaluate(t *testing.T) {
	worlds := 3000
	if testing.Short() {
		worlds = 300
	}
	exact, odd, dispatched := 0, 0, 0
	actions := map[policy.Action]int{}
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		s := onNode(policytest.World(rnd, 4+rnd.IntN(10)))
		objects, refusals := nft.Lower(place(s), ruleset(s))
		for _, o := range objects {
			if o.Set != nil && strings.HasPrefix(o.Set.Name, "d") {
				dispatched++
			}
		}
		for _, p := range probes(s, policytest.Flows(rnd, s, 60)) {
			got, err := nft.Judge(objects, nft.PacketOf(nft.Forward, p.Flow))
			if err != nil {
				t.Fatalf("seed %d: %v: %v\n%s", seed, p.Flow, err, dump(objects))
			}
			actions[p.want]++
			switch {
			case got.Action == p.want:
				exact++
			case isOdd(p, got.Action, refusals):
				odd++
			default:
				t.Fatalf("seed %d: %+v:\n is %+v\n%s\n%s", seed, p, got, dump(objects), policytest.Print(s))
			}
		}
	}
	t.Logf("%d exact, %d deny otherwise or more; %v; %d verdict maps of ports", exact, odd, actions, dispatched)
	if exact < 50*odd || actions[policy.Drop] < exact/10 || actions[policy.Reject] < exact/100 {
		t.Error("the worlds are not telling")
	}
}

// place is a machine that has all workloads of s that policies apply to, none of
// which is the machine.
func place(s policy.Snapshot) nft.Place {
	p := nft.Place{Locals: []nft.Local{}}
	for _, w := range s.Workloads.All() {
		if w.Target == target && w.IsSubject() {
			p.Locals = append(p.Locals, nft.Local{ID: w.ID, Addrs: w.Addrs})
		}
	}
	return p
}

// isOdd says whether a verdict that is not the one that is meant is one of those that
// are told: another kind of denial where a DNS name decides, or a denial where an address
// is that of workloads of several networks.
func isOdd(p probe, got policy.Action, refusals []policy.Refusal) bool {
	if got != policy.Allow && p.want != policy.Allow {
		return slices.Contains(p.needs, policy.NeedName)
	}
	return got != policy.Allow && slices.ContainsFunc(refusals, func(r policy.Refusal) bool { return r.Reason == policy.RefusedPeers })
}

// Of a Pass that is sent in two parts, because some of its peers share addresses with others, the
// first may be a Drop. What the other passes on is still denied by what comes after.
func TestPassInParts(t *testing.T) {
	at := netip.MustParseAddr
	w := &policy.Workload{ID: "ee/shop/db", Kind: policy.KindExternal, Namespace: "shop", Name: "db"}
	part := func(key string, action policy.Action, group string) policy.TargetRule {
		return policy.TargetRule{Key: key, Policy: "acnp/p", Direction: policy.Ingress, Tier: 100, Action: action, Groups: []string{group}, Traffic: policy.AllTraffic}
	}
	peers := func(key, id, addr string) policy.Members {
		return policy.Members{Key: key, Workloads: policy.ByID(&policy.Workload{ID: id, Kind: policy.KindExternal, Addrs: []netip.Addr{at(addr)}})}
	}
	table, _ := nft.Lower(nft.Place{Locals: []nft.Local{{ID: w.ID, Addrs: []netip.Addr{at("10.0.0.5")}}}}, policy.Ruleset{
		Workloads: []policy.Enforced{{Workload: w, Ingress: []string{"a", "b"}, DeniesIngress: true}},
		Rules:     []policy.TargetRule{part("a", policy.Drop, "g"), part("b", policy.Pass, "h")},
		Groups:    []policy.Members{peers("g", "ee/shop/x", "10.0.0.8"), peers("h", "ee/shop/y", "10.0.0.9")},
	})
	for _, from := range []string{"10.0.0.8", "10.0.0.9", "10.0.0.10"} {
		f := policy.Flow{From: policy.Endpoint{Addr: at(from)}, To: policy.Endpoint{Addr: at("10.0.0.5")}, Protocol: policy.TCP, Port: 80, SourcePort: 1000}
		if j, err := nft.Judge(table, nft.PacketOf(nft.Forward, f)); err != nil || j.Action != policy.Drop {
			t.Errorf("from %s: %v, %v; want Drop", from, j, err)
		}
	}
}
