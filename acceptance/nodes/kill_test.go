package nodes_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Agents are killed at random moments, while policies change, and started again: nothing
// opens, nothing breaks, and in the end all is exact.
func TestF01_AgentsKilled(t *testing.T) {
	c := newCluster(t, options{})
	times := 24
	if isFull {
		times = 200
	}
	times = number("ISOBAR_FAULTS_KILLS", times)
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(1, seed))
	t.Logf("seed %d", seed)
	base := c.m
	for i := range times {
		a := c.agents[i%len(c.agents)]
		switch i % 4 {
		case 0:
			c.set(base.with(c.shop.open(t, base)))
		case 1:
			c.set(base.with(c.shop.open(t, base), c.shop.shut(t, base)))
		case 2:
			c.set(base.with(c.shop.shut(t, base)))
		case 3:
			c.set(base)
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(400 * time.Millisecond)))) // until any moment
		a.kill()
		a.start()
		if i%3 != 2 { // else the next one is killed while this one starts
			a.awaitKnown()
		}
		if i%8 == 7 {
			c.settle(fmt.Sprint("agents killed ", i+1, " times"))
		}
	}
	c.settle(fmt.Sprint("agents killed ", times, " times"))
	eventually(t, "statuses", c.rolledUp)
}
