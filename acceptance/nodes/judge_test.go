package nodes_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"isobar.dev/policy"
)

// verdict is what came of a probe. Several are a set.
type verdict uint8

const (
	passed verdict = 1 << iota
	lost
	rejected

	anything = passed | lost | rejected
)

func (v verdict) String() string {
	var out []string
	for i, name := range []string{"passed", "lost", "rejected"} {
		if v&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, " or ")
}

func verdictOf(a policy.Action) verdict {
	switch a {
	case policy.Allow:
		return passed
	case policy.Reject:
		return rejected
	}
	return lost
}

// flow is what is tried again and again: a new connection from one Pod to another.
type flow struct {
	number   int
	from, to *pod
	protocol policy.Protocol
	port     uint16
	reads    bool // what is rejected is told apart from what is lost
	latest   verdict
	isFresh  bool // a Pod is new, and closed until its policies are known
	isClosed bool // nothing may pass, whatever it means
}

func (f *flow) String() string {
	return fmt.Sprintf("%s to %s %v/%d", f.from.key, f.to.key, f.protocol, f.port)
}

// meant is what a world means for a flow at its two ends, each of which may be in another
// world for a while.
type meant struct{ egress, ingress verdict }

func (m meant) and(o meant) meant { return meant{m.egress | o.egress, m.ingress | o.ingress} }

func (m meant) verdicts() verdict {
	out := m.egress &^ passed
	if m.egress&passed != 0 {
		out |= m.ingress
	}
	return out
}

// era is a time in which the same verdicts are right.
type era struct {
	ok   []verdict // by flow
	next *era      // nil as long as it lasts
	// excused are those that are wrong, but cannot be helped.
	excused func(*flow) verdict
}

// judge holds what comes of probes against what there has been.
type judge struct {
	ports atomic.Uint32 // that probes were sent from, and identifiers of those by ICMP

	t testing.TB

	mu     sync.Mutex
	worlds []policy.Snapshot // since the last quiet moment, in their order
	flows  []*flow           // by number; nil for those that are over
	now    *era
	tried  map[*era][]int  // by flow, in eras that are waited for
	frozen func(*pod) bool // whose Node takes up nothing new; nil for nobody's

	probes, wrong, excused      int
	transitions, all, allProbes int
	byVerdict                   [anything + 1]int
	texts                       []string  // of the first wrong ones
	first, last                 time.Time // of what was excused
}

func newJudge(t testing.TB) *judge {
	j := &judge{t: t, now: &era{}, tried: map[*era][]int{}}
	t.Cleanup(func() {
		t.Logf("in all: %d probes, %d transitions, %d wrong", j.allProbes, j.transitions, j.all)
	})
	return j
}

// next says that there will be another world, before it is.
func (j *judge) next(w policy.Snapshot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.worlds = append(j.worlds, w)
	j.transitions++
	j.turn(j.now.excused)
}

// flap says that there will be two worlds in turn, of which the last that was said is the last.
func (j *judge) flap(other policy.Snapshot) {
	w := j.latest()
	j.next(other)
	j.next(w)
}

// latest is the world that there is in the end.
func (j *judge) latest() policy.Snapshot {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.worlds[len(j.worlds)-1]
}

// excuse has verdicts that are wrong counted apart from now on; nil for none.
func (j *judge) excuse(f func(*flow) verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.turn(f)
}

// freeze says of which Pods the Node enforces from now on what it did in the last quiet moment, and nothing
// newer; nil for none.
func (j *judge) freeze(f func(*pod) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = f
	j.turn(j.now.excused)
}

// turn begins another era. The caller holds the lock.
func (j *judge) turn(excused func(*flow) verdict) {
	j.t.Helper()
	e := &era{ok: make([]verdict, len(j.flows)), excused: excused}
	for i, f := range j.flows {
		if f == nil {
			e.ok[i] = anything
			continue
		}
		var m meant
		for i, w := range j.worlds {
			x := j.meaning(w, f)
			if i > 0 && j.frozen != nil && j.frozen(f.from) {
				x.egress = 0
			}
			if i > 0 && j.frozen != nil && j.frozen(f.to) {
				x.ingress = 0
			}
			m = m.and(x)
		}
		e.ok[i] = m.verdicts()
		if f.isClosed {
			e.ok[i] = anything &^ passed
		} else if f.isFresh || !f.reads && e.ok[i]&rejected != 0 {
			e.ok[i] |= lost
		}
	}
	j.now.next = e
	j.now = e
}

// meaning is that of a world. Where it does not know a Pod, but somebody else who has the Pod's
// address, it is what the other end takes it for; of the Pod's own end there is none.
func (j *judge) meaning(w policy.Snapshot, f *flow) meant {
	j.t.Helper()
	mask := meant{anything, anything}
	from, to := policy.Endpoint{Workload: f.from.id}, policy.Endpoint{Workload: f.to.id}
	_, knowsFrom := w.Workloads.Get(f.from.id)
	_, knowsTo := w.Workloads.Get(f.to.id)
	switch {
	case !knowsFrom && !knowsTo, !knowsFrom && !hasAddr(w, f.from.addr), !knowsTo && !hasAddr(w, f.to.addr):
		return meant{}
	case !knowsFrom:
		from, mask.egress = policy.Endpoint{Addr: f.from.addr}, 0
	case !knowsTo:
		to, mask.ingress = policy.Endpoint{Addr: f.to.addr}, 0
	}
	flow := policy.Flow{From: from, To: to, Protocol: f.protocol, Port: f.port}
	if f.protocol == policy.ICMP {
		flow.ICMPType = 8
	}
	v, err := policy.Evaluate(w, flow)
	if err != nil {
		j.t.Errorf("%v: %v", f, err)
		return meant{anything, anything}
	}
	return meant{verdictOf(v.Egress.Action) & mask.egress, verdictOf(v.Ingress.Action) & mask.ingress}
}

