package aws_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// vpc is what the Objects of one VPC are asked with.
type vpc struct {
	place    aws.Place
	objects  map[string]aws.Object
	refusals []policy.Refusal
	members  []*policy.Workload
}

// compare holds what the groups of VPCs say of flows against Evaluate.
func compare(s policy.Snapshot, vpcs map[string]*vpc, flows []policy.Flow) (cloudtest.Tally, error) {
	refusals := map[string][]policy.Refusal{}
	for target, v := range vpcs {
		refusals[target] = v.refusals
	}
	var failed error
	side := func(w *policy.Workload, d policy.Direction, f policy.Flow) cloudtest.Side {
		if w == nil || vpcs[w.Target] == nil {
			return cloudtest.Unasked
		}
		v := vpcs[w.Target]
		allowed, governed, err := aws.Answer(v.objects, w, v.members, d, f)
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
		for target, v := range vpcs {
			err = fmt.Errorf("%w\n%s\n%s", err, target, dump(v.objects))
		}
	}
	return n, errors.Join(err, failed)
}

// lowered lowers a world for every VPC, under quotas that are drawn; prefixes are
// those of every VPC.
func lowered(rnd *rand.Rand, s policy.Snapshot, prefixes ...netip.Prefix) map[string]*vpc {
	out := map[string]*vpc{}
	for _, rs := range compile.Rulesets(s) {
		p := aws.Place{Prefixes: prefixes, ManyPeers: 1 + rnd.IntN(4), ManyPrefixes: 1 + rnd.IntN(3), Own: map[string]int{}}
		if rnd.IntN(4) == 0 {
			p.Quotas = aws.Quotas{RulesPerGroup: 1 + rnd.IntN(12), GroupsPerNIC: 1 + rnd.IntN(5), GroupsPerRegion: 2 + rnd.IntN(6), PrefixLists: 1 + rnd.IntN(5), EntriesPerList: 8 + rnd.IntN(8)}
		}
		v := &vpc{place: p}
		v.objects, v.refusals = aws.Lower(p, rs)
		for _, w := range s.Workloads.All() {
			if w.Kind == policy.KindExternal && w.Network == rs.Workloads[0].Workload.Network {
				v.members = append(v.members, w)
			}
		}
		out[rs.Target] = v
	}
	return out
}

// The groups of a VPC must say what Evaluate says: never more, and less only
// where a Refusal for the VM says so.
func TestLowerIsEvaluate(t *testing.T) {
	worlds := 1500
	if testing.Short() {
		worlds = 200
	}
	var ran, exact, stricter, memberships, lists int
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		s := distinct(policytest.VMWorld(rnd, 4+rnd.IntN(12)))
		vpcs := lowered(rnd, s)
		for _, v := range vpcs {
			if err := checkQuotas(t, v); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, o := range v.objects {
				if o.Group != nil && o.Group.Kind == aws.Membership {
					memberships++
				}
				if o.List != nil {
					lists++
				}
			}
		}
		n, err := compare(s, vpcs, policytest.Flows(rnd, s, 60))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		exact, stricter = exact+n.Exact, stricter+n.Stricter
	}
	t.Logf("%d decisions exact, %d stricter by a Refusal, %d membership groups, %d lists", exact, stricter, memberships, lists)
	if ran >= 100 && (exact < ran*10 || stricter*5 > exact || memberships < ran/10 || lists < ran/10) {
		t.Error("the worlds are not telling")
	}
}

