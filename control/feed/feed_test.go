package feed

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// client has what a watcher of one Target has been told, and no more.
type client struct {
	watchers [resources]*narrow
	has      [resources]map[string]runtime.Object
	idle     int // events that changed nothing
}

func newClient(f *Feed, target string) *client {
	c := &client{}
	for r := range resources {
		w := &narrow{watcher: f.watcher(r, WatchOptions{Span: Span{target: target}}), target: target}
		c.watchers[r] = w
		c.has[r] = map[string]runtime.Object{}
		list, _ := w.enter()
		for _, s := range list {
			o := copyOf(s.object())
			c.has[r][nameOf(o)] = o
		}
	}
	return c
}

// copyOf returns o as it is once it has been sent, which must be what it was.
func copyOf(o runtime.Object) runtime.Object {
	s, ok := o.(*shared)
	if !ok {
		return o.DeepCopyObject()
	}
	before, _ := json.Marshal(s.GetObject())
	for _, id := range []runtime.Identifier{"protobuf", "other"} {
		if err := s.CacheEncode(id, func(o runtime.Object, w io.Writer) error { return wire.Encode(o, w) }, io.Discard); err != nil {
			panic(err)
		}
	}
	if after, _ := json.Marshal(s.GetObject()); s.kept != (s.object == nil) || !bytes.Equal(before, after) {
		panic(fmt.Sprintf("packed: %t; %s became %s", s.object == nil, before, after))
	}
	return s.DeepCopyObject()
}

var wire = encoder()

func (c *client) leave() {
	for _, w := range c.watchers {
		w.leave()
	}
}

// read takes what there is to say, as a client must understand it.
func (c *client) read() (events int, err error) {
	for r, w := range c.watchers {
		list, _ := w.take()
		events += len(list)
		for _, e := range list {
			if err := c.apply(Resource(r), e); err != nil {
				return events, fmt.Errorf("%s %d %s: %w", e.Type, r, nameOf(e.Object), err)
			}
		}
	}
	return events, nil
}

func (c *client) apply(r Resource, e watch.Event) error {
	o := copyOf(e.Object)
	name := nameOf(o)
	known := c.has[r][name]
	switch e.Type {
	case watch.Added:
		if known != nil {
			return fmt.Errorf("is known already")
		}
		c.has[r][name] = o
	case watch.Deleted:
		if known == nil {
			return fmt.Errorf("is not known")
		}
		delete(c.has[r], name)
	case watch.Modified:
		if known == nil {
			return fmt.Errorf("is not known")
		}
		var err error
		switch o := o.(type) {
		case *controlplanev1beta2.NetworkPolicy:
			if gocmp.Equal(known, runtime.Object(o)) {
				c.idle++
			}
			c.has[r][name] = o
		case *controlplanev1beta2.AddressGroupPatch:
			g := known.(*controlplanev1beta2.AddressGroup)
			g.GroupMembers, err = controlplanev1beta2.PatchMembers(g.GroupMembers, o.AddedGroupMembers, o.RemovedGroupMembers)
		case *controlplanev1beta2.AppliedToGroupPatch:
			g := known.(*controlplanev1beta2.AppliedToGroup)
			g.GroupMembers, err = controlplanev1beta2.PatchMembers(g.GroupMembers, o.AddedGroupMembers, o.RemovedGroupMembers)
		default:
			return fmt.Errorf("%T", o)
		}
		return err
	}
	return nil
}

