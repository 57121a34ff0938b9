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
