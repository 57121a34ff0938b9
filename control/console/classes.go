package console

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"isobar.dev/policy"
)

// classes has the workloads by what selections can tell of them, so that it is asked once for all that are
// alike to which policies apply.
type classes struct {
	s     policy.Snapshot
	keys  map[string]bool // of the labels that selections look at
	table policy.Table[*class]

	rules *rulesOf // of the same policies, groups, services and namespaces

	mu      sync.Mutex
	members map[*policy.Policy][]*class
}

// class is workloads that no selection tells apart, and that the same viewers see.
type class struct {
	sample *policy.Workload
	shape  string
	n      int
}

// next returns the classes of a Snapshot that came after that of c, which may be nil.
func (c *classes) next(s policy.Snapshot) *classes {
	if c == nil {
		c = &classes{}
	}
	out := &classes{s: s, keys: c.keys, table: c.table, rules: c.rules, members: map[*policy.Policy][]*class{}}
	before := c.s.Workloads
	isSame := c.rules != nil && c.s.Policies == s.Policies && c.s.Staged == s.Staged && c.s.Groups == s.Groups && c.s.Services == s.Services
	if !isSame {
		if out.keys = keysOf(s); !maps.Equal(out.keys, c.keys) {
			before, out.table = policy.Table[*policy.Workload]{}, policy.Table[*class]{}
		}
	}
	if !isSame || c.s.Namespaces != s.Namespaces {
		out.rules = &rulesOf{s: s, known: map[string][]applied{}}
	}
	changed := map[string]*class{}
	count := func(w *policy.Workload, n int) {
		shape := out.shapeOf(w)
		x := changed[shape]
		if x == nil {
			x = &class{sample: w, shape: shape}
			if had, ok := out.table.Get(shape); ok {
				*x = *had
			}
			changed[shape] = x
		}
		x.n += n
	}
	policy.Diff(before, s.Workloads, func(_ string, old, now **policy.Workload) {
		if old != nil {
			count(*old, -1)
		}
		if now != nil {
			count(*now, 1)
		}
	})
	for _, shape := range slices.Sorted(maps.Keys(changed)) {
		if x := changed[shape]; x.n == 0 {
			out.table = out.table.Delete(shape)
		} else {
			out.table = out.table.Put(shape, x)
		}
	}
	return out
}

// shapeOf is all of a workload that counts; first the namespace, so that those of one are together.
func (c *classes) shapeOf(w *policy.Workload) string {
	var b strings.Builder
	part := func(s string) {
		b.WriteString(s)
		b.WriteByte(0) // which no name has
	}
	part(w.Namespace)
	part(kindOf(w))
	part(w.ServiceAccount)
	for i, is := range []bool{w.IsSubject(), isMachine(w)} {
		if is {
			b.WriteByte('a' + byte(i))
		}
	}
	b.WriteByte(0)
	for _, l := range w.Labels {
		if c.keys[l.Key] {
			part(l.Key)
			part(l.Value)
		}
	}
	return b.String()
}

// keysOf returns the keys of the labels of workloads that selections look at.
func keysOf(s policy.Snapshot) map[string]bool {
	out := map[string]bool{}
	add := func(selections []policy.Selection) {
		for _, sel := range selections {
			for _, r := range sel.Labels {
				out[r.Key] = true
			}
		}
	}
	for _, of := range []policy.Table[*policy.Policy]{s.Policies, s.Staged} {
		for _, p := range of.All() {
			for _, set := range appliedSets(p) {
				add(set.Selections)
			}
		}
	}
	for _, g := range s.Groups.All() {
		add(g.Selections)
	}
	for _, svc := range s.Services.All() {
		if svc.Pods != nil {
			for _, r := range *svc.Pods {
				out[r.Key] = true
			}
		}
	}
	return out
}

// appliedSets are all sets that any part of a policy applies to.
func appliedSets(p *policy.Policy) []policy.Set {
	out := []policy.Set{p.AppliedTo}
	for _, rules := range [][]policy.Rule{p.Ingress, p.Egress} {
		for i := range rules {
			if set := rules[i].AppliedTo; set != nil {
				out = append(out, *set)
			}
		}
	}
	return out
}