// state is what a client has, or a Feed lists, in an order that does not matter.
func state(objects []runtime.Object) convert.ControlPlane {
	var out convert.ControlPlane
	byReference := func(a, b controlplanev1beta2.GroupMember) int { return cmp.Compare(a.Reference(), b.Reference()) }
	for _, o := range objects {
		switch o := copyOf(o).(type) {
		case *controlplanev1beta2.NetworkPolicy:
			out.Policies = append(out.Policies, *o)
		case *controlplanev1beta2.AppliedToGroup:
			slices.SortFunc(o.GroupMembers, byReference)
			out.AppliedTo = append(out.AppliedTo, *o)
		case *controlplanev1beta2.AddressGroup:
			slices.SortFunc(o.GroupMembers, byReference)
			out.Addresses = append(out.Addresses, *o)
		}
	}
	slices.SortFunc(out.Policies, func(a, b controlplanev1beta2.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.AppliedTo, func(a, b controlplanev1beta2.AppliedToGroup) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Addresses, func(a, b controlplanev1beta2.AddressGroup) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (c *client) state() convert.ControlPlane {
	var all []runtime.Object
	for _, has := range c.has {
		for _, o := range has {
			all = append(all, o)
		}
	}
	return state(all)
}

func listed(f *Feed, span Span) convert.ControlPlane {
	var all []runtime.Object
	for r := range resources {
		list, _ := f.List(r, span)
		all = append(all, list...)
	}
	return state(all)
}

// got says what of a Span cannot be got by its name as it is listed.
func got(f *Feed, span Span) (wrong string) {
	for r := range resources {
		list, _ := f.List(r, span)
		for i, o := range list {
			if i%3 > 0 { // a third of them will do
				continue
			}
			if one, ok := f.Get(r, span, nameOf(o)); !ok || !reflect.DeepEqual(copyOf(o), copyOf(one)) {
				return fmt.Sprintf("%d %s: got %v, %t", r, nameOf(o), one, ok)
			}
		}
		if _, ok := f.Get(r, span, "no such name"); ok {
			return fmt.Sprintf("%d: got what is not there", r)
		}
	}
	return ""
}

// What each watcher has been told, fast or slow, is what a new one is told, and what a new Feed
// lists; and what enforces it decides as the policies mean, or, where something has no
// words, no looser.
func TestWatchersOnWalks(t *testing.T) {
	var events, idle, exact, stricter int
	for seed := range policytest.Seeds(t, 120) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		walk := policytest.WithEmpty(policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 12))
		f := New(compile.NewEngine())
		clients := map[string][]*client{}
		for i, s := range walk {
			s = policytest.Spoken(s)
			f.Update(s)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s\nbefore:\n%s\nnow:\n%s", seed, i, fmt.Sprintf(format, args...), policytest.Print(walk[max(0, i-1)]), policytest.Print(s))
			}
			last := i == len(walk)-1
			fresh := New(compile.NewEngine())
			fresh.Update(s)
			for _, span := range []Span{{all: true}, {clouds: true}} {
				if _, problems := convert.FromControlPlane("wide", listed(f, span), s.Services); len(problems) > 0 {
					fail("%+v: %v", span, problems)
				}
			}
			for _, target := range f.engine.Targets()[:min(2, len(f.engine.Targets()))] {
				if wrong := got(f, Span{target: target}); wrong != "" {
					fail("%s: %s", target, wrong)
				}
			}
			if wrong := got(f, Span{all: true}); wrong != "" {
				fail("%s", wrong)
			}
			for target, list := range clients {
				var want convert.ControlPlane
				for j, c := range list {
					if !last && rnd.IntN(j+1) > 0 { // the first reads all the time, the others now and then
						continue
					}
					n, err := c.read()
					events += n
					if err != nil {
						fail("%s: %v", target, err)
					}
					if n, _ := c.read(); n > 0 {
						fail("%s: %d events more, without a change", target, n)
					}
					if j == 0 || len(list) == 1 {
						want = listed(fresh, Span{target: target})
					}
					if got := c.state(); !reflect.DeepEqual(want, got) {
						if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
							fail("%s: watcher %d was told otherwise (-listed +told):\n%s", target, j, d)
						}
					}
				}
			}
			e, n, wrong := decides(rnd, f, s, clients)
			exact, stricter = exact+e, stricter+n
			if wrong != "" {
				fail("%s", wrong)
			}
			comeAndGo(rnd, f, s, clients)
		}
		for _, list := range clients {
			for _, c := range list {
				idle += c.idle
				c.leave()
			}
		}
		if n := len(f.watching.places); n > 0 {
			t.Fatalf("seed %d: %d Targets are watched by nobody", seed, n)
		}
	}
	t.Logf("%d events, %d of them idle, %d ends exact, %d stricter", events, idle, exact, stricter)
	if idle*20 > events {
		t.Errorf("%d of %d events changed nothing", idle, events)
	}
	if exact < 20*stricter {
		t.Errorf("%d ends exact, %d stricter", exact, stricter)
	}
}

// comeAndGo lets watchers begin and end.
func comeAndGo(rnd *rand.Rand, f *Feed, s policy.Snapshot, clients map[string][]*client) {
	for _, w := range s.Workloads.All() {
		if w.Target != "" && len(clients[w.Target]) < 3 && rnd.IntN(2) == 0 {
			clients[w.Target] = append(clients[w.Target], newClient(f, w.Target))
		}
	}
	for target, list := range clients {
		if len(list) > 2 && rnd.IntN(4) == 0 {
			list[1].leave()
			clients[target] = slices.Delete(list, 1, 2)
		}
	}
}

// decides compares flows between the workloads whose Targets have a client that reads all with
// what they mean.
func decides(rnd *rand.Rand, f *Feed, s policy.Snapshot, clients map[string][]*client) (exact, stricter int, wrong string) {
	var rulesets []policy.Ruleset
	told := map[string]bool{}
	for target, list := range clients {
		rs, problems := convert.FromControlPlane(target, list[0].state(), s.Services)
		if len(problems) > 0 {
			return 0, 0, fmt.Sprintf("%s: cannot be read: %v", target, problems)
		}
		for _, w := range s.Workloads.All() { // who enforces knows those to which nothing applies
			if w.Target != target || !w.IsSubject() {
				continue
			}
			if i, ok := slices.BinarySearchFunc(rs.Workloads, w.ID, func(x policy.Enforced, id string) int { return cmp.Compare(x.Workload.ID, id) }); !ok {
				rs.Workloads = slices.Insert(rs.Workloads, i, policy.Enforced{Workload: w})
			}
		}
		for _, id := range f.engine.PoliciesAt(target) {
			told[target] = told[target] || len(f.Problems(id)) > 0
		}
		rulesets = append(rulesets, rs)
	}
	slices.SortFunc(rulesets, func(a, b policy.Ruleset) int { return cmp.Compare(a.Target, b.Target) })
	for _, flow := range policytest.Flows(rnd, s, 10) {
		want, err := policy.Evaluate(s, flow)
		if err != nil {
			continue
		}
		from, to, err := s.Ends(flow)
		if err != nil || !isWatched(clients, from.Subject) || !isWatched(clients, to.Subject) {
			continue
		}
		got, err := compile.Verdict(rulesets, s, flow)
		if err != nil {
			return exact, stricter, fmt.Sprintf("%+v: %v", flow, err)
		}
		for _, end := range []struct {
			subject   *policy.Workload
			want, got policy.Action
		}{{to.Subject, want.Ingress.Action, got.Ingress.Action}, {from.Subject, want.Egress.Action, got.Egress.Action}} {
			switch {
			case end.want == end.got:
				exact++
			case end.subject == nil || !told[end.subject.Target] || end.got == policy.Allow:
				return exact, stricter, fmt.Sprintf("%+v: %v; it means %v", flow, got, want)
			default:
				stricter++
			}
		}
	}
	return exact, stricter, ""
}

func isWatched(clients map[string][]*client, w *policy.Workload) bool {
	return w == nil || w.Target == "" || len(clients[w.Target]) > 0
}
