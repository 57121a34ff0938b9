package agents_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"isobar.dev/compile"
	"isobar.dev/policy"
)

// probe holds what agents enforce against what has been meant, at each change of either.
type probe struct {
	t     testing.TB
	flows []policy.Flow

	mu       sync.Mutex
	rulesets map[string]policy.Ruleset // enforced, by Target; of each agent from the start on
	known    map[string]bool           // Targets whose agents have a State
	worlds   []policy.Snapshot         // since the last quiet moment, in their order
	compiled []policy.Ruleset          // of the last of them
	want     [][]policy.Action         // by world, and end
	tables   []map[string][32]byte     // by world, and Target: digests of what tableOf gives; nil of a world that need not be
	at       []int                     // by end, the world that it was last seen in
	isLoose  bool                      // a verdict of any of the worlds will do
	stricter func(policy.Flow) bool    // a Drop will do, too; nil for no flow
	looks    int
	wrong    int
	texts    []string // of the first wrong ones
}

// Each flow has two ends, which are judged apart: two agents need not change at once.
const (
	atSource = iota
	atDestination
	ends
)

// newProbe watches flows from now on, whose world is w.
func newProbe(t testing.TB, flows []policy.Flow, w policy.Snapshot) *probe {
	p := &probe{t: t, flows: flows, rulesets: map[string]policy.Ruleset{}, known: map[string]bool{}, at: make([]int, ends*len(flows))}
	p.add(w)
	return p
}

// next says that there will be another world, before it is.
func (p *probe) next(w policy.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(w)
}

// perhaps says that there may be another world, before the next one that will be.
func (p *probe) perhaps(w policy.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(w)
	p.tables[len(p.tables)-1] = nil
}

// flap says that there will be two worlds in turn, of which now is the last that was said.
func (p *probe) flap(other policy.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.worlds[len(p.worlds)-1]
	p.isLoose = true
	p.add(other)
	p.add(now)
}

func (p *probe) add(w policy.Snapshot) {
	p.t.Helper()
	want := make([]policy.Action, ends*len(p.flows))
	for i, f := range p.flows {
		v, err := policy.Evaluate(w, f)
		if err != nil {
			p.t.Fatalf("%+v: %v", f, err)
		}
		want[ends*i+atSource], want[ends*i+atDestination] = v.Egress.Action, v.Ingress.Action
	}
	p.worlds, p.want = append(p.worlds, w), append(p.want, want)
	p.compiled = rulesets(w)
	tables := map[string][32]byte{}
	for _, rs := range p.compiled {
		tables[rs.Target] = sha256.Sum256([]byte(strings.Join(tableOf(rs), "\n")))
	}
	p.tables = append(p.tables, tables)
}

// rulesets returns those of a world: the slow twin's, but where that takes seconds.
func rulesets(w policy.Snapshot) []policy.Ruleset {
	if w.Workloads.Len() < 1000 {
		return compile.Rulesets(w)
	}
	e := compile.NewEngine()
	e.Update(w)
	var out []policy.Ruleset
	for _, target := range e.Targets() {
		rs, _ := e.Ruleset(target)
		out = append(out, rs)
	}
	return out
}

// drop leaves out the flows of a Pod, which goes; before anything is judged.
func (p *probe) drop(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := policy.WorkloadID(policy.KindPod, pod.Namespace, pod.Name)
	p.flows = slices.DeleteFunc(p.flows, func(f policy.Flow) bool { return f.From.Workload == id || f.To.Workload == id })
	last := p.worlds[len(p.worlds)-1]
	p.worlds, p.want, p.tables, p.at = nil, nil, nil, make([]int, ends*len(p.flows))
	p.add(last)
}

// expect makes room for an agent's Target.
func (p *probe) expect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rulesets[target] = policy.Ruleset{Target: target}
}

