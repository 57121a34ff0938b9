package flat

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// refuse returns what of r the flat form cannot tell.
func (q *question) refuse(r *policy.TargetRule) []policy.Refusal {
	var out []policy.Refusal
	add := func(reason policy.RefusalReason, what string) {
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: r.Key, Reason: reason, Message: what + ": " + consequence(r)})
	}
	egress := q.in.Direction == policy.Egress
	if len(r.Names) > 0 && egress {
		add(policy.RefusedNames, "DNS names are not seen here")
	}
	if len(r.L7) > 0 {
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: r.Key, Reason: policy.RefusedL7,
			Message: "the payload is not seen here: all that the rule matches before it looks at the payload is dropped"})
	}
	if len(r.Services) > 0 && egress {
		add(policy.RefusedServices, "cluster IPs of Services are not routed here")
	}
	has := func(f func(policy.Traffic) bool) bool { return slices.ContainsFunc(r.Traffic, f) }
	if has(func(t policy.Traffic) bool { return t.Protocol.HasPorts() && !t.SourcePorts.IsAll() }) {
		add(policy.RefusedSourcePorts, "source ports cannot be told")
	}
	if has(func(t policy.Traffic) bool { return t.Protocol == policy.IGMP && q.isVague(r, t) }) {
		add(policy.RefusedProtocol, "IGMP cannot be told")
	}
	if has(q.isBlurred) {
		add(policy.RefusedProtocol, "ports of SCTP cannot be told")
	}
	m := q.f.peersOf(r)
	if egress && has(func(t policy.Traffic) bool { return t.PortName != "" && !q.isBlurred(t) }) && m.certain.Overlaps(q.f.unknownPorts(r)) {
		add(policy.RefusedPeers, "named ports are known of workloads alone, and the peers are wider")
	}
	for _, key := range r.Groups {
		if g := q.f.group(key); !g.perhaps.IsEmpty() {
			add(policy.RefusedPeers, fmt.Sprintf("from here the addresses %v may stand for other workloads than the peer", brief(g.perhaps)))
			break
		}
	}
	if r.Action == policy.Reject {
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: r.Key, Reason: policy.RefusedReject,
			Message: "nothing is rejected here: it is dropped without an answer"})
	}
	return out
}

// isVague says whether the rule's part t of IGMP is treated as uncertain.
func (q *question) isVague(r *policy.TargetRule, t policy.Traffic) bool {
	return t.IGMPType != nil || t.GroupAddress.IsValid() || r.Action == policy.Allow
}

// consequence says what happens to the uncertain part of a rule.
func consequence(r *policy.TargetRule) string {
	switch {
	case len(r.L7) > 0 || r.Action == policy.Drop || r.Action == policy.Reject:
		return "all that it may match is dropped"
	case r.Action == policy.Pass:
		return "what it may match is allowed only if it is both with and without the rule"
	}
	return "what it alone would allow is dropped"
}

// brief returns the first prefixes of s.
func brief(s Set) string {
	p := s.Prefixes()
	if len(p) <= 4 {
		return fmt.Sprint(p)
	}
	return fmt.Sprintf("%v and %d more", p[:4], len(p)-4)
}
