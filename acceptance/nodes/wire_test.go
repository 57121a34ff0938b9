package nodes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/acceptance/wire"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// The way between agents and the controller carries bytes in one direction alone; and the controller is of another
// version than the agents.
func TestF10_F18_WireAndVersions(t *testing.T) {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		t.Setenv(name, "1") // found dead after 2 s, and not after 45 s
	}
	skew := wire.NewSkew(t)
	m := &wire.Meddler{Each: skew.Each}
	c := newCluster(t, options{meddler: m})
	for _, way := range []int{wire.ToClient, wire.ToServer} {
		c.oneWay(way)
	}
	c.versions(m, skew)
}

// oneWay has bytes go to the controller alone, or to the agents alone, and nobody is told. What is enforced stays; a
// Pod that is new is closed; and all is as it should be soon after.
func (c *cluster) oneWay(way int) {
	t := c.t
	t.Helper()
	what := "F10: nothing comes " + []string{"to the controller", "to the agents"}[way]
	base := c.m
	p := c.shop.pod(c.shop.other(), fmt.Sprint("new-", way), "free", way)
	if way == wire.ToClient {
		c.judge.freeze(func(*pod) bool { return true }) // though they may ask
	}
	c.hub.Stall(way)
	c.set(base.with(c.shop.shut(t, base), c.shop.namespace(c.shop.other(), "red")))
	if way == wire.ToClient {
		c.set(c.m.with(p))
		c.judge.close(c.pods[p.Namespace+"/"+p.Name], true)
	}
	c.agents[1].kill() // and starts with what it has kept, if that is the last
	c.agents[1].start()
	for _, a := range c.agents {
		eventually(t, a.node.Name+" says that it hears nothing", func() string {
			text, err := a.get("metrics")
			if err != nil {
				return err.Error()
			}
			if !strings.Contains(string(text), "isobar_agent_watches{") || hasLive(string(text)) {
				return "it has live watches"
			}
			return ""
		})
	}
	c.set(c.m.with(c.shop.open(t, base)))
	c.judge.await(what)
	c.links.report(what)
	if way == wire.ToClient {
		c.judge.close(c.pods[p.Namespace+"/"+p.Name], false)
		c.judge.freeze(nil)
	}
	began := time.Now()
	c.hub.Resume()
	c.settle(what + ", until it does")
	t.Logf("%s: all is as it should be %v after it does", what, time.Since(began).Round(time.Millisecond))
	c.set(base)
	c.settle(what + ": all is as before")
	eventually(t, what+": statuses", c.rolledUp)
}

// hasLive says whether the metrics of an agent have a watch that is live.
func hasLive(metrics string) bool {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "isobar_agent_watches{") && !strings.HasSuffix(line, " 0\n") {
			return true
		}
	}
	return false
}

// versions has the controller say what agents do not know, and not say what they know. That closes what it is about,
// and nothing else.
func (c *cluster) versions(m *wire.Meddler, skew *wire.Skew) {
	t := c.t
	t.Helper()
	base := c.m
	api := find[*antreav1beta1.NetworkPolicy](t, base, c.shop.shop(), "api")
	_, gvr := kindOf(api)
	now, err := c.client.Resource(gvr).Namespace(api.Namespace).Get(t.Context(), api.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	turn := func(to wire.News) {
		skew.Turn(to, string(now.GetUID()))
		if to != wire.NewMetadata && to != wire.NoMoments && to != wire.NoNews {
			c.insist(func() error { // with another name of a rule, by which it is told again
				return c.apply(t.Context(), changed(api, func(p *antreav1beta1.NetworkPolicy) { p.Spec.Ingress[0].Name = fmt.Sprint("no-udp-", to) }))
			})
			return
		}
		m.Send("", wire.Expired())
	}
	shut := c.shop.shut(t, base).(*antreav1beta1.NetworkPolicy)
	for _, tt := range []struct {
		news wire.News
		what string
		as   *antreav1beta1.NetworkPolicy // what the policy is taken for
	}{
		{wire.NewMetadata, "fields beside what counts", api},
		{wire.NewConditions, "fields of rules", shut},
		{wire.NewActions, "actions", shut},
		{wire.NewProtocols, "protocols", shut},
		{wire.NewDirections, "directions", changed(shut, func(p *antreav1beta1.NetworkPolicy) { p.Spec.Egress = []antreav1beta1.Rule{{Action: &drop}} })},
	} {
		what := "F18: a newer controller says " + tt.what + " that nobody knows"
		c.judge.next(base.with(tt.as).snapshot(t))
		turn(tt.news)
		eventually(t, what, func() string {
			if n := skew.Told(); n < len(c.agents) {
				return fmt.Sprint("it is told ", n, " times")
			}
			if tt.as == api {
				return c.behindText()
			}
			return c.judge.differs()
		})
		c.judge.settle(what)
		c.links.report(what)
	}
	what := "F18: an older controller"
	c.judge.next(base.snapshot(t))
	turn(wire.NoMoments)
	c.m = c.m.without(api) // it has another name of a rule now
	c.set(base)
	c.settle(what)
	c.set(base.with(c.shop.open(t, base)))
	c.settle(what + ": a change")
	eventually(t, "statuses", c.rolledUp)
}
