package nft_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// find returns the name of an Object that holds.
func find(t *testing.T, objects map[string]nft.Object, holds func(nft.Object) bool) string {
	t.Helper()
	for key, o := range objects {
		if holds(o) {
			_, name, _ := strings.Cut(key, "/")
			return name
		}
	}
	t.Fatal("no such object")
	return ""
}

// What others do to the table is found and undone, in one transaction, and nothing else is
// touched. What is denied and was not opened by the damage stays so on the way.
func TestRepair(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	open := nft.Rule{Verdict: nft.Accept}
	for _, tt := range []struct {
		name   string
		damage func(k nft.Kernel, group, chain string) error
		opens  bool // the damage itself
		whole  bool // the table is replaced
	}{
		{"table deleted", func(k nft.Kernel, _, _ string) error { return k.Drop("isobar") }, true, false},
		{"table dormant", func(k nft.Kernel, _, _ string) error { return k.Sleep("isobar") }, true, true},
		{"base chain flushed", func(k nft.Kernel, _, _ string) error { return k.Flush("isobar", "forward") }, true, false},
		{"chain flushed", func(k nft.Kernel, _, chain string) error { return k.Flush("isobar", chain) }, true, false},
		{"rule inserted", func(k nft.Kernel, _, _ string) error { return k.Insert("isobar", "forward", open) }, true, false},
		{"rule inserted that drops", func(k nft.Kernel, _, chain string) error {
			return k.Insert("isobar", chain, nft.Rule{Verdict: nft.Drop})
		}, false, false},
		{"element added to a group", func(k nft.Kernel, group, _ string) error {
			return k.Elements("isobar", &nft.Set{Name: group}, []nft.Element{{Key: "\x0a\x01\x00\x05"}}, nil)
		}, true, false},
		{"element taken from a group", func(k nft.Kernel, group, _ string) error {
			return k.Elements("isobar", &nft.Set{Name: group}, nil, []nft.Element{{Key: "\x0a\x01\x00\x01"}})
		}, false, false},
		{"workload taken from the map", func(k nft.Kernel, _, _ string) error {
			return k.Elements("isobar", &nft.Set{Name: "ingress4"}, nil, []nft.Element{{Key: "\x0a\x01\x00\x03"}})
		}, true, false},
		{"workload led elsewhere", func(k nft.Kernel, _, chain string) error {
			return k.Elements("isobar", &nft.Set{Name: "ingress4", IsMap: true}, []nft.Element{{Key: "\x0a\x01\x00\x02", To: chain}}, nil)
		}, false, false},
		{"chain added", func(k nft.Kernel, _, _ string) error {
			return k.Add("isobar", map[string]nft.Object{"chain/mine": {Chain: &nft.Chain{Name: "mine", Rules: []nft.Rule{open}, Marks: []string{""}}}}, false)
		}, false, false},
		{"set added", func(k nft.Kernel, _, _ string) error {
			return k.Add("isobar", map[string]nft.Object{"set/mine": {Set: &nft.Set{Name: "mine", Family: nft.IPv4, Fields: []nft.Field{nft.FieldSource}, Elements: []nft.Element{{Key: "abcd"}}}}}, false)
		}, false, false},
		{"counter added", func(k nft.Kernel, _, _ string) error {
			return k.Add("isobar", map[string]nft.Object{"counter/mine": {Counter: &nft.Counter{Name: "mine"}}}, false)
		}, false, false},
		{"base chain of another hook", func(k nft.Kernel, _, _ string) error {
			return k.Add("isobar", map[string]nft.Object{"chain/mine": {Chain: &nft.Chain{Name: "mine", Hook: nft.Forward, Rules: []nft.Rule{{Verdict: nft.Drop}}, Marks: []string{""}}}}, false)
		}, false, true},
		{"set of another kind", func(k nft.Kernel, group, _ string) error {
			return errors.Join(k.Drop("isobar"), k.Add("isobar", map[string]nft.Object{
				"table":        {Table: &nft.Table{}},
				"set/" + group: {Set: &nft.Set{Name: group, Family: nft.IPv6, Fields: []nft.Field{nft.FieldSource}}},
			}, false))
		}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.TB = t
			if err := errors.Join(k.Clear(), k.Make(1, "other")); err != nil {
				t.Fatal(err)
			}
			foreign, _ := k.Foreign("isobar")
			s := worlds["db"]()
			y := plan.NewSyncer("", r.driver)
			r.sync(y, s)
			objects, _ := nft.Lower(r.place, ruleset(s))
			group := find(t, objects, func(o nft.Object) bool { return o.Set != nil && strings.HasPrefix(o.Set.Name, "g4-") })
			chain := find(t, objects, func(o nft.Object) bool { return o.Chain != nil && strings.HasPrefix(o.Chain.Name, "i4-") })
			if err := tt.damage(k, group, chain); err != nil {
				t.Fatal(err)
			}
			y.Forget()
			end := func() error { return nil }
			if !tt.opens {
				end = r.insist(slices.DeleteFunc(all(s), func(p probe) bool { return p.want == policy.Allow }))
			}
			report, err := y.Sync(t.Context(), ruleset(s))
			if err != nil { // what cannot be mended in place is replaced by the next one
				t.Log(err)
				if report, err = y.Sync(t.Context(), ruleset(s)); err != nil {
					t.Fatal(err)
				}
				tt.whole = true
			}
			if err := end(); err != nil {
				t.Error("on the way: ", err)
			}
			if len(report.Changes) == 0 {
				t.Error("not found")
			}
			if whole := len(report.Changes) > 0 && report.Changes[len(report.Changes)-1].Key == "table" && report.Changes[len(report.Changes)-1].Op == plan.Update; whole != tt.whole {
				t.Errorf("replaced %t, want %t: %v", whole, tt.whole, report.Changes)
			}
			if err := r.verify(s); err != nil {
				t.Error(err)
			}
			if report, err := plan.NewSyncer("", r.newDriver()).Sync(t.Context(), ruleset(s)); err != nil || len(report.Changes) > 0 {
				t.Errorf("after the repair: %v, %v", report.Changes, err)
			}
			if now, _ := k.Foreign("isobar"); now != foreign {
				t.Error("what is not ours has changed")
			}
		})
	}
}

