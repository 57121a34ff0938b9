package flat_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// large is a subject with rules over groups of many members each.
func large(rules, members int) (policy.Ruleset, flat.Input) {
	rs := policy.Ruleset{Target: "t"}
	in := flat.Input{Direction: policy.Ingress, Denies: true}
	for g := range 10 {
		m := policy.Members{Key: fmt.Sprint("group-", g)}
		for i := range members {
			n := g*members + i
			w := &policy.Workload{ID: fmt.Sprint("w", n), Kind: policy.KindPod,
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n >> 15), byte(n >> 7), byte(n << 1)})}}
			m.Workloads = m.Workloads.Put(w.ID, w)
		}
		rs.Groups = append(rs.Groups, m)
	}
	for i := range rules {
		port := uint16(1000 + i)
		r := policy.TargetRule{Key: fmt.Sprint("r", i), Policy: "p", Direction: policy.Ingress, Tier: 250, Index: i, Action: policy.Allow,
			Groups: []string{fmt.Sprint("group-", i%10)}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: port, Last: port + 1}}}}
		if i%5 == 4 {
			r.Action = policy.Drop
		}
		rs.Rules = append(rs.Rules, r)
		in.Rules = append(in.Rules, r.Key)
	}
	return rs, in
}

func BenchmarkFlatten(b *testing.B) {
	for _, n := range [][2]int{{10, 100}, {100, 100}, {100, 10_000}} {
		rs, in := large(n[0], n[1])
		f := flat.New(rs, flat.Options{})
		b.Run(fmt.Sprintf("rules=%d,members=%d", n[0], 10*n[1]), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Flatten(in)
			}
		})
	}
}
