package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"isobar.dev/control/agent"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// api is an API server's Pods, and what has been noted of them.
type api struct {
	mu       sync.Mutex
	versions map[string]uint64 // by name; 0 for an error
	asked    int
	noted    []string
	full     bool // nothing can be noted
}

func (a *api) hold(most time.Duration) agent.Hold {
	return agent.Hold{
		For: most,
		Version: func(_ context.Context, p agent.Pod) (uint64, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.asked++
			if a.versions[p.Name] == 0 {
				return 0, errors.New("503")
			}
			return a.versions[p.Name], nil
		},
		Note: func(p agent.Pod) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.full {
				return errors.New("ENOSPC")
			}
			a.noted = append(a.noted, p.Name)
			return nil
		},
	}
}

func unknown(name, addr string) agent.Pod {
	p := pod(name, addr)
	p.Known = false
	return p
}

// naming makes a State that names Pods as some whom policies apply to.
func naming(s *antrea.State, pods ...string) *antrea.State {
	for _, name := range pods {
		s.Workloads = append(s.Workloads, policy.Enforced{Workload: &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "x", name), Kind: policy.KindPod, Namespace: "x", Name: name}})
	}
	return s
}

// last returns what is enforced, of the Pods.
func (w *world) last() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.enforced) == 0 {
		return "nothing"
	}
	_, pods, _ := strings.Cut(w.enforced[len(w.enforced)-1], " on")
	return strings.TrimSpace(pods)
}

func (w *world) is(when, want string) {
	w.Helper()
	if got := w.last(); got != want {
		w.Fatalf("%s: %q, want %q; held are %+v", when, got, want, w.agent.Status().Held)
	}
}

// Where the controller says what it has read, a Pod is closed until that is the Pod, whoever is named,
// and however long it takes.
func TestHeldUntilRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{versions: map[string]uint64{}}
		w := startHolding(t, server.hold(time.Second), pod("old", "10.0.0.1"))
		w.set(func() {
			w.state = naming(policies("p@1"), "a")
			w.reach = antrea.Reach{Live: true, Tells: true, Pods: 6}
		})
		if err := w.agent.Attach(t.Context(), unknown("a", "10.0.0.2")); err != nil {
			t.Fatal(err) // it gets its address by that alone
		}
		w.is("attached", "a[10.0.0.2]? old[10.0.0.1]")
		time.Sleep(time.Hour)
		w.is("while the API server is away", "a[10.0.0.2]? old[10.0.0.1]")
		if held := w.agent.Status().Held; len(held) != 1 || held[0].ID() != "pod/x/a" || held[0].Why != "503" {
			t.Errorf("held: %+v", held)
		}
		server.mu.Lock()
		server.versions["a"] = 7
		server.mu.Unlock()
		time.Sleep(10 * time.Second)
		if n := w.asks.Load(); n > 0 {
			t.Errorf("the controller, which has just read that, was asked %d times", n)
		}
		time.Sleep(time.Hour)
		w.is("while the controller lags", "a[10.0.0.2]? old[10.0.0.1]")
		if n := w.asks.Load(); n < 60 || n > 200 {
			t.Errorf("the controller was asked %d times in an hour", n)
		}
		if held := w.agent.Status().Held; len(held) != 1 || !strings.Contains(held[0].Why, "up to version 6, and this one has 7") {
			t.Errorf("held: %+v", held)
		}
		w.set(func() { w.reach = antrea.Reach{} })
		w.set(func() { w.reach.Tells, w.reach.Pods = true, 7 })
		w.is("while the controller is away", "a[10.0.0.2]? old[10.0.0.1]")
		if len(server.noted) > 0 {
			t.Errorf("noted: %q", server.noted)
		}
		server.full = true
		w.set(func() { w.reach.Live = true })
		w.is("read", "a[10.0.0.2] old[10.0.0.1]")
		time.Sleep(time.Hour)
		server.mu.Lock()
		server.full = false
		server.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(server.noted, []string{"a"}) || len(w.agent.Status().Held) > 0 {
			t.Errorf("noted: %q, held: %+v", server.noted, w.agent.Status().Held)
		}
		asks := w.asks.Load()
		time.Sleep(time.Hour)
		if n := w.asks.Load() - asks; n > 0 {
			t.Errorf("the controller was asked %d times, and nobody is held", n)
		}
		// What it was asked again, and what the controller says then, does not matter any more.
		asked := server.asked
		if err := w.agent.Attach(t.Context(), unknown("a", "10.0.0.2")); err != nil {
			t.Fatal(err)
		}
		w.set(func() { w.reach = antrea.Reach{Live: true, Tells: true, Pods: 5} })
		time.Sleep(time.Hour)
		w.is("attached again", "a[10.0.0.2] old[10.0.0.1]")
		if server.asked != asked {
			t.Errorf("asked %d times more", server.asked-asked)
		}
		// Another Pod behind the same interface is another.
		other := unknown("a", "10.0.0.2")
		other.UID = "another"
		server.mu.Lock()
		server.versions["a"] = 9
		server.mu.Unlock()
		if err := w.agent.Attach(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		w.is("another Pod", "a[10.0.0.2]? old[10.0.0.1]")
		w.set(func() { w.reach.Pods = 9 })
		w.is("another Pod is read", "a[10.0.0.2] old[10.0.0.1]")
	})
}

