package plan_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

func TestDiff(t *testing.T) {
	have := map[string]int{"a": 1, "b": 2, "c": 3}
	want := map[string]int{"b": 2, "c": 4, "d": 5}
	var got []string
	for _, c := range plan.Diff(have, want, func(a, b int) bool { return a == b }) {
		got = append(got, fmt.Sprint(c.Op(), " ", c.Key))
	}
	if d := cmp.Diff([]string{"delete a", "update c", "create d"}, got); d != "" {
		t.Errorf("Diff(%v, %v): %s", have, want, d)
	}
}

// board is a target of strings: it should have one Object for each workload.
type board struct {
	objects      map[string]string
	reads, calls int
	readErr      error
	fail         map[string]bool // keys whose changes fail
}

func (b *board) Lower(rs policy.Ruleset) (map[string]string, []policy.Refusal) {
	want := map[string]string{}
	for _, w := range rs.Workloads {
		want[w.Workload.ID] = w.Workload.Name
	}
	return want, []policy.Refusal{{Policy: "p", Workloads: []string{"b"}}, {Policy: "p", Workloads: []string{"a"}}}
}
func (b *board) Equal(x, y string) bool { return x == y }
func (b *board) Read(context.Context) (map[string]string, error) {
	b.reads++
	return b.objects, b.readErr
}
func (b *board) Apply(_ context.Context, changes []plan.Change[string]) error {
	b.calls++
	var errs []error
	next := map[string]string{}
	for k, v := range b.objects {
		next[k] = v
	}
	for _, c := range changes {
		switch {
		case b.fail[c.Key]:
			errs = append(errs, fmt.Errorf("write: %w", &plan.ChangeError{Key: c.Key, Err: errors.New("no")}))
		case c.Want == nil:
			delete(next, c.Key)
		default:
			next[c.Key] = *c.Want
		}
	}
	b.objects = next
	return errors.Join(errs...)
}
func (b *board) Describe(c plan.Change[string]) string { return "note" }

func ruleset(names ...string) policy.Ruleset {
	rs := policy.Ruleset{Target: "board"}
	for _, n := range names {
		rs.Workloads = append(rs.Workloads, policy.Enforced{Workload: &policy.Workload{ID: n, Name: n}})
	}
	return rs
}

func TestSyncer(t *testing.T) {
	b := &board{objects: map[string]string{"old": "old"}, fail: map[string]bool{}}
	s := plan.NewSyncer("board", b)
	ctx := context.Background()

	preview, err := s.Preview(ctx, ruleset("a", "b"))
	if err != nil || b.calls != 0 || preview.Written != 0 {
		t.Fatalf("Preview: %v, %d calls, %d written; want no error and no write", err, b.calls, preview.Written)
	}
	report, err := s.Sync(ctx, ruleset("a", "b"))
	if err != nil || report.Written != 3 {
		t.Fatalf("Sync: %v, %d written; want 3", err, report.Written)
	}
	preview.Written = report.Written
	if d := cmp.Diff(preview, report); d != "" {
		t.Errorf("the preview differs from what was done: %s", d)
	}
	if d := cmp.Diff([]policy.Refusal{{Policy: "p", Workloads: []string{"a", "b"}}}, report.Refusals); d != "" {
		t.Errorf("refusals: %s", d)
	}
	if _, err := s.Sync(ctx, ruleset("a", "b")); err != nil || b.calls != 1 || b.reads != 1 {
		t.Errorf("second Sync: %v, %d Apply calls, %d reads; want one of each", err, b.calls, b.reads)
	}

	// A change behind our back is found after Forget.
	b.objects = map[string]string{"a": "a"}
	s.Forget()
	if report, err := s.Sync(ctx, ruleset("a", "b")); err != nil || report.Written != 1 || b.reads != 2 {
		t.Errorf("Sync after Forget: %v, %d written, %d reads", err, report.Written, b.reads)
	}

	// What fails is said, and what was done counts; then all is read anew.
	b.fail["x"] = true
	report, err = s.Sync(ctx, ruleset("a", "b", "x", "y"))
	if err == nil || report.Written != 1 || len(report.Changes) != 2 {
		t.Errorf("Sync with a failing object: %v, %d of %d written; want an error, 1 of 2", err, report.Written, len(report.Changes))
	}
	delete(b.fail, "x")
	if report, err := s.Sync(ctx, ruleset("a", "b", "x", "y")); err != nil || report.Written != 1 || b.reads != 3 {
		t.Errorf("Sync after an error: %v, %d written, %d reads", err, report.Written, b.reads)
	}
}

// What cannot be read must not look empty: nothing is created anew.
func TestSyncerUnreadable(t *testing.T) {
	b := &board{readErr: errors.New("unreadable")}
	s := plan.NewSyncer("board", b)
	for range 2 {
		if _, err := s.Sync(context.Background(), ruleset("a")); !errors.Is(err, b.readErr) || b.calls != 0 {
			t.Errorf("Sync = %v after %d Apply calls; want the error and none", err, b.calls)
		}
	}
	if b.reads != 2 {
		t.Errorf("%d reads; want one for each Sync", b.reads)
	}
}

func TestSyncerWrongTarget(t *testing.T) {
	b := &board{}
	rs := ruleset("a")
	rs.Target = "other"
	if _, err := plan.NewSyncer("board", b).Sync(context.Background(), rs); err == nil || b.reads != 0 {
		t.Error("a ruleset of another target was taken")
	}
}

// A Preview waits for a Sync that is under way no longer than it is told to.
func TestSyncerBusy(t *testing.T) {
	b := &slow{board: board{objects: map[string]string{}}, applying: make(chan struct{}), proceed: make(chan struct{})}
	s := plan.NewSyncer("board", b)
	done := make(chan error, 1)
	go func() {
		_, err := s.Sync(context.Background(), ruleset("a"))
		done <- err
	}()
	<-b.applying
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Preview(ctx, ruleset("a")); !errors.Is(err, plan.ErrBusy) {
		t.Errorf("Preview during a Sync = %v; want ErrBusy", err)
	}
	close(b.proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := s.Preview(t.Context(), ruleset("a")); err != nil || len(r.Changes) != 0 || b.reads != 1 {
		t.Errorf("Preview after it = %+v, %v, %d reads; want no change, and one read", r, err, b.reads)
	}
}

// slow is a board whose Apply says that it has begun, and waits.
type slow struct {
	board
	applying, proceed chan struct{}
}

func (b *slow) Apply(ctx context.Context, changes []plan.Change[string]) error {
	close(b.applying)
	<-b.proceed
	return b.board.Apply(ctx, changes)
}
