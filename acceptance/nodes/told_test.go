package nodes_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
)

// told returns what agents are told of a world, by Node, as they read it. A Node to which
// nothing applies is not among them.
func told(t testing.TB, s policy.Snapshot) map[string]policy.Ruleset {
	t.Helper()
	e := compile.NewEngine()
	f := feed.New(e)
	f.Update(s)
	out := map[string]policy.Ruleset{}
	for _, target := range e.Targets() {
		node, ok := feed.NodeOf(target)
		if !ok {
			continue
		}
		rs, problems := convert.FromControlPlane(target, received(t, f, node), s.Services)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", node, problems)
		}
		out[node] = rs
	}
	return out
}

// received is what the three watches of a Node send up to their bookmarks.
func received(t testing.TB, f *feed.Feed, node string) (out convert.ControlPlane) {
	t.Helper()
	for _, r := range []feed.Resource{feed.NetworkPolicies, feed.AppliedToGroups, feed.AddressGroups} {
		w := f.Watch(context.Background(), r, feed.WatchOptions{Span: feed.SpanOf(node)})
		for e := range w.ResultChan() {
			if e.Type == watch.Bookmark {
				break
			}
			o := e.Object.(runtime.CacheableObject).GetObject()
			b, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
			if err == nil {
				switch o.(type) {
				case *controlplanev1beta2.NetworkPolicy:
					var x controlplanev1beta2.NetworkPolicy
					err = x.Unmarshal(b)
					out.Policies = append(out.Policies, x)
				case *controlplanev1beta2.AppliedToGroup:
					var x controlplanev1beta2.AppliedToGroup
					err = x.Unmarshal(b)
					out.AppliedTo = append(out.AppliedTo, x)
				case *controlplanev1beta2.AddressGroup:
					var x controlplanev1beta2.AddressGroup
					err = x.Unmarshal(b)
					out.Addresses = append(out.Addresses, x)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.Stop()
	}
	return out
}
