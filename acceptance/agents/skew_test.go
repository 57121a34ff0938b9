package agents_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"isobar.dev/acceptance/wire"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Agents of one version and controllers of the next, or the one before: what is not known
// closes what it is about, and nothing else.
func TestF18_OtherVersions(t *testing.T) {
	t.Parallel()
	x := &setting{hub: newHub(t), shop: shop{base: "skew", nodes: []string{"n1", "n2"}, rooms: 2, pods: 2}}
	x.m = x.shop.model()
	w := x.m.snapshot(t)
	x.probe = newProbe(t, x.shop.flows(x.m, 80), w)
	x.know(w)
	p := find[*antreav1beta1.NetworkPolicy](t, x.m, x.shop.room(0), "api")
	skew := wire.NewSkew(t)
	for _, n := range x.shop.nodes {
		m := &wire.Meddler{Each: skew.Each}
		x.between = append(x.between, m)
		x.agents = append(x.agents, startAgent(t, x.probe, n, m.Wrap(x.reach()), antrea.Options{}))
	}
	x.probe.settle("at the start")
	about := func(f policy.Flow) bool {
		return strings.HasPrefix(f.To.Workload, policy.WorkloadID(policy.KindPod, x.shop.room(0), "api-"))
	}
	turn := func(to wire.News) {
		skew.Turn(to, string(p.UID))
		x.expire()
	}
	turn(wire.NewMetadata)
	x.probe.settle("fields beside what counts")
	x.probe.allows(about)
	for _, to := range []wire.News{wire.NewConditions, wire.NewActions, wire.NewProtocols, wire.NewDirections} {
		if to == wire.NewDirections { // what may be of either is of both
			x.probe.allows(func(f policy.Flow) bool {
				return about(f) || about(policy.Flow{To: f.From})
			})
		}
		turn(to)
		eventually(t, "rules with what is not known are closed", func() string {
			if dropped, all := x.probe.dropped(about); all == 0 || dropped < all {
				return fmt.Sprintf("%d of %d flows are dropped", dropped, all)
			}
			return ""
		})
	}
	turn(wire.NoMoments)
	x.probe.settle("an older controller")
	x.probe.allows(nil)
	x.set(x.m.with(x.shop.open(t, x.m, 1)))
	x.probe.settle("a change of an older controller's")
	turn(wire.NoNews)
	x.set(x.m.with(x.shop.shut(t, x.m, 0)))
	x.probe.settle("a change of one of this version")

	// A report of a newer agent's, once that of n1's own is there, which would take its place.
	id := policy.PolicyID(policy.AntreaNetworkPolicy, p.Namespace, p.Name)
	eventually(t, "reports of the agents", func() string {
		if said := x.reports.Of(id, x.shop.nodes); len(said) != 2 || said["n1"].Generation != 2 || said["n2"].Generation != 2 {
			return fmt.Sprint(said)
		}
		return ""
	})
	client, err := rest.HTTPClientFor(x.reach())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post("https://"+x.front.Addr()+"/apis/controlplane.antrea.io/v1beta2/networkpolicies/"+string(p.UID)+"/status", runtime.ContentTypeJSON, strings.NewReader(
		`{"apiVersion": "controlplane.antrea.io/v1beta2", "kind": "NetworkPolicyStatus", "metadata": {"name": "`+string(p.UID)+`"}, "new": 1, "nodes": [{"nodeName": "n1", "generation": 7, "new": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		t.Errorf("a newer agent's report: %s %s", answer.Status, text)
	}
	if said := x.reports.Of(id, []string{"n1"}); said["n1"].Generation != 7 {
		t.Errorf("the report came to %v", said)
	}
}