// podsInVPC adds Pods with addresses of a VPC, which have the labels of VMs, and has every
// rule that names VMs as peers name Pods by the same labels.
func podsInVPC(s policy.Snapshot, vpc string) policy.Snapshot {
	n := byte(0)
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal || n == 255 {
			continue
		}
		n++
		pod := &policy.Workload{
			ID: policy.WorkloadID(policy.KindPod, w.Namespace, "of-"+w.Name), Kind: policy.KindPod, Namespace: w.Namespace, Name: "of-" + w.Name, Node: "node", Target: "node/node",
			Labels: w.Labels, Ports: w.Ports, Network: vpc, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 100, n}), netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 14: 100, 15: n})},
		}
		if pod.ID != id {
			s.Workloads = s.Workloads.Put(pod.ID, pod)
		}
	}
	for id, p := range s.Policies.All() {
		c := *p
		c.Ingress, c.Egress = naming(policy.KindPod, p.Ingress), naming(policy.KindPod, p.Egress)
		s.Policies = s.Policies.Put(id, &c)
	}
	return s
}

// naming returns rules that name workloads of a kind where they name VMs.
func naming(kind policy.Kind, rules []policy.Rule) []policy.Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		all := slices.Clone(rules[i].Peers.Set.Selections)
		for _, sel := range rules[i].Peers.Set.Selections {
			if sel.Kind == policy.KindExternal {
				sel.Kind = kind
				all = append(all, sel)
			}
		}
		rules[i].Peers.Set.Selections = all
	}
	return rules
}

// Pods with addresses of a VPC, as on EKS, are workloads of that VPC: the groups
// there say exactly what Evaluate says of them.
func TestLowerIsEvaluateOfPodsInAVPC(t *testing.T) {
	var ran, exact, stricter, unreachable, written int
	pods := netip.MustParsePrefix("172.16.100.0/24")
	for seed := range policytest.Seeds(t, 100) {
		ran++
		rnd := policytest.Rand(seed)
		s := podsInVPC(distinct(policytest.VMWorld(rnd, 4+rnd.IntN(12))), "vpc-1")
		vpcs := lowered(rnd, s, netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("fd01::/16"))
		for target, v := range vpcs {
			for _, o := range v.objects {
				if o.Group != nil && slices.ContainsFunc(slices.Concat(o.Group.Ingress, o.Group.Egress), func(r aws.Rule) bool { return r.Prefix.IsValid() && pods.Contains(r.Prefix.Addr()) }) {
					written++
				}
			}
			for _, r := range v.refusals {
				if r.Reason == policy.RefusedPeers && strings.HasSuffix(target, "/vpc-1") && strings.Contains(r.Message, "172.16.100.") {
					unreachable++
				}
			}
		}
		n, err := compare(s, vpcs, policytest.Flows(rnd, s, 60))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		exact, stricter = exact+n.Exact, stricter+n.Stricter
	}
	t.Logf("%d decisions exact, %d stricter by a Refusal, %d groups with addresses of Pods", exact, stricter, written)
	if unreachable > 0 || ran >= 50 && (exact < ran*10 || written < ran/4) {
		t.Errorf("%d refusals of Pods in their own VPC, %d decisions exact, %d groups with addresses of Pods", unreachable, exact, written)
	}
}

func checkQuotas(t *testing.T, v *vpc) error {
	t.Helper()
	for _, u := range aws.UsageOf(v.place, v.objects) {
		if u.Used > u.Limit {
			return fmt.Errorf("over the quota: %+v\n%s", u, dump(v.objects))
		}
	}
	for _, o := range v.objects {
		if o.NIC == nil {
			continue
		}
		for _, key := range o.NIC.Groups {
			if v.objects[key].Group == nil {
				return fmt.Errorf("an interface has %s, which is not there", key)
			}
		}
	}
	return nil
}

func dump(objects map[string]aws.Object) string {
	out := ""
	for key, o := range objects {
		switch {
		case o.Group != nil:
			out += fmt.Sprintf("%s: in %v out %v\n", key, o.Group.Ingress, o.Group.Egress)
		case o.List != nil:
			out += fmt.Sprintf("%s: %v of %d\n", key, o.List.Entries, o.List.Max)
		default:
			out += fmt.Sprintf("%s: %+v\n", key, *o.NIC)
		}
	}
	return out
}
