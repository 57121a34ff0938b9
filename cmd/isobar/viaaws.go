package main

import (
	"strings"

	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// awsTarget is a VPC, lowered.
type awsTarget struct {
	objects map[string]aws.Object
	members []*policy.Workload // all that have interfaces in it
}

// viaAWS answers from the security groups that the VPCs of a world would get.
// Ends that AWS does not enforce are answered as compiled, and so are VMs that
// would keep their own groups alone.
func viaAWS(s policy.Snapshot) answerer {
	rulesets := compile.Rulesets(s)
	targets := map[string]awsTarget{}
	for _, rs := range rulesets {
		if !strings.HasPrefix(rs.Target, "aws/") {
			continue
		}
		t := awsTarget{}
		t.objects, _ = aws.Lower(aws.Place{}, rs)
		for _, w := range s.Workloads.All() {
			if w.Kind == policy.KindExternal && w.Network == rs.Workloads[0].Workload.Network {
				t.members = append(t.members, w)
			}
		}
		targets[rs.Target] = t
	}
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
		if v.Egress, err = askAWS(targets, from.Subject, policy.Egress, f, v.Egress); err != nil {
			return v, err
		}
		if v.Ingress, err = askAWS(targets, to.Subject, policy.Ingress, f, v.Ingress); err != nil {
			return v, err
		}
		v.Action = v.Egress.Action
		if v.Action == policy.Allow {
			v.Action = v.Ingress.Action
		}
		return v, nil
	}
}

// askAWS returns what the groups of w say. Which rule made them so is what
// compiled says, as long as both say the same: a group knows no Reject, and
// names no policy.
func askAWS(targets map[string]awsTarget, w *policy.Workload, d policy.Direction, f policy.Flow, compiled policy.Decision) (policy.Decision, error) {
	if w == nil {
		return compiled, nil
	}
	t, ok := targets[w.Target]
	if !ok {
		return compiled, nil
	}
	allowed, governed, err := aws.Answer(t.objects, w, t.members, d, f)
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
