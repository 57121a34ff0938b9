// Package intern makes equal parts of the values of a Snapshot one: Pods of a
// Deployment share their labels, and policies of a template their rules.
package intern

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"isobar.dev/policy"
)

// Interner remembers parts of values that it was given. It forgets what was not
// asked for in a while, which costs memory and is never wrong: labels that are a
// Pod's own pass through. Its methods may be called by several goroutines.
type Interner struct {
	mu         sync.Mutex
	seed       maphash.Seed
	strings    generations[string, string]
	labels     generations[uint64, policy.Labels]
	ports      generations[uint64, []policy.NamedPort]
	selectors  generations[uint64, policy.Selector]
	selections generations[uint64, []policy.Selection]
	traffic    generations[uint64, []policy.Traffic]
	rules      generations[uint64, []policy.Rule]
}

// New returns an Interner that remembers nothing yet.
func New() *Interner {
	return &Interner{seed: maphash.MakeSeed(), strings: generations[string, string]{most: generationOfStrings}}
}

// A map becomes the old one when it holds so many entries, and two of each kind are
// kept: half a MB in all, when full. Lists of objects come by namespace and name, so that those of
// one template are close to each other; what Nodes are called comes in no order. Maps grow by doubling: as
// many as these fill theirs, and a few more would take twice the memory.
const generation, generationOfStrings = 896, 3072

// generations is a bounded map: put makes room by forgetting what was neither
// put nor found since the generation before last began.
type generations[K comparable, V any] struct {
	now, old map[K]V
	most     int // 0 means generation
}

func (g *generations[K, V]) find(k K) (V, bool) {
	if v, ok := g.now[k]; ok {
		return v, true
	}
	v, ok := g.old[k]
	if ok {
		g.put(k, v)
	}
	return v, ok
}

func (g *generations[K, V]) put(k K, v V) {
	if g.now == nil || len(g.now) >= cmp.Or(g.most, generation) {
		g.old, g.now = g.now, make(map[K]V)
	}
	g.now[k] = v
}

// Workload shares what w, which nobody else has yet, has in common with others. Its name and its
// namespace become parts of its ID, and the name of its Node one of its Target.
func (in *Interner) Workload(w *policy.Workload) {
	w.Namespace, w.Name = parts(w.ID, w.Namespace, w.Name)
	in.mu.Lock()
	defer in.mu.Unlock()
	w.Labels = in.sharedLabels(w.Labels)
	w.Ports = in.sharedPorts(w.Ports)
	w.Addrs = slices.Clip(w.Addrs)
	for _, s := range []*string{&w.Network, &w.Target, &w.ServiceAccount} {
		*s = in.shared(*s)
	}
	if strings.HasSuffix(w.Target, w.Node) {
		w.Node = w.Target[len(w.Target)-len(w.Node):]
	} else {
		w.Node = in.shared(w.Node)
	}
}

// parts returns namespace and name as they stand at the end of an ID.
func parts(id, namespace, name string) (string, string) {
	start := len(id) - len(name)
	if namespace == "" {
		return "", id[start:]
	}
	return id[start-1-len(namespace) : start-1], id[start:]
}

// Namespace shares the labels of n, which nobody else has yet.
func (in *Interner) Namespace(n *policy.Namespace) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n.Labels = in.sharedLabels(n.Labels)
}

// Policy shares what p, which nobody else has yet, has in common with others. Its name and its
// namespace become parts of its ID.
func (in *Interner) Policy(p *policy.Policy) {
	p.Namespace, p.Name = parts(p.ID, p.Namespace, p.Name)
	in.mu.Lock()
	defer in.mu.Unlock()
	p.Tier = in.shared(p.Tier)
	p.AppliedTo.Selections = in.sharedSelections(p.AppliedTo.Selections)
	p.Ingress = in.sharedRules(p.Ingress)
	p.Egress = in.sharedRules(p.Egress)
}

func (in *Interner) shared(s string) string {
	if s == "" {
		return ""
	}
	if have, ok := in.strings.find(s); ok {
		return have
	}
	in.strings.put(s, s)
	return s
}

// hash returns a Hash to write to, from which sum comes.
func (in *Interner) hash() (h maphash.Hash) {
	h.SetSeed(in.seed)
	return h
}

// write writes texts so that no others are written alike.
func write(h *maphash.Hash, texts ...string) {
	for _, s := range texts {
		h.WriteString(s)
		h.WriteByte(0)
	}
}

func (in *Interner) sharedLabels(l policy.Labels) policy.Labels {
	if len(l) == 0 {
		return nil
	}
	h := in.hash()
	for _, x := range l {
		write(&h, x.Key, x.Value)
	}
	sum := h.Sum64()
	if have, ok := in.labels.find(sum); ok && slices.Equal(have, l) {
		return have
	}
	for i := range l {
		l[i] = policy.Label{Key: in.shared(l[i].Key), Value: in.shared(l[i].Value)}
	}
	l = slices.Clip(l)
	in.labels.put(sum, l)
	return l
}

