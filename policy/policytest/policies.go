package policytest

import (
	"fmt"

	"isobar.dev/policy"
)

// policy draws a policy of any dialect, or, in a VM world, of Antrea's.
func (g *gen) policy() *policy.Policy {
	p := &policy.Policy{Priority: 1 + float64(g.IntN(3))/4, Generation: 1}
	p.Dialect = policy.Dialect(1 + g.IntN(6))
	if g.vm {
		p.Dialect = pick(g, policy.AntreaNetworkPolicy, policy.AntreaNetworkPolicy, policy.AntreaClusterNetworkPolicy)
	}
	p.Name = fmt.Sprint("policy-", g.IntN(2*g.size+3))
	switch p.Dialect {
	case policy.KubernetesNetworkPolicy:
		p.Tier, p.Priority = policy.TierKubernetes, 0
		p.Namespace = pick(g, namespaces...)
		p.IsolatesIngress, p.IsolatesEgress = !g.odds(4), g.odds(2)
	case policy.ClusterNetworkPolicy:
		p.Tier = pick(g, policy.TierAdmin, policy.TierBaselineAdmin)
	case policy.AdminNetworkPolicy:
		p.Tier = policy.TierAdminNetworkPolicy
	case policy.BaselineAdminNetworkPolicy:
		p.Tier, p.Name = policy.TierBaselineAdmin, "default"
	default:
		if p.Dialect == policy.AntreaNetworkPolicy {
			p.Namespace = pick(g, namespaces...)
		}
		p.Tier = pick(g, policy.DefaultTier, policy.DefaultTier, policy.DefaultTier, "securityops", "baseline", "baseline", "audit", "late", "tied", "nowhere")
	}
	p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
	p.UID = "uid-of-" + p.ID
	p.AppliedTo = g.subjects(p.Namespace)
	p.Ingress = g.rules(p, policy.Ingress)
	p.Egress = g.rules(p, policy.Egress)
	return p
}

// subjects draws what a policy of namespace ns applies to.
func (g *gen) subjects(ns string) policy.Set {
	var set policy.Set
	switch {
	case g.odds(12): // nothing
	case g.odds(5):
		set.Groups = some(g, 1, 2, func() string { return g.groupID(ns) })
	default:
		set.Selections = some(g, 1, 2, func() policy.Selection {
			sel := g.selection(ns, g.odds(30))
			if !g.odds(3) {
				sel.Labels = nil
			}
			return sel
		})
	}
	return set
}

func (g *gen) rules(p *policy.Policy, d policy.Direction) []policy.Rule {
	var out []policy.Rule
	for i := range pick(g, 0, 1, 1, 2, 3) {
		r := policy.Rule{Peers: g.peers(p.Namespace, d), Traffic: some(g, 0, 2, g.traffic)}
		switch {
		case p.Dialect == policy.KubernetesNetworkPolicy:
			r.Action = policy.Allow
		case g.odds(60):
			r.Action = 0 // forgotten
		default:
			r.Action = pick(g, policy.Allow, policy.Allow, policy.Drop, policy.Drop, policy.Reject, policy.Pass)
		}
		if g.odds(2) {
			r.Name = fmt.Sprint(d, "-", i)
		}
		if len(r.Traffic) == 0 && !g.odds(8) {
			r.Traffic = policy.AllTraffic
		}
		if g.odds(6) {
			set := g.subjects(p.Namespace)
			r.AppliedTo = &set
		}
		if g.odds(20) && !g.vm {
			r.L7 = []policy.L7{{HTTP: &policy.HTTP{Method: "GET"}}}
		}
		if g.odds(10) {
			r.Log, r.LogLabel = true, "audit"
		}
		out = append(out, r)
	}
	return out
}

func (g *gen) peers(ns string, d policy.Direction) policy.Peers {
	var p policy.Peers
	if g.odds(5) {
		p.All = true
		return p
	}
	if !g.odds(4) {
		p.Set.Selections = some(g, 1, 2, func() policy.Selection { return g.selection(ns, true) })
	}
	if g.odds(4) {
		p.Set.Groups = some(g, 1, 2, func() string { return g.groupID(ns) })
	}
	if g.odds(3) {
		p.Blocks = some(g, 1, 2, g.block)
	}
	if d == policy.Egress && !g.vm {
		if g.odds(8) {
			p.Names = some(g, 1, 2, func() string { return pick(g, names...) })
		}
		if g.odds(10) {
			p.Services = []string{policy.ServiceID(pick(g, namespaces...), fmt.Sprint("svc-", g.IntN(2)))}
		}
	}
	return p
}
