package antrea

import (
	"errors"
	"slices"
	"strings"
	"time"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// Lag is how what is told now lags behind what was given out before, as where a watch has come to
// another replica, whose API server is behind.
type Lag struct {
	// Lacks are the kinds of objects of which changes are not there, so that what is told is not
	// given out; empty where it does not lag.
	Lacks []string
	// Since is when that began.
	Since time.Time
	// WentBack is when such a State was given out all the same, the last time, since for
	// Options.Yield nobody had a newer one; zero means never.
	WentBack time.Time
}

// lag is what a loop does about it.
type lag struct {
	given controlplanev1beta2.Position // what was given out last stands there; zero where that is not known
	total stopwatch                    // how long what is told has lagged
	here  time.Time                    // since when it is the same replica's; zero where it is nobody's
	stays int                          // replicas that have been left, one after the other
}

// How long a replica that lags has to come further before it is left: the first time, and
// then twice as long each time. It may be the only one.
const (
	firstStay = 3 * time.Second
	mostStay  = 30 * time.Second
)

var errBehind = errors.New("the controller lags behind what was told before")

// catchUp says whether what is held, which is whole, has all that was given out before, or has
// not for so long that it has to do, and else how long to wait. A replica that does
// not come further is left, so that another may be reached.
func (l *loop) catchUp(now time.Time) (wait time.Duration, ok bool) {
	lacks, have := l.intake.lacks(l.lag.given), l.source.Status().Lag
	if len(lacks) == 0 {
		if len(have.Lacks) > 0 {
			l.source.note(func(s *Status) { s.Lag = Lag{WentBack: have.WentBack} })
		}
		l.caughtUp()
		return 0, true
	}
	passed := l.lag.total.run(now)
	if passed >= l.source.o.Yield {
		l.source.note(func(s *Status) { s.Lag = Lag{WentBack: now} })
		// What it has to do for is where it stands, from now on: it may wait for a group yet, and lags no more meanwhile.
		l.lag.given = l.intake.position()
		l.kept.move()
		l.caughtUp()
		return 0, true
	}
	if !slices.Equal(have.Lacks, lacks) {
		since := have.Since
		if len(have.Lacks) == 0 {
			since = now
		}
		l.source.note(func(s *Status) { s.Lag = Lag{Lacks: lacks, Since: since, WentBack: have.WentBack} })
	}
	if l.lag.here.IsZero() {
		l.lag.here = now
	}
	stay := mostStay
	if l.lag.stays < 4 {
		stay = firstStay << l.lag.stays
	}
	wait = min(stay-now.Sub(l.lag.here), l.source.o.Yield-passed)
	if wait > 0 {
		return wait, false
	}
	l.lag.stays++
	for i := range l.connections {
		l.end(i, errBehind)
	}
	l.pauseLag(now)
	return 0, false
}

func (l *loop) caughtUp() { l.lag = lag{given: l.lag.given} }

// pauseLag says that nothing is told now. Where nobody is reached, nobody lags.
func (l *loop) pauseLag(now time.Time) {
	if l.lag.total != (stopwatch{}) {
		l.lag.total.stop(now)
	}
	l.lag.here = time.Time{}
}

// marks returns those of which a live part holds all: its own, and those of others that say that
// it has not changed since.
func (in *intake) marks(i int) []*mark {
	own, _ := in.parts[i].at()
	if own == nil {
		return nil
	}
	out := []*mark{own}
	for j, p := range in.parts {
		if m, _ := p.at(); j != i && m != nil && m.Source == own.Source && m.Version >= own.Version && m.Last[i] <= own.Version {
			out = append(out, m)
		}
	}
	return out
}

// lacks returns the kinds of which what is held may lack what is at a position. Where no
// position is told, as by upstream's controller, it lacks nothing.
func (in *intake) lacks(of controlplanev1beta2.Position) []string {
	var out []string
	for i := range in.parts {
		var least []string
		for n, m := range in.marks(i) {
			if lacks := m.position.Lacks(of); n == 0 || len(lacks) < len(least) {
				least = lacks
			}
		}
		out = append(out, least...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// position is where what is held stands, as far as lacks asks: the newest change of each kind that is in
// any part. It is zero where that is not told.
func (in *intake) position() (out controlplanev1beta2.Position) {
	for i, p := range in.parts {
		m, _ := p.at()
		if m == nil || i > 0 && out.Cluster != m.position.Cluster {
			return controlplanev1beta2.Position{}
		}
		out.Cluster = m.position.Cluster
		add(&out, m.position)
	}
	return out
}

// add makes the newest change of each kind that of p, where that is newer.
func add(to *controlplanev1beta2.Position, p controlplanev1beta2.Position) {
	for _, k := range p.Kinds {
		k.Read = k.Changed // what else was read is of no account
		i, ok := slices.BinarySearchFunc(to.Kinds, k.Kind, func(k controlplanev1beta2.KindPosition, name string) int { return strings.Compare(k.Kind, name) })
		switch {
		case !ok:
			to.Kinds = slices.Insert(to.Kinds, i, k)
		case k.Changed > to.Kinds[i].Changed:
			to.Kinds[i] = k
		}
	}
}

// reach is how far what is held reaches, all of whose parts are live: as far as the part that
// reaches least.
func (in *intake) reach() Reach {
	out := Reach{Live: true, Tells: true}
	for i := range in.parts {
		var most uint64
		tells := false
		for _, m := range in.marks(i) {
			for _, k := range m.position.Kinds {
				if k.Kind == podKind {
					tells, most = true, max(most, k.Read)
				}
			}
		}
		if !tells {
			return Reach{Live: true}
		}
		if i == 0 || most < out.Pods {
			out.Pods = most
		}
	}
	return out
}

// podKind is what a Position calls Pods.
const podKind = "pod"
