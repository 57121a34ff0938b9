package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// Ending says why rules were taken away when they were.
type Ending string

// The endings.
const (
	EndedAtOnce     Ending = "nobody was waited for"
	EndedCloud      Ending = "the cloud enforces on this machine"
	EndedNoCloud    Ending = "it is in no cloud that would enforce"
	EndedAway       Ending = "the server has been away for a while"
	EndedUnanswered Ending = "the server has not said in time whether a cloud enforces"
	EndedWaited     Ending = "the cloud did not enforce in time"
	EndedNoAgent    Ending = "no agent runs that could ask for the cloud"
)

// LeaveMost is for how long a machine's rules may wait for the cloud.
const LeaveMost = 10 * time.Minute

// ErrTakenBack says that somebody has switched the machine on while it was being switched off.
var ErrTakenBack = errors.New("it was switched on again meanwhile")

// leaving is the wish to be switched off once a cloud enforces. It is a file, so that it outlives whoever wished it and
// whoever was to fulfil it.
type leaving struct {
	Asked time.Time     `json:"asked"`
	Wait  time.Duration `json:"wait"` // after which nobody is waited for

	text string // as it is written: tells one wish from another
}

// isOver says whether nobody is waited for any more. A clock that was set back must not lengthen it.
func (l leaving) isOver(now time.Time) bool {
	return now.Before(l.Asked) || now.Sub(l.Asked) >= min(l.Wait, LeaveMost)
}

// readLeaving returns the wish to leave, if there is one. One that says nothing that can be understood is one still, and over.
func readLeaving(dir string) (l leaving, ok bool) {
	if IsOff(dir) {
		return l, false // it has been fulfilled
	}
	f, err := os.Open(filepath.Join(dir, leaveFile))
	if err != nil {
		return l, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(text, &l) != nil {
		l = leaving{}
	}
	l.text = string(text)
	return l, true
}

// IsLeaving says whether the machine is to be switched off, and has its rules still.
func IsLeaving(dir string) bool {
	_, ok := readLeaving(dir)
	return ok
}

// askToLeave writes the wish to leave.
func askToLeave(dir string, wait time.Duration) (l leaving, err error) {
	l = leaving{Asked: time.Now().Round(0), Wait: wait}
	text, err := json.Marshal(l)
	if err != nil {
		return l, err
	}
	l.text = string(text)
	unlock, err := lock(dir)
	if err != nil {
		return l, err
	}
	defer unlock()
	next := filepath.Join(dir, leaveFile+".next")
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return l, err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return l, errors.Join(err, os.Remove(next))
	}
	return l, errors.Join(os.Rename(next, filepath.Join(dir, leaveFile)), syncDir(dir))
}

// Leave is Off for a machine on which a cloud may enforce: the agent says that it is off, and takes the rules
// away only when its server says that the cloud enforces, or that there is none; or else after wait. Where no agent
// runs, that is at once. It is off in the end even when who calls this, or the agent, is killed. Tell is told what is waited for.
func Leave(ctx context.Context, dir string, netNS int, wait time.Duration, tell func(string)) (Ending, error) {
	if wait <= 0 || IsOff(dir) {
		return EndedAtOnce, Off(ctx, dir, netNS)
	}
	if !IsRunning(dir) {
		return EndedNoAgent, leaveNow(ctx, dir, netNS, EndedNoAgent, nil)
	}
	wait = min(wait, LeaveMost)
	l, err := askToLeave(dir, wait)
	if err != nil { // a disk that is full keeps nobody locked out
		return EndedNoAgent, leaveNow(ctx, dir, netNS, EndedNoAgent, nil)
	}
	tell(fmt.Sprintf("the rules stay until the cloud enforces, or the server says that no cloud does; for %s at most", wait))
	bound := time.After(wait + leaveGrace)
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w; the agent goes on with it", ctx.Err())
		case <-bound:
			if err := leaveNow(ctx, dir, netNS, EndedUnanswered, &l); err != nil {
				return "", err
			}
			return readEnding(dir), nil
		case <-time.After(100 * time.Millisecond):
		}
		if now, ok := readLeaving(dir); ok && now.text == l.text {
			continue
		}
		// Somebody has decided; that all is gone is seen to here, too: who did may have been killed then.
		if err := leaveNow(ctx, dir, netNS, EndedUnanswered, &l); err != nil {
			return "", err
		}
		return readEnding(dir), nil
	}
}

