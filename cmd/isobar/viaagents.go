package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
)

// viaAgents answers by what the agents of Nodes and VMs are told on the wire: each watches a feed of the world,
// reads what it is sent from its bytes, and enforces that. Whom no agent enforces for is answered as compiled.
func viaAgents(s policy.Snapshot) answerer {
	x := newIndex(s)
	rulesets, err := agentRulesets(s)
	return func(f policy.Flow) (policy.Verdict, error) {
		if err != nil {
			return policy.Verdict{}, err
		}
		return compile.Verdict(rulesets, x.around(f), f)
	}
}

func agentRulesets(s policy.Snapshot) ([]policy.Ruleset, error) {
	e := compile.NewEngine()
	f := feed.New(e)
	f.Update(s)
	var out []policy.Ruleset
	for _, target := range e.Targets() {
		compiled, _ := e.Ruleset(target)
		node, ok := feed.NodeOf(target)
		if !ok {
			out = append(out, compiled)
			continue
		}
		told, err := received(f, node)
		if err != nil {
			return nil, fmt.Errorf("agent of %s: %w", node, err)
		}
		rs, problems := convert.FromControlPlane(target, told, s.Services)
		if len(problems) > 0 {
			return nil, fmt.Errorf("agent of %s: %s", node, problems[0])
		}
		for _, w := range compiled.Workloads { // an agent knows its own, also those to which nothing applies
			i, ok := slices.BinarySearchFunc(rs.Workloads, w.Workload.ID, func(x policy.Enforced, id string) int { return cmp.Compare(x.Workload.ID, id) })
			if !ok {
				rs.Workloads = slices.Insert(rs.Workloads, i, policy.Enforced{Workload: w.Workload})
			}
		}
		out = append(out, rs)
	}
	return out, nil
}

// received is what a node's three watches send up to their bookmarks, read from its bytes.
func received(f *feed.Feed, node string) (out convert.ControlPlane, err error) {
	for _, r := range []feed.Resource{feed.NetworkPolicies, feed.AppliedToGroups, feed.AddressGroups} {
		w := f.Watch(context.Background(), r, feed.WatchOptions{Span: feed.SpanOf(node)})
		for e := range w.ResultChan() {
			if e.Type == watch.Bookmark {
				break
			}
			if err := readInto(&out, e.Object.(runtime.CacheableObject).GetObject()); err != nil {
				return out, err
			}
		}
		w.Stop()
	}
	return out, nil
}

func readInto(out *convert.ControlPlane, o runtime.Object) error {
	b, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return err
	}
	switch o.(type) {
	case *controlplanev1beta2.NetworkPolicy:
		var x controlplanev1beta2.NetworkPolicy
		err = x.Unmarshal(b)
		out.Policies = append(out.Policies, x)
	case *controlplanev1beta2.AppliedToGroup:
		var x controlplanev1beta2.AppliedToGroup
		err = x.Unmarshal(b)
		out.AppliedTo = append(out.AppliedTo, x)
	case *controlplanev1beta2.AddressGroup:
		var x controlplanev1beta2.AddressGroup
		err = x.Unmarshal(b)
		out.Addresses = append(out.Addresses, x)
	}
	return err
}
