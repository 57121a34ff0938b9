package controller

import (
	"context"
	"errors"
	"time"

	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
)

// recall is how long agents have, after the start or a change of leaders, to say again what they have said to
// who led before. Until then what a status says of a policy stays.
const recall = 2 * time.Minute

// runReports has the policies looked at of which agents say something else.
func (c *Controller) runReports(ctx context.Context) {
	recalled := time.NewTimer(recall)
	defer recalled.Stop()
	for {
		changed := c.o.Office.Changed()
		term := c.o.Office.Term()
		select {
		case <-ctx.Done():
			return
		case <-changed:
			c.recalled.Store(nil)
			recalled.Reset(recall)
		case <-recalled.C:
			c.recalled.Store(&term)
			for id := range c.World().Policies.All() {
				c.policyQueue.add(id)
			}
		case <-c.o.Reports.Changed():
			for _, id := range c.o.Reports.Dirty() {
				c.policyQueue.add(id)
			}
			c.lookAtTakers()
		}
	}
}

// respan has the policies looked at of which an agent has said something that may not
// enforce them any more.
func (c *Controller) respan(target string) {
	if c.o.Reports == nil {
		return
	}
	if node, ok := feed.NodeOf(target); ok {
		for _, id := range c.o.Reports.On(node) {
			c.policyQueue.add(id)
		}
	}
}

// agentStates returns what the agents that are to enforce a policy have said of it.
// settled is false while some may have said it to who led before, and have not yet to this
// process.
func (c *Controller) agentStates(p *policy.Policy) (states []targetState, settled bool) {
	if c.o.Reports == nil || p.Dialect != policy.AntreaNetworkPolicy && p.Dialect != policy.AntreaClusterNetworkPolicy {
		return nil, true
	}
	nodes := c.Feed().Nodes(p.ID)
	said := c.o.Reports.Of(p.ID, nodes)
	for _, n := range nodes {
		status, ok := said[n]
		states = append(states, agentState(n, p.Generation, status, ok))
	}
	return states, len(said) == len(nodes) || c.isRecalled()
}

// isRecalled says whether agents have had time to say again what they have said before. It
// is false from the moment on that another term begins.
func (c *Controller) isRecalled() bool {
	term := c.recalled.Load()
	return term != nil && *term == c.o.Office.Term()
}

// agentState is what one agent has made of the policy's generation.
func agentState(node string, generation int64, s controlplane.NodeStatus, said bool) targetState {
	out := targetState{name: node, applies: true, isAgent: true}
	if !said || s.Generation != generation {
		return out
	}
	if s.Failure != "" {
		out.err = errors.New(s.Failure)
		return out
	}
	out.realized = true
	return out
}