// Where it does not say that, as upstream's, a Pod is closed until it is named, or could have been.
func TestHeldUntilNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{versions: map[string]uint64{"a": 1, "b": 1}}
		w := startHolding(t, server.hold(10*time.Second))
		w.set(func() { w.state = policies("p@1") })
		for _, p := range []agent.Pod{unknown("a", "10.0.0.1"), unknown("b", "10.0.0.2")} {
			if err := w.agent.Attach(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		w.is("before the controller is reached", "a[10.0.0.1]? b[10.0.0.2]?")
		w.set(func() { w.reach.Live = true })
		time.Sleep(9 * time.Second)
		w.is("nobody is named", "a[10.0.0.1]? b[10.0.0.2]?")
		w.set(func() { w.state = naming(policies("p@1"), "a") })
		w.is("one is named", "a[10.0.0.1] b[10.0.0.2]?")
		w.set(func() { w.reach.Live = false })
		time.Sleep(time.Minute)
		w.is("the controller is away", "a[10.0.0.1] b[10.0.0.2]?")
		w.set(func() { w.reach.Live = true })
		time.Sleep(9 * time.Second)
		w.is("it is back", "a[10.0.0.1] b[10.0.0.2]?")
		time.Sleep(2 * time.Second)
		w.is("it has had its time", "a[10.0.0.1] b[10.0.0.2]")
		if server.asked > 0 {
			t.Errorf("asked %d times for what does not matter", server.asked)
		}
	})
}

// A Pod whose policies are known is told of as one that is closed, until they are enforced.
func TestHeldUntilEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{versions: map[string]uint64{"a": 7}}
		w := startHolding(t, server.hold(0), pod("old", "10.0.0.1"))
		w.set(func() { w.state, w.reach = policies("p@1"), antrea.Reach{Live: true, Tells: true, Pods: 6} })
		if err := w.agent.Attach(t.Context(), unknown("a", "10.0.0.2")); err != nil {
			t.Fatal(err)
		}
		w.set(func() { w.err, w.reach.Pods = errors.New("refused"), 7 })
		time.Sleep(time.Minute)
		synctest.Wait()
		if held := w.agent.Status().Held; len(held) != 1 || held[0].ID() != "pod/x/a" || held[0].Why != "its policies are known, and it is not open yet" {
			t.Errorf("held: %+v", held)
		}
		w.set(func() { w.err = nil })
		time.Sleep(time.Minute)
		w.is("enforced", "a[10.0.0.2] old[10.0.0.1]")
		if held := w.agent.Status().Held; len(held) > 0 {
			t.Errorf("held: %+v", held)
		}
	})
}

// A Pod that is gone is asked for no more.
func TestHeldIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{versions: map[string]uint64{}}
		w := startHolding(t, server.hold(time.Second), unknown("a", "10.0.0.1"))
		w.set(func() { w.state = policies("p@1"); w.reach = antrea.Reach{Live: true, Tells: true, Pods: 1 << 60} })
		time.Sleep(time.Minute)
		w.is("of before a restart", "a[10.0.0.1]?")
		w.agent.Detach("if-a")
		time.Sleep(time.Minute)
		asked := server.asked
		time.Sleep(time.Hour)
		w.is("gone", "")
		if server.asked != asked || asked < 10 {
			t.Errorf("asked %d times, and %d after it was gone", asked, server.asked-asked)
		}
	})
}
