package main

import (
	"fmt"
	"strings"

	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
)

// lowerings are what targets are made of and can refuse, by the names of --via.
var lowerings = []struct {
	name string
	who  string // whom it enforces for
	// lower returns what a target refuses, and whether it is one of this kind.
	lower func(policy.Ruleset) (refusals []policy.Refusal, is bool)
}{
	{"aws", "VM in a VPC", func(rs policy.Ruleset) ([]policy.Refusal, bool) {
		if !strings.HasPrefix(rs.Target, "aws/") {
			return nil, false
		}
		_, refusals := aws.Lower(aws.Place{}, rs)
		return refusals, true
	}},
	{"azure", "VM in a VNet", func(rs policy.Ruleset) ([]policy.Refusal, bool) {
		if !strings.HasPrefix(rs.Target, "azure/") {
			return nil, false
		}
		_, refusals := azure.Lower(azure.Place{}, rs)
		return refusals, true
	}},
	{"nft", "Node, or VM with an agent,", func(rs policy.Ruleset) ([]policy.Refusal, bool) {
		if _, ok := feed.NodeOf(rs.Target); !ok {
			return nil, false
		}
		var place nft.Place
		for _, e := range rs.Workloads {
			place.Locals = append(place.Locals, nft.Local{ID: e.Workload.ID, Addrs: e.Workload.Addrs})
		}
		_, refusals := nft.Lower(place, rs)
		return refusals, true
	}},
}

// refusals returns what targets of the named kinds cannot enforce of a world, and which kinds
// are not asked since the world has none.
func refusals(s policy.Snapshot, via []string) (out []policy.Refusal, unchecked []string) {
	rulesets := compile.Rulesets(s)
	for _, l := range lowerings {
		if !has(via, l.name) {
			continue
		}
		asked := false
		for _, rs := range rulesets {
			refused, is := l.lower(rs)
			asked = asked || is
			for _, r := range refused {
				if r.Target == "" {
					r.Target = rs.Target
				}
				out = append(out, r)
			}
		}
		if !asked {
			unchecked = append(unchecked, fmt.Sprintf("%s: to no %s of this world does a policy apply", l.name, l.who))
		}
	}
	return out, unchecked
}
