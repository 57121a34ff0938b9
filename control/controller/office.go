package controller

import "context"

// leads says whether this replica may write.
func (c *Controller) leads() bool { return c.o.Office.IsHeld() }

// mayWrite says whether a target may be written to: by the leader, once the
// account's object waits for that to be undone, and it is told who shares the network.
func (c *Controller) mayWrite(t *target) bool {
	if !c.leads() {
		return false
	}
	c.mu.Lock()
	a := c.accounts[t.account]
	c.mu.Unlock()
	if a == nil {
		return false
	}
	a.mu.Lock()
	finalized := a.finalized
	a.mu.Unlock()
	return finalized && !c.isUntold(t) && !c.awaitsAgents(t)
}

// runOffice has everything looked at anew whenever the office is taken or left:
// others have written meanwhile, or will.
func (c *Controller) runOffice(ctx context.Context) {
	changed := c.o.Office.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = c.o.Office.Changed() // before it is looked at
		c.mu.Lock()
		targets := make([]*target, 0, len(c.targets))
		for _, t := range c.targets {
			targets = append(targets, t)
		}
		c.mu.Unlock()
		for _, t := range targets {
			t.distrust()
		}
		if c.leads() {
			c.lookAgain()
		}
	}
}
