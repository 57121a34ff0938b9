package lint

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// references finds what p refers to that is not there.
func (l *linter) references(p *policy.Policy) {
	if _, ok := l.s.TierNumber(p.Tier); !ok {
		l.add(Finding{ID: "missing-tier", Object: p.ID, Field: "spec.tier",
			Message: fmt.Sprintf("tier %q does not exist: what the policy denies stands in tier %s, and what it allows does not count", p.Tier, policy.DefaultTier),
			Fix:     "Create the Tier, with a priority from 0 to 249, or name another one."})
	}
	l.groups(p.ID, nil, subjectField(p), p.AppliedTo)
	for _, d := range directions {
		for i := range p.Rules(d) {
			r := &p.Rules(d)[i]
			at := reach.Rule{Policy: p.ID, Direction: d, Index: i}
			if r.AppliedTo != nil {
				l.groups(p.ID, &at, ruleField(at, ".appliedTo"), *r.AppliedTo)
			}
			l.groups(p.ID, &at, peersField(at), r.Peers.Set)
			for _, id := range r.Peers.Services {
				l.service(p.ID, &at, ruleField(at, ".toServices"), id)
			}
		}
	}
}

func (l *linter) groups(object string, at *reach.Rule, field string, set policy.Set) {
	for _, id := range set.Groups {
		if _, _, ok := l.s.Members(id); ok {
			continue
		}
		f := Finding{ID: "missing-group", Object: object, Rule: at, Field: field, Message: id + " does not exist: it has no members", Fix: "Create the group, or name another one."}
		if _, there := l.s.Groups.Get(id); there {
			f.Message, f.Fix = id+" has children that have children: it has no members", "Let it name the groups at the end itself."
		}
		l.add(f)
	}
}

func (l *linter) service(object string, at *reach.Rule, field, id string) {
	if _, ok := l.s.Services.Get(id); !ok && id != "" {
		l.add(Finding{ID: "missing-service", Object: object, Rule: at, Field: field,
			Message: fmt.Sprintf("Service %s does not exist: nothing is matched by it", id), Fix: "Create the Service, or name another one."})
	}
}

// group finds a group without members, and one that refers to what is not there.
func (l *linter) group(g *policy.Group) {
	l.service(g.ID, nil, "spec.serviceReference", g.Service)
	missing := false
	for _, id := range g.Children {
		if _, ok := l.s.Groups.Get(id); !ok {
			missing = true
			l.add(Finding{ID: "missing-group", Object: g.ID, Field: "spec.childGroups", Message: id + " does not exist: it adds no members", Fix: "Create the group, or name another one."})
		}
	}
	selections, blocks, ok := l.s.Members(g.ID)
	switch {
	case !ok:
		l.add(Finding{ID: "missing-group", Object: g.ID, Field: "spec.childGroups", Message: "its child groups have children: it has no members", Fix: "Name the groups at the end themselves."})
		return
	case missing || l.s.IsUnread(g.ID) || slices.ContainsFunc(blocks, isBlock):
		return
	}
	if svc, there := l.s.Services.Get(g.Service); g.Service != "" && (!there || svc.Pods == nil) {
		if there {
			l.add(Finding{ID: "group-selects-nothing", Object: g.ID, Field: "spec.serviceReference", Message: fmt.Sprintf("Service %s selects no Pods: the group has no members", g.Service),
				Fix: "Select the workloads by labels."})
		}
		return
	}
	if !slices.ContainsFunc(selections, func(sel policy.Selection) bool { return l.pick(sel).any }) {
		l.add(Finding{ID: "group-selects-nothing", Object: g.ID, Field: "spec", Message: "it has no members: " + selected(selections) + " is nothing in this world", Fix: "Compare its selectors with the labels of the workloads and Namespaces."})
	}
}

func isBlock(b policy.Block) bool { return b.Prefix.IsValid() }

// portNames finds names of ports that no destination declares.
func (l *linter) portNames(p *policy.Policy, d policy.Direction, i int) {
	r := &p.Rules(d)[i]
	at := reach.Rule{Policy: p.ID, Direction: d, Index: i}
	allProtocols := p.Dialect >= policy.ClusterNetworkPolicy // for which a name stands there
	var said []string
	for _, t := range r.Traffic {
		what := t.Protocol.String()
		if allProtocols {
			what = "any protocol"
		}
		key := what + " " + t.PortName
		if t.PortName == "" || slices.Contains(said, key) {
			continue
		}
		said = append(said, key)
		if slices.ContainsFunc(r.Traffic, func(o policy.Traffic) bool {
			return o.PortName == t.PortName && (allProtocols || o.Protocol == t.Protocol) && l.declares(p, d, r, o)
		}) {
			continue
		}
		where, who := "that the rule applies to", "the Pods that it applies to"
		if d == policy.Egress {
			where, who = "that can be a peer of the rule", "its peers"
		}
		l.add(Finding{ID: "unknown-port-name", Object: p.ID, Rule: &at, Field: ruleField(at, ".ports"),
			Message: fmt.Sprintf("no workload %s declares a port of %s by the name %q: nothing is matched by it", where, what, t.PortName),
			Fix:     fmt.Sprintf("Declare the port in %s, or write its number.", who)})
	}
}

// declares says whether a destination that r can have declares the port of t.
func (l *linter) declares(p *policy.Policy, d policy.Direction, r *policy.Rule, t policy.Traffic) bool {
	var selections []policy.Selection
	if d == policy.Ingress {
		selections = l.s.Subjects(p.Applied(r), p.Namespace)
	} else if r.Peers.All || len(r.Peers.Blocks)+len(r.Peers.Names)+len(r.Peers.Services) > 0 || slices.ContainsFunc(r.Peers.Set.Selections, policy.Selection.IsRelative) {
		for _, k := range []policy.Kind{policy.KindPod, policy.KindExternal, policy.KindNode} {
			selections = append(selections, policy.Selection{Kind: k, Scope: policy.AllNamespaces})
		}
	} else {
		selections = slices.Clone(r.Peers.Set.Selections)
		for _, id := range r.Peers.Set.Groups {
			more, blocks, _ := l.s.Members(id)
			selections = append(selections, more...)
			if len(blocks) > 0 {
				selections = append(selections, policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces}, policy.Selection{Kind: policy.KindExternal, Scope: policy.AllNamespaces},
					policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces})
			}
		}
	}
	for _, w := range l.s.Workloads.All() {
		if slices.ContainsFunc(w.Ports, func(x policy.NamedPort) bool { return x.Name == t.PortName && x.Protocol == t.Protocol }) &&
			slices.ContainsFunc(selections, func(sel policy.Selection) bool { return sel.Picks(w, l.s.NamespaceOf(w)) }) {
			return true
		}
	}
	return false
}
