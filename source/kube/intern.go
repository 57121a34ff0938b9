package kube

import (
	"hash/maphash"
	"slices"
	"sync"

	"isobar.dev/policy"
)

// generation is how many entries an interner's map holds before it becomes the
// old one. Two of each kind are kept, a few MB when full.
const generation = 1 << 15

// interner makes equal strings, label sets and port lists one. It forgets what
// was not asked for in a while, which costs memory and is never wrong: Pods of a
// Deployment share their labels, and labels that are a Pod's own pass through.
type interner struct {
	mu      sync.Mutex
	seed    maphash.Seed
	strings generations[string, string]
	labels  generations[uint64, policy.Labels]
	ports   generations[uint64, []policy.NamedPort]
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

// generations is a bounded map: put makes room by forgetting what was neither
// put nor found since the generation before last began.
type generations[K comparable, V any] struct{ now, old map[K]V }

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
	if g.now == nil || len(g.now) >= generation {
		g.old, g.now = g.now, make(map[K]V)
	}
	g.now[k] = v
}

// workload shares what w has in common with others. Its name and its namespace
// become parts of its ID.
func (in *interner) workload(w *policy.Workload) {
	w.Name = w.ID[len(w.ID)-len(w.Name):]
	if w.Namespace != "" {
		start := len(w.ID) - len(w.Name) - 1 - len(w.Namespace)
		w.Namespace = w.ID[start : start+len(w.Namespace)]
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	w.Labels = in.sharedLabels(w.Labels)
	w.Ports = in.sharedPorts(w.Ports)
	w.Addrs = slices.Clip(w.Addrs)
	for _, s := range []*string{&w.Network, &w.Target, &w.ServiceAccount, &w.Node} {
		*s = in.shared(*s)
	}
}

// namespace shares the labels of n.
func (in *interner) namespace(n *policy.Namespace) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n.Labels = in.sharedLabels(n.Labels)
}

func (in *interner) shared(s string) string {
	if s == "" {
		return ""
	}
	if have, ok := in.strings.find(s); ok {
		return have
	}
	in.strings.put(s, s)
	return s
}

func (in *interner) sharedLabels(l policy.Labels) policy.Labels {
	if len(l) == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(in.seed)
	for _, x := range l {
		h.WriteString(x.Key)
		h.WriteByte(0)
		h.WriteString(x.Value)
		h.WriteByte(0)
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

func (in *interner) sharedPorts(p []policy.NamedPort) []policy.NamedPort {
	if len(p) == 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(in.seed)
	for _, x := range p {
		h.WriteString(x.Name)
		h.Write([]byte{0, byte(x.Protocol), byte(x.Port >> 8), byte(x.Port)})
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
