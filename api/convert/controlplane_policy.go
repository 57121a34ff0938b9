package convert

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// AppliedRule is a rule and the names of the AppliedToGroups that it applies to.
type AppliedRule struct {
	Rule      *policy.TargetRule
	AppliedTo []string
}

// PolicyName is the name, and the UID, of a policy on the wire.
func PolicyName(p *policy.Policy) string {
	return cmp.Or(p.UID, controlplanev1beta2.GroupName("isobar.dev/policy "+p.ID))
}

// PolicyToControlPlane returns a whole policy as all Targets are told of it, where
// [ToControlPlane] tells one. Rules are in order, ingress before egress; isolates are the names of the AppliedToGroups of
// what a Kubernetes NetworkPolicy isolates, by direction. What has no words on the wire is a Problem, and
// what is sent instead is stricter, as there.
func PolicyToControlPlane(src *policy.Policy, in []AppliedRule, isolates map[policy.Direction][]string, groups GroupNames) (controlplanev1beta2.NetworkPolicy, []Problem) {
	var ps problems
	p := controlplanev1beta2.NetworkPolicy{ObjectMeta: named(PolicyName(src))}
	p.Generation = src.Generation
	p.SourceRef = &controlplanev1beta2.NetworkPolicyReference{Type: policyTypes[src.Dialect], Namespace: src.Namespace, Name: src.Name, UID: types.UID(src.UID)}
	var sent []AppliedRule // Rule is nil for what isolates
	var out [][]controlplanev1beta2.NetworkPolicyRule
	put := func(r AppliedRule, rules ...controlplanev1beta2.NetworkPolicyRule) {
		if len(rules) > 0 && len(r.AppliedTo) > 0 {
			sent, out = append(sent, r), append(out, rules)
		}
	}
	isKubernetes := src.Dialect == policy.KubernetesNetworkPolicy
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		n := len(sent)
		for _, r := range in {
			switch {
			case r.Rule.Direction != d:
			case r.Rule.IsKubernetes() != isKubernetes, isKubernetes && (r.Rule.Action != policy.Allow || len(r.Rule.L7) > 0):
				// No source makes one, and what it would mean for others of the policy is not known.
				ps.add(r.Rule.Key, "is no rule of %v: the policy is sent as one that drops everything", src.Dialect)
				return closed(p, in), ps
			case isKubernetes && len(isolates[d]) == 0:
				// On the wire such a rule isolates what it applies to.
				ps.add(r.Rule.Key, "would isolate what the policy does not: left out")
			default:
				put(r, rules(r.Rule, groups, &ps)...)
			}
		}
		if !isKubernetes || len(sent) == n { // rules of Kubernetes isolate by themselves
			put(AppliedRule{AppliedTo: isolates[d]}, controlplanev1beta2.NetworkPolicyRule{Direction: directions[d], Priority: -1})
		}
	}
	same := !slices.ContainsFunc(sent, func(r AppliedRule) bool { return !slices.Equal(r.AppliedTo, sent[0].AppliedTo) })
	for i, r := range sent {
		if same {
			p.AppliedToGroups = r.AppliedTo
		}
		for _, rule := range out[i] {
			if !same {
				rule.AppliedToGroups = r.AppliedTo
			}
			p.Rules = append(p.Rules, rule)
		}
	}
	if len(in) > 0 && !isKubernetes {
		p.TierPriority, p.Priority = new(in[0].Rule.Tier), new(in[0].Rule.Priority)
	}
	return p, ps
}

// closed is p as one that drops everything of all that any rule applies to, before all others.
func closed(p controlplanev1beta2.NetworkPolicy, in []AppliedRule) controlplanev1beta2.NetworkPolicy {
	for _, r := range in {
		p.AppliedToGroups = append(p.AppliedToGroups, r.AppliedTo...)
	}
	slices.Sort(p.AppliedToGroups)
	p.AppliedToGroups = slices.Compact(p.AppliedToGroups)
	p.TierPriority, p.Priority = new(int32), new(float64)
	p.Rules = []controlplanev1beta2.NetworkPolicyRule{dropAll(policy.Ingress), dropAll(policy.Egress)}
	return p
}

// dropAll is a rule that denies everything.
func dropAll(d policy.Direction) controlplanev1beta2.NetworkPolicyRule {
	return withPeer(d, controlplanev1beta2.NetworkPolicyRule{
		Direction: directions[d], Action: new(antreav1beta1.RuleActionDrop),
	}, controlplanev1beta2.NetworkPolicyPeer{IPBlocks: allBlocks()})
}

// IsolationPolicy is the policy by which VMs deny what no rule of a direction decides, and
// the name of the AppliedToGroup of those that do.
func IsolationPolicy(d policy.Direction) (p controlplanev1beta2.NetworkPolicy, appliedTo string) {
	p = isolationPolicy(d.String())
	appliedTo = controlplanev1beta2.GroupName("isobar.dev/appliedTo " + p.SourceRef.Name)
	p.AppliedToGroups = []string{appliedTo}
	p.Rules = []controlplanev1beta2.NetworkPolicyRule{dropAll(d)}
	return p, appliedTo
}

// isolationPolicy is that of a direction without rules.
func isolationPolicy(direction string) (p controlplanev1beta2.NetworkPolicy) {
	p.ObjectMeta = named(controlplanev1beta2.GroupName("isobar.dev/isolation " + direction))
	p.SourceRef = &controlplanev1beta2.NetworkPolicyReference{Type: controlplanev1beta2.AntreaClusterNetworkPolicy, Name: isolationPrefix + direction, UID: p.UID}
	p.TierPriority, p.Priority = new(int32(isolationTier)), new(float64(isolationPriority))
	return p
}
