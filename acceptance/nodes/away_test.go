package nodes_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"isobar.dev/acceptance/wire"
)

// The API server is away from agents and from the controller, all watches are cut, and an agent starts
// meanwhile: what the kernel has stays, and what has changed, 30 % of all objects, counts when it is there again.
func TestF04_F05_APIServerAway(t *testing.T) {
	c := newCluster(t, options{})
	base := c.m
	away := 3 * time.Second
	if isFull {
		away = 10 * time.Minute
	}
	c.api.Refuse()
	c.behind.Refuse()
	time.Sleep(away)
	labels := func(ns, name, app string) object {
		return changed(find[*corev1.Pod](t, base, ns, name), func(p *corev1.Pod) { p.Labels = appIs(app).MatchLabels })
	}
	others := []object{
		c.shop.open(t, base), c.shop.shut(t, base), c.shop.namespace(c.shop.other(), "red"),
		labels(c.shop.shop(), "web-1", "api"), labels(c.shop.other(), "free", "guest"),
	}
	if len(others)*10 < len(base)*3 {
		t.Fatalf("%d of %d objects are less than 30 %%", len(others), len(base))
	}
	c.set(base.with(others...))
	c.agents[0].kill()
	c.agents[0].start()
	time.Sleep(time.Second)
	c.behind.Accept()
	eventually(t, "the agent that hears from the controller alone", func() string {
		return c.agents[1].behind(told(t, c.judge.latest()))
	})
	c.api.Accept()
	c.settle("F4: the API server is there again")
	eventually(t, "statuses", c.rolledUp)

	for i, f := range []*wire.Proxy{c.behind, c.hub, c.api} {
		f.Cut()
		if i == 1 {
			c.set(base.with(c.shop.shut(t, base)))
		}
		f.Cut()
	}
	c.set(base)
	c.settle("F5: every watch begins anew")
	eventually(t, "statuses at the end", c.rolledUp)
}
