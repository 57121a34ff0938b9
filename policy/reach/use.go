package reach

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Rule names a rule of a world by its place, or, with the Index -1, the isolation by a policy.
type Rule struct {
	Policy    string // ID
	Direction policy.Direction
	Index     int
}

// Compare orders rules by policy, direction and place.
func (r Rule) Compare(o Rule) int {
	return cmp.Or(cmp.Compare(r.Policy, o.Policy), cmp.Compare(r.Direction, o.Direction), cmp.Compare(r.Index, o.Index))
}

// Example is a flow that can be in a world. Its ends are workloads, or addresses that none has.
type Example = policy.Flow

// Use is what a rule, or an isolation, does in a world.
type Use struct {
	// Decides is a flow whose decision turns to the rule; nil where there is none: then the
	// decisions about all flows are the same without it.
	Decides *Example
	// Matches is a flow that the rule matches at a workload that it applies to; nil where
	// there is none.
	Matches *Example
	// Before are those that decide all that the rule matches, where it decides nothing.
	Before []Rule
}

// Tie is two rules of different policies with one tier and priority that contradict each other.
type Tie struct {
	First, Other Rule    // First decides about Example, which Other matches as well
	Example      Example // whose decision turns to First
	// IsFull: both have one place in their policies, too, so that the stricter action
	// decides; else the place does.
	IsFull bool
}

// Uses is what the rules of a world do.
type Uses struct {
	// Rules are those that apply to a workload that flows can have.
	Rules map[Rule]*Use
	Ties  []Tie // one for each two policies, direction and IsFull; sorted
}

// UsesOf asks about all flows between two workloads of s, at each of their addresses, and between
// one and addresses that none has.
func UsesOf(s policy.Snapshot) (Uses, error) {
	w, err := New(s) // of its own, to which it adds classes
	if err != nil {
		return Uses{}, err
	}
	u := &user{World: w, out: Uses{Rules: map[Rule]*Use{}}, tied: map[tieKey]bool{}}
	sides, err := u.sides()
	if err != nil {
		return u.out, err
	}
	for _, m := range u.meetings(sides) {
		u.look(m)
	}
	for _, x := range u.out.Rules {
		slices.SortFunc(x.Before, Rule.Compare)
		if x.Decides != nil {
			x.Before = nil
		}
	}
	slices.SortFunc(u.out.Ties, func(a, b Tie) int { return cmp.Or(a.First.Compare(b.First), a.Other.Compare(b.Other)) })
	return u.out, nil
}

// user finds what rules do.
type user struct {
	*World
	out  Uses
	tied map[tieKey]bool // what is in out.Ties
}

type tieKey struct {
	first, other string
	direction    policy.Direction
	isFull       bool
}

// side is ends of one class, of which two are as good as all.
type side struct {
	class int
	ends  []policy.Endpoint
}

// sides returns the classes of ends, those of addresses of nobody included.
func (u *user) sides() ([]side, error) {
	var out []side
	byClass := map[int]int{}
	add := func(class int, e policy.Endpoint) {
		i, ok := byClass[class]
		if !ok {
			i = len(out)
			byClass[class] = i
			out = append(out, side{class: class})
		}
		if len(out[i].ends) < 2 {
			out[i].ends = append(out[i].ends, e)
		}
	}
	taken := map[netip.Addr]bool{}
	for _, e := range u.Ends {
		if e.Workload == nil {
			continue
		}
		if len(e.Workload.Addrs) == 1 {
			add(e.Class, policy.Endpoint{Workload: e.Name})
		}
		for _, a := range e.Workload.Addrs {
			taken[a] = true
			if len(e.Workload.Addrs) == 1 {
				break
			}
			end := policy.Endpoint{Workload: e.Name, Addr: a} // a flow may be from each of them
			class, err := u.classOf(end, []netip.Addr{a})
			if err != nil {
				return nil, err
			}
			add(class, end)
		}
	}
	for i, first := range u.about.edges {
		a, ok := free(first, lastBefore(u.about.edges, i), func(a netip.Addr) bool { return taken[a] })
		if !ok {
			continue
		}
		class, err := u.classOf(policy.Endpoint{}, []netip.Addr{a})
		if err != nil {
			return nil, err
		}
		add(class, policy.Endpoint{Addr: a})
	}
	return out, nil
}

// meeting is a judge and all who are at the other end of what it decides, one of each kind
// that it tells apart.
type meeting struct {
	dir   int
	judge *judge
	peers []peerAt
}

type peerAt struct {
	peer int32
	flow policy.Flow // with such ends
}

// meetings returns the judges with all whom they meet.
func (u *user) meetings(sides []side) []meeting {
	var out []meeting
	byJudge := map[*judge]int{}
	type pair struct {
		judge *judge
		peer  int32
	}
	met := map[pair]bool{}
	add := func(dir int, n, peer int32, from, to policy.Endpoint) {
		if n < 0 || met[pair{u.judges[dir][n], peer}] {
			return
		}
		j := u.judges[dir][n]
		met[pair{j, peer}] = true
		i, ok := byJudge[j]
		if !ok {
			i = len(out)
			byJudge[j] = i
			out = append(out, meeting{dir: dir, judge: j})
		}
		out[i].peers = append(out[i].peers, peerAt{peer, policy.Flow{From: from, To: to}})
	}
	for i := range sides {
		for k := range sides {
			a, b := &sides[i], &sides[k]
			from, to, ok := apart(a, b)
			if !ok || !u.Meet(a.class, b.class) {
				continue
			}
			for x, y := range u.families(a.class, b.class) { // each side has one address
				add(0, x.judge[0], y.peer, from, to)
				add(1, y.judge[1], x.peer, from, to)
			}
		}
	}
	return out
}

