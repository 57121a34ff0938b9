package vm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"k8s.io/client-go/rest"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
)

// kernel is an Enforcer that has one Ruleset.
type kernel struct {
	has    string   // key of its rule
	past   []string // what it had
	failed error
}

func (k *kernel) Sync(_ context.Context, rs policy.Ruleset) (plan.Report, error) {
	if k.failed != nil {
		return plan.Report{}, k.failed
	}
	if key := rs.Rules[0].Key; key != k.has {
		k.has = key
		k.past = append(k.past, key)
		return plan.Report{Written: 1}, nil
	}
	return plan.Report{}, nil
}

func (k *kernel) Forget() {}

func rulesOf(key string) policy.Ruleset {
	return policy.Ruleset{Target: "vm", Rules: []policy.TargetRule{{Key: key}}}
}

// post is a Watchdog with an agent that calls it, as agents do, and a server that is away, or reached
// with some rules alone.
type post struct {
	*testing.T
	kernel
	dog    *vm.Watchdog
	rs     policy.Ruleset
	err    error
	away   bool
	nils   int             // how often a Sync succeeded
	slow   bool            // away until rules are put back
	guilty map[string]bool // rules that cut the server off
	off    bool
	again  chan struct{}
	proven []string
}

func newPost(t *testing.T, good *policy.Ruleset) *post {
	p := &post{T: t, guilty: map[string]bool{}, again: make(chan struct{}, 1)}
	p.dog = vm.NewWatchdog(&p.kernel, good, vm.WatchdogOptions{
		Prove: func(ctx context.Context) error {
			if !p.away && !(p.slow && len(p.past) == 2) && (!p.guilty[p.has] || p.off) {
				return nil
			}
			<-ctx.Done()
			return errors.New("no answer")
		},
		Again: func() {
			select {
			case p.again <- struct{}{}:
			default:
			}
		},
		Proven: func(rs policy.Ruleset) { p.proven = append(p.proven, rs.Rules[0].Key) },
		Off:    func() bool { return p.off },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = p.dog.Run(ctx) })
	t.Cleanup(func() { cancel(); parts.Wait() })
	return p
}

// be lets time pass, in which the agent syncs every second, and at once when it is asked to.
func (p *post) be(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if p.rs.Target != "" {
			if _, p.err = p.dog.Sync(p.Context(), p.rs); p.err == nil && p.has != p.rs.Rules[0].Key {
				p.Fatalf("no error, and the kernel has %s in place of %s", p.has, p.rs.Rules[0].Key)
			}
			if p.err == nil {
				p.nils++
			}
		}
		select {
		case <-p.again:
		case <-time.After(time.Second):
		}
		synctest.Wait()
	}
}

func (p *post) wants(when, has string, fails bool) {
	p.Helper()
	if p.has != has || (p.err != nil) != fails || fails != (p.dog.Guilty() != nil) {
		p.Fatalf("%s: the kernel has %s and the error is %v (%v), want %s and an error: %t; it had %v", when, p.has, p.err, p.dog.Guilty(), has, fails, p.past)
	}
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.guilty["bad"], p.guilty["worse"] = true, true
		p.rs = rulesOf("bad")
		p.be(10 * time.Minute)
		p.wants("there is nothing to go back to", "bad", false)
		p.rs = rulesOf("good")
		p.be(time.Minute)
		p.wants("good", "good", false)
		p.rs = rulesOf("bad")
		p.be(5 * time.Second)
		p.wants("bad has its time", "bad", false)
		p.be(20 * time.Second)
		p.wants("bad is guilty", "good", true)
		n, nils := len(p.past), p.nils
		p.be(30 * time.Second)
		if len(p.past) != n {
			t.Errorf("it is tried too soon: %v", p.past[n:])
		}
		p.be(2 * time.Hour)
		if tries := (len(p.past) - n) / 4; tries < 6 || tries > 12 {
			t.Errorf("tried %d times in two hours: %v", tries, p.past)
		}
		if p.nils != nils {
			t.Error("what is not proven to be right is told as a success")
		}
		p.rs = rulesOf("worse")
		p.be(20 * time.Second)
		p.wants("another one that is bad", "good", true)
		if !slices.Contains(p.past, "worse") {
			t.Error("it was not tried")
		}
		p.rs = rulesOf("better")
		p.be(40 * time.Second)
		p.wants("one that is not", "better", false)
		p.rs = rulesOf("bad")
		p.be(time.Minute)
		p.wants("and back", "better", true)
		p.guilty["bad"] = false
		p.be(5 * time.Minute)
		p.wants("it is no longer guilty", "bad", false)
		if last := p.proven[len(p.proven)-1]; last != "bad" {
			t.Errorf("proven last: %s", last)
		}
	})
}

