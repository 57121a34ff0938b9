package nft_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// A machine as a whole does what Evaluate says of its workload, at whichever of its interfaces, and what is behind it
// does by the ports that others ask the machine for.
func TestMachineIsEvaluate(t *testing.T) {
	worlds := 600
	if testing.Short() {
		worlds = 60
	}
	behind := map[bool]netip.Addr{true: netip.MustParseAddr("172.17.0.2"), false: netip.MustParseAddr("fd17::2")}
	exact, odd := 0, 0
	actions := map[policy.Action]int{}
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		s := onNode(policytest.World(rnd, 4+rnd.IntN(10)))
		all := ruleset(s)
		list := probes(s, policytest.Flows(rnd, s, 60))
		for i := range all.Workloads {
			rs := all
			rs.Workloads = all.Workloads[i : i+1]
			id := rs.Workloads[0].Workload.ID
			objects, refusals := nft.Lower(nft.Place{Machine: &nft.Machine{Outer: []string{"eth0", "eth1"}, Inner: []string{"docker0", "docker1"}}}, rs)
			check := func(p probe, packet nft.Packet) {
				t.Helper()
				got, err := nft.Judge(objects, packet)
				if err != nil {
					t.Fatalf("seed %d: %v: %v", seed, p.Flow, err)
				}
				actions[p.want]++
				switch {
				case got.Action == p.want:
					exact++
				case isOdd(p, got.Action, refusals):
					odd++
				default:
					t.Fatalf("seed %d: %s: %+v, %+v:\n is %+v\n%s\n%s", seed, id, p, packet, got, dump(objects), policytest.Print(s))
				}
			}
			for _, p := range list {
				v, err := policy.Evaluate(s, p.Flow)
				a, b, other := s.Ends(p.Flow)
				if err != nil || other != nil {
					continue
				}
				passes := probe{Flow: p.Flow, want: policy.Allow}
				if b.Subject != nil && b.Subject.ID == id {
					p.want = v.Ingress.Action
					in := nft.PacketOf(nft.Input, p.Flow)
					for in.In = range map[string]bool{"eth0": true, "eth1": true, "new0": true} {
						check(p, in)
					}
					in.In = "docker0"
					check(passes, in)
					on := nft.PacketOf(nft.Forward, p.Flow)
					on.In, on.Out = "eth1", "docker0"
					on.OriginalTo, on.OriginalPort, on.To, on.Port = on.To, on.Port, behind[on.To.Is4()], on.Port+1
					check(p, on)
					on.Out = "new0"
					check(p, on)
					on.Out = "eth0" // it is a router to somebody else
					check(passes, on)
				}
				if a.Subject != nil && a.Subject.ID == id {
					p.want = v.Egress.Action
					out := nft.PacketOf(nft.Output, p.Flow)
					for out.Out = range map[string]bool{"eth0": true, "eth1": true, "new0": true} {
						check(p, out)
					}
					out.Out = "docker0"
					check(passes, out)
					on := nft.PacketOf(nft.Forward, p.Flow)
					on.From = behind[on.From.Is4()]
					for on.In = range map[string]bool{"docker0": true, "new0": true} {
						for on.Out = range map[string]bool{"eth0": true, "eth1": true} {
							check(p, on)
						}
					}
					on.In, on.Out = "docker0", "new0"
					check(p, on)
					on.Out = "docker1"
					check(passes, on)
					on.In, on.Out = "eth0", "eth1"
					check(passes, on)
				}
			}
		}
	}
	t.Logf("%d exact, %d deny otherwise or more; %v", exact, odd, actions)
	if exact < 50*odd || actions[policy.Drop] < exact/20 || actions[policy.Reject] < exact/200 {
		t.Error("the worlds are not telling")
	}
}