// apart returns an end of each that are not one workload.
func apart(a, b *side) (from, to policy.Endpoint, ok bool) {
	for _, from := range a.ends {
		for _, to := range b.ends {
			if from.Workload != to.Workload || from.Workload == "" {
				return from, to, true
			}
		}
	}
	return from, to, false
}

// look finds out what a judge's candidates do.
func (u *user) look(m meeting) {
	steps := m.judge.Candidates()
	at := u.cutsOf(m.judge)
	uses := make([]*Use, len(steps))
	for i, st := range steps {
		r := ruleOf(st)
		if u.out.Rules[r] == nil {
			u.out.Rules[r] = &Use{}
		}
		uses[i] = u.out.Rules[r]
	}
	ties := u.tiesOf(steps)
	idle := func() bool {
		return len(ties) == 0 && !slices.ContainsFunc(uses, func(x *Use) bool { return x.Decides == nil })
	}
	seen := map[string]bool{}
	for _, p := range m.peers {
		if idle() {
			return
		}
		far := u.peers[p.peer]
		if key := m.judge.Sees(far); !seen[key] {
			seen[key] = true
			ties = u.try(m, p, at, steps, uses, ties)
		}
	}
}

func ruleOf(st policy.Step) Rule { return Rule{st.Policy.ID, st.Direction, st.Index} }

// try asks about all traffic with one peer, cut at the given places, and returns the ties that
// are still to be found.
func (u *user) try(m meeting, p peerAt, at []int, steps []policy.Step, uses []*Use, ties [][2]int) [][2]int {
	j, far := m.judge, u.peers[p.peer]
	for _, n := range at {
		f := flowAt(n)
		if f.Protocol.HasPorts() && f.Port == 0 {
			continue // no flow has port 0
		}
		example := f
		example.From, example.To = p.flow.From, p.flow.To
		f.From.Addr, f.To.Addr = j.near, far.Addr
		if directions[m.dir] == policy.Ingress {
			f.From.Addr, f.To.Addr = far.Addr, j.near
		}
		var asked []bool
		trace := func() {
			if asked != nil {
				return
			}
			asked = make([]bool, len(steps))
			j.Trace(f, far, asked)
			for i, x := range uses {
				if asked[i] && x.Decides == nil {
					x.Decides, x.Matches = &example, &example
				}
			}
		}
		for i, x := range uses {
			if x.Decides != nil || !j.Matches(i, f, far) {
				continue
			}
			trace()
			if x.Decides != nil {
				continue
			}
			if x.Matches == nil {
				x.Matches = &example
			}
			for k := range i {
				if r := ruleOf(steps[k]); asked[k] && !slices.Contains(x.Before, r) {
					x.Before = append(x.Before, r)
				}
			}
		}
		ties = slices.DeleteFunc(ties, func(pair [2]int) bool {
			key := keyOf(steps, pair)
			if u.tied[key] {
				return true
			}
			if !j.Matches(pair[0], f, far) || !j.Matches(pair[1], f, far) {
				return false
			}
			if trace(); !asked[pair[0]] || !bothMatch(j, pair, f, far) {
				return false
			}
			u.tied[key] = true
			u.out.Ties = append(u.out.Ties, Tie{ruleOf(steps[pair[0]]), ruleOf(steps[pair[1]]), example, key.isFull})
			return true
		})
	}
	return ties
}

// bothMatch says whether both match f from one source port.
func bothMatch(j *judge, pair [2]int, f policy.Flow, far policy.End) bool {
	found := false
	policy.Strictest(f, j.Traffic, func(f policy.Flow) policy.Decision {
		found = found || j.Matches(pair[0], f, far) && j.Matches(pair[1], f, far)
		return policy.Decision{}
	})
	return found
}

// tiesOf returns each two candidates that contradict each other with one tier and priority,
// and are not known to be tied. Those of Kubernetes NetworkPolicies cannot.
func (u *user) tiesOf(steps []policy.Step) [][2]int {
	var out [][2]int
	for i, a := range steps {
		for k := i + 1; k < len(steps); k++ {
			b := steps[k]
			if a.Tier != b.Tier || a.Policy.Priority != b.Policy.Priority {
				break
			}
			pair := [2]int{i, k}
			if a.Rule != nil && b.Rule != nil && a.Policy.ID != b.Policy.ID && a.Action != b.Action && !u.tied[keyOf(steps, pair)] {
				out = append(out, pair)
			}
		}
	}
	return out
}

func keyOf(steps []policy.Step, pair [2]int) tieKey {
	a, b := steps[pair[0]], steps[pair[1]]
	return tieKey{a.Policy.ID, b.Policy.ID, a.Direction, a.Index == b.Index}
}

// Judge returns who decides at the ends of a class; nil where no policy can apply.
func (w *World) Judge(class int, d policy.Direction) *policy.Judge {
	c := w.classes[class]
	dir := slices.Index(directions[:], d)
	n := c.families[0].judge[dir]
	if n < 0 {
		return nil
	}
	return w.judges[dir][n].Judge
}

// Say returns what a flow is, but for its ends, as "TCP/80" or "ICMP/8/0".
func Say(f policy.Flow) string {
	n := place(f)
	if f.Protocol == policy.ICMP {
		return fmt.Sprintf("ICMP/%d/%d", f.ICMPType, f.ICMPCode)
	}
	return Traffic{n, n}.String()
}
