package nft_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// many returns a Ruleset of pods Pods, each under n policies that allow a group of size
// members on a port of their own; groups of them are different.
func many(pods, policies, groups, size int) policy.Ruleset {
	rs := policy.Ruleset{Target: target}
	for i := range groups {
		m := policy.Members{Key: fmt.Sprintf("pod ns=* {app in (g%04d)}", i)}
		var list []*policy.Workload
		for j := range size {
			list = append(list, member(i, j))
		}
		m.Workloads = policy.ByID(list...)
		rs.Groups = append(rs.Groups, m)
	}
	var keys []string
	for i := range policies {
		id := fmt.Sprintf("networkpolicy/shop/p%05d", i)
		key := policy.RuleKey(id, policy.Ingress, 0, "")
		port := uint16(1000 + i)
		rs.Rules = append(rs.Rules, policy.TargetRule{Key: key, Policy: id, Direction: policy.Ingress, Tier: policy.AfterPass(0), Action: policy.Allow,
			Groups: []string{rs.Groups[i%groups].Key}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: port, Last: port}}}})
		keys = append(keys, key)
	}
	for i := range pods {
		w := &policy.Workload{ID: fmt.Sprintf("pod/shop/local-%03d", i), Kind: policy.KindPod, Namespace: "shop", Node: "n", Target: target,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})}}
		rs.Workloads = append(rs.Workloads, policy.Enforced{Workload: w, Ingress: keys, IsolatedIngress: "networkpolicy/shop/p00000"})
	}
	return rs
}

// member is one of a group.
func member(group, n int) *policy.Workload {
	return &policy.Workload{ID: fmt.Sprintf("pod/far/%04d-%06d", group, n), Kind: policy.KindPod, Namespace: "far",
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{44, byte(group) + byte(n>>16), byte(n >> 8), byte(n)})}}
}

// grown returns rs with a member more in its first group.
func grown(rs policy.Ruleset) policy.Ruleset {
	rs.Groups = slices.Clone(rs.Groups)
	g := &rs.Groups[0]
	w := member(0, 1<<20-1)
	g.Workloads = g.Workloads.Put(w.ID, w)
	return rs
}

// cpu reports the processor's time of what b measures from here to the end: on a machine that others use, too,
// it is what can be compared.
func cpu(b *testing.B) (end func()) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

func BenchmarkLower(b *testing.B) {
	for _, policies := range []int{10, 1000} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			rs := many(100, policies, min(policies, 100), 100)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				nft.Lower(nft.Place{}, rs)
			}
		})
	}
}

// One member more in a group, and back, found and compared: what BenchmarkMember is without the kernel.
func BenchmarkMemberFound(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			d := nft.NewDriver(nft.Config{})
			states := []policy.Ruleset{many(10, 10, 1, size), {}}
			states[1] = grown(states[0])
			have, _ := d.Lower(states[0])
			b.ReportAllocs()
			defer cpu(b)()
			for i := 1; b.Loop(); i++ {
				want, _ := d.Lower(states[i%2])
				if changes := plan.Diff(have, want, d.Equal); len(changes) != 1 {
					b.Fatal(changes)
				}
				have = want
			}
		})
	}
}

// One member more in a group, and back, as a Syncer does it: lowered, compared and written.
func BenchmarkMember(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			r := newRouter(b)
			y := plan.NewSyncer("", r.driver)
			states := []policy.Ruleset{many(10, 10, 1, size), {}}
			states[1] = grown(states[0])
			for _, rs := range states {
				if _, err := y.Sync(b.Context(), rs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			defer cpu(b)()
			for i := 0; b.Loop(); i++ {
				if _, err := y.Sync(b.Context(), states[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The transaction alone, for one member more or less.
func BenchmarkElement(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			r := newRouter(b)
			rs := many(10, 10, 1, size)
			if _, err := plan.NewSyncer("", r.driver).Sync(b.Context(), rs); err != nil {
				b.Fatal(err)
			}
			objects, _ := nft.Lower(nft.Place{}, rs)
			var set *nft.Set
			for _, o := range objects {
				if o.Set != nil && o.Set.Len() == size {
					set = o.Set
				}
			}
			less, more := nft.Object{Set: &nft.Set{Name: set.Name, Family: set.Family, Fields: set.Fields}}, nft.Object{}
			with := *less.Set
			with.Elements = []nft.Element{{Key: "\x0b\x00\x00\x01"}}
			more.Set = &with
			changes := [][]plan.Change[nft.Object]{{{Key: "set/x", Have: &less, Want: &more}}, {{Key: "set/x", Have: &more, Want: &less}}}
			b.ReportAllocs()
			defer cpu(b)()
			for i := 0; b.Loop(); i++ {
				if err := r.driver.Apply(b.Context(), changes[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// All of a group of 100,000, from nothing, and read again.
func BenchmarkFirst(b *testing.B) {
	r := newRouter(b)
	rs := many(10, 10, 1, 100_000)
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			if err := (nft.Kernel{NetNS: int(r.ns)}).Clear(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, err := plan.NewSyncer("", r.driver).Sync(b.Context(), rs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		defer cpu(b)()
		for b.Loop() {
			if report, err := plan.NewSyncer("", r.driver).Sync(b.Context(), rs); err != nil || len(report.Changes) > 0 {
				b.Fatal(report.Changes, err)
			}
		}
	})
}