// leaveNow takes the rules away for good, if the machine is off by now, or a wish still stands; nil is any.
func leaveNow(ctx context.Context, dir string, netNS int, why Ending, still *leaving) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if !IsOff(dir) {
		// Another wish than that which was heard is as good, but has a bound of its own.
		if now, ok := readLeaving(dir); still != nil && (!ok || now.text != still.text) {
			return ErrTakenBack
		}
		if err := writeEnding(dir, why); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, leaveFile)); err != nil {
		return err
	}
	return takeAway(ctx, netNS)
}

// writeEnding makes the machine one that is off.
func writeEnding(dir string, why Ending) error {
	path := filepath.Join(dir, offFile)
	if err := touch(path); err != nil {
		return err
	}
	_ = os.WriteFile(path, []byte(why), 0o600) // it is off without, too, as where the disk is full
	return nil
}

func readEnding(dir string) Ending {
	text, _ := os.ReadFile(filepath.Join(dir, offFile))
	switch e := Ending(text); e {
	case EndedAtOnce, EndedCloud, EndedNoCloud, EndedAway, EndedUnanswered, EndedWaited, EndedNoAgent:
		return e
	}
	return EndedAtOnce
}

// ended says what the server's answer to an agent that says that it is off means for its rules; "" where they are needed still.
func ended(conditions []metav1.Condition) Ending {
	c := meta.FindStatusCondition(conditions, runtimev1alpha1.ConditionCloudEnforces)
	switch {
	case c == nil: // it was not said
	case c.Status == metav1.ConditionTrue:
		return EndedCloud
	case c.Status == metav1.ConditionFalse && c.Reason == runtimev1alpha1.ReasonNoCloud:
		return EndedNoCloud
	}
	return ""
}

const (
	leaveGrace = time.Second     // that an agent has to keep the bound itself: it knows what the server has said
	leaveEvery = time.Second     // between two reports of an agent that leaves
	leavePost  = 3 * time.Second // that one of them may take
)

// leave takes the rules away, if the wish to leave still stands.
func (r *run) leave(ctx context.Context, l leaving, why Ending) {
	switch err := leaveNow(ctx, r.o.StateDir, r.netNS(), why, &l); {
	case errors.Is(err, ErrTakenBack), ctx.Err() != nil:
	case err != nil:
		r.o.Log.Error("the rules cannot be taken away", "error", err)
	default:
		r.o.Log.Info("the rules are taken away", "why", string(why))
	}
}

// leaver follows the wish to leave, and ends it in time.
type leaver struct {
	text  string
	since time.Time
}

// look says whether a wish has to be fulfilled by now.
func (w *leaver) look(l leaving, now time.Time) bool {
	if l.text != w.text {
		w.text, w.since = l.text, now
	}
	return l.isOver(now) || now.Sub(w.since) >= l.Wait
}

// heardOf notes whether the server has said at all what is with the cloud, for who asks how it ended.
func (r *run) heardOf(l leaving, conditions []metav1.Condition) {
	c := meta.FindStatusCondition(conditions, runtimev1alpha1.ConditionCloudEnforces)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = ""
	if c != nil && c.Status == metav1.ConditionFalse {
		r.told = l.text
	}
}

// overdue is how it ends that nobody has been waited for any longer.
func (r *run) overdue(l leaving) Ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == l.text {
		return EndedWaited
	}
	return EndedUnanswered
}
