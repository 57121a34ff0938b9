package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

// line is traffic of every kind that a world can tell apart.
func line(s policy.Snapshot) []policy.Flow {
	ports := map[uint16]bool{1: true, 65535: true}
	note := func(first, last uint16) {
		for _, n := range []uint16{first - 1, first, last, last + 1} {
			ports[n] = true
		}
	}
	for _, w := range s.Workloads.All() {
		for _, p := range w.Ports {
			note(p.Port, p.Port)
		}
	}
	for _, svc := range s.Services.All() {
		for _, p := range svc.Ports {
			note(p.Port, p.Port)
		}
	}
	types, codes, groups := map[uint8]bool{0: true, 255: true}, map[uint8]bool{0: true, 255: true}, map[uint8]bool{0: true, 255: true}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, t := range r.Traffic {
				note(t.Ports.First, t.Ports.Last)
				for _, x := range []struct {
					v  *uint8
					in map[uint8]bool
				}{{t.ICMPType, types}, {t.ICMPCode, codes}, {t.IGMPType, groups}} {
					if x.v != nil {
						x.in[*x.v-1], x.in[*x.v], x.in[*x.v+1] = true, true, true
					}
				}
			}
		}
	}
	delete(ports, 0)
	out := []policy.Flow{{Protocol: policy.OtherProtocol}}
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		for n := range ports {
			out = append(out, policy.Flow{Protocol: p, Port: n})
		}
	}
	for n := range types {
		for c := range codes {
			out = append(out, policy.Flow{Protocol: policy.ICMP, ICMPType: n, ICMPCode: c})
		}
	}
	for n := range groups {
		out = append(out, policy.Flow{Protocol: policy.IGMP, ICMPType: n})
	}
	return out
}

// addrsOf returns an address of nobody from each stretch that the rules of a world tell apart.
func addrsOf(s policy.Snapshot) []netip.Addr {
	at := []netip.Addr{netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::")}
	block := func(list []policy.Block) {
		for _, b := range list {
			for _, p := range append(slices.Clone(b.Except), b.Prefix) {
				if !p.IsValid() {
					continue
				}
				at = append(at, p.Masked().Addr())
				last := p.Masked().Addr()
				for a := last; p.Contains(a) && p.Bits() >= a.BitLen()-10; a = a.Next() {
					last = a
				}
				if p.Bits() < last.BitLen()-10 {
					bytes := last.AsSlice()
					for i := p.Bits(); i < last.BitLen(); i++ {
						bytes[i/8] |= 1 << (7 - i%8)
					}
					last, _ = netip.AddrFromSlice(bytes)
				}
				if last.Next().IsValid() {
					at = append(at, last.Next())
				}
			}
		}
	}
	for _, g := range s.Groups.All() {
		block(g.Blocks)
	}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			block(r.Peers.Blocks)
			for _, t := range r.Traffic {
				if t.GroupAddress.IsValid() {
					at = append(at, t.GroupAddress, t.GroupAddress.Next())
				}
			}
		}
	}
	for _, svc := range s.Services.All() {
		for _, a := range svc.Addrs {
			at = append(at, a, a.Next())
		}
	}
	taken := map[netip.Addr]bool{}
	for _, w := range s.Workloads.All() {
		for _, a := range w.Addrs {
			taken[a] = true
		}
	}
	slices.SortFunc(at, netip.Addr.Compare)
	at = slices.Compact(at)
	var out []netip.Addr
	for i, a := range at { // the first of the stretch that is free
		for taken[a] && a.Next().IsValid() && (i+1 == len(at) || a.Next() != at[i+1]) {
			a = a.Next()
		}
		if !taken[a] && !a.Is4In6() {
			out = append(out, a)
		}
	}
	return out
}

func text(e *reach.Edge) string {
	return fmt.Sprint(e.From, " to ", e.To, ": ", e.Pairs, e.Allowed, e.Partial, e.Depends, e.ByRule, e.Traffic(), e.MayPass())
}

// accessOf is what Evaluate says of one pair, whose ends may each be one of several.
type accessOf struct {
	meets, all, rule bool
	passes, may      map[policy.Flow]bool
}

func (x *accessOf) ask(s policy.Snapshot, from, to policy.Endpoint, flows []policy.Flow) {
	denies := func(f policy.Flow, d policy.Direction) bool {
		a, b, err := s.Ends(f)
		near := b
		if d == policy.Egress {
			near = a
		}
		return err == nil && near.Subject != nil && s.Judge(near.Subject, d).Denies()
	}
	passes, rule, may := false, false, false
	for _, f := range flows {
		key := f
		f.From, f.To = from, to
		all := policytest.Between(s, f)
		if len(all) == 0 {
			return
		}
		if !x.meets {
			x.meets, x.all = true, true
		}
		switch stateOf(s, f) {
		case reach.Allowed:
			x.passes[key], passes = true, true
			for _, f := range all {
				v, err := policy.Evaluate(s, f)
				rule = rule || err == nil && (v.Egress.Reason == policy.ByRule && denies(f, policy.Egress) || v.Ingress.Reason == policy.ByRule && denies(f, policy.Ingress))
			}
		case reach.Depends:
			x.may[key], x.all, may = true, false, true
		default:
			x.all = false
		}
	}
	x.rule = x.rule || rule || may && !passes
}

