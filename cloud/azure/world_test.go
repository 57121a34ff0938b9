package azure_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

const subscription = "/subscriptions/00000000-0000-0000-0000-000000000001/resourcegroups/rg1/providers/microsoft.network/"

// distinct gives every interface an ID of its own, as Azure writes them.
func distinct(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		c := *w
		c.Interfaces = slices.Clone(w.Interfaces)
		for i := range c.Interfaces {
			c.Interfaces[i].ID = fmt.Sprintf("%snetworkinterfaces/nic-%x-%d", subscription, id, i)
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// vnet is what the Objects of one VNet are asked with.
type vnet struct {
	place    azure.Place
	objects  map[string]azure.Object
	refusals []policy.Refusal
}

// compare holds what the NSGs of VNets say of flows against Evaluate.
func compare(s policy.Snapshot, vnets map[string]*vnet, flows []policy.Flow) (cloudtest.Tally, error) {
	refusals := map[string][]policy.Refusal{}
	for target, v := range vnets {
		refusals[target] = v.refusals
	}
	var failed error
	side := func(w *policy.Workload, d policy.Direction, f policy.Flow) cloudtest.Side {
		if w == nil || vnets[w.Target] == nil {
			return cloudtest.Unasked
		}
		allowed, governed, err := azure.Answer(vnets[w.Target].objects, w, d, f)
		failed = errors.Join(failed, err)
		if allowed || !governed {
			return cloudtest.Allowed
		}
		return cloudtest.Denied
	}
	n, err := cloudtest.Enforced{Snapshot: s, Refusals: refusals}.Check(flows, func(f policy.Flow, from, to policy.End) cloudtest.Told {
		return cloudtest.Told{Egress: side(from.Subject, policy.Egress, f), Ingress: side(to.Subject, policy.Ingress, f)}
	})
	if err != nil {
		for target, v := range vnets {
			err = fmt.Errorf("%w\n%s\n%s", err, target, dump(v.objects))
		}
	}
	return n, errors.Join(err, failed)
}

// lowered lowers a world for every VNet, under quotas that are drawn.
func lowered(rnd *rand.Rand, s policy.Snapshot) map[string]*vnet {
	out := map[string]*vnet{}
	for _, rs := range compile.Rulesets(s) {
		p := azure.Place{}
		if rnd.IntN(4) == 0 {
			p.Quotas = azure.Quotas{RulesPerNSG: 2 + rnd.IntN(12), AddressesPerNSG: 1 + rnd.IntN(30), NSGsPerRegion: 1 + rnd.IntN(6)}
		}
		v := &vnet{place: p}
		v.objects, v.refusals = azure.Lower(p, rs)
		out[rs.Target] = v
	}
	return out
}

// The NSGs of a VNet must say what Evaluate says: never more, and less only where a
// Refusal for the VM says so.
func TestLowerIsEvaluate(t *testing.T) {
	worlds := 1500
	if testing.Short() {
		worlds = 300
	}
	var ran, exact, stricter, denies int
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		s := distinct(policytest.VMWorld(rnd, 4+rnd.IntN(12)))
		vnets := lowered(rnd, s)
		for _, v := range vnets {
			if err := checkObjects(v); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, o := range v.objects {
				if o.NSG != nil {
					for _, r := range slices.Concat(o.NSG.Ingress, o.NSG.Egress) {
						if !r.Allow && !r.Any {
							denies++
						}
					}
				}
			}
		}
		n, err := compare(s, vnets, policytest.Flows(rnd, s, 60))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		exact, stricter = exact+n.Exact, stricter+n.Stricter
	}
	t.Logf("%d decisions exact, %d stricter by a Refusal, %d rules deny a peer", exact, stricter, denies)
	if ran >= 100 && (exact < ran*10 || stricter*5 > exact || denies < ran/2) {
		t.Error("the worlds are not telling")
	}
}

// The same for policies of every dialect, with all that they can say: Pods stand in a
// VNet, as if they were VMs.
func TestLowerIsEvaluateInEveryDialect(t *testing.T) {
	worlds := 1000
	if testing.Short() {
		worlds = 150
	}
	var ran, exact, stricter int
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 4+rnd.IntN(10))
		for id, w := range s.Workloads.All() {
			if w.Kind == policy.KindPod && w.Target != "" && !w.HostNetwork {
				c := *w
				c.Target, c.Interfaces = "azure/all", []policy.Interface{{ID: "nic-" + id, Addrs: w.Addrs}}
				s.Workloads = s.Workloads.Put(id, &c)
			}
		}
		vnets := lowered(rnd, s)
		maps.DeleteFunc(vnets, func(target string, _ *vnet) bool { return target != "azure/all" })
		if err := checkObjects(vnets["azure/all"]); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n, err := compare(s, vnets, policytest.Flows(rnd, s, 60))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		exact, stricter = exact+n.Exact, stricter+n.Stricter
	}
	t.Logf("%d decisions exact, %d stricter by a Refusal", exact, stricter)
	if ran >= 100 && (exact < ran*10 || stricter == 0) {
		t.Error("the worlds are not telling")
	}
}

// checkObjects holds Objects against the quotas, and what Azure takes.
func checkObjects(v *vnet) error {
	if v == nil {
		return nil // nobody is there
	}
	for _, u := range azure.UsageOf(v.place, v.objects) {
		if u.Used > u.Limit {
			return fmt.Errorf("over the quota: %+v\n%s", u, dump(v.objects))
		}
	}
	for key, o := range v.objects {
		switch {
		case o.NIC != nil && o.NIC.NSG != "" && v.objects[o.NIC.NSG].NSG == nil:
			return fmt.Errorf("%s has %s, which is not there", key, o.NIC.NSG)
		case o.NSG != nil:
			if err := checkNSG(o.NSG); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

func checkNSG(g *azure.NSG) error {
	names := map[string]bool{}
	for _, rules := range [][]azure.Rule{g.Ingress, g.Egress} {
		if n := len(rules); n == 0 || !rules[n-1].Any || rules[n-1].Protocol != "*" {
			return fmt.Errorf("no rule closes %v", rules)
		}
		for _, r := range rules {
			if names[r.Name] || len(r.Name) > 80 || strings.ContainsFunc(r.Name, func(c rune) bool { return strings.ContainsRune(" /#:", c) }) {
				return fmt.Errorf("the name %q is taken twice, or not fit", r.Name)
			}
			names[r.Name] = true
			ways := 0
			for _, is := range []bool{r.Any, len(r.Prefixes) > 0, len(r.Groups) > 0} {
				if is {
					ways++
				}
			}
			if ways != 1 || len(r.Groups) > 10 {
				return fmt.Errorf("rule %+v names no peers, or in two ways, or too many", r)
			}
			for _, p := range r.Prefixes {
				if p.Addr().Is4() != r.Prefixes[0].Addr().Is4() || r.Protocol == "Icmp" && p.Addr().Is6() {
					return fmt.Errorf("rule %+v has addresses of both families, or ICMP of IPv6", r)
				}
			}
		}
	}
	return nil
}

func dump(objects map[string]azure.Object) string {
	out := ""
	for key, o := range objects {
		if o.NSG == nil {
			out += fmt.Sprintf("%s: %+v %+v\n", key, o.NIC, o.ASG)
			continue
		}
		for _, x := range []struct {
			d     policy.Direction
			rules []azure.Rule
		}{{policy.Ingress, o.NSG.Ingress}, {policy.Egress, o.NSG.Egress}} {
			for i, r := range x.rules {
				out += fmt.Sprintf("%s %v %d: %v (%s)\n", key, x.d, i, r, r.Name)
			}
		}
	}
	return out
}
