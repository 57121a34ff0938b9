package nft_test

import (
	"net/netip"
	"strings"
	"testing"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// Ranges have what blocks have, at and beside their edges.
func TestSpans(t *testing.T) {
	in := 0
	for seed := range policytest.Seeds(t, 1000) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 6)
		var blocks []policy.Block
		for _, p := range s.Policies.All() {
			for _, r := range append(p.Ingress, p.Egress...) {
				blocks = append(blocks, r.Peers.Blocks...)
			}
		}
		for _, f := range policytest.Flows(rnd, s, 20) {
			a := f.From.Addr
			if !a.IsValid() {
				continue
			}
			want := false
			for _, b := range blocks {
				want = want || b.Has(a)
			}
			got, n := nft.InSpans(blocks, a)
			if got != want || n > 4*len(blocks) {
				t.Fatalf("seed %d: %v in %v: %t, %d ranges; want %t", seed, a, blocks, got, n, want)
			}
			if want {
				in++
			}
		}
	}
	if in < 1000 {
		t.Errorf("%d addresses were in any block", in)
	}
}

// judge asks a table for a flow from one address to another.
func judge(t *testing.T, objects map[string]nft.Object, h nft.Hook, from, to string) policy.Action {
	t.Helper()
	j, err := nft.Judge(objects, nft.PacketOf(h, policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr(from)}, To: policy.Endpoint{Addr: netip.MustParseAddr(to)},
		Protocol: policy.TCP, SourcePort: 40000, Port: 80}))
	if err != nil {
		t.Fatal(err)
	}
	return j.Action
}

func pod(name string, addrs ...string) *policy.Workload {
	w := &policy.Workload{ID: "pod/x/" + name, Kind: policy.KindPod, Namespace: "x", Name: name, Node: "n", Target: target}
	for _, a := range addrs {
		w.Addrs = append(w.Addrs, netip.MustParseAddr(a))
	}
	return w
}

