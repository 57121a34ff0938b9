package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// names is a table of VPCs of these names, each in a region.
func names(region string, names ...string) policy.Table[*runtimev1alpha1.Vpc] {
	var out policy.Table[*runtimev1alpha1.Vpc]
	for _, n := range names {
		out = out.Put("ns/"+n, &runtimev1alpha1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: n}, Status: runtimev1alpha1.VpcStatus{Region: region}})
	}
	return out
}

func all(*runtimev1alpha1.Vpc) bool { return true }

// drain returns what a watcher has sent, in short.
func drain(w watch.Interface) string {
	var out []string
	for {
		select {
		case e, ok := <-w.ResultChan():
			switch x, is := e.Object.(*runtimev1alpha1.Vpc); {
			case !ok:
				return strings.Join(append(out, "end"), " ")
			case !is:
				out = append(out, string(e.Type))
			default:
				out = append(out, string(e.Type[0])+x.Name)
			}
		default:
			return strings.Join(out, " ")
		}
	}
}

func TestStore(t *testing.T) {
	s := newStore(vpcs().copy)
	_, v0 := s.now()
	s.put(names("r", "b", "a"))
	items, v1 := s.now()
	if a, _ := items.Get("ns/a"); a.ResourceVersion != v0.next().String() || v1 != v0.next().next() {
		t.Errorf("of two objects the first has version %s, and now is %v; it began with %v", a.ResourceVersion, v1, v0)
	}
	s.put(names("r", "b", "a")) // others, and equal
	if _, v := s.now(); v != v1 {
		t.Errorf("equal objects made version %v of %v", v, v1)
	}
	s.put(names("r", "b"))
	changes, v2, _, ok := s.after(v0.next()) // in the middle of the first put
	if !ok || len(changes) != 2 || changes[0].now.Name != "b" || changes[1].before.Name != "a" || changes[1].version != v2 {
		t.Errorf("after the first change there are %+v, %t", changes, ok)
	}
	for _, unknown := range []version{v0 - 1<<markBits, v0 + 1, v2.next(), 1} {
		if _, _, _, ok := s.after(unknown); ok {
			t.Errorf("version %v is known, which is none of %v to %v", unknown, v0, v2)
		}
	}
}

// What is kept is bounded, whatever happens.
func TestStoreForgets(t *testing.T) {
	s := newStore(vpcs().copy)
	_, first := s.now()
	for n := range 2*history + 2 {
		s.put(names(fmt.Sprint(n), "a"))
	}
	if len(s.log) > 2*history {
		t.Errorf("%d changes are kept", len(s.log))
	}
	if _, _, _, ok := s.after(first); ok {
		t.Error("the first change is known for ever")
	}
	if _, _, _, ok := s.after(s.floor); !ok || s.floor == first {
		t.Error("what is kept does not begin where it says")
	}
}

func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := firstVersion()
		last := before
		for range 1000 {
			last = last.next()
		}
		time.Sleep(time.Second)
		if after := firstVersion(); after <= last {
			t.Errorf("a start a second and 1000 changes later begins with %v, after %v", after, last)
		}
		if v, err := parseVersion(last.String()); v != last || err != nil {
			t.Errorf("parseVersion(%v) = %v, %v", last, v, err)
		}
		if _, err := parseVersion("-1"); err == nil {
			t.Error("-1 is a version")
		}
	})
}

// A watcher that does not read holds up nobody and is ended.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(vpcs().copy)
		slow, err := newWatcher(s, 0, true, all)
		if err != nil {
			t.Fatal(err)
		}
		quick, err := newWatcher(s, 0, true, all)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go slow.run(ctx)
		go quick.run(ctx)
		for n := range 100 { // more than fit in a channel
			s.put(names(fmt.Sprint(n), "a"))
			synctest.Wait()
			if got := drain(quick); n > 0 && got != "Ma" || n == 0 && got != "Aa" {
				t.Fatalf("change %d: the quick one got %q", n, got)
			}
		}
		time.Sleep(patience + time.Second)
		synctest.Wait()
		if got := drain(slow); !strings.HasSuffix(got, " end") {
			t.Errorf("the slow one got %q, want an end", got)
		}
		s.put(names("x", "a"))
		synctest.Wait()
		if got := drain(quick); got != "Ma" {
			t.Errorf("the quick one got %q then", got)
		}
		quick.Stop()
		quick.Stop()
		synctest.Wait()
		if got := drain(quick); got != "end" {
			t.Errorf("after Stop there is %q", got)
		}
	})
}

// One that reads, but is too far behind, is told so.
func TestWatcherFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(vpcs().copy)
		w, err := newWatcher(s, 0, true, all)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2*history + 2 { // before it begins
			s.put(names(fmt.Sprint(n), "a"))
		}
		go w.run(t.Context())
		synctest.Wait()
		if got := drain(w); got != "ERROR end" {
			t.Errorf("it got %q", got)
		}
	})
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(vpcs().copy)
		w, err := newWatcher(s, 0, true, all)
		if err != nil {
			t.Fatal(err)
		}
		w.marks, w.wantsMarks = (&resource[*runtimev1alpha1.Vpc]{kind: vpcs()}).bookmark, true
		go w.run(t.Context())
		s.put(names("r", "a"))
		time.Sleep(bookmarkEvery + time.Second)
		synctest.Wait()
		if got := drain(w); got != "Aa B" {
			t.Errorf("it got %q", got)
		}
		w.Stop()
		synctest.Wait()
	})
}
