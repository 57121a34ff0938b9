package agents_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// Leaders are killed, one after the other, in the middle of writes, while agents watch three
// replicas through one address: no verdict is wrong, and right after each take-over the
// status of each policy counts every agent, whichever replica it watches.
func TestF09_LeadersKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shop{nodes: []string{"n1", "n2", "n3", "n4", "n5", "n6"}, rooms: 2, pods: 4}, 80)
	for i := range 3 {
		c.startReplica(fmt.Sprint("r", i))
	}
	c.leader(c.replicas...)
	c.startAgents()
	c.probe.settle("at the start")
	eventually(t, "the statuses at the start", c.rolledUp)
	rounds, least := 3, time.Duration(0)
	if isFull {
		rounds, least = 30, 20*time.Second
	}
	open, shut := c.m, c.m
	for round := range rounds {
		began := time.Now()
		old := c.leader(c.replicas...)
		if round%2 == 0 {
			shut = open.with(c.shop.shut(t, open, 0), c.shop.open(t, open, 1))
			c.set(shut)
		} else {
			c.set(open)
		}
		c.drop(old) // it may have told some of it, to some, and written some statuses
		c.startReplica(fmt.Sprint("r", 3+round))
		c.leader(c.replicas...)
		lead := time.Since(began)
		c.probe.settle(fmt.Sprint("leader ", round, " killed"))
		eventually(t, "the statuses after that", c.rolledUp)
		t.Logf("round %d: another leads after %v, all statuses are whole after %v", round, lead.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		time.Sleep(max(0, least-time.Since(began)))
	}
}

// A leader's process is stopped, so that its Lease runs out without its knowledge; another
// one leads and hears that an agent fails; the first goes on, and leads again. What it heard
// in its first term says that the agent is well: nobody is told so.
func TestF09_LeaderStopped(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shop{nodes: []string{"n1", "n2"}, rooms: 1, pods: 2}, 20)
	first := c.startReplica("r0")
	c.leader(first)
	second := c.startReplica("r1")
	c.startAgents()
	c.probe.settle("at the start")
	eventually(t, "the statuses at the start", c.rolledUp)

	first.Signal(t, syscall.SIGSTOP)
	c.front.Send(second.API) // as a Service does when the probe of a Pod fails
	c.front.Cut()
	c.leader(second)
	c.agents[0].fail("no room")
	p := find[*antreav1beta1.NetworkPolicy](t, c.m, c.shop.room(0), "api")
	failed := func() string {
		s, _, err := c.statusOf(p)
		if err != nil {
			return err.Error()
		}
		if s.Phase != antreav1beta1.PolicyFailed || failureOf(s) != c.agents[0].node+": no room" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	}
	eventually(t, "the second leader hears that an agent fails", failed)
	first.Signal(t, syscall.SIGCONT)
	c.set(c.m.with(c.shop.open(t, c.m, 0)))
	c.probe.settle("a change while the first one wakes")
	c.front.Send(first.API, second.API)
	c.drop(second)
	c.leader(first)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if wrong := failed(); wrong != "" {
			t.Fatalf("the first one leads again, and says of an agent that fails: %s", wrong)
		}
	}
	c.agents[0].fail("")
	eventually(t, "the statuses at the end", c.rolledUp)
	c.probe.settle("at the end")
}
