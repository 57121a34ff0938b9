package acceptance_test

import (
	"sync"

	sim "isobar.dev/sim/aws"
)

// probe asks for the verdict of flows after every write to the cloud, before the next one
// can happen: a blink between two writes cannot hide.
type probe struct {
	w     *world
	flows []sim.Flow

	asking   sync.Mutex // clouds that are two write at once; what was asked first is noted first
	mu       sync.Mutex
	base     []sim.Result // before the change
	last     []sim.Result
	blinks   map[int]blink // by flow: when it was first not as in base, and with which verdict
	samples  int
	returned map[int]blink // was not as in base, and is again
}

type blink struct {
	result sim.Result
	sample int
	after  string // the write that it was seen after
}

// watch begins to ask, until the test ends. There is one probe in a world.
func (w *world) watch(flows []sim.Flow) *probe {
	w.t.Helper()
	p := &probe{w: w, flows: flows}
	if !w.probe.CompareAndSwap(nil, p) {
		w.t.Fatal("the world is watched already")
	}
	p.rebase()
	return p
}

func (p *probe) ask() []sim.Result {
	return p.w.verdicts(p.flows)
}

// rebase takes the verdicts of now as those before the next change.
func (p *probe) rebase() {
	now := p.ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base, p.last, p.blinks, p.returned, p.samples = now, now, map[int]blink{}, map[int]blink{}, 0
}

// sample is called by the simulator, which waits for it.
func (p *probe) sample() {
	p.asking.Lock()
	defer p.asking.Unlock()
	now := p.ask()
	after := "no call"
	if all := p.w.written(); len(all) > 0 {
		after = all[len(all)-1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples++
	for i, r := range now {
		_, seen := p.blinks[i]
		switch {
		case r != p.base[i] && !seen:
			p.blinks[i] = blink{r, p.samples, after}
		case r != p.last[i]:
			if _, ok := p.returned[i]; !ok {
				p.returned[i] = blink{r, p.samples, after}
			}
		}
	}
	p.last = now
}

// change runs f, which makes a change and waits until it is done, and fails the test when
// meanwhile a flow had another verdict than before, though it has the same after (I1: nothing
// is open that both states close; I2: nothing is closed that both leave open), or when one
// whose verdict changes did so more than once.
func (p *probe) change(what string, f func()) {
	p.w.t.Helper()
	p.rebase()
	f()
	now := p.ask()
	p.mu.Lock()
	defer p.mu.Unlock()
	opened, closed, wavered, changed := 0, 0, 0, 0
	for i, was := range p.base {
		b, blinked := p.blinks[i]
		again, back := p.returned[i]
		switch {
		case was != now[i] && !back:
			changed++
		case was != now[i]:
			wavered++
			p.tell(what, p.flows[i], was, now[i], b, again)
		case blinked && b.result == sim.Allowed:
			opened++
			p.tell(what, p.flows[i], was, now[i], b, again)
		case blinked:
			closed++
			p.tell(what, p.flows[i], was, now[i], b, again)
		}
	}
	p.w.t.Logf("%s: %d writes, %d of %d flows changed", what, p.samples, changed, len(p.flows))
	if opened+closed+wavered > 0 {
		p.w.t.Errorf("%s: %d flows were open for a moment, %d closed, %d wavered", what, opened, closed, wavered)
	}
}

func (p *probe) tell(what string, f sim.Flow, was, now sim.Result, b, again blink) {
	p.w.t.Helper()
	p.w.t.Logf("%s: %s to %s %s/%d: %s, then %s (write %d, %s), then %s (write %d, %s), in the end %s",
		what, f.From, f.To, f.Protocol, f.Port, was, b.result, b.sample, b.after, again.result, again.sample, again.after, now)
}