// look is told by an agent what it enforces from now on.
func (p *probe) look(rs policy.Ruleset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rulesets[rs.Target], p.known[rs.Target] = rs, true
	p.looks++
	p.judge(rs.Target, func(end int, f policy.Flow, got policy.Action) {
		for j := p.at[end]; j < len(p.worlds); j++ {
			if p.want[j][end] == got {
				if !p.isLoose {
					p.at[end] = j
				}
				return
			}
		}
		if p.stricter != nil && got == policy.Drop && p.stricter(f) {
			return
		}
		p.wrong++
		if len(p.texts) < 5 {
			var meant []string
			for _, want := range p.want[p.at[end]:] {
				meant = append(meant, want[end].String())
			}
			p.texts = append(p.texts, fmt.Sprintf("look %d: %v to %v %v/%d at its %s: %v; since it was seen last it means %s (worlds %d to %d)", p.looks,
				f.From, f.To, f.Protocol, f.Port, []string{"source", "destination"}[end%ends], got, strings.Join(slices.Compact(meant), ", then "), p.at[end], len(p.worlds)-1))
		}
	})
}

// judge calls f with each end of a flow on a Target, and its verdict as it is enforced now.
func (p *probe) judge(target string, f func(end int, flow policy.Flow, got policy.Action)) {
	world := p.worlds[len(p.worlds)-1]
	rulesets := p.with(target)
	for i, flow := range p.flows {
		near, far := targetOf(world, flow.From), targetOf(world, flow.To)
		if near != target && far != target {
			continue
		}
		v, err := compile.Verdict(rulesets, world, flow)
		if err != nil {
			p.wrong++
			p.texts = append(p.texts, fmt.Sprintf("%+v: %v", flow, err))
			continue
		}
		if near == target {
			f(ends*i+atSource, flow, v.Egress.Action)
		}
		if far == target {
			f(ends*i+atDestination, flow, v.Ingress.Action)
		}
	}
}

// allows has the probe take a Drop, too, of flows of which stricter says so.
func (p *probe) allows(stricter func(policy.Flow) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stricter = stricter
}

// dropped counts the flows of which f says so, and those of them that are dropped at their
// destination.
func (p *probe) dropped(f func(policy.Flow) bool) (dropped, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for target := range p.rulesets {
		p.judge(target, func(end int, flow policy.Flow, got policy.Action) {
			if end%ends == atDestination && f(flow) {
				all++
				if got == policy.Drop {
					dropped++
				}
			}
		})
	}
	return dropped, all
}

// targetOf returns who enforces at an end; of an address alone nobody is asked.
func targetOf(world policy.Snapshot, e policy.Endpoint) string {
	if w, ok := world.Workloads.Get(e.Workload); ok {
		return w.Target
	}
	return ""
}

// with returns the Rulesets of all, of which the one of a Target is as it is enforced.
func (p *probe) with(target string) []policy.Ruleset {
	now := p.rulesets[target]
	byID := func(a, b policy.Enforced) int { return cmp.Compare(a.Workload.ID, b.Workload.ID) }
	now.Workloads = slices.Clone(now.Workloads)
	out := slices.Clone(p.compiled)
	i := slices.IndexFunc(out, func(rs policy.Ruleset) bool { return rs.Target == target })
	if i < 0 {
		return append(out, now)
	}
	var more []policy.Enforced
	for _, e := range out[i].Workloads { // agents are not told of those that nothing applies to
		if _, has := slices.BinarySearchFunc(now.Workloads, e, byID); !has {
			more = append(more, policy.Enforced{Workload: e.Workload})
		}
	}
	now.Workloads = append(now.Workloads, more...)
	slices.SortFunc(now.Workloads, byID)
	out[i] = now
	return out
}

// behind says what is not yet as it is meant in the last world; "" when all is. All of each
// table counts, not the flows alone.
func (p *probe) behind() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := map[string]policy.Ruleset{}
	for _, rs := range p.compiled {
		want[rs.Target] = rs
	}
	for _, target := range slices.Sorted(maps.Keys(p.rulesets)) {
		if !p.known[target] {
			return target + " has no State"
		}
		got, want := tableOf(p.rulesets[target]), tableOf(want[target])
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%s has %d lines, and should have %d: %s", target, len(got), len(want), firstDifference(got, want))
		}
	}
	last := p.want[len(p.want)-1]
	wrong := ""
	for target := range p.rulesets {
		p.judge(target, func(end int, f policy.Flow, got policy.Action) {
			if got != last[end] {
				wrong = fmt.Sprintf("%+v is %v, and means %v", f, got, last[end])
			}
		})
	}
	return wrong
}

