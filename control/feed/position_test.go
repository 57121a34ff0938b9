package feed_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/control/feed/feedtest"
	"isobar.dev/policy"
)

func standing(read uint64) controlplanev1beta2.Position {
	return controlplanev1beta2.Position{Cluster: "c", Kinds: []controlplanev1beta2.KindPosition{{Kind: "pod", Read: read, Changed: 1, Newest: 1, Count: 1}}}
}

// marks takes what a watch has to tell, and returns the positions of its bookmarks; those that have
// none are "".
func marks(w watch.Interface) []string {
	var out []string
	for {
		synctest.Wait()
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return append(out, "ended")
			}
			if e.Type == watch.Bookmark {
				out = append(out, e.Object.(metav1.Object).GetAnnotations()[controlplanev1beta2.PositionAnnotation])
			}
		default:
			return out
		}
	}
}

// Each bookmark says where the world stands, and for a while a watch of policies is told
// when that is further than it was told, though nothing changes.
func TestPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := feedtest.Cluster(2, 20, 4, 2)
		world := in.Snapshot()
		f := feed.New(compile.NewEngine())
		f.UpdateAt(world, standing(10))
		var node string
		for _, w := range world.Workloads.All() {
			if name, ok := feed.NodeOf(w.Target); ok {
				node = name
				break
			}
		}
		begin := func(r feed.Resource, o feed.WatchOptions) watch.Interface {
			w := f.Watch(t.Context(), r, o)
			t.Cleanup(w.Stop)
			return w
		}
		watches := map[string]watch.Interface{
			"policies": begin(feed.NetworkPolicies, feed.WatchOptions{Span: feed.SpanOf(node), Marks: true}),
			"all":      begin(feed.NetworkPolicies, feed.WatchOptions{Span: feed.SpanOf(""), Marks: true}),
			"groups":   begin(feed.AddressGroups, feed.WatchOptions{Span: feed.SpanOf(node), Marks: true}),
			"plain":    begin(feed.NetworkPolicies, feed.WatchOptions{Span: feed.SpanOf(node)}),
		}
		expect := func(when string, want map[string][]string) {
			t.Helper()
			for name, w := range watches {
				got := marks(w)
				if len(got) != len(want[name]) {
					t.Errorf("%s %s were told %q, want %q", when, name, got, want[name])
					continue
				}
				for i := range got {
					if got[i] != want[name][i] {
						t.Errorf("%s %s were told %q, want %q", when, name, got, want[name])
					}
				}
			}
		}
		text := func(read uint64) string { return standing(read).String() }
		expect("at first", map[string][]string{"policies": {text(10)}, "all": {text(10)}, "groups": {text(10)}, "plain": {""}})
		time.Sleep(2 * time.Second)
		expect("while it stands", nil)
		f.Advance(standing(11))
		expect("at once", nil)
		time.Sleep(2 * time.Second) // 1 + 2 s after the beginning
		expect("after a while", map[string][]string{"policies": {text(11)}, "all": {text(11)}})
		time.Sleep(10 * time.Second)
		expect("once", nil)
		next := world
		for id := range world.Policies.All() {
			next.Policies = next.Policies.Delete(id)
		}
		f.UpdateAt(next, standing(12))
		expect("with a change", map[string][]string{"policies": {text(12)}, "all": {text(12)}, "groups": {text(12)}})
		told := 0
		for i := range 200 {
			f.Advance(standing(uint64(13 + i)))
			time.Sleep(time.Second)
			told += len(marks(watches["policies"]))
		}
		if told < 2 || told > 4 {
			t.Errorf("told %d times of a world that goes on without a change", told)
		}
		// Nothing is known of a world that comes without.
		marks(watches["all"])
		f.Update(policy.Snapshot{})
		if got := marks(watches["all"]); len(got) != 1 || got[0] != "" {
			t.Errorf("of a world of which it is not known where it stands: %q", got)
		}
		for _, w := range watches {
			w.Stop()
		}
		synctest.Wait()
	})
}

// A watch of policies is told when Pods of its Node have been read, though no policy applies to them, and
// for a while how much more of them has.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name, node string, labels policy.Labels) *policy.Workload {
			return &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "x", name), Kind: policy.KindPod, Namespace: "x", Name: name, Node: node, Target: "node/" + node, Labels: labels}
		}
		put := func(s policy.Snapshot, w *policy.Workload) policy.Snapshot {
			s.Workloads = s.Workloads.Put(w.ID, w)
			return s
		}
		f := feed.New(compile.NewEngine())
		var world policy.Snapshot
		f.UpdateAt(world, standing(10))
		watches := map[string]watch.Interface{}
		for name, o := range map[string]feed.WatchOptions{"here": {Span: feed.SpanOf("a"), Marks: true}, "there": {Span: feed.SpanOf("b"), Marks: true}, "plain": {Span: feed.SpanOf("a")}} {
			watches[name] = f.Watch(t.Context(), feed.NetworkPolicies, o)
			defer watches[name].Stop()
		}
		expect := func(when string, here, there, plain int, last string) {
			t.Helper()
			got := marks(watches["here"])
			if there, plain := len(marks(watches["there"])) == there, len(marks(watches["plain"])) == plain; len(got) != here || !there || !plain || here > 0 && got[here-1] != last {
				t.Errorf("%s: %q; the others as they should: %t, %t", when, got, there, plain)
			}
		}
		expect("at first", 1, 1, 1, standing(10).String())
		time.Sleep(2 * time.Minute)
		world = put(world, pod("p", "a", nil))
		f.UpdateAt(world, standing(11))
		expect("a Pod has come", 1, 0, 0, standing(11).String())
		f.Advance(standing(12))
		time.Sleep(2 * time.Second)
		expect("more of it has been read", 1, 0, 0, standing(12).String())
		time.Sleep(2 * time.Minute)
		expect("nothing more has", 0, 0, 0, "")
		f.Advance(standing(13))
		time.Sleep(2 * time.Minute)
		expect("long after", 0, 0, 0, "")
		f.UpdateAt(world, standing(14))
		expect("nothing of it is another", 0, 0, 0, "")
		f.UpdateAt(put(world, pod("p", "b", nil)), standing(15))
		expect("it is on another Node", 0, 1, 0, "")
	})
}
