package antrea

import (
	"cmp"
	"fmt"
	"time"

	"isobar.dev/api/convert"
)

// The time between two writes of the state file, and after one that failed.
const (
	writeEvery = 5 * time.Second
	retryWrite = 30 * time.Second
)

// keeper keeps the last State in a file. A nil keeper does nothing.
type keeper struct {
	loop     *loop
	read     *convert.Reading // of the file, until the controller is reached
	readAt   time.Time
	isDirty  bool
	next     time.Time  // before which nothing is written
	inFlight chan error // of a write that is under way; nil without one
	isAhead  bool       // what was given out is newer than the file, and the mark of that is there
}

// load reads the state file into the Reader, whose objects keep their identity when the
// controller tells them again.
func (l *loop) load() {
	s := l.source
	if s.o.Dir == "" {
		return
	}
	l.kept = &keeper{loop: l, readAt: time.Now()}
	state, at, err := readState(s.o.Dir, s.node)
	l.lag.given = at                 // what was given out last has all that is there, if the file is of a time before, too
	if err == nil || isAbsent(err) { // and what was given out may never have come to be a file
		err = cmp.Or(isLast(s.o.Dir), err)
	}
	if err == nil {
		err = hold(l.intake.reader, state)
	}
	if err != nil {
		if !isAbsent(err) {
			s.note(func(st *Status) { st.DirErr = fmt.Errorf("read the kept state: %w", err) })
		}
		return
	}
	l.kept.read = l.intake.reader.Reading()
}

// hold puts what was kept into a Reader.
func hold(r *convert.Reader, state convert.ControlPlane) error {
	for i := range state.Policies {
		if err := r.PutPolicy(&state.Policies[i]); err != nil {
			return err
		}
	}
	for i := range state.AppliedTo {
		if err := r.PutAppliedTo(&state.AppliedTo[i]); err != nil {
			return err
		}
	}
	for i := range state.Addresses {
		if err := r.PutAddresses(&state.Addresses[i]); err != nil {
			return err
		}
	}
	return nil
}

// publish gives out what was read, once the controller has had its time. It returns how
// long it still has, or 0.
func (k *keeper) publish(now time.Time) time.Duration {
	if k == nil || k.read == nil {
		return 0
	}
	l := k.loop
	have := l.source.state.Load()
	if have != nil && !have.Kept {
		return 0
	}
	if left := l.source.o.DirAfter - now.Sub(k.readAt); left > 0 {
		return left
	}
	if !l.wasLive { // what is held is what was read; Services may be others
		k.read = l.intake.reader.Reading()
	}
	if have == nil || have.Reading != k.read {
		l.give(&State{Reading: k.read, Kept: true}, have)
	}
	return 0
}

// move notes that the same State stands at another position.
func (k *keeper) move() {
	if k != nil {
		k.isDirty = true
	}
}

// note notes that what is held has changed, before that is given out: from then on the file
// is of a time before what may be enforced.
func (k *keeper) note() {
	if k == nil {
		return
	}
	k.isDirty = true
	if k.isAhead {
		return
	}
	if err := markAhead(k.loop.source.o.Dir); err != nil {
		k.loop.source.note(func(st *Status) { st.DirErr = fmt.Errorf("keep the state: %w", err) })
		return
	}
	k.isAhead = true
}

// write writes what is held, if it is what was given out last and the time has come. It
// returns when to ask again, or 0.
func (k *keeper) write(now time.Time) time.Duration {
	if k == nil || !k.isDirty || !k.loop.isComplete || k.inFlight != nil {
		return 0
	}
	if left := k.next.Sub(now); left > 0 {
		return left
	}
	hold, at, s := k.loop.intake.reader.Hold(), k.loop.lag.given, k.loop.source
	done := make(chan error, 1)
	k.isDirty, k.inFlight = false, done
	go func() { done <- writeState(s.o.Dir, s.node, hold(), at) }()
	return 0
}

// written is where the end of a write is told.
func (k *keeper) written() <-chan error {
	if k == nil {
		return nil
	}
	return k.inFlight
}

// done takes the end of a write.
func (k *keeper) done(err error, now time.Time) {
	k.inFlight, k.next = nil, now.Add(writeEvery)
	if err != nil {
		k.isDirty, k.next = true, now.Add(retryWrite)
		err = fmt.Errorf("keep the state: %w", err)
	} else if !k.isDirty {
		if err = unmarkAhead(k.loop.source.o.Dir); err == nil {
			k.isAhead = false
		}
	}
	k.loop.source.note(func(st *Status) { st.DirErr = err })
}

// close writes what is not written.
func (k *keeper) close() {
	if k == nil {
		return
	}
	for {
		if k.inFlight != nil {
			k.done(<-k.inFlight, time.Now())
			if k.isDirty { // it failed
				return
			}
		}
		k.next = time.Time{}
		if k.write(time.Now()); k.inFlight == nil {
			return
		}
	}
}