// A Pod reaches itself at each of its addresses, whatever its policies are.
func TestItself(t *testing.T) {
	rs := policy.Ruleset{Target: target, Workloads: []policy.Enforced{
		{Workload: pod("a", "10.0.0.1", "10.0.0.2"), IsolatedIngress: "p", IsolatedEgress: "p"},
		{Workload: pod("b", "10.0.0.3"), IsolatedIngress: "p"},
	}}
	objects, _ := nft.Lower(nft.Place{}, rs)
	for _, tt := range []struct {
		from, to string
		want     policy.Action
	}{
		{"10.0.0.1", "10.0.0.2", policy.Allow},
		{"10.0.0.2", "10.0.0.2", policy.Allow},
		{"10.0.0.1", "10.0.0.3", policy.Drop},
		{"10.0.0.3", "10.0.0.1", policy.Drop},
		{"10.0.0.3", "10.0.0.4", policy.Allow},
	} {
		if got := judge(t, objects, nft.Forward, tt.from, tt.to); got != tt.want {
			t.Errorf("%s to %s: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

// What should not be never opens anything.
func TestOddRulesets(t *testing.T) {
	allow := policy.TargetRule{Key: "p/ingress/0", Policy: "p", Direction: policy.Ingress, Tier: 250, Action: policy.Allow, AllPeers: true, Traffic: policy.AllTraffic}
	deny := allow
	deny.Key, deny.Action = "q/ingress/0", policy.Drop
	group := allow
	group.AllPeers, group.Groups = false, []string{"nobody"}
	for _, tt := range []struct {
		name      string
		rules     []policy.TargetRule
		workloads []policy.Enforced
		place     nft.Place
		want      policy.Action // from 10.0.0.9 to 10.0.0.1
	}{
		{"allowed", []policy.TargetRule{allow}, []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Ingress: []string{allow.Key}, IsolatedIngress: "p"}}, nft.Place{}, policy.Allow},
		{"a rule that is not there", nil, []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Ingress: []string{allow.Key}}}, nft.Place{}, policy.Drop},
		{"a group that is not there", []policy.TargetRule{group}, []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Ingress: []string{allow.Key}, IsolatedIngress: "p"}}, nft.Place{}, policy.Drop},
		{"an address of two, one of which denies", []policy.TargetRule{allow, deny}, []policy.Enforced{
			{Workload: pod("a", "10.0.0.1"), Ingress: []string{allow.Key}}, {Workload: pod("b", "10.0.0.1"), Ingress: []string{deny.Key}}}, nft.Place{}, policy.Drop},
		{"an address of two, the other of which denies", []policy.TargetRule{allow, deny}, []policy.Enforced{
			{Workload: pod("a", "10.0.0.1"), Ingress: []string{deny.Key}}, {Workload: pod("b", "10.0.0.1"), Ingress: []string{allow.Key}}}, nft.Place{}, policy.Drop},
		{"an address that is mapped", []policy.TargetRule{deny}, []policy.Enforced{{Workload: pod("a"), Ingress: []string{deny.Key}}},
			nft.Place{Locals: []nft.Local{{ID: "pod/x/a", Addrs: []netip.Addr{{}, netip.MustParseAddr("::ffff:10.0.0.1")}}}}, policy.Drop},
		{"held", []policy.TargetRule{allow}, []policy.Enforced{{Workload: pod("a"), Ingress: []string{allow.Key}}},
			nft.Place{Locals: []nft.Local{{ID: "pod/x/a", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Held: true}}}, policy.Drop},
		{"held and not known", nil, nil, nft.Place{Locals: []nft.Local{{ID: "pod/x/z", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Held: true}}}, policy.Drop},
		{"an action that is none", []policy.TargetRule{{Key: allow.Key, Tier: 250, Direction: policy.Ingress, AllPeers: true, Traffic: policy.AllTraffic}},
			[]policy.Enforced{{Workload: pod("a", "10.0.0.1"), Ingress: []string{allow.Key}}}, nft.Place{}, policy.Drop},
	} {
		objects, _ := nft.Lower(tt.place, policy.Ruleset{Target: target, Rules: tt.rules, Workloads: tt.workloads})
		if got := judge(t, objects, nft.Forward, "10.0.0.9", "10.0.0.1"); got != tt.want {
			t.Errorf("%s: %v, want %v\n%s", tt.name, got, tt.want, dump(objects))
		}
	}
}

// An address that workloads of two foreign networks have is allowed nothing and denied; one
// that a workload of the own network has too is that one's.
func TestNetworks(t *testing.T) {
	other := func(name, network, addr string) *policy.Workload {
		w := pod(name, addr)
		w.Kind, w.Target, w.Network = policy.KindExternal, "", network
		return w
	}
	one, two, clash, mine := other("one", "vpc-1", "10.9.0.1"), other("two", "vpc-2", "10.9.0.1"), other("clash", "vpc-1", "10.9.0.2"), other("mine", "", "10.9.0.2")
	alone := other("alone", "vpc-1", "10.9.0.3")
	rule := func(a policy.Action) policy.TargetRule {
		return policy.TargetRule{Key: "p/ingress/0", Policy: "p", Direction: policy.Ingress, Tier: 250, Action: a, Groups: []string{"vpc-1"}, Traffic: policy.AllTraffic}
	}
	for _, tt := range []struct {
		action  policy.Action
		addr    string
		matches bool
	}{
		{policy.Allow, "10.9.0.1", false}, {policy.Drop, "10.9.0.1", true},
		{policy.Allow, "10.9.0.2", false}, {policy.Drop, "10.9.0.2", false},
		{policy.Allow, "10.9.0.3", true}, {policy.Drop, "10.9.0.3", true},
	} {
		rs := policy.Ruleset{Target: target, Rules: []policy.TargetRule{rule(tt.action)},
			Groups:    []policy.Members{{Key: "everyone", Workloads: policy.ByID(mine, two)}, {Key: "vpc-1", Workloads: policy.ByID(alone, clash, one)}},
			Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Ingress: []string{"p/ingress/0"}}}}
		want := policy.Allow
		if tt.action == policy.Allow { // all else is denied
			rs.Workloads[0].IsolatedIngress = "p"
		}
		if tt.matches == (tt.action == policy.Drop) {
			want = policy.Drop
		}
		objects, refusals := nft.Lower(nft.Place{}, rs)
		if got := judge(t, objects, nft.Forward, tt.addr, "10.0.0.1"); got != want {
			t.Errorf("%v, %s: %v, want %v\n%s", tt.action, tt.addr, got, want, dump(objects))
		}
		if len(refusals) != 1 || refusals[0].Reason != policy.RefusedPeers || len(refusals[0].Workloads) != 1 {
			t.Errorf("%v: refusals %+v", tt.action, refusals)
		}
	}
}