func (in *Interner) sharedPorts(p []policy.NamedPort) []policy.NamedPort {
	if len(p) == 0 {
		return nil
	}
	h := in.hash()
	for _, x := range p {
		write(&h, x.Name)
		h.Write([]byte{byte(x.Protocol), byte(x.Port >> 8), byte(x.Port)})
	}
	sum := h.Sum64()
	if have, ok := in.ports.find(sum); ok && slices.Equal(have, p) {
		return have
	}
	for i := range p {
		p[i].Name = in.shared(p[i].Name)
	}
	p = slices.Clip(p)
	in.ports.put(sum, p)
	return p
}

func writeSelector(h *maphash.Hash, s policy.Selector) {
	for _, r := range s {
		write(h, r.Key)
		h.WriteByte(byte(r.Op))
		write(h, r.Values...)
		h.WriteByte(1)
	}
}

func equalSelectors(a, b policy.Selector) bool {
	return slices.EqualFunc(a, b, func(x, y policy.Requirement) bool {
		return x.Key == y.Key && x.Op == y.Op && slices.Equal(x.Values, y.Values)
	})
}

func (in *Interner) sharedSelector(s policy.Selector) policy.Selector {
	if len(s) == 0 {
		return s
	}
	h := in.hash()
	writeSelector(&h, s)
	sum := h.Sum64()
	if have, ok := in.selectors.find(sum); ok && equalSelectors(have, s) {
		return have
	}
	s = slices.Clip(s)
	in.selectors.put(sum, s)
	return s
}

func equalSelections(a, b policy.Selection) bool {
	return a.Kind == b.Kind && a.Scope == b.Scope && a.Namespace == b.Namespace && equalSelectors(a.NamespaceLabels, b.NamespaceLabels) &&
		slices.Equal(a.SameKeys, b.SameKeys) && equalSelectors(a.Labels, b.Labels) && a.ServiceAccount == b.ServiceAccount
}

func (in *Interner) sharedSelections(list []policy.Selection) []policy.Selection {
	if len(list) == 0 {
		return nil
	}
	h := in.hash()
	for i := range list {
		s := &list[i]
		h.Write([]byte{byte(s.Kind), byte(s.Scope)})
		write(&h, s.Namespace, s.ServiceAccount)
		writeSelector(&h, s.NamespaceLabels)
		write(&h, s.SameKeys...)
		writeSelector(&h, s.Labels)
	}
	sum := h.Sum64()
	if have, ok := in.selections.find(sum); ok && slices.EqualFunc(have, list, equalSelections) {
		return have
	}
	for i := range list {
		s := &list[i]
		s.Namespace, s.ServiceAccount = in.shared(s.Namespace), in.shared(s.ServiceAccount)
		s.NamespaceLabels, s.Labels = in.sharedSelector(s.NamespaceLabels), in.sharedSelector(s.Labels)
	}
	list = slices.Clip(list)
	in.selections.put(sum, list)
	return list
}

func (in *Interner) sharedTraffic(list []policy.Traffic) []policy.Traffic {
	if len(list) == 0 {
		return nil
	}
	h := in.hash()
	for _, t := range list {
		maphash.WriteComparable(&h, t)
	}
	sum := h.Sum64()
	if have, ok := in.traffic.find(sum); ok && slices.Equal(have, list) {
		return have
	}
	list = slices.Clip(list)
	in.traffic.put(sum, list)
	return list
}

// equalRules compares rules that are not rare.
func equalRules(a, b policy.Rule) bool {
	x, y := &a.Peers, &b.Peers
	return a.Name == b.Name && a.Action == b.Action && x.All == y.All &&
		slices.EqualFunc(x.Set.Selections, y.Set.Selections, equalSelections) && slices.Equal(x.Set.Groups, y.Set.Groups) &&
		slices.EqualFunc(x.Blocks, y.Blocks, func(a, b policy.Block) bool { return a.Prefix == b.Prefix && slices.Equal(a.Except, b.Except) }) &&
		slices.Equal(x.Names, y.Names) && slices.Equal(x.Services, y.Services) && slices.Equal(a.Traffic, b.Traffic) &&
		a.Log == b.Log && a.LogLabel == b.LogLabel
}

// isRare says that a rule has what is not looked for in others.
func isRare(r policy.Rule) bool { return r.AppliedTo != nil || len(r.L7) > 0 }

func (in *Interner) sharedRules(list []policy.Rule) []policy.Rule {
	if len(list) == 0 {
		return nil
	}
	h := in.hash()
	for i := range list {
		r := &list[i]
		r.Peers.Set.Selections = in.sharedSelections(r.Peers.Set.Selections)
		r.Traffic = in.sharedTraffic(r.Traffic)
		h.WriteByte(byte(r.Action))
		write(&h, r.Name)
		write(&h, r.Peers.Set.Groups...)
		if len(r.Peers.Set.Selections) > 0 {
			maphash.WriteComparable(&h, &r.Peers.Set.Selections[0])
		}
		if len(r.Traffic) > 0 {
			maphash.WriteComparable(&h, &r.Traffic[0])
		}
		for _, b := range r.Peers.Blocks {
			maphash.WriteComparable(&h, b.Prefix)
		}
	}
	list = slices.Clip(list)
	if slices.ContainsFunc(list, isRare) {
		return list
	}
	sum := h.Sum64()
	if have, ok := in.rules.find(sum); ok && slices.EqualFunc(have, list, equalRules) {
		return have
	}
	in.rules.put(sum, list)
	return list
}