// recurs says for which agent the last world is as one that was before another, "" when for none: who has it then may
// have the others yet to come.
func (p *probe) recurs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.tables) - 1
	for _, target := range slices.Sorted(maps.Keys(p.rulesets)) {
		isOther := false
		for j := last - 1; j >= 0; j-- {
			if p.tables[j] == nil {
				continue
			}
			isSame := p.tables[j][target] == p.tables[last][target]
			if isSame && isOther {
				return fmt.Sprintf("for %s world %d is as world %d again, after others: that it has that says nothing", target, last, j)
			}
			isOther = isOther || !isSame
		}
	}
	return ""
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "lacks " + want[i]
		case i >= len(want):
			return "has " + got[i]
		case got[i] != want[i]:
			return fmt.Sprintf("has %s where %s should be", got[i], want[i])
		}
	}
	return ""
}

// settle waits until every agent has exactly what the last world means, from when on there
// is no other. It fails the test for each verdict that was wrong meanwhile.
func (p *probe) settle(what string) {
	p.t.Helper()
	if twice := p.recurs(); twice != "" {
		p.t.Fatalf("%s: %s", what, twice)
	}
	eventually(p.t, what, p.behind)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Logf("%s: %d looks, %d worlds, %d wrong", what, p.looks, len(p.worlds), p.wrong)
	if p.wrong > 0 {
		p.t.Errorf("%s: %d verdicts were those of no world, or of one that was over:\n%s", what, p.wrong, strings.Join(p.texts, "\n"))
	}
	p.worlds, p.want = slices.Clone(p.worlds[len(p.worlds)-1:]), slices.Clone(p.want[len(p.want)-1:]) // and nothing of the others
	p.tables = slices.Clone(p.tables[len(p.tables)-1:])
	clear(p.at)
	p.wrong, p.texts, p.looks, p.isLoose = 0, nil, 0, false
}

// tableOf is a Ruleset as text, by what is told to agents: whom it is about, and each rule with
// the addresses of its peers.
func tableOf(rs policy.Ruleset) []string {
	members := map[string][]string{}
	for _, g := range rs.Groups {
		for _, w := range g.Workloads.All() {
			members[g.Key] = append(members[g.Key], fmt.Sprint(w.ID, w.Addrs, w.Ports))
		}
		slices.Sort(members[g.Key])
	}
	rules := map[string]string{}
	for _, r := range rs.Rules {
		var peers []string
		for _, key := range r.Groups {
			peers = append(peers, members[key]...)
		}
		slices.Sort(peers)
		peers = slices.Compact(peers)
		if n := len(peers); n > 20 {
			peers = []string{fmt.Sprintf("%d peers, %x", n, sha256.Sum256([]byte(strings.Join(peers, ","))))}
		}
		rules[r.Key] = fmt.Sprint(r.Policy, " ", r.Direction, " ", r.Tier, " ", r.Priority, " ", r.Index, " ", r.Action, " ", r.AllPeers, " ", peers, " ", r.Blocks, " ", r.Traffic)
	}
	var out []string
	for _, e := range rs.Workloads {
		if len(e.Ingress)+len(e.Egress) == 0 && e.IsolatedIngress == "" && e.IsolatedEgress == "" {
			continue
		}
		var lines []string
		for _, key := range slices.Concat(e.Ingress, e.Egress) {
			lines = append(lines, rules[key])
		}
		out = append(out, fmt.Sprint(e.Workload.ID, " ", e.IsolatedIngress != "", " ", e.IsolatedEgress != "", " ", strings.Join(lines, "; ")))
	}
	slices.Sort(out)
	return out
}