// What is said of any two groups is what Evaluate says of their pairs, by all traffic.
func TestAccessIsEvaluates(t *testing.T) {
	const outside = "outside"
	var seen reach.Edge
	for seed := range policytest.Seeds(t, 40) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 6)
		if seed%4 == 0 {
			s = policytest.VMWorld(rnd, 6)
		}
		w, err := reach.New(s)
		if err != nil {
			t.Fatal(err)
		}
		group := func(e reach.End) string {
			if e.Workload.Namespace == "" {
				return "(nodes)"
			}
			return e.Workload.Namespace
		}
		var edges []reach.Edge
		if err := w.Access(group, outside, reach.Options{}, func(row []reach.Edge) { edges = append(edges, row...) }); err != nil {
			t.Fatal(err)
		}
		type pair struct{ from, to string }
		flows, addrs := line(s), addrsOf(s)
		want := map[pair][]accessOf{}
		ask := func(from, to string, a, b []policy.Endpoint) {
			x := accessOf{passes: map[policy.Flow]bool{}, may: map[policy.Flow]bool{}}
			for _, a := range a {
				for _, b := range b {
					x.ask(s, a, b, flows)
				}
			}
			if x.meets {
				want[pair{from, to}] = append(want[pair{from, to}], x)
			}
		}
		var strangers []policy.Endpoint
		for _, a := range addrs {
			strangers = append(strangers, policy.Endpoint{Addr: a})
		}
		for _, a := range w.Ends {
			here := []policy.Endpoint{endpoint(a)}
			ask(group(a), outside, here, strangers)
			ask(outside, group(a), strangers, here)
			for _, b := range w.Ends {
				if a.Name != b.Name {
					ask(group(a), group(b), here, []policy.Endpoint{endpoint(b)})
				}
			}
		}
		// Of one group alone it says the same.
		only := group(w.Ends[rnd.IntN(len(w.Ends))])
		if seed%2 == 0 {
			w.MakeNoRows()
		}
		var some, those []string
		if err := w.Access(group, outside, reach.Options{Only: func(g string) bool { return g == only }}, func(row []reach.Edge) {
			for i := range row {
				some = append(some, text(&row[i]))
			}
		}); err != nil {
			t.Fatal(err)
		}
		for i := range edges {
			if edges[i].From == only || edges[i].To == only {
				those = append(those, text(&edges[i]))
			}
		}
		if fmt.Sprint(some) != fmt.Sprint(those) {
			t.Fatalf("seed %d: of %s alone\n%v\nof all\n%v", seed, only, some, those)
		}
		got := map[pair]reach.Edge{}
		for _, e := range edges {
			got[pair{e.From, e.To}] = e
		}
		for at, all := range want {
			e := got[at]
			is := reach.Edge{Pairs: e.Pairs, Allowed: e.Allowed, Partial: e.Partial, Depends: e.Depends, ByRule: e.ByRule}
			var should reach.Edge
			passes, may := map[policy.Flow]bool{}, map[policy.Flow]bool{}
			for _, x := range all {
				should.Pairs++
				switch {
				case x.all:
					should.Allowed++
				case len(x.passes) > 0:
					should.Partial++
				}
				if len(x.may) > 0 {
					should.Depends++
				}
				if x.rule {
					should.ByRule++
				}
				for f := range x.passes {
					passes[f] = true
				}
				for f := range x.may {
					may[f] = true
				}
			}
			if len(passes)+len(may) == 0 {
				should = reach.Edge{}
			}
			if fmt.Sprint(is) != fmt.Sprint(should) {
				t.Fatalf("seed %d: %s to %s: %+v, want %+v\n%s", seed, at.from, at.to, is, should, policytest.Print(s))
			}
			all := true
			for _, f := range flows {
				has := func(list []reach.Traffic) bool {
					return slices.ContainsFunc(list, func(t reach.Traffic) bool { return t.Has(f) })
				}
				all = all && passes[f]
				if len(e.Traffic()) > 0 && has(e.Traffic()) != passes[f] || len(e.MayPass()) > 0 && has(e.MayPass()) != may[f] {
					t.Fatalf("seed %d: %s to %s: %v and perhaps %v have %v wrongly: it passes %t, may %t\n%s",
						seed, at.from, at.to, e.Traffic(), e.MayPass(), f, passes[f], may[f], policytest.Print(s))
				}
			}
			if should.Pairs > 0 && e.PassesAll() != all {
				t.Fatalf("seed %d: all passes %t, want %t: %v", seed, e.PassesAll(), all, e.Traffic())
			}
			seen.Allowed, seen.Partial, seen.Depends, seen.ByRule = seen.Allowed+is.Allowed, seen.Partial+is.Partial, seen.Depends+is.Depends, seen.ByRule+is.ByRule
			delete(got, at)
		}
		if len(got) > 0 {
			t.Fatalf("seed %d: edges without pairs: %v", seed, got)
		}
	}
	if min(seen.Allowed, seen.Partial, seen.Depends, seen.ByRule) < 50 {
		t.Errorf("too little was seen: %+v", seen)
	}
}
