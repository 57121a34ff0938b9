package policytest

import (
	"slices"

	"isobar.dev/policy"
)

// Spoken is a world without what no source says, and controlplane.antrea.io has no words for: payloads in
// Kubernetes NetworkPolicies, rules of theirs that apply to others than they, and isolation by other policies.
func Spoken(s policy.Snapshot) policy.Snapshot {
	for id, p := range s.Policies.All() {
		q := *p
		if p.Dialect != policy.KubernetesNetworkPolicy {
			q.IsolatesIngress, q.IsolatesEgress = false, false
			s.Policies = s.Policies.Put(id, &q)
			continue
		}
		q.Ingress, q.Egress = slices.Clone(p.Ingress), slices.Clone(p.Egress)
		for _, rules := range [][]policy.Rule{q.Ingress, q.Egress} {
			for i := range rules {
				rules[i].L7, rules[i].AppliedTo = nil, nil
			}
		}
		s.Policies = s.Policies.Put(id, &q)
	}
	return s
}