// What names and payloads decide is enforced as strictly as it may be, and told.
func TestStrictest(t *testing.T) {
	for _, tt := range []struct {
		action policy.Action
		l7     bool
		want   policy.Action
		reason policy.RefusalReason
	}{
		{policy.Allow, false, policy.Drop, policy.RefusedNames}, // what comes after it
		{policy.Drop, false, policy.Drop, policy.RefusedNames},
		{policy.Reject, false, policy.Reject, policy.RefusedNames},
		{policy.Pass, false, policy.Drop, policy.RefusedNames},
		{policy.Allow, true, policy.Drop, policy.RefusedL7},
		{policy.Pass, true, policy.Drop, policy.RefusedL7},
	} {
		r := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: tt.action, Names: []string{"a.example"}, Traffic: policy.AllTraffic}
		if tt.l7 {
			r.Names, r.AllPeers, r.L7 = nil, true, []policy.L7{{TLS: &policy.TLS{}}}
		}
		last := policy.TargetRule{Key: "p/egress/1", Policy: "p", Direction: policy.Egress, Tier: 250, Index: 1, Action: policy.Drop, AllPeers: true, Traffic: policy.AllTraffic}
		after := policy.TargetRule{Key: "b/egress/0", Policy: "b", Direction: policy.Egress, Tier: 253, Action: policy.Allow, AllPeers: true, Traffic: policy.AllTraffic}
		rs := policy.Ruleset{Target: target, Rules: []policy.TargetRule{r, last, after}, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Egress: []string{r.Key, last.Key, after.Key}}}}
		_, refusals := nft.Lower(nft.Place{}, rs)
		for _, rs.Rules[0].Log = range []bool{false, true} {
			objects, _ := nft.Lower(nft.Place{}, rs)
			if got := judge(t, objects, nft.Forward, "10.0.0.1", "10.0.0.9"); got != tt.want {
				t.Errorf("%v, payload %t, logged %t: %v, want %v\n%s", tt.action, tt.l7, rs.Rules[0].Log, got, tt.want, dump(objects))
			}
		}
		if len(refusals) != 1 || refusals[0].Reason != tt.reason || refusals[0].Rule != r.Key || len(refusals[0].Workloads) != 1 {
			t.Errorf("%v: refusals %+v", tt.action, refusals)
		}
	}
}

