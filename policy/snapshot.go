package policy

import "slices"

// Snapshot is everything known at one moment. It is immutable: keep it, compare
// it with another by [Diff], or make a new one by assigning to its tables. The
// zero Snapshot is an empty world.
type Snapshot struct {
	Namespaces Table[*Namespace] // by name
	Workloads  Table[*Workload]  // by Workload.ID
	Services   Table[*Service]   // by ServiceID
	Groups     Table[*Group]     // by Group.ID
	Tiers      Table[*Tier]      // by name; the built-in ones need not be here
	Policies   Table[*Policy]    // by Policy.ID

	// Staged are the policies of [Mode] Stage, by Policy.ID, of which Policies has
	// none. They mean nothing: they are in a table of their own so that nobody can
	// enforce one by forgetting to ask. See WithStaged.
	Staged Table[*Policy]
}

// Members returns what makes up the group of that ID, its children's parts
// included. ok is false, and the group empty, when it is missing or its children
// have children. A missing child adds nothing.
func (s Snapshot) Members(groupID string) (selections []Selection, blocks []Block, ok bool) {
	g, ok := s.Groups.Get(groupID)
	if !ok {
		return nil, nil, false
	}
	for _, id := range g.Children {
		c, has := s.Groups.Get(id)
		if !has {
			continue
		}
		if len(c.Children) > 0 {
			return nil, nil, false
		}
		sel, bl := s.own(c)
		selections, blocks = append(selections, sel...), append(blocks, bl...)
	}
	sel, bl := s.own(g)
	return append(selections, sel...), append(blocks, bl...), true
}

// IsUnread says whether a part of the group of that ID, or of a child, could not
// be read.
func (s Snapshot) IsUnread(groupID string) bool {
	g, ok := s.Groups.Get(groupID)
	return ok && (g.Unread || slices.ContainsFunc(g.Children, func(id string) bool {
		c, has := s.Groups.Get(id)
		return has && c.Unread
	}))
}

// own returns the parts of g without its children's.
func (s Snapshot) own(g *Group) ([]Selection, []Block) {
	if g.Service == "" {
		return g.Selections, g.Blocks
	}
	svc, ok := s.Services.Get(g.Service)
	if !ok || svc.Pods == nil {
		return g.Selections, g.Blocks
	}
	pods := Selection{Kind: KindPod, Scope: OneNamespace, Namespace: svc.Namespace, Labels: *svc.Pods}
	return append(slices.Clone(g.Selections), pods), g.Blocks
}

// Subjects returns the selections of the workloads that set stands for as what
// a policy of that namespace (empty: of the cluster) applies to. Relative
// selections pick nothing here, and in a policy of a namespace a group that
// reaches out of it picks nothing either. What it returns may be the set's own.
func (s Snapshot) Subjects(set Set, namespace string) []Selection {
	if len(set.Groups) == 0 && !slices.ContainsFunc(set.Selections, Selection.IsRelative) {
		return slices.Clip(set.Selections)
	}
	var out []Selection
	for _, sel := range set.Selections {
		if !sel.IsRelative() {
			out = append(out, sel)
		}
	}
	for _, id := range set.Groups {
		selections, _, _ := s.Members(id)
		outside := func(sel Selection) bool { return sel.Scope != OneNamespace || sel.Namespace != namespace }
		if namespace != "" && slices.ContainsFunc(selections, outside) {
			continue
		}
		out = append(out, selections...)
	}
	return out
}

// NamespaceOf returns the Namespace of w, or nil when it has none or it is not known.
func (s Snapshot) NamespaceOf(w *Workload) *Namespace {
	if w.Namespace == "" {
		return nil
	}
	ns, _ := s.Namespaces.Get(w.Namespace)
	return ns
}