func hasAddr(w policy.Snapshot, a netip.Addr) bool {
	for _, x := range w.Workloads.All() {
		if slices.Contains(x.Addrs, a) {
			return true
		}
	}
	return false
}

// close says of the flows from and to a Pod whether nothing may pass, whatever it means.
func (j *judge) close(p *pod, isClosed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.flows {
		if f != nil && (f.from == p || f.to == p) {
			f.isClosed, f.isFresh = isClosed, !isClosed
		}
	}
	j.turn(j.now.excused)
}

// stricter says of the flows from and to a Pod that nothing may pass, and may.
func (j *judge) stricter(p *pod, is bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.flows {
		if f != nil && (f.from == p || f.to == p) {
			f.isFresh = is
		}
	}
	j.turn(j.now.excused)
}

// add takes flows that are tried from now on.
func (j *judge) add(flows ...*flow) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range flows {
		f.number = len(j.flows)
		j.flows = append(j.flows, f)
	}
	j.turn(j.now.excused)
}

// drop forgets the flows of a Pod, also what comes of probes that are under way.
func (j *judge) drop(p *pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, f := range j.flows {
		if f != nil && (f.from == p || f.to == p) {
			j.flows[i] = nil
		}
	}
}

// begin is called with each probe, before it is sent.
func (j *judge) begin() *era {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.now
}

// end is told what came of a probe.
func (j *judge) end(f *flow, from *era, sent time.Time, v verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.flows[f.number] == nil {
		return
	}
	j.probes++
	j.allProbes++
	j.byVerdict[v]++
	f.latest = v
	if tried := j.tried[from]; f.number < len(tried) {
		tried[f.number]++
	}
	ok, excused := verdict(0), verdict(0)
	for e := from; e != nil; e = e.next {
		if f.number >= len(e.ok) {
			continue // before the flow was
		}
		ok |= e.ok[f.number]
		if e.excused != nil {
			excused |= e.excused(f)
		}
	}
	switch {
	case ok&v != 0:
	case excused&v != 0:
		if j.excused++; j.first.IsZero() || sent.Before(j.first) {
			j.first = sent
		}
		if sent.After(j.last) {
			j.last = sent
		}
	default:
		j.wrong++
		j.all++
		if len(j.texts) < 8 {
			j.texts = append(j.texts, fmt.Sprintf("%s: %v: %v, and should be %v", sent.Format("05.000"), f, v, ok))
		}
	}
}

// settle says that the last world is the only one from now on, and returns when each flow
// has been tried in it. It fails the test for all that was wrong since the last time.
func (j *judge) settle(what string) {
	j.t.Helper()
	j.mu.Lock()
	j.worlds = slices.Clone(j.worlds[len(j.worlds)-1:])
	for _, f := range j.flows {
		if f != nil {
			f.isFresh = false
		}
	}
	j.turn(j.now.excused)
	j.mu.Unlock()
	j.await(what)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.t.Logf("%s: %d probes, %d passed, %d lost, %d rejected; %d excused, %d wrong", what, j.probes, j.byVerdict[passed], j.byVerdict[lost], j.byVerdict[rejected], j.excused, j.wrong)
	if j.wrong > 0 {
		j.t.Errorf("%s: %d of %d probes had the verdict of no world:\n%s", what, j.wrong, j.probes, strings.Join(j.texts, "\n"))
	}
	j.probes, j.wrong, j.excused, j.texts, j.byVerdict, j.first, j.last = 0, 0, 0, nil, [anything + 1]int{}, time.Time{}, time.Time{}
}

// await returns when each flow has been tried twice in the era that there is now.
func (j *judge) await(what string) {
	j.t.Helper()
	j.mu.Lock()
	e := j.now // with those that are closed
	tried := make([]int, len(j.flows))
	j.tried[e] = tried
	j.mu.Unlock()
	const rounds = 2
	eventually(j.t, what+": all flows are tried", func() string {
		j.mu.Lock()
		defer j.mu.Unlock()
		for i, f := range j.flows {
			if f != nil && tried[i] < rounds {
				return fmt.Sprint(f, " is not")
			}
		}
		return ""
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.tried, e)
}

// reaches says which flow has not passed lately that should.
func (j *judge) reaches() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, f := range j.flows {
		if f != nil && j.now.ok[i] == passed && f.latest != passed {
			return f.String() + " does not pass"
		}
	}
	return ""
}

// differs says of which flow the latest verdict is none of the last world's.
func (j *judge) differs() string {
	w := j.latest()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.flows {
		if f != nil && f.latest&j.meaning(w, f).verdicts() == 0 && (f.reads || f.latest != lost) {
			return fmt.Sprint(f, " is ", f.latest)
		}
	}
	return ""
}

// excuses returns how many probes were excused since the last time, and the time between the
// first and the last of them.
func (j *judge) excuses() (n int, during time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.excused, j.last.Sub(j.first)
}

// port returns one to send a probe from, which no other probe has had for as long as a Node follows a
// connection that has ended: a probe from the same port would go on with that.
func (j *judge) port() uint16 { return uint16(10000 + j.ports.Add(1)%22000) }
