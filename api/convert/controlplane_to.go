package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// ToControlPlane returns what the Target of rs is told on the wire. The policies are
// those of the Snapshot that rs is compiled from: their UIDs and generations name what
// is sent. groupName gives the groups of rs, by Key, their names; nil means names that
// are made of the Keys. See [SelectionName].
//
// What has no words on the wire is a Problem whose Field is the Key of a rule, and what
// is sent instead is stricter: an Allow is left out as far as that goes, a Drop or
// Reject takes in more, and a Pass, or an Allow by payload, becomes a Drop, since without
// it a later rule could allow what it keeps from it. The error is about an rs that contradicts itself; nothing is to be
// sent of it.
//
// Not on the wire, and no loss to who enforces: labels of workloads, networks of
// addresses, and what Drivers of clouds tell each other (Exports).
func ToControlPlane(rs policy.Ruleset, policies policy.Table[*policy.Policy], groupName func(key string) string) (ControlPlane, []Problem, error) {
	if groupName == nil {
		groupName = func(key string) string { return controlplanev1beta2.GroupName("isobar.dev/selection " + key) }
	}
	c := toControlPlane{
		policies: policies, groupName: groupName, addresses: map[string]controlplanev1beta2.AddressGroup{}, named: map[string]controlplanev1beta2.AddressGroup{}, sent: map[string][]sentRule{}, places: map[string]*policy.TargetRule{},
		members: map[string]policy.Table[*policy.Workload]{}, networks: map[string]bool{}, at: map[netip.Addr][]*policy.Workload{},
		isolated: map[policy.Direction]map[string]bool{policy.Ingress: {}, policy.Egress: {}},
	}
	applied := map[string][]*policy.Workload{}
	for _, e := range rs.Workloads {
		c.networks[e.Workload.Network] = true
		c.learn(e.Workload)
		for _, key := range slices.Concat(e.Ingress, e.Egress) {
			applied[key] = append(applied[key], e.Workload)
		}
		c.isolate(e)
	}
	for _, g := range rs.Groups {
		c.members[g.Key] = g.Workloads
		for _, w := range g.Workloads.All() {
			c.learn(w)
		}
	}
	for i := range rs.Rules {
		c.send(&rs.Rules[i], applied[rs.Rules[i].Key])
	}
	out := ControlPlane{Addresses: sorted(c.addresses)}
	for _, id := range slices.Sorted(maps.Keys(c.sent)) {
		c.policy(id, &out)
	}
	slices.SortFunc(out.Policies, func(a, b controlplanev1beta2.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.AppliedTo, func(a, b controlplanev1beta2.AppliedToGroup) int { return cmp.Compare(a.Name, b.Name) })
	if len(c.errs) > 0 {
		return ControlPlane{}, nil, fmt.Errorf("target %s: %w", rs.Target, errors.Join(c.errs...))
	}
	return out, c.problems, nil
}

func sorted[T any](m map[string]T) []T {
	var out []T
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

type toControlPlane struct {
	problems
	errs      []error
	policies  policy.Table[*policy.Policy]
	groupName func(string) string
	members   map[string]policy.Table[*policy.Workload] // by Key of a group
	networks  map[string]bool                           // of the Target's workloads
	at        map[netip.Addr][]*policy.Workload         // all that is known, by address
	isolated  map[policy.Direction]map[string]bool
	sent      map[string][]sentRule                       // by ID of the policy
	places    map[string]*policy.TargetRule               // a rule of each policy, whose place in the order they share
	named     map[string]controlplanev1beta2.AddressGroup // by the rule at hand, in any form of it
	addresses map[string]controlplanev1beta2.AddressGroup
}

// sentRule are the rules that one rule is sent as, and what they apply to.
type sentRule struct {
	key       string
	direction policy.Direction
	rules     []controlplanev1beta2.NetworkPolicyRule
	subjects  []*policy.Workload
}

func (c *toControlPlane) learn(w *policy.Workload) {
	for _, a := range w.Addrs {
		if !slices.Contains(c.at[a], w) {
			c.at[a] = append(c.at[a], w)
		}
	}
}

// isolate sends what e denies besides its rules: by Kubernetes NetworkPolicies, as a
// rule of the one that is named for it that has no peers, and by itself.
func (c *toControlPlane) isolate(e policy.Enforced) {
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		id, denies := e.IsolatedIngress, e.DeniesIngress
		if d == policy.Egress {
			id, denies = e.IsolatedEgress, e.DeniesEgress
		}
		if id != "" {
			c.isolated[d][e.Workload.ID] = true
			c.attach(id, id+"/"+d.String()+"/isolates", d, e.Workload, controlplanev1beta2.NetworkPolicyRule{Direction: directions[d], Priority: -1})
		}
		if denies {
			c.attach(isolationPrefix+d.String(), isolationPrefix+d.String(), d, e.Workload, dropAll(d))
		}
	}
}

// attach has rule apply to one workload more.
func (c *toControlPlane) attach(id, key string, d policy.Direction, w *policy.Workload, rule controlplanev1beta2.NetworkPolicyRule) {
	list := c.sent[id]
	i := slices.IndexFunc(list, func(s sentRule) bool { return s.key == key })
	if i < 0 {
		list = append(list, sentRule{key: key, direction: d, rules: []controlplanev1beta2.NetworkPolicyRule{rule}})
		i = len(list) - 1
	}
	list[i].subjects = append(list[i].subjects, w)
	c.sent[id] = list
}

func (c *toControlPlane) send(r *policy.TargetRule, subjects []*policy.Workload) {
	if r.IsKubernetes() {
		if r.Action != policy.Allow || len(r.L7) > 0 {
			c.errs = append(c.errs, fmt.Errorf("rule %s: a Kubernetes NetworkPolicy can only allow, and by no payload", r.Key))
			return
		}
		// On the wire such a rule isolates what it applies to.
		all := len(subjects)
		subjects = slices.DeleteFunc(slices.Clone(subjects), func(w *policy.Workload) bool { return !c.isolated[r.Direction][w.ID] })
		if len(subjects) < all {
			c.add(r.Key, "would isolate %d workloads that nothing isolates: left out for them", all-len(subjects))
		}
	}
	if len(subjects) == 0 {
		return
	}
	if src, ok := c.policies.Get(r.Policy); ok && (src.Dialect == policy.KubernetesNetworkPolicy) != r.IsKubernetes() {
		c.errs = append(c.errs, fmt.Errorf("rule %s: of tier %d, in a policy that is written as %v", r.Key, r.Tier, src.Dialect))
		return
	}
	clear(c.named)
	if rules := rules(r, c.sendGroup, &c.problems); len(rules) > 0 {
		for _, rule := range rules {
			for _, name := range slices.Concat(rule.From.AddressGroups, rule.To.AddressGroups) {
				c.addresses[name] = c.named[name]
			}
		}
		c.places[r.Policy] = r
		c.sent[r.Policy] = append(c.sent[r.Policy], sentRule{key: r.Key, direction: r.Direction, rules: rules, subjects: subjects})
	}
}

// policy sends one policy with the groups that it applies to.
func (c *toControlPlane) policy(id string, out *ControlPlane) {
	p := controlplanev1beta2.NetworkPolicy{}
	if d, isolates := strings.CutPrefix(id, isolationPrefix); isolates {
		p = isolationPolicy(d)
	} else {
		src, ok := c.policies.Get(id)
		if !ok || policyTypes[src.Dialect] == "" {
			c.errs = append(c.errs, fmt.Errorf("policy %s: not among the policies", id))
			return
		}
		p.ObjectMeta = named(PolicyName(src))
		p.Generation = src.Generation
		p.SourceRef = &controlplanev1beta2.NetworkPolicyReference{Type: policyTypes[src.Dialect], Namespace: src.Namespace, Name: src.Name, UID: p.UID}
	}
	list := c.sent[id]
	slices.SortStableFunc(list, func(a, b sentRule) int { return cmp.Compare(a.direction, b.direction) })
	same := !slices.ContainsFunc(list, func(s sentRule) bool { return !slices.Equal(s.subjects, list[0].subjects) })
	if same {
		p.AppliedToGroups = []string{out.applyTo(id, list[0].subjects)}
	}
	for _, s := range list {
		var groups []string
		if !same {
			groups = []string{out.applyTo(s.key, s.subjects)}
		}
		for _, r := range s.rules {
			r.AppliedToGroups = groups
			p.Rules = append(p.Rules, r)
		}
	}
	if r := c.places[id]; r != nil && !r.IsKubernetes() {
		p.TierPriority, p.Priority = &r.Tier, &r.Priority
	}
	out.Policies = append(out.Policies, p)
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name)}
}

// applyTo adds a group of what the policy or rule of that key applies to, and returns
// its name.
func (out *ControlPlane) applyTo(key string, subjects []*policy.Workload) string {
	g := controlplanev1beta2.AppliedToGroup{ObjectMeta: named(controlplanev1beta2.GroupName("isobar.dev/appliedTo " + key))}
	for _, w := range subjects {
		g.GroupMembers = append(g.GroupMembers, Member(w, false))
	}
	out.AppliedTo = append(out.AppliedTo, g)
	return g.Name
}
