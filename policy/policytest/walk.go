package policytest

import (
	"math/rand/v2"
	"slices"

	"isobar.dev/policy"
)

// Walk returns s and n worlds after it, each a few small edits from the one
// before: things come, go, move, and change in one field, or are replaced by
// their equals. Policies are staged and enforced. It draws the things of a VM world
// for a VM world.
func Walk(rnd *rand.Rand, s policy.Snapshot, n int) []policy.Snapshot {
	g := &gen{Rand: rnd, size: max(4, s.Workloads.Len()), vm: true, vpcs: 3}
	for _, w := range s.Workloads.All() {
		g.vm = g.vm && w.Kind != policy.KindNode && (w.Kind != policy.KindExternal || len(w.Interfaces) > 0)
	}
	out, beside := []policy.Snapshot{s}, g.beside(s)
	for range n {
		was := s.Policies
		for range pick(g, 1, 1, 1, 2, 5) {
			s = g.edit(s)
		}
		s.Staged = beside.editStaged(s, was)
		out = append(out, s)
	}
	return out
}

// Reverse returns the walk backwards.
func Reverse(walk []policy.Snapshot) []policy.Snapshot {
	out := slices.Clone(walk)
	slices.Reverse(out)
	return out
}

// WithEmpty returns the walk with an empty world after each step.
func WithEmpty(walk []policy.Snapshot) []policy.Snapshot {
	var out []policy.Snapshot
	for _, s := range walk {
		out = append(out, s, policy.Snapshot{})
	}
	return out
}

// Squash returns each nth step of the walk, and the last.
func Squash(walk []policy.Snapshot, n int) []policy.Snapshot {
	var out []policy.Snapshot
	for i, s := range walk {
		if i%n == 0 || i == len(walk)-1 {
			out = append(out, s)
		}
	}
	return out
}

// Repeat returns the walk with each step twice, the second time with everything
// replaced by its equal.
func Repeat(walk []policy.Snapshot) []policy.Snapshot {
	var out []policy.Snapshot
	for _, s := range walk {
		out = append(out, s, Clone(s))
	}
	return out
}

// Clone returns a world that equals s and shares no object with it.
func Clone(s policy.Snapshot) policy.Snapshot {
	return policy.Snapshot{
		Namespaces: cloneTable(s.Namespaces), Workloads: cloneTable(s.Workloads), Services: cloneTable(s.Services),
		Groups: cloneTable(s.Groups), Tiers: cloneTable(s.Tiers), Policies: cloneTable(s.Policies),
		Staged: cloneTable(s.Staged),
	}
}

func cloneTable[T any](t policy.Table[*T]) policy.Table[*T] {
	var out policy.Table[*T]
	for k, v := range t.All() {
		c := *v
		out = out.Put(k, &c)
	}
	return out
}

// edit returns s with one thing changed.
func (g *gen) edit(s policy.Snapshot) policy.Snapshot {
	switch g.IntN(13) {
	case 0, 1, 2, 3:
		s.Workloads = g.editWorkloads(s)
	case 4, 5, 6:
		s.Policies = g.editPolicies(s.Policies)
	case 7:
		name := pick(g, namespaces...)
		s.Namespaces = put(g, s.Namespaces, name, g.namespace(name))
	case 8, 9:
		gr := g.group()
		s.Groups = put(g, s.Groups, gr.ID, gr)
	case 10, 11:
		svc := g.service()
		s.Services = put(g, s.Services, policy.ServiceID(svc.Namespace, svc.Name), svc)
	default:
		name := pick(g, userTiers...)
		s.Tiers = put(g, s.Tiers, name, g.tier(name))
	}
	return s
}

// put replaces or adds a value, or takes away the one that is there.
func put[T any](g *gen, t policy.Table[*T], key string, v *T) policy.Table[*T] {
	if _, ok := t.Get(key); ok && g.odds(3) {
		return t.Delete(key)
	}
	return t.Put(key, v)
}

// among returns a random value of t, or nil when there is none.
func among[T any](g *gen, t policy.Table[*T]) *T {
	if t.Len() == 0 {
		return nil
	}
	i := g.IntN(t.Len())
	for _, v := range t.All() {
		if i == 0 {
			return v
		}
		i--
	}
	return nil
}

func (g *gen) editWorkloads(s policy.Snapshot) policy.Table[*policy.Workload] {
	w := among(g, s.Workloads)
	if w == nil || g.odds(4) {
		w = g.workload(s)
		return s.Workloads.Put(w.ID, w)
	}
	if g.odds(5) {
		return s.Workloads.Delete(w.ID)
	}
	c := *w
	switch g.IntN(8) {
	case 0:
		c.Addrs = slices.Clone(g.workload(s).Addrs)
		if len(c.Interfaces) > 0 {
			c.Interfaces = []policy.Interface{{ID: c.Interfaces[0].ID, Addrs: slices.Clone(c.Addrs)}}
		}
		g.distinct(s, &c)
	case 1:
		c.Ports = g.namedPorts()
	case 2:
		if c.Kind == policy.KindPod {
			c.Terminated = !c.Terminated
		}
	case 3:
		if c.Kind == policy.KindPod {
			c.Node = pick(g, append([]string{""}, nodes...)...)
			c.Target = ""
			if c.Node != "" {
				c.Target = "node/" + c.Node
			}
		}
	case 4:
		if c.Kind == policy.KindPod {
			c.ServiceAccount = pick(g, accounts...)
		} else {
			c.Isolation = policy.Isolation(g.IntN(4))
		}
	default:
		c.Labels = g.labels(labelKeys, labelValues)
	}
	return s.Workloads.Put(c.ID, &c)
}

func (g *gen) editPolicies(t policy.Table[*policy.Policy]) policy.Table[*policy.Policy] {
	p := among(g, t)
	if p == nil || g.odds(4) {
		p = g.policy()
		return t.Put(p.ID, p)
	}
	if g.odds(5) {
		return t.Delete(p.ID)
	}
	c := *p
	c.Generation++
	switch g.IntN(6) {
	case 0:
		c.Priority = 1 + float64(g.IntN(3))/4
	case 1:
		c.AppliedTo = g.subjects(c.Namespace)
	case 2:
		c.Ingress = g.rules(&c, policy.Ingress)
	case 3:
		c.Egress = slices.Clone(c.Egress)
		g.Shuffle(len(c.Egress), func(i, j int) { c.Egress[i], c.Egress[j] = c.Egress[j], c.Egress[i] })
	case 4:
		c.IsolatesIngress = !c.IsolatesIngress
	default:
		for i := range c.Ingress { // its peers alone change
			c.Ingress = slices.Clone(c.Ingress)
			c.Ingress[i].Peers = g.peers(c.Namespace, policy.Ingress)
			break
		}
	}
	return t.Put(c.ID, &c)
}
