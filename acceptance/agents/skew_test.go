package agents_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// news are what a newer controller says.
type news int32

const (
	noNews        news = iota
	newMetadata        // beside what counts
	newConditions      // in rules of one policy
	newActions
	noMoments // an older one, that knows of none
)

// newer returns what is sent in place of an event by a controller with news about a policy.
func newer(t testing.TB, now news, uid string, e frame, first bool) []frame {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "new")
	switch {
	case now == noMoments && e.Type == watch.Bookmark:
		if !first {
			return nil
		}
		e.Object.Raw = nil
	case now == newMetadata && e.Type == watch.Added && e.Object.Kind != "NetworkPolicy":
		e.Object.Raw = append(bytes.Clone(e.Object.Raw), unknown...)
	case (now == newConditions || now == newActions) && e.Object.Kind == "NetworkPolicy" && e.Type != watch.Deleted:
		var p controlplanev1beta2.NetworkPolicy
		if err := p.Unmarshal(e.Object.Raw); err != nil {
			t.Error(err)
		}
		if p.Name != uid {
			break
		}
		rules := p.Rules
		p.Rules = nil
		raw, err := p.Marshal()
		if err != nil {
			t.Error(err)
		}
		for _, r := range rules {
			if now == newActions {
				r.Action = new(antreav1beta1.RuleAction("Permit"))
			}
			text, err := r.Marshal()
			if err != nil {
				t.Error(err)
			}
			if now == newConditions {
				text = append(text, unknown...)
			}
			raw = protowire.AppendBytes(protowire.AppendTag(raw, 2, protowire.BytesType), text)
		}
		e.Object.Raw = raw
	}
	return []frame{e}
}

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
	var now atomic.Int32
	for _, n := range x.shop.nodes {
		var begun sync.Map // resources whose watch is past its bookmark
		m := &meddler{}
		m.each = func(resource string, e frame) []frame {
			_, isBegun := begun.Load(resource)
			if e.Type == watch.Bookmark {
				begun.Store(resource, true)
			}
			return newer(t, news(now.Load()), string(p.UID), e, !isBegun)
		}
		config := m.wrap(x.reach())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return onWatch{next, func(resource string) { begun.Delete(resource) }}
		})
		x.between = append(x.between, m)
		x.agents = append(x.agents, startAgent(t, x.probe, n, config, antrea.Options{}))
	}
	x.probe.settle("at the start")
	about := func(f policy.Flow) bool {
		return strings.HasPrefix(f.To.Workload, policy.WorkloadID(policy.KindPod, x.shop.room(0), "api-"))
	}
	n := 3
	turn := func(to news) {
		now.Store(int32(to))
		for _, m := range x.between {
			m.send("", expired())
		}
		n += 3
		x.quiet(n)
	}
	turn(newMetadata)
	x.probe.settle("fields beside what counts")
	x.probe.allows(about)
	for _, to := range []news{newConditions, newActions} {
		turn(to)
		eventually(t, "rules with what is not known are closed", func() string {
			if dropped, all := x.probe.dropped(about); all == 0 || dropped < all {
				return fmt.Sprintf("%d of %d flows are dropped", dropped, all)
			}
			return ""
		})
	}
	turn(noMoments)
	x.probe.settle("an older controller")
	x.probe.allows(nil)
	x.set(x.m.with(x.shop.open(t, x.m, 1)))
	x.probe.settle("a change of an older controller's")
	turn(noNews)
	x.set(x.m.with(x.shop.shut(t, x.m, 0)))
	x.probe.settle("a change of one of this version")

	// A report of a newer agent's.
	client, err := rest.HTTPClientFor(x.reach())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post("https://"+x.front.addr()+"/apis/controlplane.antrea.io/v1beta2/networkpolicies/"+string(p.UID)+"/status", runtime.ContentTypeJSON, strings.NewReader(
		`{"apiVersion": "controlplane.antrea.io/v1beta2", "kind": "NetworkPolicyStatus", "metadata": {"name": "`+string(p.UID)+`"}, "new": 1, "nodes": [{"nodeName": "n1", "generation": 7, "new": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		t.Errorf("a newer agent's report: %s %s", answer.Status, text)
	}
	if said := x.reports.Of(policy.PolicyID(policy.AntreaNetworkPolicy, p.Namespace, p.Name), []string{"n1"}); said["n1"].Generation != 7 {
		t.Errorf("the report came to %v", said)
	}
}

// onWatch tells of each watch that is asked for.
type onWatch struct {
	next  http.RoundTripper
	begin func(resource string)
}

// RoundTrip passes a request on.
func (o onWatch) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Query().Get("watch") == "true" {
		o.begin(q.URL.Path[strings.LastIndex(q.URL.Path, "/")+1:])
	}
	return o.next.RoundTrip(q)
}
