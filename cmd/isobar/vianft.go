package main

import (
	"iter"

	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
)

// viaNft answers from the nftables tables that agents would make for the workloads of Nodes and of VMs. Which
// rule decides is what compiled says, as long as both say the same. Whom no agent enforces for is answered as
// compiled.
func viaNft(s policy.Snapshot) answerer {
	rulesets := compile.Rulesets(s)
	enforced := map[string]policy.Ruleset{} // by workload
	for _, rs := range rulesets {
		if _, ok := feed.NodeOf(rs.Target); ok {
			for _, e := range rs.Workloads {
				enforced[e.Workload.ID] = rs
			}
		}
	}
	tables := map[string]map[string]nft.Object{} // by workload: what is asked at it alone
	return viaEnds(s, rulesets, func(w *policy.Workload, _ policy.Direction, f policy.Flow, compiled policy.Decision) (policy.Decision, error) {
		rs, ok := enforced[w.ID]
		if !ok {
			return compiled, nil
		}
		table, ok := tables[w.ID]
		if !ok {
			table, _ = nft.Lower(nft.Place{Locals: []nft.Local{{ID: w.ID, Addrs: w.Addrs}}}, rs)
			tables[w.ID] = table
		}
		var failed error
		d := policy.Strictest(f, trafficOf(rs), func(f policy.Flow) policy.Decision {
			j, err := nft.Judge(table, nft.PacketOf(nft.Forward, f))
			if err != nil {
				failed = err
			}
			return policy.Decision{Action: j.Action}
		})
		if d.Action != compiled.Action {
			compiled = policy.Decision{Action: d.Action, Reason: policy.ByTarget, Index: -1}
		}
		return compiled, failed
	})
}

// trafficOf yields all that rules tell apart.
func trafficOf(rs policy.Ruleset) iter.Seq[policy.Traffic] {
	return func(yield func(policy.Traffic) bool) {
		for i := range rs.Rules {
			for _, t := range rs.Rules[i].Traffic {
				if !yield(t) {
					return
				}
			}
		}
	}
}