// When the kernel refuses, what was enforced stays whole, and the error says what it is about.
func TestRefused(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	y := plan.NewSyncer("", r.driver)
	old, s := worlds["tiers"](), worlds["egress"]()
	r.sync(y, old)
	// Somebody takes what is to be changed, and the Syncer does not know.
	if err := k.Elements("isobar", &nft.Set{Name: "ingress6"}, nil, []nft.Element{{Key: "\xfd\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"}}); err != nil {
		t.Fatal(err)
	}
	before, err := k.Read("isobar")
	if err != nil {
		t.Fatal(err)
	}
	_, err = y.Sync(t.Context(), ruleset(s))
	if !errors.Is(err, nft.ErrRefused) || !strings.Contains(err.Error(), "set/ingress6") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("refused: %v", err)
	}
	after, err := k.Read("isobar")
	if err != nil {
		t.Fatal(err)
	}
	if changes := plan.Diff(before, after, nft.Object.Equal); len(changes) > 0 {
		t.Errorf("changed all the same: %v", changes)
	}
	r.sync(y, s)
	if err := r.verify(s); err != nil {
		t.Error(err)
	}
}

// While the kernel refuses, packets meet the old rules, all of them.
func TestRefusedUnderTraffic(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	y := plan.NewSyncer("", r.driver)
	old, s := worlds["tiers"](), worlds["egress"]()
	r.sync(y, old)
	have, err := k.Read("isobar")
	if err != nil {
		t.Fatal(err)
	}
	// Somebody makes a chain that is to be made, and the Syncer does not know.
	want, _ := nft.Lower(r.place, ruleset(s))
	for key, o := range want {
		if _, there := have[key]; o.Chain != nil && !there {
			if err := k.Add("isobar", map[string]nft.Object{key: {Chain: &nft.Chain{Name: o.Chain.Name}}}, false); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	end := r.insist(all(old))
	if _, err := y.Sync(t.Context(), ruleset(s)); !errors.Is(err, nft.ErrRefused) {
		t.Errorf("refused: %v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	r.sync(y, s)
	if err := r.verify(s); err != nil {
		t.Error(err)
	}
}

// A table of our name that we have not made is not touched.
func TestForeignTable(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	if err := k.Make(1, "isobar"); err != nil {
		t.Fatal(err)
	}
	_, err := plan.NewSyncer("", r.driver).Sync(t.Context(), ruleset(worlds["db"]()))
	if !errors.Is(err, nft.ErrForeign) {
		t.Errorf("%v", err)
	}
	if all, err := k.Foreign("none"); err != nil || strings.Contains(all, "\n") {
		t.Errorf("it was touched: %v %v", all, err)
	}
}

// A network namespace that is not there, and one that may not be changed, are errors.
func TestUnreadable(t *testing.T) {
	if _, err := nft.NewDriver(nft.Config{NetNS: 1 << 20}).Read(t.Context()); err == nil {
		t.Error("no error")
	}
}

// Who has no rules yet is closed, and open only with them.
func TestHeld(t *testing.T) {
	r := newRouter(t)
	y := plan.NewSyncer("", r.driver)
	for _, s := range []policy.Snapshot{worlds["nothing"](), worlds["db"]()} {
		r.place = place(s)
		for i := range r.place.Locals {
			r.place.Locals[i].Held = r.place.Locals[i].ID == "pod/shop/web-0"
		}
		if _, err := y.Sync(t.Context(), ruleset(s)); err != nil {
			t.Fatal(err)
		}
		list := all(s)
		w, _ := s.Workloads.Get("pod/shop/web-0")
		for i, p := range list {
			if slices.Contains(w.Addrs, p.From.Addr) || slices.Contains(w.Addrs, p.To.Addr) {
				list[i].want = policy.Drop
			}
		}
		for i, got := range r.ask(list) {
			if got != list[i].want {
				t.Errorf("%+v: %v", list[i], got)
			}
		}
		r.forget()
		r.sync(y, s)
		if err := r.verify(s); err != nil {
			t.Error(err)
		}
	}
}

// What others do to the table is told at once; what a Driver does itself, and what is done to other tables, is not.
func TestWatch(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	ctx, cancel := context.WithCancel(t.Context())
	told, done := make(chan struct{}, 100), make(chan error, 1)
	go func() { done <- r.driver.Watch(ctx, func() { told <- struct{}{} }) }()
	for deadline := time.Now().Add(30 * time.Second); !r.isWatched(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody listens")
		}
	}
	y := plan.NewSyncer("", r.driver)
	r.sync(y, worlds["db"]())
	wait := func() {
		t.Helper()
		select {
		case <-told:
		case err := <-done:
			t.Fatal(err)
		case <-time.After(30 * time.Second):
			t.Fatal("not told")
		}
	}
	if err := k.Insert("isobar", "forward", nft.Rule{Verdict: nft.Drop}); err != nil {
		t.Fatal(err)
	}
	wait()
	y.Forget()
	r.sync(y, worlds["tiers"]())
	if err := k.Make(1, "other"); err != nil {
		t.Fatal(err)
	}
	r.sync(y, worlds["egress"]())
	if err := k.Drop("isobar"); err != nil {
		t.Fatal(err)
	}
	wait()
	if n := len(told); n > 0 {
		t.Errorf("told %d times more", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// isWatched says whether somebody listens to what is changed in nftables.
func (r *router) isWatched() bool {
	r.Helper()
	text, err := in(r, r.ns, func() ([]byte, error) { return os.ReadFile("/proc/thread-self/net/netlink") })
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // sk, protocol, port, groups in hexadecimal, and more
		groups, err := strconv.ParseUint(f[3], 16, 32)
		if err == nil && f[1] == fmt.Sprint(unix.NETLINK_NETFILTER) && groups&(1<<(unix.NFNLGRP_NFTABLES-1)) != 0 {
			return true
		}
	}
	return false
}

// Whatever others write beside their rules is read without harm, and what we write is read back.
func FuzzComment(f *testing.F) {
	f.Add([]byte{0, 2, 'a', 0}, "0123456789abcdef.1/2 policy")
	f.Add([]byte{1, 255, 0}, strings.Repeat("long", 100))
	f.Fuzz(func(t *testing.T, foreign []byte, s string) {
		nft.CommentOf(foreign)
		want := s[:min(len(s), 127)]
		for _, c := range want {
			if c < ' ' || c > '~' {
				return // which is replaced
			}
		}
		if got := nft.CommentOf(nft.UserData(s)); got != want {
			t.Errorf("%q became %q", s, got)
		}
	})
}

// A process that ends while it replaces the table leaves a second one, which keeps connections from beginning.
// The next process deletes it, and leaves another's of that name alone.
func TestWhatKeepsShutIsDeleted(t *testing.T) {
	r := newRouter(t)
	k := nft.Kernel{NetNS: int(r.ns)}
	s := worlds["db"]()
	r.sync(plan.NewSyncer("", r.driver), s)
	drop := nft.Rule{Verdict: nft.Drop}
	all := map[string]nft.Object{"table": {Table: &nft.Table{}}, "chain/forward": {Chain: &nft.Chain{Name: "forward", Hook: nft.Forward, Rules: []nft.Rule{drop}, Marks: []string{""}}}}
	if err := k.Add("isobar-shut", all, false); err != nil {
		t.Fatal(err)
	}
	if err := r.verify(s); err == nil {
		t.Fatal("the second table does nothing")
	}
	if report := r.sync(plan.NewSyncer("", r.newDriver()), s); len(report.Changes) > 0 {
		t.Errorf("changes: %v", report.Changes)
	}
	if err := r.verify(s); err != nil {
		t.Error(err)
	}
	if err := k.Make(1, "isobar-shut"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.newDriver().Read(t.Context()); !errors.Is(err, nft.ErrForeign) {
		t.Errorf("another's table of that name: %v, want ErrForeign", err)
	}
}
