package feed_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/api/answer"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
	"isobar.dev/policy/policytest"
)

// objectOf is what an object of the feed is to its reader.
func objectOf(o runtime.Object) runtime.Object {
	if c, ok := o.(runtime.CacheableObject); ok {
		return c.GetObject()
	}
	return o
}

// memberText is a member with its addresses.
func memberText(m controlplanev1beta2.GroupMember) string {
	var parts []string
	switch {
	case m.Pod != nil:
		parts = append(parts, "pod", m.Pod.Namespace, m.Pod.Name)
	case m.ExternalEntity != nil:
		parts = append(parts, "ee", m.ExternalEntity.Namespace, m.ExternalEntity.Name)
	case m.Node != nil:
		parts = append(parts, "node", m.Node.Name)
	}
	for _, ip := range m.IPs {
		parts = append(parts, fmt.Sprintf("%x", []byte(ip)))
	}
	return strings.Join(parts, " ")
}

func prefixOf(n controlplanev1beta2.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	return netip.PrefixFrom(a.Unmap(), int(n.PrefixLength))
}

// probe is a policy that names one group as a peer, for all Pods. It drops, so that nothing is left out
// of what its peers are told as.
func probe(id string) *policy.Policy {
	return &policy.Policy{
		ID: policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "probe-"+id), Dialect: policy.AntreaClusterNetworkPolicy, Name: "probe-" + id, UID: "probe-" + id,
		Tier: "emergency", Priority: 1, AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces}}},
		Ingress: []policy.Rule{{Name: "r", Action: policy.Drop, Peers: policy.Peers{Set: policy.Set{Groups: []string{id}}}, Traffic: policy.AllTraffic}},
	}
}

// told is what agents are told of the peers of a policy: members, and prefixes.
func told(t *testing.T, f *feed.Feed, p *policy.Policy) ([]string, flat.Set) {
	t.Helper()
	members, set := map[string]bool{}, flat.Set{}
	o, ok := f.Get(feed.NetworkPolicies, feed.SpanOf(""), convert.PolicyName(p))
	if !ok {
		return nil, set
	}
	for _, r := range objectOf(o).(*controlplanev1beta2.NetworkPolicy).Rules {
		for _, name := range r.From.AddressGroups {
			g, ok := f.Get(feed.AddressGroups, feed.SpanOf(""), name)
			if !ok {
				t.Fatalf("%s names the group %s, which is not there", p.ID, name)
			}
			for _, m := range objectOf(g).(*controlplanev1beta2.AddressGroup).GroupMembers {
				m.Ports = nil
				members[memberText(m)] = true
			}
		}
		for _, b := range r.From.IPBlocks {
			var except []netip.Prefix
			for _, e := range b.Except {
				except = append(except, prefixOf(e))
			}
			set = set.Union(flat.SetOf(prefixOf(b.CIDR)).Minus(flat.SetOf(except...)))
		}
	}
	return slices.Sorted(maps.Keys(members)), set
}

// TestGroupsAgree: what agents are told of a policy whose peer is a group, with its children, its Service and
// its blocks, is what people are told of who is in it.
func TestGroupsAgree(t *testing.T) {
	asked, full, unread, nested, byService, byChildren := 0, 0, 0, 0, 0, 0
	for seed := range policytest.Seeds(t, 800) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := policytest.Spoken(world(rnd, 2+rnd.IntN(14)))
		pod := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "a", "asks"), Kind: policy.KindPod, Namespace: "a", Name: "asks", Node: "n1", Target: convert.NodeTarget("n1"), Addrs: []netip.Addr{netip.MustParseAddr("10.255.0.1")}}
		s.Workloads = s.Workloads.Put(pod.ID, pod)
		for id := range s.Groups.All() {
			p := probe(id)
			s.Policies = s.Policies.Put(p.ID, p)
		}
		f := feed.New(compile.NewEngine())
		f.Update(s)
		for id, g := range s.Groups.All() {
			members, set := told(t, f, probe(id))
			want, err := answer.Members(s, id, 0, 0)
			asked++
			if err != nil {
				// Of a denial, what cannot be read is everybody; what nests too deep is nobody.
				if s.IsUnread(id) {
					unread++
				} else {
					nested++
				}
				if everybody := set.Equal(flat.AllAddrs()); everybody != s.IsUnread(id) || !everybody && !set.IsEmpty() {
					t.Fatalf("seed %d: of %s people are told %v, and agents %v", seed, id, err, set.Prefixes())
				}
				continue
			}
			var names []string
			for _, m := range want.Members {
				m.Ports = nil
				names = append(names, memberText(m))
			}
			slices.Sort(names)
			var prefixes []netip.Prefix
			for _, n := range want.Prefixes {
				prefixes = append(prefixes, prefixOf(n))
			}
			if !slices.Equal(members, names) || !set.Equal(flat.SetOf(prefixes...)) {
				t.Fatalf("seed %d: of %s people are told\n%q %v\nand agents\n%q %v\nin\n%s", seed, id, names, prefixes, members, set.Prefixes(), policytest.Print(s))
			}
			if len(names) > 0 || len(prefixes) > 0 {
				full++
				if g.Service != "" {
					byService++
				}
				if len(g.Children) > 0 {
					byChildren++
				}
			}
		}
	}
	t.Logf("%d groups, %d with somebody (%d by a Service, %d by children), %d unread, %d nested too deep", asked, full, byService, byChildren, unread, nested)
	if min(full, byService, byChildren, nested) < 20 {
		t.Error("the worlds show too little")
	}
}