// A machine whose rules are not known lets nothing pass but what always does.
func TestMachineHeld(t *testing.T) {
	p := nft.Place{Mark: 7, Machine: &nft.Machine{Outer: []string{"eth0"}, Held: true}, Bypass: []nft.Bypass{
		{Direction: policy.Ingress, Peer: netip.MustParsePrefix("0.0.0.0/0"), Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 22}},
		{Direction: policy.Egress, Peer: netip.MustParsePrefix("0.0.0.0/0"), Protocol: policy.UDP, Ports: policy.Ports{First: 67, Last: 67}, SourcePorts: policy.Ports{First: 68, Last: 68}},
	}}
	objects, refusals := nft.Lower(p, policy.Ruleset{Target: "vm"})
	if len(refusals) > 0 {
		t.Error(refusals)
	}
	mine, theirs := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	const tcp, udp = 6, 17
	for _, tt := range []struct {
		name   string
		packet nft.Packet
		want   policy.Action
	}{
		{"ssh", nft.Packet{Hook: nft.Input, In: "eth0", From: theirs, To: mine, Protocol: tcp, Port: 22}, policy.Allow},
		{"all else", nft.Packet{Hook: nft.Input, In: "eth0", From: theirs, To: mine, Protocol: tcp, Port: 23}, policy.Drop},
		{"of a connection that has passed", nft.Packet{Hook: nft.Input, In: "eth0", From: theirs, To: mine, Protocol: tcp, Port: 23, State: 2}, policy.Allow},
		{"loopback", nft.Packet{Hook: nft.Input, In: "lo", From: mine, To: mine, Protocol: tcp, Port: 23}, policy.Allow},
		{"a DHCP client", nft.Packet{Hook: nft.Output, Out: "eth0", From: mine, To: theirs, Protocol: udp, SourcePort: 68, Port: 67}, policy.Allow},
		{"no DHCP client", nft.Packet{Hook: nft.Output, Out: "eth0", From: mine, To: theirs, Protocol: udp, SourcePort: 6868, Port: 67}, policy.Drop},
		{"neighbour discovery", nft.Packet{Hook: nft.Output, Out: "eth0", From: netip.MustParseAddr("fe80::1"), To: netip.MustParseAddr("ff02::1"), Protocol: 58, Type: 135}, policy.Allow},
		{"a ping", nft.Packet{Hook: nft.Output, Out: "eth0", From: netip.MustParseAddr("fe80::1"), To: netip.MustParseAddr("fe80::2"), Protocol: 58, Type: 128}, policy.Drop},
		{"to a container", nft.Packet{Hook: nft.Forward, In: "eth0", Out: "docker0", From: theirs, To: netip.MustParseAddr("172.17.0.2"), OriginalTo: mine, Protocol: tcp, Port: 80, OriginalPort: 8080}, policy.Drop},
		{"to a container that others ask for by ssh's port", nft.Packet{Hook: nft.Forward, In: "eth0", Out: "docker0", From: theirs, To: netip.MustParseAddr("172.17.0.2"), OriginalTo: mine, Protocol: tcp, Port: 80, OriginalPort: 22}, policy.Allow},
		{"to a container's ssh by another port", nft.Packet{Hook: nft.Forward, In: "eth0", Out: "docker0", From: theirs, To: netip.MustParseAddr("172.17.0.2"), OriginalTo: mine, Protocol: tcp, Port: 22, OriginalPort: 2222}, policy.Drop},
		{"of a container", nft.Packet{Hook: nft.Forward, In: "docker0", Out: "eth0", From: netip.MustParseAddr("172.17.0.2"), To: theirs, Protocol: tcp, Port: 80}, policy.Drop},
	} {
		got, err := nft.Judge(objects, tt.packet)
		if err != nil || got.Action != tt.want {
			t.Errorf("%s: %+v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if c := objects["chain/output"].Chain; !slices.ContainsFunc(c.Rules, func(r nft.Rule) bool { return r.Verdict == nft.Accept && strings.Contains(r.Comment, "agent") }) {
		t.Error("the agent's own packets are dropped")
	}
}
