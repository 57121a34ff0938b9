package flat_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// What is flattened must be what Evaluate says: never more, and less only where
// a Refusal of the direction says so.
func TestFlattenIsEvaluate(t *testing.T) {
	worlds := uint64(3000)
	if testing.Short() {
		worlds = 300
	}
	checked, refused := 0, 0
	for seed := range worlds {
		for _, overlap := range []bool{false, true} {
			c, r := checkWorld(t, seed, overlap)
			checked, refused = checked+c, refused+r
		}
	}
	t.Logf("%d decisions checked, %d stricter by a Refusal", checked, refused)
	if checked < 1000 || refused*4 > checked {
		t.Errorf("%d checked and %d refused: the worlds are not telling", checked, refused)
	}
}

func checkWorld(t *testing.T, seed uint64, overlap bool) (checked, refused int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := randomWorld(r, overlap)
	for _, rs := range compile.Rulesets(s) {
		o := flat.Options{Network: "vpc-1", WholeSCTP: maybe(r, 50)}
		if maybe(r, 70) {
			o.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00::1:0/112")}
		}
		f := flat.New(rs, o)
		for _, e := range rs.Workloads {
			for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
				allowed, refusals := f.Flatten(flat.InputOf(e, d))
				steps, same := f.Steps(flat.InputOf(e, d))
				if len(refusals) != len(same) {
					t.Fatalf("seed %d, %s %v: flat refuses %v, in order %v", seed, e.Workload.ID, d, refusals, same)
				}
				for range 40 {
					flow, peer := randomFlow(r, s), randomPeer(r, s)
					ok, exact := check(t, s, e.Workload, d, flow, peer, allowed, refusals)
					flow.From, flow.To = peer, peer
					if got, want := walk(steps, flow), allowed.Has(d, flow); got != want {
						t.Fatalf("seed %d, %s %v: %v: in order %t, flat %t\n%+v", seed, e.Workload.ID, d, flow, got, want, steps)
					}
					if !ok {
						t.Fatalf("seed %d, overlap %t, %s %v\nrules: %v\nallowed: %v\nrefusals: %v", seed, overlap, e.Workload.ID, d, rs.Rules, allowed, refusals)
					}
					if exact {
						checked++
					} else {
						refused++
					}
				}
			}
		}
	}
	return checked, refused
}

// walk asks the steps, one after the other.
func walk(steps []flat.Step, f policy.Flow) bool {
	for i, s := range steps {
		if !slices.ContainsFunc(s.Boxes, func(b flat.Box) bool { return b.Has(f) }) {
			continue
		}
		passed := func() bool {
			j := i + 1
			for steps[j].Tier < policy.AfterPass(s.Tier) {
				j++
			}
			return walk(steps[j:], f)
		}
		certain, perhaps := s.Certain.Has(f.To.Addr), s.Perhaps.Has(f.To.Addr)
		switch {
		case s.Action == policy.Drop && (certain || perhaps):
			return false
		case s.Action == policy.Allow && certain:
			return true
		case s.Action == policy.Pass && certain:
			return passed()
		case s.Action == policy.Pass && perhaps:
			return passed() && walk(steps[i+1:], f)
		}
	}
	return false
}

func randomPeer(r *rand.Rand, s policy.Snapshot) policy.Endpoint {
	if maybe(r, 30) {
		return policy.Endpoint{Addr: addr(pick(r, "10.0.1.1", "10.0.1.5", "10.0.2.9", "10.96.0.1", "8.8.8.8", "fd00::1:3", "2001:db8::1", "10.0.1.200"))}
	}
	var all []*policy.Workload
	for _, w := range s.Workloads.All() {
		all = append(all, w)
	}
	w := pick(r, all...)
	return policy.Endpoint{Workload: w.ID, Addr: pick(r, w.Addrs...)}
}