// A prefix of a log message has at most what the kernel takes, and no byte that is none of text.
func TestLogPrefix(t *testing.T) {
	r := &policy.TargetRule{Key: "acnp/" + strings.Repeat("long", 60) + "/ingress/0", Name: "tab\there\x00", LogLabel: "é", Action: policy.Reject}
	got := nft.LogPrefix(r)
	if len(got) != 127 || !strings.HasPrefix(got, "isobar:"+nft.LogID(r.Key)+" Reject acnp/long") {
		t.Errorf("%q", got)
	}
	r.Key = "k"
	if got, want := nft.LogPrefix(r), "isobar:"+nft.LogID("k")+" Reject k tab?here? ??"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Without workloads there is no table; with one there is, so that connections are known.
func TestEmpty(t *testing.T) {
	if objects, _ := nft.Lower(nft.Place{}, policy.Ruleset{Target: target}); len(objects) != 0 {
		t.Errorf("%s", dump(objects))
	}
	objects, _ := nft.Lower(nft.Place{}, policy.Ruleset{Target: target, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1")}}})
	if objects["chain/forward"].Chain == nil {
		t.Errorf("%s", dump(objects))
	}
}

// What a machine and its Pods need of the kernel passes, whatever the policies are; all else is asked.
func TestBaseChains(t *testing.T) {
	host := pod("host", "10.0.0.1", "fd00::1")
	host.Kind, host.ID = policy.KindNode, "node/n"
	rs := policy.Ruleset{Target: target, Workloads: []policy.Enforced{
		{Workload: host, IsolatedIngress: "p", IsolatedEgress: "p"}, {Workload: pod("a", "10.0.0.2", "fd00::2"), IsolatedIngress: "p", IsolatedEgress: "p"}}}
	place := nft.Place{Locals: []nft.Local{
		{ID: host.ID, Addrs: host.Addrs, Host: true}, {ID: "pod/x/a", Addrs: rs.Workloads[1].Workload.Addrs, Interface: "veth0"}}}
	packet := func(h nft.Hook, from, to string, protocol, kind byte) nft.Packet {
		return nft.Packet{Hook: h, From: netip.MustParseAddr(from), To: netip.MustParseAddr(to), Protocol: protocol, Type: kind}
	}
	with := func(p nft.Packet, in, out string, state uint32) nft.Packet {
		p.In, p.Out, p.State = in, out, state
		return p
	}
	judged := place
	judged.JudgeProbes = true
	for _, tt := range []struct {
		name   string
		place  nft.Place
		packet nft.Packet
		want   policy.Action
	}{
		{"solicitation out", place, packet(nft.Output, "fd00::1", "ff02::1:ff00:9", 58, 135), policy.Allow},
		{"solicitation in", place, packet(nft.Input, "fd00::9", "fd00::1", 58, 135), policy.Allow},
		{"advertisement in", place, packet(nft.Input, "fd00::9", "fd00::1", 58, 136), policy.Allow},
		{"redirect in", place, packet(nft.Input, "fd00::9", "fd00::1", 58, 137), policy.Allow},
		{"listener report out", place, packet(nft.Output, "fd00::1", "ff02::16", 58, 143), policy.Allow},
		{"echo request in", place, packet(nft.Input, "fd00::9", "fd00::1", 58, 128), policy.Drop},
		{"another message in", place, packet(nft.Input, "fd00::9", "fd00::1", 58, 138), policy.Drop},
		{"echo request out", place, packet(nft.Output, "fd00::1", "fd00::9", 58, 128), policy.Drop},
		{"solicitation through", place, packet(nft.Forward, "fd00::9", "fd00::2", 58, 135), policy.Drop},
		{"in on the loopback", place, with(packet(nft.Input, "10.0.0.1", "10.0.0.1", 6, 0), "lo", "", 0), policy.Allow},
		{"out on the loopback", place, with(packet(nft.Output, "10.0.0.1", "10.0.0.1", 6, 0), "", "lo", 0), policy.Allow},
		{"out elsewhere", place, with(packet(nft.Output, "10.0.0.1", "10.0.0.9", 6, 0), "", "eth0", 0), policy.Drop},
		{"established", place, with(packet(nft.Forward, "10.0.0.9", "10.0.0.2", 6, 0), "", "", 1<<1), policy.Allow},
		{"related", place, with(packet(nft.Forward, "10.0.0.9", "10.0.0.2", 1, 3), "", "", 1<<2), policy.Allow},
		{"new", place, with(packet(nft.Forward, "10.0.0.9", "10.0.0.2", 6, 0), "", "", 1<<3), policy.Drop},
		{"invalid", place, with(packet(nft.Forward, "10.0.0.9", "10.0.0.2", 6, 0), "", "", 1), policy.Drop},
		{"untracked", place, with(packet(nft.Forward, "10.0.0.9", "10.0.0.2", 6, 0), "", "", 1<<6), policy.Drop},
		{"of somebody else, to the machine", place, with(packet(nft.Input, "10.0.0.7", "10.0.0.8", 6, 0), "veth0", "", 0), policy.Drop},
		{"of somebody else, through", place, with(packet(nft.Forward, "fd00::7", "fd00::9", 6, 0), "veth0", "", 0), policy.Drop},
		{"elsewhere", place, with(packet(nft.Forward, "10.0.0.7", "10.0.0.8", 6, 0), "veth1", "", 0), policy.Allow},
		{"to a Pod from the machine, which may not send", place, packet(nft.Output, "10.0.0.1", "10.0.0.2", 6, 0), policy.Drop},
		{"a probe", place, packet(nft.Output, "10.0.0.5", "10.0.0.2", 6, 0), policy.Allow},
		{"a probe that is judged", judged, packet(nft.Output, "10.0.0.5", "10.0.0.2", 6, 0), policy.Drop},
	} {
		objects, _ := nft.Lower(tt.place, rs)
		got, err := nft.Judge(objects, tt.packet)
		if err != nil || got.Action != tt.want {
			t.Errorf("%s: %+v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// A Service is known by its address and port, before and after they are translated, and also where the kernel
// does not follow the connection.
func TestServiceAddresses(t *testing.T) {
	svc := &policy.Service{Namespace: "x", Name: "svc", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []policy.NamedPort{{Protocol: policy.TCP, Port: 80}}}
	r := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: policy.Drop, Services: []*policy.Service{svc}, Traffic: policy.AllTraffic}
	objects, _ := nft.Lower(nft.Place{}, policy.Ruleset{Target: target, Rules: []policy.TargetRule{r}, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Egress: []string{r.Key}}}})
	for _, tt := range []struct {
		to, original string
		port         uint16
		state        uint32
		want         policy.Action
	}{
		{"10.96.0.1", "", 80, 0, policy.Drop},
		{"10.96.0.1", "", 80, 1 << 6, policy.Drop},
		{"10.96.0.1", "", 81, 0, policy.Allow},
		{"10.0.0.9", "10.96.0.1", 8080, 0, policy.Drop},
		{"10.0.0.9", "", 80, 0, policy.Allow},
	} {
		p := nft.Packet{Hook: nft.Forward, From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr(tt.to), Protocol: 6, SourcePort: 40000, Port: tt.port, State: tt.state}
		if tt.original != "" {
			p.OriginalTo, p.OriginalPort = netip.MustParseAddr(tt.original), 80
		}
		if got, err := nft.Judge(objects, p); err != nil || got.Action != tt.want {
			t.Errorf("%+v: %+v, %v", tt, got, err)
		}
	}
}

// What passes unasked passes from all peers that are named, and from no others.
func TestBypassPeers(t *testing.T) {
	host := &policy.Workload{ID: "node/n", Kind: policy.KindNode, Name: "n", Target: target, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}
	rs := policy.Ruleset{Target: target, Workloads: []policy.Enforced{{Workload: host, IsolatedIngress: "p"}}}
	place := nft.Place{}
	for _, p := range []string{"10.0.0.0/24", "10.0.2.0/24", "10.0.1.7/32", "fd00::/64"} {
		place.Bypass = append(place.Bypass, nft.Bypass{Direction: policy.Ingress, Peer: netip.MustParsePrefix(p), Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}})
	}
	place.Bypass = append(place.Bypass,
		nft.Bypass{Direction: policy.Ingress, Peer: netip.MustParsePrefix("10.0.3.0/24"), Protocol: policy.TCP, Ports: policy.Ports{First: 81, Last: 81}},
		nft.Bypass{Direction: policy.Egress, Peer: netip.MustParsePrefix("10.0.4.0/24"), Protocol: policy.TCP})
	objects, _ := nft.Lower(place, rs)
	for from, want := range map[string]policy.Action{
		"10.0.0.1": policy.Allow, "10.0.2.255": policy.Allow, "10.0.1.7": policy.Allow,
		"10.0.1.6": policy.Drop, "10.0.1.8": policy.Drop, "10.0.3.1": policy.Drop, "10.0.4.1": policy.Drop, "9.255.255.255": policy.Drop,
	} {
		if got := judge(t, objects, nft.Input, from, "10.9.0.1"); got != want {
			t.Errorf("from %s: %v, want %v", from, got, want)
		}
	}
}
