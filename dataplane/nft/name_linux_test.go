package nft_test

import (
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// What answers change between any two steps of a Sync is in the kernel afterwards, and not lost by what was read or
// lowered before.
func TestNamesBetween(t *testing.T) {
	r := newRouter(t)
	k := known{}
	d := nft.NewDriver(nft.Config{NetNS: int(r.ns), Names: k})
	t.Cleanup(d.Close)
	rule := func(name string) policy.Ruleset {
		x := policy.TargetRule{Key: "p/egress/0", Policy: "p", Direction: policy.Egress, Tier: 250, Action: policy.Drop, Names: []string{name}, Traffic: policy.AllTraffic}
		return policy.Ruleset{Target: target, Rules: []policy.TargetRule{x}, Workloads: []policy.Enforced{{Workload: pod("a", "10.0.0.1"), Egress: []string{x.Key}}}}
	}
	kernel := nft.Kernel{NetNS: int(r.ns)}
	sets := func() (out []*nft.Set) {
		t.Helper()
		objects, err := kernel.Read("isobar")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.Set != nil && nft.IsNameSet(o.Set.Name) {
				o.Set.Family, o.Set.Fields = nft.IPv4, []nft.Field{nft.FieldDestination}
				out = append(out, o.Set)
			}
		}
		return out
	}
	has := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, s := range sets() {
			for _, e := range s.List() {
				a, _ := netip.AddrFromSlice([]byte(e.Key))
				got = append(got, a.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", when, got, want)
		}
	}
	tell := func(name string, addrs ...string) {
		t.Helper()
		changed := k[name]
		delete(k, name)
		for _, a := range addrs {
			k[name] = append(k[name], netip.MustParseAddr(a))
		}
		if err := d.Found(t.Context(), []nft.NameChange{{Patterns: []string{name}, Addrs: append(changed, k[name]...)}}); err != nil {
			t.Fatal(err)
		}
	}
	// sync is what a Syncer does, with something in between.
	var have map[string]nft.Object
	sync := func(rs policy.Ruleset, read, lowered func()) []plan.Change[nft.Object] {
		t.Helper()
		if have == nil {
			var err error
			if have, err = d.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		read()
		want, _ := d.Lower(rs)
		lowered()
		changes := plan.Diff(have, want, d.Equal)
		if err := d.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		have = want
		return changes
	}
	nothing := func() {}
	if err := d.Found(t.Context(), nil); err == nil {
		t.Error("answers pass before anything is read")
	}

	sync(rule("a.example"), nothing, func() { tell("a.example", "10.9.0.1") })
	has("learned after lowering", "10.9.0.1")
	tell("a.example", "10.9.0.2", "10.9.0.3")
	has("learned", "10.9.0.2", "10.9.0.3")
	if c := sync(rule("a.example"), nothing, nothing); len(c) != 0 {
		t.Errorf("%+v", c)
	}

	have = nil
	sync(rule("a.example"), func() { tell("a.example", "10.9.0.4") }, nothing)
	has("learned after reading", "10.9.0.4")
	if err := kernel.Elements("isobar", sets()[0], []nft.Element{{Key: "\x0a\x09\x00\x09"}}, nil); err != nil {
		t.Fatal(err)
	}
	have = nil
	sync(rule("a.example"), nothing, func() { tell("a.example", "10.9.0.5") })
	has("others added, and learned after lowering", "10.9.0.5")
	tell("a.example")
	has("forgotten")

	tell("b.example", "10.9.0.6") // which no rule means yet
	has("of no rule")
	sync(rule("b.example"), nothing, nothing)
	has("of another rule", "10.9.0.6")

	// A refusal is an error until what there is was read again.
	if err := kernel.Elements("isobar", sets()[0], nil, []nft.Element{{Key: "\x0a\x09\x00\x06"}}); err != nil {
		t.Fatal(err)
	}
	k["b.example"] = nil
	gone := []nft.NameChange{{Patterns: []string{"b.example"}, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.6")}}}
	if err := d.Found(t.Context(), gone); err == nil {
		t.Error("the kernel takes what is not there")
	}
	if err := d.Found(t.Context(), nil); err == nil {
		t.Error("answers pass after a refusal")
	}
	have = nil
	sync(rule("b.example"), nothing, nothing)
	tell("b.example", "10.9.0.7")
	has("mended", "10.9.0.7")
}