// check compares one decision. ok is false when the flat form is looser, or
// stricter without a Refusal.
func check(t *testing.T, s policy.Snapshot, w *policy.Workload, d policy.Direction, f policy.Flow, peer policy.Endpoint, allowed flat.Allowed, refusals []policy.Refusal) (ok, exact bool) {
	t.Helper()
	self := policy.Endpoint{Workload: w.ID}
	if peer.Workload == w.ID || slices.Contains(w.Addrs, peer.Addr) {
		return true, true
	}
	f.From, f.To = peer, self
	if d == policy.Egress {
		f.From, f.To = self, peer
	}
	v, err := policy.Evaluate(s, f)
	if err != nil {
		return true, true // no addresses of one family, or not clear
	}
	want := v.Ingress
	f.From.Addr = peer.Addr
	if d == policy.Egress {
		want, f.To.Addr = v.Egress, peer.Addr
	}
	got := allowed.Has(d, f)
	if got == (want.Action == policy.Allow) {
		return true, true
	}
	// A workload of another network, at an address that one of ours has, is that
	// one as seen from here.
	if far, has := s.Workloads.Get(peer.Workload); has && far.Network != w.Network {
		for _, x := range s.Workloads.All() {
			if x.Network != far.Network && slices.Contains(x.Addrs, peer.Addr) {
				return true, true
			}
		}
	}
	closed := slices.ContainsFunc(refusals, func(r policy.Refusal) bool { return r.Reason != policy.RefusedReject })
	if !got && closed {
		return true, false
	}
	t.Errorf("%v %s %v %d/%d type %d code %d from port %d: flat %t, meaning %v", d, w.ID, peer, f.Protocol, f.Port, f.ICMPType, f.ICMPCode, f.SourcePort, got, want)
	return false, false
}

func TestSet(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		prefixes := func() []netip.Prefix {
			var out []netip.Prefix
			for range r.IntN(5) {
				bits := r.IntN(33)
				p, _ := netip.AddrFrom4([4]byte{byte(r.IntN(4) * 85), 0, byte(r.IntN(2) * 255), byte(r.IntN(256))}).Prefix(bits)
				out = append(out, p)
				v6, _ := netip.MustParseAddr(fmt.Sprintf("%x::%x", pick(r, 0, 0x2001, 0xffff), r.IntN(4))).Prefix(r.IntN(129))
				out = append(out, v6)
			}
			return out
		}
		pa, pb := prefixes(), prefixes()
		a, b := flat.SetOf(pa...), flat.SetOf(pb...)
		if !flat.SetOf(a.Prefixes()...).Equal(a) {
			t.Fatalf("seed %d: %v: the prefixes of the set are another set", seed, a)
		}
		if cover := a.Intersect(b).Cover(a); !a.Intersect(b).Within(flat.SetOf(cover...)) || !flat.SetOf(cover...).Within(a) {
			t.Fatalf("seed %d: Cover of %v within %v = %v", seed, a.Intersect(b), a, cover)
		}
		in := func(ps []netip.Prefix, x netip.Addr) bool {
			return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(x) })
		}
		var probes []netip.Addr
		for _, s := range []flat.Set{a, b} {
			for _, p := range s.Prefixes() {
				probes = append(probes, p.Addr())
				if x := p.Addr().Prev(); x.IsValid() {
					probes = append(probes, x)
				}
			}
		}
		for _, x := range probes {
			ina, inb := in(pa, x), in(pb, x)
			if a.Has(x) != ina || a.Union(b).Has(x) != (ina || inb) || a.Intersect(b).Has(x) != (ina && inb) || a.Minus(b).Has(x) != (ina && !inb) {
				t.Fatalf("seed %d: %v is wrong in the algebra of %v and %v", seed, x, pa, pb)
			}
		}
		if !flat.AllAddrs().Minus(a).Union(a).Equal(flat.AllAddrs()) || a.Minus(b).Overlaps(b) {
			t.Fatalf("seed %d: complements of %v and %v are wrong", seed, pa, pb)
		}
	}
}

// A rule with a condition on the payload drops what does not meet it, so it is no Allow
// that could be left out: what comes after it would decide.
func TestWithoutLeavesNoDropOut(t *testing.T) {
	rs := policy.Ruleset{Rules: []policy.TargetRule{
		{Key: "a", Action: policy.Allow, Direction: policy.Ingress, AllPeers: true, Traffic: []policy.Traffic{{Protocol: policy.TCP}}, L7: []policy.L7{{HTTP: &policy.HTTP{Method: "GET"}}}},
		{Key: "b", Action: policy.Allow, Direction: policy.Ingress, AllPeers: true, Traffic: policy.AllTraffic, Index: 1},
	}}
	f := flat.New(rs, flat.Options{})
	flow := policy.Flow{From: policy.Endpoint{Addr: addr("10.0.0.1")}, To: policy.Endpoint{Addr: addr("10.0.0.1")}, Protocol: policy.TCP, Port: 80}
	for _, without := range []map[string]bool{nil, {"a": true}, {"a": true, "b": true}} {
		in := flat.Input{Direction: policy.Ingress, Rules: []string{"a", "b"}, Without: without}
		allowed, _ := f.Flatten(in)
		steps, _ := f.Steps(in)
		if allowed.Has(policy.Ingress, flow) || walk(steps, flow) {
			t.Errorf("without %v TCP passes: %v, %+v", without, allowed, steps)
		}
	}
}
