package reach_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

// Several may ask one World at once, and hear what one alone hears.
func TestSeveralAsk(t *testing.T) {
	s := policytest.World(policytest.Rand(1), 40)
	ask := func(w *reach.World, n int) string {
		flows := []policy.Flow{{Protocol: policy.TCP, Port: uint16(80 + n%4)}, {Protocol: policy.UDP, Port: 53}}
		m, err := w.Matrix(byNamespace, flows, reach.Options{})
		if err != nil {
			t.Error(err)
		}
		_, counts, err := w.Counts(byNamespace, flows, reach.Options{})
		if err != nil {
			t.Error(err)
		}
		edges := ""
		if err := w.Access(byNamespace, "outside", reach.Options{}, func(row []reach.Edge) {
			for i := range row {
				edges += text(&row[i])
			}
		}); err != nil {
			t.Error(err)
		}
		return fmt.Sprint(m, counts, edges, w.Ask(flows[0]).Verdict(0, 0))
	}
	w, err := reach.New(s)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	got := make([]string, 12)
	for n := range got {
		all.Go(func() { got[n] = ask(w, n) })
	}
	all.Wait()
	for n := range got {
		alone, err := reach.New(s)
		if err != nil {
			t.Fatal(err)
		}
		if want := ask(alone, n); got[n] != want {
			t.Errorf("%d: among others\n%s\nalone\n%s", n, got[n], want)
		}
	}
}

// Work ends when it is told to, whatever it has come to, and goes on when it is asked again.
func TestStop(t *testing.T) {
	w, err := reach.New(policytest.Town(200))
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	for name, ask := range map[string]func(reach.Options) error{
		"diff": func(o reach.Options) error {
			_, err := reach.DiffWith(policy.Snapshot{}, policytest.Town(200), o)
			return err
		},
		"matrix": func(o reach.Options) error { _, err := w.Matrix(byNamespace, asked, o); return err },
		"counts": func(o reach.Options) error { _, _, err := w.Counts(byNamespace, asked, o); return err },
		"cell": func(o reach.Options) error {
			_, err := w.Cell(func(reach.End) bool { return true }, func(e reach.End) bool { return e.Workload.Namespace == "ns-1" }, asked, o)
			return err
		},
		"access": func(o reach.Options) error {
			return w.Access(byNamespace, "outside", o, func([]reach.Edge) {})
		},
	} {
		times := 0
		if err := ask(reach.Options{Stop: func() error { times++; return nil }}); err != nil || times < 10 {
			t.Fatalf("%s: asked %d times whether to stop, %v", name, times, err)
		}
		for _, at := range []int{1, times / 2, times} {
			n := 0
			stop := func() error {
				if n++; n >= at {
					return over
				}
				return nil
			}
			if err := ask(reach.Options{Stop: stop}); !errors.Is(err, over) || n != at {
				t.Errorf("%s: stopped at %d of %d: %v, after %d", name, at, times, err, n)
			}
		}
		if err := ask(reach.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is more than can be held is an error, not part of an answer; a narrower question is answered.
func TestTooMany(t *testing.T) {
	narrow := func(e reach.End) string {
		if ns := byNamespace(e); ns == "ns-3" || ns == "ns-4" {
			return ns
		}
		return ""
	}
	for name, bound := range map[string][2]int{"lists": {1200, 1 << 20}, "pairs": {1 << 20, 1000}} {
		o := reach.Options{Pairs: bound[1]}
		for _, ask := range []func(*reach.World) error{
			func(w *reach.World) error { _, err := w.Matrix(byNamespace, asked, o); return err },
			func(w *reach.World) error { _, _, err := w.Counts(byNamespace, asked, o); return err },
			func(w *reach.World) error {
				return w.Access(byNamespace, "", o, func([]reach.Edge) { t.Error("a part of an answer") })
			},
		} {
			w, err := reach.New(policytest.Town(2000))
			if err != nil {
				t.Fatal(err)
			}
			w.Bound(bound[0])
			if err := ask(w); !errors.Is(err, reach.ErrTooMany) {
				t.Errorf("%s: %v, want that it is too many", name, err)
			}
			w, _ = reach.New(policytest.Town(2000))
			w.Bound(bound[0])
			if _, _, err := w.Counts(narrow, asked, o); err != nil {
				t.Errorf("%s, narrowed: %v", name, err)
			}
		}
	}
	s := policytest.Town(2000)
	if _, err := reach.DiffWith(policy.Snapshot{Workloads: s.Workloads}, s, reach.Options{Pairs: 1000}); !errors.Is(err, reach.ErrTooMany) {
		t.Errorf("a diff: %v, want that it is too many", err)
	}
}
