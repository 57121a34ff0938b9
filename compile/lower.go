package compile

import (
	"slices"

	"isobar.dev/policy"
)

// lowered is one rule of a policy, its references resolved.
type lowered struct {
	subjects []policy.Selection // relative ones pick nothing
	// counts only: the rule has no place in the order, since its tier is
	// missing, and it would allow or pass. It still makes a VM isolate.
	countsOnly bool
	// rule is what all its parts share: without Key and Groups.
	rule     policy.TargetRule
	absolute []*policy.Selection // peers that are the same for all subjects
	hasBase  bool                // it matches peers that are the same for all subjects, or none at all
	relative []relative
}

// relative is what peers are relative to, and the selections that are so.
type relative struct {
	own        bool     // the subject's namespace
	keys       []string // those with the same values of these keys
	selections []*policy.Selection
}

// lower resolves rule i of one direction of p.
func lower(s policy.Snapshot, p *policy.Policy, d policy.Direction, i int) lowered {
	var l lowered
	l.read(s, p, d, i)
	return l
}

// read makes l what lower returns. It writes over what l had.
func (l *lowered) read(s policy.Snapshot, p *policy.Policy, d policy.Direction, i int) {
	r := &p.Rules(d)[i]
	*l = lowered{subjects: s.Subjects(p.Applied(r), p.Namespace), absolute: l.absolute[:0]}
	tier, known := s.TierNumber(p.Tier)
	l.rule = policy.TargetRule{
		Policy: p.ID, Name: r.Name, Direction: d, Tier: tier, Priority: p.Priority, Index: i, Action: actionOf(r),
		AllPeers: r.Peers.All, Blocks: r.Peers.Blocks,
		Traffic: r.Traffic, L7: r.L7, Log: r.Log, LogLabel: r.LogLabel,
	}
	l.countsOnly = !known && passes(l.rule.Action)

	for i := range r.Peers.Set.Selections {
		l.addPeer(in(r.Peers.Set.Selections, i))
	}
	for _, id := range r.Peers.Set.Groups {
		selections, blocks, _ := s.Members(id)
		if !passes(l.rule.Action) && s.IsUnread(id) {
			l.rule.AllPeers = true
		}
		for i := range selections {
			l.addPeer(in(selections, i))
		}
		l.rule.Blocks = append(slices.Clip(l.rule.Blocks), blocks...)
	}
	if d == policy.Egress {
		l.rule.Names = r.Peers.Names
		for _, id := range r.Peers.Services {
			if svc, ok := s.Services.Get(id); ok {
				l.rule.Services = append(l.rule.Services, svc)
			}
		}
	}
	byAddr := l.rule.AllPeers || len(l.rule.Blocks)+len(l.rule.Names)+len(l.rule.Services) > 0
	if byAddr && d == policy.Egress && slices.ContainsFunc(r.Traffic, func(t policy.Traffic) bool { return t.PortName != "" }) {
		l.rule.PortGroups = portGroups
	}
	l.hasBase = byAddr || len(l.absolute) > 0 || len(l.relative) == 0
}

// actionOf returns what r does with what it matches: it drops when it says nothing that can be.
func actionOf(r *policy.Rule) policy.Action {
	if r.Action < policy.Allow || r.Action > policy.Pass {
		return policy.Drop
	}
	return r.Action
}

// passes says whether a rule lets what it matches pass, or leaves that to others.
func passes(a policy.Action) bool { return a == policy.Allow || a == policy.Pass }

// portGroups are the Keys of everyone who may declare a port.
var portGroups = []string{everyone[0].String(), everyone[1].String(), everyone[2].String()}

// everyone is every workload there is.
var everyone = []policy.Selection{
	{Kind: policy.KindExternal, Scope: policy.AllNamespaces},
	{Kind: policy.KindNode, Scope: policy.AllNamespaces},
	{Kind: policy.KindPod, Scope: policy.AllNamespaces},
}

// in returns the i-th Selection of a list. Who keeps it keeps all of a short list, and nothing else of a long one.
func in(list []policy.Selection, i int) *policy.Selection {
	if len(list) <= 4 {
		return &list[i]
	}
	own := list[i]
	return &own
}

func (l *lowered) addPeer(sel *policy.Selection) {
	if !sel.IsRelative() {
		l.absolute = append(l.absolute, sel)
		return
	}
	own := sel.Scope == policy.OwnNamespace
	for i := range l.relative {
		if r := &l.relative[i]; r.own == own && (own || slices.Equal(r.keys, sel.SameKeys)) {
			r.selections = append(r.selections, sel)
			return
		}
	}
	r := relative{own: own, selections: []*policy.Selection{sel}}
	if !own {
		r.keys = sel.SameKeys
	}
	l.relative = append(l.relative, r)
}

// bucket names the namespaces for which r means the same as for ns: by its name
// or by its values of r's keys. It is not ok where r means nothing.
func (r relative) bucket(ns *policy.Namespace) (name string, ok bool) {
	if ns == nil || !r.own && len(r.keys) == 0 {
		return "", false
	}
	if r.own {
		return ns.Name, true
	}
	values := make(policy.Labels, len(r.keys))
	for i, k := range r.keys {
		v, has := ns.Labels.Value(k)
		if !has {
			return "", false
		}
		values[i] = policy.Label{Key: k, Value: v}
	}
	return values.String(), true
}

// part returns the TargetRule of l for one bucket, or for all subjects where
// bucket is empty, with the selections that are its peers there.
func (l *lowered) part(bucket string, selections []*policy.Selection) policy.TargetRule {
	r := l.rule
	if bucket != "" {
		r.AllPeers, r.Blocks, r.Names, r.Services, r.PortGroups = false, nil, nil, nil, nil
	}
	r.Key = policy.RuleKey(r.Policy, r.Direction, r.Index, bucket)
	r.Groups = keys(selections)
	return r
}

// keys returns the canonical forms of selections, sorted, each once.
func keys(selections []*policy.Selection) []string {
	if len(selections) == 0 {
		return nil
	}
	out := make([]string, len(selections))
	for i, sel := range selections {
		out[i] = sel.String()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resolve returns selections as they stand for a subject in ns.
func resolve(selections []*policy.Selection, ns *policy.Namespace) []*policy.Selection {
	out := make([]*policy.Selection, len(selections))
	for i, sel := range selections {
		out[i] = new(sel.For(ns))
	}
	return out
}