// A server that is away is no reason to leave old rules in force.
func TestWatchdogWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.rs = rulesOf("one")
		p.be(time.Minute)
		p.away = true
		p.rs = rulesOf("two")
		p.be(30 * time.Second)
		p.wants("away", "two", false)
		if want := []string{"one", "two", "one", "two"}; !slices.Equal(p.past, want) {
			t.Errorf("it had %v, want %v", p.past, want)
		}
		p.be(3 * time.Hour)
		p.wants("still away", "two", false)
		if n := len(p.past); n > 24 {
			t.Errorf("old rules were in force %d times", n)
		}
		p.away = false
		p.be(2 * time.Minute)
		p.wants("back", "two", false)
		// It was away by chance, and three rules later it is not: that is found, too.
		p.guilty["three"] = true
		p.away = true
		p.rs = rulesOf("three")
		p.be(30 * time.Second)
		p.away = false
		p.be(10 * time.Minute)
		p.wants("found later", "two", true)

		q := newPost(t, nil)
		q.rs = rulesOf("one")
		q.be(time.Minute)
		q.away = true
		q.be(10 * time.Minute)
		q.rs = rulesOf("two")
		q.be(10 * time.Minute)
		if want := []string{"one", "two"}; !slices.Equal(q.past, want) {
			t.Errorf("away before the change: it had %v, want %v", q.past, want)
		}
	})
}

// A server that was slow once, since all its agents asked at once, is no reason to leave old rules in force either.
func TestWatchdogOfSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.rs = rulesOf("one")
		p.be(time.Minute)
		p.slow, p.rs = true, rulesOf("two")
		p.be(time.Minute)
		p.wants("slow", "two", false)
		if want := []string{"one", "two", "one", "two"}; !slices.Equal(p.past, want) {
			t.Errorf("it had %v, want %v", p.past, want)
		}
	})
}

// What is found out of rules is not held against those that have come meanwhile.
func TestWatchdogOfTwoChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.guilty["bad"] = true
		p.rs = rulesOf("one")
		p.be(time.Minute)
		p.rs = rulesOf("bad")
		p.be(4 * time.Second)
		p.rs = rulesOf("fine")
		p.be(time.Minute)
		p.wants("two changes", "fine", false)
		if slices.Contains(p.proven, "bad") {
			t.Errorf("proven: %q", p.proven)
		}
		if want := []string{"one", "bad", "fine"}; !slices.Equal(p.past, want) {
			t.Errorf("it had %v, want %v", p.past, want)
		}
	})
}

// A restart forgets neither, and what is written while the machine is off proves nothing.
func TestWatchdogRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := rulesOf("good")
		p := newPost(t, &good)
		p.guilty["bad"] = true
		p.rs = rulesOf("bad")
		p.be(time.Minute)
		p.wants("after a restart", "good", true)

		q := newPost(t, nil)
		q.guilty["bad"] = true
		q.rs = rulesOf("good")
		q.be(time.Minute)
		q.off, q.rs = true, rulesOf("bad")
		q.be(time.Minute)
		q.off = false
		q.be(time.Minute)
		q.wants("switched on", "good", true)

		r := newPost(t, nil)
		r.rs = rulesOf("good")
		r.be(time.Minute)
		r.failed, r.rs = errors.New("the kernel refuses"), rulesOf("other")
		r.be(time.Minute)
		if r.err == nil || r.dog.Guilty() != nil || r.has != "good" {
			t.Errorf("refused: %v, %v, %s", r.err, r.dog.Guilty(), r.has)
		}
	})
}