// membersOf returns the classes to which any part of a policy applies.
func (c *classes) membersOf(p *policy.Policy) []*class {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.members[p]; ok {
		return known
	}
	found := map[string]*class{}
	for _, set := range appliedSets(p) {
		for _, sel := range c.s.Subjects(set, p.Namespace) {
			for shape, x := range c.reach(sel) {
				if x.sample.IsSubject() && sel.Picks(x.sample, c.s.NamespaceOf(x.sample)) {
					found[shape] = x
				}
			}
		}
	}
	out := make([]*class, 0, len(found))
	for _, shape := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[shape])
	}
	c.members[p] = out
	return out
}

// reach yields the classes that a selection may pick.
func (c *classes) reach(sel policy.Selection) func(yield func(string, *class) bool) {
	if sel.Scope != policy.OneNamespace {
		return c.table.All()
	}
	prefix := sel.Namespace + "\x00"
	return func(yield func(string, *class) bool) {
		for shape, x := range c.table.From(prefix) {
			if !strings.HasPrefix(shape, prefix) || !yield(shape, x) {
				return
			}
		}
	}
}

// applied is what of a policy applies to a workload.
type applied struct {
	policy          *policy.Policy
	isOwn           bool  // what the policy itself applies to has it
	ingress, egress []int // the rules that apply
}

func (a applied) rules(d policy.Direction) []int {
	if d == policy.Ingress {
		return a.ingress
	}
	return a.egress
}

// rulesOf finds what applies to workloads, once for all that are alike.
type rulesOf struct {
	s policy.Snapshot // its workloads do not count

	mu    sync.Mutex
	known map[string][]applied
	// here are the policies that may apply in a namespace, anywhere those that may apply in all.
	here     map[string][]*policy.Policy
	anywhere []*policy.Policy
}

// of returns what applies to a workload, by policy ID.
func (c *classes) of(w *policy.Workload) []applied {
	if !w.IsSubject() {
		return nil
	}
	r, shape := c.rules, c.shapeOf(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	out, ok := r.known[shape]
	if !ok {
		out = r.find(w)
		r.known[shape] = out
	}
	return out
}

func (r *rulesOf) find(w *policy.Workload) []applied {
	if r.here == nil {
		r.index()
	}
	var out []applied
	for _, p := range slices.Concat(r.here[w.Namespace], r.anywhere) {
		a := applied{policy: p, isOwn: r.applies(p, p.AppliedTo, w)}
		for i := range p.Ingress {
			if r.appliesBy(p, &p.Ingress[i], a.isOwn, w) {
				a.ingress = append(a.ingress, i)
			}
		}
		for i := range p.Egress {
			if r.appliesBy(p, &p.Egress[i], a.isOwn, w) {
				a.egress = append(a.egress, i)
			}
		}
		if a.isOwn || len(a.ingress)+len(a.egress) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b applied) int { return strings.Compare(a.policy.ID, b.policy.ID) })
	return out
}

func (r *rulesOf) index() {
	r.here = map[string][]*policy.Policy{}
	for _, p := range r.s.Policies.All() {
		in, isWide := map[string]bool{}, false
		for _, set := range appliedSets(p) {
			for _, sel := range r.s.Subjects(set, p.Namespace) {
				if sel.Scope == policy.OneNamespace {
					in[sel.Namespace] = true
				} else {
					isWide = true
				}
			}
		}
		if isWide {
			r.anywhere = append(r.anywhere, p)
			continue
		}
		for ns := range in {
			r.here[ns] = append(r.here[ns], p)
		}
	}
}

func (r *rulesOf) appliesBy(p *policy.Policy, rule *policy.Rule, isOwn bool, w *policy.Workload) bool {
	if rule.AppliedTo == nil {
		return isOwn
	}
	return r.applies(p, *rule.AppliedTo, w)
}

func (r *rulesOf) applies(p *policy.Policy, set policy.Set, w *policy.Workload) bool {
	ns := r.s.NamespaceOf(w)
	return slices.ContainsFunc(r.s.Subjects(set, p.Namespace), func(sel policy.Selection) bool { return sel.Picks(w, ns) })
}

// isolates says whether what no rule decides at a workload is denied in a direction, given what applies to it.
func isolates(w *policy.Workload, all []applied, d policy.Direction) bool {
	hasIngress, hasEgress := false, false
	for _, a := range all {
		if a.isOwn && a.policy.Isolates(d) {
			return true
		}
		hasIngress, hasEgress = hasIngress || len(a.ingress) > 0, hasEgress || len(a.egress) > 0
	}
	return w.IsSubject() && w.Isolates(d, hasIngress, hasEgress)
}
