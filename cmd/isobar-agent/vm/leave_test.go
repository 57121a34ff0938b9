package vm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/sim/lab"
)

// Answers to a report.
var (
	yesCloud = &metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionTrue, Reason: runtimev1alpha1.ReasonEnforced}
	notYet   = &metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionFalse, Reason: runtimev1alpha1.ReasonLeftToAgent}
	noCloud  = &metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionFalse, Reason: runtimev1alpha1.ReasonNoCloud}
	unread   = &metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionUnknown, Reason: runtimev1alpha1.ReasonUnread}
	another  = &metav1.Condition{Type: runtimev1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: runtimev1alpha1.ReasonEnforced}
)

func (w *world) think(c *metav1.Condition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.thinks, w.vmris = c, nil
}

// leave is `isobar-agent off`, as it goes on.
func (w *world) leave(ctx context.Context, wait time.Duration) (ended <-chan error, how *vm.Ending) {
	out, how := make(chan error, 1), new(vm.Ending)
	go func() {
		var err error
		*how, err = vm.Leave(ctx, w.dir, int(w.vm.Fd()), wait, func(string) {})
		out <- err
	}()
	return out, how
}

// saysOff waits until the server has been told Off so often.
func (w *world) saysOff(times int) {
	w.Helper()
	w.await("the server is told", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, x := range w.vmris {
			if x.Status.State == runtimev1alpha1.AgentOff {
				n++
			}
		}
		if n < times {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
}

const long = 5 * time.Minute // which no test waits for

// The rules stay until the server says that the cloud enforces, or that none does.
func TestLeave(t *testing.T) {
	w := newWorld(t)
	w.world(policyOf(noIngress))
	w.think(yesCloud) // to an agent that enforces it says nothing
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	open, closed := w.in(80, lab.Allow), w.in(80, lab.Drop)
	for _, tt := range []struct {
		before, after *metav1.Condition
		want          vm.Ending
	}{
		{notYet, yesCloud, vm.EndedCloud},
		{unread, noCloud, vm.EndedNoCloud},
		{nil, yesCloud, vm.EndedCloud},
		{another, noCloud, vm.EndedNoCloud},
	} {
		w.think(tt.before)
		ended, how := w.leave(t.Context(), long)
		w.saysOff(3)
		w.wants("leaving", closed...)
		if r := w.machine.Reply(); !r.Leaving || r.IsWhole() || r.State != runtimev1alpha1.AgentOff {
			t.Errorf("%+v", r)
		}
		select {
		case err := <-ended:
			t.Fatalf("%q: %v", *how, err)
		default:
		}
		w.think(tt.after)
		w.must(<-ended)
		if *how != tt.want {
			t.Errorf("%q, want %q", *how, tt.want)
		}
		w.wants("left", open...)
		if w.hasTable() || w.machine.Reply().Leaving {
			t.Errorf("%+v", w.machine.Reply())
		}
		w.must(vm.On(w.dir))
		w.await("on again", func() error { return w.try(closed) })
	}

	// Whoever wishes it back has it back, and the rules were never away.
	w.think(notYet)
	ended, how := w.leave(t.Context(), long)
	w.saysOff(1)
	end := w.insist(closed[:2])
	w.must(vm.On(w.dir))
	if err := <-ended; !errors.Is(err, vm.ErrTakenBack) {
		t.Errorf("%q: %v", *how, err)
	}
	w.think(yesCloud)
	w.await("it says so", func() error {
		if s := w.last(); s.State != runtimev1alpha1.AgentEnforcing {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := end(); err != nil {
		t.Error(err)
	}
	if vm.IsOff(w.dir) {
		t.Error("it is off")
	}
}

// Nobody is locked out for longer than he was told.
func TestLeaveIsBounded(t *testing.T) {
	w := newWorld(t)
	w.world(policyOf(noIngress))
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	open, closed := w.in(80, lab.Allow), w.in(80, lab.Drop)
	on := func() {
		t.Helper()
		w.must(vm.On(w.dir))
		w.await("on again", func() error { return w.try(closed) })
	}
	for name, tt := range map[string]struct {
		thinks *metav1.Condition
		away   bool
		wait   time.Duration
		want   string
	}{
		"not yet":             {notYet, false, 8 * time.Second, string(vm.EndedWaited)}, // in which it is told on a slow machine, too
		"unread":              {unread, false, 3 * time.Second, string(vm.EndedUnanswered)},
		"nothing":             {nil, false, 3 * time.Second, string(vm.EndedUnanswered)},
		"away for a moment":   {notYet, true, 3 * time.Second, string(vm.EndedUnanswered)},
		"now":                 {notYet, false, 0, string(vm.EndedAtOnce)},
		"now, and it is away": {notYet, true, 0, string(vm.EndedAtOnce)},
	} {
		w.think(tt.thinks)
		w.setAway(tt.away)
		ended, how := w.leave(t.Context(), tt.wait)
		w.must(<-ended)
		if !strings.Contains(tt.want, string(*how)) {
			t.Errorf("%s: %q, want %q", name, *how, tt.want)
		}
		w.wants(name, open...)
		w.setAway(false)
		on()
	}

	// A server that has been away for long is not waited for.
	w.setAway(true)
	w.run(func(o *vm.Options) { o.AwayAfter = time.Millisecond })
	w.isReady()
	w.wants("away", closed...)
	ended, how := w.leave(t.Context(), long)
	w.must(<-ended)
	if *how != vm.EndedAway {
		t.Errorf("%q", *how)
	}
	w.wants("away, and off", open...)

	// And none is where no agent is that could ask.
	on()
	w.stop()
	ended, how = w.leave(t.Context(), long)
	w.must(<-ended)
	if *how != vm.EndedNoAgent {
		t.Errorf("%q", *how)
	}
	w.wants("no agent", open...)
}

// Whoever is killed while the machine is to be switched off: it ends off, and does not stay half so.
func TestLeaveAndKill(t *testing.T) {
	w := newWorld(t)
	w.world(policyOf(noIngress))
	w.think(notYet)
	cmd := w.process()
	kill := func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}
	open, shut := w.in(80, lab.Allow), w.in(80, lab.Drop)
	closed := func(when string) {
		t.Helper()
		w.await(when, func() error { return w.try(shut) })
	}
	isOff := func(when string) {
		t.Helper()
		w.await(when, func() error {
			if w.hasTable() || !vm.IsOff(w.dir) || vm.IsLeaving(w.dir) {
				return errors.New("it is on")
			}
			return w.try(open)
		})
	}
	on := func() {
		t.Helper()
		w.think(notYet)
		w.must(vm.On(w.dir))
		closed("on")
	}
	closed("at first")

	// The command: the agent goes on.
	ctx, cancel := context.WithCancel(t.Context())
	ended, _ := w.leave(ctx, long)
	w.saysOff(1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w.must(w.try(shut))
	w.think(yesCloud)
	isOff("without the command")
	on()

	// The command, and the server never says anything: the agent knows the bound.
	ctx, cancel = context.WithCancel(t.Context())
	ended, _ = w.leave(ctx, 4*time.Second)
	w.saysOff(1)
	cancel()
	<-ended
	isOff("without the command and a server")
	on()

	// The agent: the command knows the bound.
	ended, how := w.leave(t.Context(), 12*time.Second)
	w.saysOff(1)
	kill()
	w.must(w.try(shut))
	w.must(<-ended)
	isOff("without the agent")
	if *how != vm.EndedUnanswered {
		t.Errorf("%q", *how)
	}
	cmd = w.process()
	isOff("without the agent, which is back")
	on()

	// The agent, which comes back in time: it goes on where it was.
	ended, how = w.leave(t.Context(), long)
	w.saysOff(1)
	kill()
	w.think(notYet)
	cmd = w.process()
	w.saysOff(1)
	w.must(w.try(shut))
	w.think(yesCloud)
	w.must(<-ended)
	if *how != vm.EndedCloud {
		t.Errorf("%q", *how)
	}
	isOff("with another agent")
	on()

	// Both: the next agent does it, and writes no rules before that.
	port := uint16(1000) // one that nothing else has tried
	for name, text := range map[string]string{
		"over":                `{"asked":"2020-01-01T00:00:00Z","wait":1}`,
		"before it was asked": `{"asked":"2999-01-01T00:00:00Z","wait":1000000000000}`,
		"without a sense":     `{"asked":`,
		"empty":               ``,
	} {
		kill()
		w.must(os.WriteFile(filepath.Join(w.dir, "leaving"), []byte(text), 0o600))
		w.reboot()
		port++
		end := w.insist(w.in(port, lab.Allow)[:4])
		cmd = w.process()
		w.await(name, func() error {
			if !vm.IsOff(w.dir) {
				return errors.New("it is on")
			}
			return nil
		})
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		isOff(name)
		on()
	}

	// Between the steps of the end.
	kill()
	w.must(errors.Join(os.WriteFile(filepath.Join(w.dir, "leaving"), []byte("{}"), 0o600), os.WriteFile(filepath.Join(w.dir, "off"), nil, 0o600)))
	ended, how = w.leave(t.Context(), long)
	w.must(<-ended)
	isOff("which was off")
	w.must(vm.On(w.dir))
	if vm.IsLeaving(w.dir) || vm.IsOff(w.dir) {
		t.Error("it is to be off")
	}
}
