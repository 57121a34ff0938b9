package main

import (
	"strings"

	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// cloudTarget answers from what one network of a cloud would get: whether its groups
// let a flow in or out at a workload. governed is false where the workload would keep
// its own groups alone.
type cloudTarget func(w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error)

// viaAWS answers from the security groups that the VPCs of a world would get.
func viaAWS(s policy.Snapshot) answerer {
	return viaCloud(s, "aws/", func(rs policy.Ruleset) cloudTarget {
		objects, _ := aws.Lower(aws.Place{}, rs)
		var members []*policy.Workload // all that have interfaces in it
		for _, w := range s.Workloads.All() {
			if w.Kind == policy.KindExternal && w.Network == rs.Workloads[0].Workload.Network {
				members = append(members, w)
			}
		}
		return func(w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
			return aws.Answer(objects, w, members, d, f)
		}
	})
}

// viaAzure answers from the network security groups that the VNets of a world would get.
func viaAzure(s policy.Snapshot) answerer {
	return viaCloud(s, "azure/", func(rs policy.Ruleset) cloudTarget {
		objects, _ := azure.Lower(azure.Place{}, rs)
		return func(w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
			return azure.Answer(objects, w, d, f)
		}
	})
}

// viaCloud answers from the lowered networks of a cloud, whose Targets begin with
// prefix. Ends that it does not enforce are answered as compiled, and so are VMs that
// would keep their own groups alone.
func viaCloud(s policy.Snapshot, prefix string, lower func(policy.Ruleset) cloudTarget) answerer {
	rulesets := compile.Rulesets(s)
	targets := map[string]cloudTarget{}
	for _, rs := range rulesets {
		if strings.HasPrefix(rs.Target, prefix) {
			targets[rs.Target] = lower(rs)
		}
	}
	return viaEnds(s, rulesets, func(w *policy.Workload, d policy.Direction, f policy.Flow, compiled policy.Decision) (policy.Decision, error) {
		return askCloud(targets, w, d, f, compiled)
	})
}

// atEnd returns what decides at a workload about a flow whose ends have addresses; compiled is
// what the Rulesets say.
type atEnd func(w *policy.Workload, d policy.Direction, f policy.Flow, compiled policy.Decision) (policy.Decision, error)

// viaEnds answers by what ask says of each end at which policies can apply.
func viaEnds(s policy.Snapshot, rulesets []policy.Ruleset, ask atEnd) answerer {
	x := newIndex(s)
	return func(f policy.Flow) (policy.Verdict, error) {
		s := x.around(f)
		v, err := compile.Verdict(rulesets, s, f)
		if err != nil || v.Ingress.Reason == policy.ToItself {
			return v, err
		}
		from, to, err := s.Ends(f)
		if err != nil {
			return v, err
		}
		f.From.Addr, f.To.Addr = from.Addr, to.Addr
		if from.Subject != nil {
			if v.Egress, err = ask(from.Subject, policy.Egress, f, v.Egress); err != nil {
				return v, err
			}
		}
		if to.Subject != nil {
			if v.Ingress, err = ask(to.Subject, policy.Ingress, f, v.Ingress); err != nil {
				return v, err
			}
		}
		v.Action = v.Egress.Action
		if v.Action == policy.Allow {
			v.Action = v.Ingress.Action
		}
		return v, nil
	}
}

// askCloud returns what the groups of w say. Which rule made them so is what
// compiled says, as long as both say the same: a group knows no Reject, and
// names no policy.
func askCloud(targets map[string]cloudTarget, w *policy.Workload, d policy.Direction, f policy.Flow, compiled policy.Decision) (policy.Decision, error) {
	ask, ok := targets[w.Target]
	if !ok {
		return compiled, nil
	}
	allowed, governed, err := ask(w, d, f)
	if err != nil || !governed {
		return compiled, err
	}
	if allowed != (compiled.Action == policy.Allow) {
		compiled = policy.Decision{Reason: policy.ByTarget, Index: -1}
	}
	compiled.Action = policy.Drop
	if allowed {
		compiled.Action = policy.Allow
	}
	return compiled, nil
}
