package classes_test

import (
	"testing"

	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/classes"
	"isobar.dev/policy/flat"
)

var shop = cloudtest.Network{ID: "net", Target: "cloud/net", NIC: func(vm int) string { return string(rune('a' + vm)) }}

func classesOf(s policy.Snapshot) map[string]string {
	out := map[string]string{}
	for _, rs := range compile.Rulesets(s) {
		for _, c := range classes.Of(rs, flat.New(rs, flat.Options{}), func(_ *policy.Workload, n policy.Interface) string {
			if n.ID == "e" { // which the cloud cannot govern
				return ""
			}
			return n.ID
		}) {
			for _, nic := range c.NICs {
				out[nic] = c.ID
			}
		}
	}
	return out
}

// Who is under the same policies is of one class, which stays when their rules and the
// members of their groups change; who is under none is of none.
func TestOf(t *testing.T) {
	states := shop.States()
	three, edited := classesOf(states["three"]), classesOf(states["edited"])
	if len(three) != 4 || three["a"] != three["b"] || three["a"] != three["c"] || three["a"] == three["d"] {
		t.Errorf("classes %v; want one of a, b and c, and one of d", three)
	}
	for nic, id := range three {
		if edited[nic] != id {
			t.Errorf("with other rules %s is of class %s, before of %s", nic, edited[nic], id)
		}
	}
	if mesh := classesOf(states["mesh"]); len(mesh) != 4 || mesh["a"] != mesh["d"] || mesh["a"] == three["a"] {
		t.Errorf("classes %v; want another one of a to d", mesh)
	}
	if none := classesOf(states["nothing"]); len(none) > 0 {
		t.Errorf("classes %v where nothing is enforced", none)
	}
}

// Two workloads with one interface are a class of their own, whatever their order.
func TestOfShared(t *testing.T) {
	s := shop.States()["three"]
	w, _ := s.Workloads.Get("ee/shop/vm-3")
	twin := *w
	twin.Interfaces = []policy.Interface{{ID: "a", Addrs: w.Addrs}}
	s.Workloads = s.Workloads.Put(w.ID, &twin)
	got := classesOf(s)
	if got["a"] == got["b"] || got["a"] == "" {
		t.Errorf("classes %v; want one of a alone", got)
	}
}
