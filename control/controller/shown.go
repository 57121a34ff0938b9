package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/api/convert"
	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// PolicyState returns how a policy fares, for the console: as its status has it, and for each Target.
func (c *Controller) PolicyState(p *policy.Policy) console.PolicyState {
	agents, settled := c.agentStates(p)
	states := append(c.statesOf(p.ID), agents...)
	c.mu.Lock()
	notice := c.notices[p.ID]
	c.mu.Unlock()
	troubles := troublesOf(c.World(), p, notice)
	if len(agents) > 0 {
		troubles = append(troubles, unspoken(c.Feed().Problems(p.ID))...)
	}
	var out console.PolicyState
	if notice != nil {
		for _, x := range notice.Problems {
			out.Problems = append(out.Problems, console.Problem{Field: x.Field, Message: x.Message})
		}
	}
	for _, x := range troubles {
		if x.reason != reasonUnread { // which the notice tells in full
			out.Problems = append(out.Problems, console.Problem{Message: x.reason + ": " + x.message})
		}
	}
	realized, failed := 0, 0
	for _, s := range states {
		t := console.TargetState{Name: s.name, Phase: console.Realizing, Message: errText(s.err)}
		switch {
		case s.realized:
			t.Phase = console.Realized
			realized++
		case s.err != nil:
			t.Phase = console.Failed
			failed++
		}
		out.Targets = append(out.Targets, t)
		out.Refusals = append(out.Refusals, s.refusals...)
	}
	switch {
	case len(states)+len(troubles) == 0:
	case len(out.Refusals)+len(troubles) > 0:
		out.Phase = console.Failed
	case settled && realized == len(states):
		out.Phase = console.Realized
	case settled && realized+failed == len(states):
		out.Phase = console.Failed
	default:
		out.Phase = console.Realizing
	}
	return out
}

// WorkloadState returns how far the policies of a workload are enforced on it, where a cloud or an agent of a VM does.
func (c *Controller) WorkloadState(w *policy.Workload) (out console.WorkloadState) {
	if namespace, name, ok := convert.OfAgentTarget(w.Target); ok {
		return c.agentOf(types.NamespacedName{Namespace: namespace, Name: name}, w.Target)
	}
	c.mu.Lock()
	t := c.targets[w.Target]
	c.mu.Unlock()
	if t == nil {
		return out
	}
	s := t.view().workloads[w.ID]
	if s == nil {
		return out // no policy has to do with it
	}
	out.Phase = console.Realized
	var why []string
	for _, id := range slices.Sorted(maps.Keys(s.policies)) {
		switch v := s.policies[id]; {
		case v.isFailed():
			out.Phase = console.Failed
			why = append(why, id+": "+cmp.Or(errText(v.err), refusalTexts(v.refusals)))
		case !v.isDone && out.Phase != console.Failed:
			out.Phase = console.Realizing
		}
	}
	out.Targets = []console.TargetState{{Name: t.name, Phase: out.Phase, Message: list(why)}}
	return out
}

// agentOf returns how the agent of a machine fares.
func (c *Controller) agentOf(machine types.NamespacedName, target string) (out console.WorkloadState) {
	if c.o.Machines == nil {
		return out
	}
	info, ok := c.o.Machines.Get(machine)
	if !ok {
		out.Agent = "has not spoken"
		return out
	}
	s := info.Status
	out.Agent = strings.TrimSpace(fmt.Sprintf("%s %s", s.State, s.AgentVersion))
	switch {
	case s.FailedPolicies > 0:
		out.Phase = console.Failed
	case s.RealizedPolicies < s.Policies:
		out.Phase = console.Realizing
	default:
		out.Phase = console.Realized
	}
	out.Targets = []console.TargetState{{Name: target, Phase: out.Phase, Message: s.LastError}}
	return out
}

// CloudObjects returns what of a cloud a workload is, and the security groups that it has there.
func (c *Controller) CloudObjects(w *policy.Workload) []console.CloudObject {
	c.mu.Lock()
	i, ok := c.imports.Get(w.ID)
	c.mu.Unlock()
	if !ok {
		return nil
	}
	account := i.account.String()
	out := []console.CloudObject{{
		Kind: entityKinds[i.vm.Kind], ID: i.vm.ID, Name: i.vm.Name, Account: account, Detail: strings.TrimSpace(fmt.Sprintf("%s %s %s", i.vm.Region, i.vm.NetworkID, i.vm.State)),
	}}
	groups := map[string]bool{}
	for _, n := range i.vm.Interfaces {
		out = append(out, console.CloudObject{Kind: "interface", ID: n.ID, Account: account, Detail: addrTexts(slices.Concat(n.Private, n.Public))})
		for _, g := range slices.Concat(n.Groups, n.ApplicationGroups) {
			groups[g] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, console.CloudObject{Kind: "securitygroup", ID: id, Account: account})
	}
	return out
}

func addrTexts(addrs []netip.Addr) string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.Unmap().String()
	}
	return strings.Join(out, ", ")
}

// Accounts returns how each account fares, by namespace and name.
func (c *Controller) Accounts() []console.Account {
	c.mu.Lock()
	all := maps.Clone(c.accounts)
	c.mu.Unlock()
	targets := map[string]TargetStatus{}
	for _, t := range c.Targets() {
		targets[t.Name] = t
	}
	var out []console.Account
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		a := all[key]
		row := console.Account{Namespace: key.Namespace, Name: key.Name}
		if cpa, ok := c.accountMirror.get(key); ok {
			at, _ := cpa.Spec.Cloud()
			row.Provider = string(at.Provider)
		}
		a.mu.Lock()
		row.VMs, row.Problem = len(a.imports), cleanText(a.scrub, a.connectErr)
		for _, name := range slices.Sorted(maps.Keys(a.regions)) {
			r := a.regions[name]
			h := r.pulse.health(name, cleanText(a.scrub, errors.Join(r.view.failures(name, a.selectors)...)))
			row.Regions = append(row.Regions, console.Region{Name: name, LastPoll: h.Last, Err: h.Err})
		}
		a.mu.Unlock()
		for _, t := range c.targetsOf(key) {
			s, ok := targets[t.name]
			if !ok {
				continue // it is gone since
			}
			row.Targets = append(row.Targets, console.Target{
				Name: t.name, Network: t.network, Phase: string(stateOf(s)), LastSync: s.LastGood, Err: s.Err, Usage: s.Report.Usage,
			})
		}
		out = append(out, row)
	}
	return out
}

// Loops returns how each loop fares, by name.
func (c *Controller) Loops() []console.Loop {
	now := time.Now()
	var out []console.Loop
	for _, h := range c.Health() {
		out = append(out, console.Loop{Name: h.Name, Last: h.Last, Busy: h.Busy, Err: h.Err, Stuck: h.IsStuck(now)})
	}
	return out
}

// Lay returns the world as it is, and as it would be if writes were made.
func (c *Controller) Lay(writes []kube.Write) (before, after policy.Snapshot, notices []*kube.Notice, err error) {
	if c.o.Computed != nil {
		return before, after, nil, ErrComputedElsewhere
	}
	m := c.world.current.Load()
	if m == nil {
		return before, after, nil, ErrNotRead
	}
	after, notices = c.preview.lay(m, writes)
	return m.Snapshot, after, notices, nil
}
