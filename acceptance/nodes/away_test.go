package nodes_test

import (
	"testing"
	"time"
)

// The API server is away from agents and from the controller, all watches are cut, and an agent starts
// meanwhile: what the kernel has stays, and what has changed counts when it is there again.
func TestF04_F05_APIServerAway(t *testing.T) {
	c := newCluster(t, options{})
	base := c.m
	away := 3 * time.Second
	if isFull {
		away = 10 * time.Minute
	}
	c.api.refuse()
	c.behind.refuse()
	time.Sleep(away)
	c.set(base.with(c.shop.open(t, base), c.shop.namespace(c.shop.other(), "red")))
	c.agents[0].kill()
	c.agents[0].start()
	time.Sleep(time.Second)
	c.behind.accept()
	eventually(t, "the agent that hears from the controller alone", func() string {
		return c.agents[1].behind(told(t, c.judge.latest()))
	})
	c.api.accept()
	c.settle("F4: the API server is there again")
	eventually(t, "statuses", c.rolledUp)

	for i, f := range []*front{c.behind, c.hub, c.api} {
		f.cut()
		if i == 1 {
			c.set(base.with(c.shop.shut(t, base)))
		}
		f.cut()
	}
	c.set(base)
	c.settle("F5: every watch begins anew")
	eventually(t, "statuses at the end", c.rolledUp)
}