// relay is a process of the VM through which the agent reaches its server, and of whose packets policies are asked.
type relay struct {
	w       *world
	refuses atomic.Bool // new connections
	at      string
}

func newRelay(w *world) *relay {
	r := &relay{w: w}
	var l net.Listener
	w.must(w.vm.Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:3128")
		return err
	}))
	r.at = l.Addr().String()
	w.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *relay) serve(c net.Conn) {
	defer c.Close()
	if r.refuses.Load() {
		return
	}
	out, err := r.w.dial((&net.Dialer{Timeout: 3 * time.Second}).DialContext)(context.Background(), "tcp", strings.TrimPrefix(r.w.host, "http://"))
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, c)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, out)
}

// A policy that cuts the machine off from its server is taken back, and no other.
func TestGuilty(t *testing.T) {
	w := newWorld(t)
	r := newRelay(w)
	change := func(o *vm.Options) {
		o.Controller = antrea.Fixed(&rest.Config{Host: w.host, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.dial((&net.Dialer{}).DialContext)(ctx, "tcp", r.at)
		}})
		o.Watch = vm.WatchdogOptions{Within: 2 * time.Second, Back: 2 * time.Second, Pause: 100 * time.Millisecond, Every: 500 * time.Millisecond, Question: time.Second, Least: 30 * time.Second}
	}
	w.world(policyOf(noIngress))
	w.run(change)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	w.await("the good rules are kept", func() error {
		_, err := os.Stat(filepath.Join(w.dir, "good", "controlplane.state"))
		return err
	})
	before := slices.Concat(w.in(80, lab.Drop), w.out(80, lab.Allow))
	after := slices.Concat(w.in(80, lab.Drop), w.out(80, lab.Drop))
	failing := func() {
		t.Helper()
		w.await("failing", func() error {
			if s := w.machine.Status(); s.State != runtimev1alpha1.AgentFailing || !strings.Contains(s.LastError, "does not reach its server") {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	w.world(policyOf(noIngress + noEgress))
	failing()
	w.wants("the guilty change is taken back, and nothing else", before...)
	w.await("the server is told", func() error {
		if s := w.last(); s.State != runtimev1alpha1.AgentFailing || s.LastError == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.await("the guilty rules are kept", func() error {
		a, err := os.ReadFile(filepath.Join(w.dir, "policies", "controlplane.state"))
		b, other := os.ReadFile(filepath.Join(w.dir, "good", "controlplane.state"))
		if _, ahead := os.Stat(filepath.Join(w.dir, "policies", "controlplane.ahead")); err != nil || other != nil || string(a) == string(b) || ahead == nil {
			return fmt.Errorf("%v %v %v", err, other, ahead)
		}
		return nil
	})
	w.run(change)
	failing()
	w.wants("after a restart", before...)
	w.enforce(noIngress + "  egress: [{action: Drop, ports: [{protocol: TCP, port: 80}]}]\n")
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	w.wants("a policy that lets the agent through", after...)

	// The server goes away just when policies change.
	w.await("the rules are proven", func() error {
		if s := w.machine.Status(); s.State != runtimev1alpha1.AgentEnforcing {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	r.refuses.Store(true)
	w.world(policyOf(noIngress + "  egress: [{action: Drop, ports: [{protocol: TCP, port: 80}, {protocol: TCP, port: 81}]}]\n"))
	old, next := w.out(81, lab.Allow), w.out(81, lab.Drop)
	w.await("the new rules", func() error { return w.try(next) })
	w.await("those of before, to see whether they help", func() error { return w.try(old) })
	w.await("the new rules again", func() error { return w.try(next) })
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	w.wants("the server is away", next...)
}
