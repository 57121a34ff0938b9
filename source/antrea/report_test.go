package antrea_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/source/antrea"
)

// told returns the statuses that have come since the last time, as text, by path.
func told(t *testing.T, c *controller) []string {
	t.Helper()
	var out []string
	c.with(func(c *controller) {
		for _, path := range slices.Sorted(maps.Keys(c.posts)) {
			for _, body := range c.posts[path] {
				raw, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
				var envelope runtime.Unknown
				var status controlplanev1beta2.NetworkPolicyStatus
				if !ok || envelope.Unmarshal(raw) != nil || envelope.Kind != "NetworkPolicyStatus" || envelope.APIVersion != "controlplane.antrea.io/v1beta2" || status.Unmarshal(envelope.Raw) != nil {
					t.Errorf("%s: %q", path, body)
					continue
				}
				n := status.Nodes[0]
				out = append(out, fmt.Sprint(path, " ", status.Name, " ", n.NodeName, " ", n.Generation, " ", n.RealizationFailure, " ", n.Message))
			}
		}
		clear(c.posts)
	})
	return out
}

// The controller is told what it does not know: what changes, and everything when it may
// be another one. What it refuses is told again, and keeps nothing else back.
func TestReports(t *testing.T) {
	inBubble(t, antrea.Options{}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		is := func(want ...string) {
			t.Helper()
			pass(time.Minute)
			if got := told(t, c); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		is()
		a, b := antrea.Realized{UID: "a", Generation: 3}, antrea.Realized{UID: "b", Generation: 1, Failure: "no room"}
		s.SetRealized([]antrea.Realized{a, b})
		aTold, bTold := "networkpolicies/a/status a node-1 3 false ", "networkpolicies/b/status b node-1 1 true no room"
		is(aTold, bTold)
		s.SetRealized([]antrea.Realized{b, a})
		is()
		b.Failure = ""
		s.SetRealized([]antrea.Realized{a, b})
		bTold = "networkpolicies/b/status b node-1 1 false "
		is(bTold)
		c.cut("addressgroups")
		is()
		c.cut("networkpolicies")
		is(aTold, bTold)

		c.with(func(c *controller) { c.refuse["networkpolicies/a/status"] = 500 })
		a.Generation, b.Generation = 4, 2
		s.SetRealized([]antrea.Realized{a, b})
		is("networkpolicies/b/status b node-1 2 false ")
		if err := s.Status().ReportErr; err == nil || !strings.Contains(err.Error(), "report policy a") {
			t.Errorf("refused: the status tells %v", err)
		}
		c.with(func(c *controller) { clear(c.refuse) })
		is("networkpolicies/a/status a node-1 4 false ")
		if err := s.Status().ReportErr; err != nil {
			t.Errorf("taken: the status tells %v", err)
		}

		// One that is gone at the controller is not told for ever.
		c.with(func(c *controller) { c.refuse["networkpolicies/a/status"] = 404 })
		a.Generation = 5
		s.SetRealized([]antrea.Realized{a, {UID: "../../x"}, {UID: ""}})
		pass(time.Minute)
		c.with(func(c *controller) { clear(c.refuse) })
		is()
		s.SetRealized(nil)
		c.cut("networkpolicies")
		is()
	})
}

func TestPostStats(t *testing.T) {
	inBubble(t, antrea.Options{}, nil, func(t *testing.T, c *controller, s *antrea.Source) {
		stats := &controlplanev1beta2.NodeStatsSummary{NetworkPolicies: []controlplanev1beta2.NetworkPolicyStats{{NetworkPolicy: controlplanev1beta2.NetworkPolicyReference{Name: "p"}}}}
		if err := s.PostStats(t.Context(), stats); err != nil {
			t.Fatal(err)
		}
		var got controlplanev1beta2.NodeStatsSummary
		c.with(func(c *controller) {
			var envelope runtime.Unknown
			raw, _ := bytes.CutPrefix(c.posts["nodestatssummaries"][0], []byte("k8s\x00"))
			if err := envelope.Unmarshal(raw); err != nil || envelope.Kind != "NodeStatsSummary" || got.Unmarshal(envelope.Raw) != nil {
				t.Errorf("%v: %q", err, raw)
			}
			c.refuse["nodestatssummaries"] = 403
		})
		if got.Name != "node-1" || got.NetworkPolicies[0].NetworkPolicy.Name != "p" || stats.Name != "" {
			t.Errorf("got %+v", got)
		}
		if err := s.PostStats(t.Context(), stats); err == nil || !strings.Contains(err.Error(), "not now") {
			t.Errorf("refused: %v", err)
		}
	})
}
