package nft_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// known are the addresses of names.
type known map[string][]netip.Addr

func (k known) Addrs(patterns []string) []netip.Addr {
	var out []netip.Addr
	for name, addrs := range k {
		if slices.ContainsFunc(patterns, func(p string) bool { return policy.MatchesName(p, name) }) {
			out = append(out, addrs...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func (k known) Has(patterns []string, a netip.Addr) bool {
	return slices.Contains(k.Addrs(patterns), a)
}

// learned gives some of the flows' destinations names: some several, some none.
func learned(rnd *rand.Rand, s policy.Snapshot, flows []policy.Flow) known {
	k := known{}
	for _, f := range flows {
		_, to, err := s.Ends(f)
		if err != nil {
			continue
		}
		for _, name := range []string{"db.example.com", "api.example.com", "elsewhere.org"} {
			if rnd.IntN(3) == 0 {
				k[name] = append(k[name], to.Addr)
			}
		}
	}
	return k
}

// byBlocks says by addresses what s says by names.
func byBlocks(s policy.Snapshot, k known) policy.Snapshot {
	for id, p := range s.Policies.All() {
		c := *p
		c.Egress = slices.Clone(p.Egress)
		for i := range c.Egress {
			r := &c.Egress[i]
			if len(r.Peers.Names) == 0 {
				continue
			}
			r.Peers.Blocks = slices.Clone(r.Peers.Blocks)
			for _, a := range k.Addrs(r.Peers.Names) {
				r.Peers.Blocks = append(r.Peers.Blocks, policy.Block{Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
			r.Peers.Names = nil
		}
		s.Policies = s.Policies.Put(id, &c)
	}
	return s
}

// Where it is known by which names addresses were found, the Objects of a Node say exactly what Evaluate says of
// flows that tell the name, and of several names what it says where rules have their addresses.
func TestNamesAreEvaluate(t *testing.T) {
	worlds := 2000
	if testing.Short() {
		worlds = 200
	}
	told, several := 0, 0
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		s := onNode(policytest.World(rnd, 4+rnd.IntN(10)))
		flows := policytest.Flows(rnd, s, 60)
		k := learned(rnd, s, flows)
		p := place(s)
		p.Names = k
		objects, refusals := nft.Lower(p, ruleset(s))
		for _, r := range refusals {
			if r.Reason == policy.RefusedNames {
				t.Fatalf("seed %d: %+v", seed, r)
			}
		}
		namesOf := func(a netip.Addr) (out []string) {
			for name, addrs := range k {
				if slices.Contains(addrs, a) {
					out = append(out, name)
				}
			}
			return out
		}
		check := func(s policy.Snapshot, p probe) {
			got, err := nft.Judge(objects, nft.PacketOf(nft.Forward, p.Flow))
			if err != nil {
				t.Fatalf("seed %d: %v: %v\n%s", seed, p.Flow, err, dump(objects))
			}
			if got.Action != p.want && !isOdd(p, got.Action, refusals) {
				t.Fatalf("seed %d: %+v, found by %q:\n is %+v\n%s\n%s", seed, p, namesOf(p.To.Addr), got, dump(objects), policytest.Print(s))
			}
		}
		for _, p := range probes(byBlocks(s, k), flows) {
			check(s, p)
			if len(namesOf(p.To.Addr)) > 1 {
				several++
			}
		}
		for _, p := range namedProbes(s, flows, func(a netip.Addr) string {
			if names := namesOf(a); len(names) == 1 {
				return names[0]
			}
			return ""
		}) {
			if p.ToName != "" {
				check(s, p)
				told++
			}
		}
	}
	if t.Logf("%d by one name, %d by several", told, several); told < 5*worlds || several < 3*worlds {
		t.Error("the worlds are not telling")
	}
}

// Rules that select the same names share a set, however they are written; a rule of ingress has none.
func TestSelections(t *testing.T) {
	rule := func(d policy.Direction, names ...string) policy.TargetRule {
		return policy.TargetRule{Direction: d, Names: names}
	}
	got := nft.Selections(policy.Ruleset{Rules: []policy.TargetRule{
		rule(policy.Egress, "B.example.", "a.example"), rule(policy.Egress, "a.example", "b.example", "A.EXAMPLE"), rule(policy.Egress, "*.x"), rule(policy.Ingress, "z"), rule(policy.Egress)}})
	if want := [][]string{{"*.x"}, {"a.example", "b.example"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Only answers wait, and only those to whom rules with names apply.
func TestAnswersWait(t *testing.T) {
	r := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: policy.Drop, Names: []string{"a.example"}, Traffic: policy.AllTraffic}
	plain := policy.TargetRule{Key: "q/egress/0", Policy: "q", Direction: policy.Egress, Tier: 250, Action: policy.Drop, AllPeers: true, Traffic: policy.AllTraffic}
	rs := policy.Ruleset{Target: target, Rules: []policy.TargetRule{r, plain}, Workloads: []policy.Enforced{
		{Workload: pod("a", "10.0.0.1", "fd00::1"), Egress: []string{r.Key}}, {Workload: pod("b", "10.0.0.2"), Egress: []string{plain.Key}}}}
	answer := nft.Packet{From: netip.MustParseAddr("10.0.0.53"), To: netip.MustParseAddr("10.0.0.1"), Protocol: 17, SourcePort: 53, Port: 40000,
		State: 1 << 1, Reply: true, OriginalTo: netip.MustParseAddr("10.96.0.10"), OriginalPort: 53}
	with := func(f func(*nft.Packet)) nft.Packet {
		p := answer
		f(&p)
		return p
	}
	names := nft.Place{Names: known{}}
	for _, tt := range []struct {
		name  string
		place nft.Place
		p     nft.Packet
		waits bool
	}{
		{"an answer", names, answer, true},
		{"by TCP", names, with(func(p *nft.Packet) { p.Protocol = 6 }), true},
		{"by IPv6", names, with(func(p *nft.Packet) {
			p.From, p.To, p.OriginalTo = netip.MustParseAddr("fd00::53"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::53")
		}), true},
		{"from another port than it was asked", names, with(func(p *nft.Packet) { p.SourcePort = 5353 }), true}, // it was translated
		{"of another service", names, with(func(p *nft.Packet) { p.OriginalPort = 54 }), false},
		{"by SCTP", names, with(func(p *nft.Packet) { p.Protocol = 132 }), false},
		{"a question", names, with(func(p *nft.Packet) { p.Reply = false }), false},
		{"to who has no rules with names", names, with(func(p *nft.Packet) { p.To = netip.MustParseAddr("10.0.0.2") }), false},
		{"of a name server that counts", nft.Place{Names: known{}, NameServers: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/28")}}, answer, true},
		{"to the machine itself", nft.Place{Names: known{}, Locals: []nft.Local{{ID: "pod/x/a", Addrs: []netip.Addr{answer.To}, Host: true}}}, answer, false},
		{"where nobody looks", nft.Place{}, answer, false},
		{"where nobody can look", nft.Place{Names: known{}, Missing: nft.Missing{Queue: true}}, answer, false},
	} {
		objects, refusals := nft.Lower(tt.place, rs)
		for _, tt.p.Hook = range []nft.Hook{nft.Forward, nft.Output} {
			j, err := nft.Judge(objects, tt.p)
			if err != nil || j.Waits != tt.waits || j.Action != policy.Allow {
				t.Errorf("%s, %v: %+v, %v", tt.name, tt.p.Hook, j, err)
			}
		}
		if sees := tt.place.Names != nil && !tt.place.Missing.Queue && tt.place.Locals == nil; sees != (len(refusals) == 0) {
			t.Errorf("%s: %+v", tt.name, refusals)
		}
	}
	// What other name servers than those that count answer is dropped, to whose answers wait alone.
	for _, server := range []string{"10.96.0.11/32", "fd00::53/128"} {
		objects, _ := nft.Lower(nft.Place{Names: known{}, NameServers: []netip.Prefix{netip.MustParsePrefix(server)}}, rs)
		for want, p := range map[policy.Action]nft.Packet{policy.Drop: answer, policy.Allow: with(func(p *nft.Packet) { p.To = netip.MustParseAddr("10.0.0.2") })} {
			p.Hook = nft.Forward
			if j, err := nft.Judge(objects, p); err != nil || j.Action != want || j.Waits {
				t.Errorf("%s, to %v: %+v, %v", server, p.To, j, err)
			}
		}
	}
	// Nothing is asked of packets where no rule has names.
	rs.Rules[0].Names, rs.Rules[0].AllPeers = nil, true
	for key, o := range func() map[string]nft.Object { objects, _ := nft.Lower(names, rs); return objects }() {
		if o.Chain != nil && strings.Contains(o.Chain.String(), "NFQUEUE") {
			t.Errorf("%s waits", key)
		}
	}
}

// What a Driver lowers has what is known when it does, also where nothing else is other than before.
func TestNamesAreFresh(t *testing.T) {
	r := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: policy.Drop, Names: []string{"a.example"}, Traffic: policy.AllTraffic}
	rs := policy.Ruleset{Target: target, Rules: []policy.TargetRule{r}, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Egress: []string{r.Key}}}}
	k := known{}
	d := nft.NewDriver(nft.Config{Names: k})
	for i, want := range []policy.Action{policy.Allow, policy.Drop, policy.Allow} {
		delete(k, "a.example")
		if want == policy.Drop {
			k["a.example"] = []netip.Addr{netip.MustParseAddr("10.0.0.9")}
		}
		objects, _ := d.Lower(rs)
		if got := judge(t, objects, nft.Forward, "10.0.0.1", "10.0.0.9"); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}

// What names mean beside ports that have names, groups and Services.
func TestNamesWith(t *testing.T) {
	at := func(a string) netip.Addr { return netip.MustParseAddr(a) }
	web := pod("web", "10.0.0.9")
	web.Ports = []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}
	other := pod("other", "10.0.0.8")
	other.Ports = web.Ports
	in := func(network string) *policy.Workload {
		w := pod(network, "10.0.0.7")
		w.Kind, w.Target, w.Network = policy.KindExternal, "", network
		return w
	}
	for _, tt := range []struct {
		name   string
		change func(*policy.TargetRule)
		packet func(*nft.Packet)
		want   bool // the rule matches
	}{
		{"at the name", nil, func(p *nft.Packet) { p.To = at("10.0.0.9") }, true},
		{"elsewhere", nil, func(p *nft.Packet) { p.To = at("10.0.0.8") }, false},
		{"by a Service at the name", nil, func(p *nft.Packet) { p.To, p.OriginalTo, p.OriginalPort = at("10.0.0.8"), at("10.0.0.9"), 80 }, true},
		{"a port's name, at the name", func(r *policy.TargetRule) { r.Traffic[0].PortName = "http" }, func(p *nft.Packet) { p.To = at("10.0.0.9") }, true},
		{"another port there", func(r *policy.TargetRule) { r.Traffic[0].PortName = "http" }, func(p *nft.Packet) { p.To, p.Port = at("10.0.0.9"), 81 }, false},
		{"a port's name, elsewhere", func(r *policy.TargetRule) { r.Traffic[0].PortName = "http" }, func(p *nft.Packet) { p.To = at("10.0.0.8") }, false},
		{"in a group that it may be in", func(r *policy.TargetRule) { r.Groups = []string{"one"} }, func(p *nft.Packet) { p.To = at("10.0.0.7") }, true},
		{"in no group", nil, func(p *nft.Packet) { p.To = at("10.0.0.7") }, false},
	} {
		r := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: policy.Drop, Names: []string{"a.example"}, PortGroups: []string{"all"},
			Traffic: []policy.Traffic{{Protocol: policy.TCP}}}
		if tt.change != nil {
			tt.change(&r)
		}
		rs := policy.Ruleset{Target: target, Rules: []policy.TargetRule{r}, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Egress: []string{r.Key}}},
			Groups: []policy.Members{{Key: "all", Workloads: policy.ByID(other, web)}, {Key: "one", Workloads: policy.ByID(in("vpc-1"))}, {Key: "two", Workloads: policy.ByID(in("vpc-2"))}}}
		objects, _ := nft.Lower(nft.Place{Names: known{"a.example": {at("10.0.0.9")}}}, rs)
		p := nft.Packet{Hook: nft.Forward, From: at("10.0.0.1"), Protocol: 6, SourcePort: 40000, Port: 80}
		tt.packet(&p)
		want := map[bool]policy.Action{true: policy.Drop, false: policy.Allow}[tt.want]
		if got, err := nft.Judge(objects, p); err != nil || got.Action != want {
			t.Errorf("%s: %+v, %v; want %v\n%s", tt.name, got, err, want, dump(objects))
		}
	}
}
