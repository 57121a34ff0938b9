package answer

import (
	"fmt"
	"net/netip"
	"slices"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// Evaluate answers which rule decides about what a request asks, by policy.Evaluate.
// It is nil when the request has no flow and no rule names both ends.
func Evaluate(s policy.Snapshot, in *controlplanev1beta2.NetworkPolicyEvaluationRequest) (*controlplanev1beta2.NetworkPolicyEvaluationResponse, error) {
	if in == nil {
		return nil, fmt.Errorf("request: missing")
	}
	f, err := flowOf(s, in)
	if err != nil {
		return nil, err
	}
	if in.Flow == nil {
		if s, err = whateverTraffic(s, f); err != nil {
			return nil, err
		}
	}
	v, err := policy.Evaluate(s, f)
	if err != nil {
		return nil, err
	}
	out := &controlplanev1beta2.NetworkPolicyEvaluationResponse{}
	decides := deciding(v)
	if d := decides.Decision; d.Policy != "" {
		out.NetworkPolicy = reference(s, d.Policy)
		out.RuleIndex = int32(d.Index)
		out.Rule = controlplanev1beta2.RuleRef{Direction: decides.direction, Name: d.Rule, Action: new(antreav1beta1.RuleAction(d.Action.String()))}
		if d.Reason == policy.ByIsolation {
			out.RuleIndex, out.Rule.Action = controlplanev1beta2.IsolationIndex, nil
		}
	} else if in.Flow == nil {
		return nil, nil
	}
	if in.Flow != nil {
		out.Answer = &controlplanev1beta2.EvaluationAnswer{
			Verdict: antreav1beta1.RuleAction(v.Action.String()), Ingress: decisionOf(s, v.Ingress), Egress: decisionOf(s, v.Egress),
		}
		for _, n := range v.Needs {
			out.Answer.Needs = append(out.Answer.Needs, string(n))
		}
	}
	return out, nil
}

// end is a decision, and at which end.
type end struct {
	policy.Decision
	direction controlplanev1beta2.Direction
}

// deciding returns the decision that a client hears of who has room for one: of the
// end that denies, else of one where a rule allows.
func deciding(v policy.Verdict) end {
	in, out := end{v.Ingress, controlplanev1beta2.DirectionIn}, end{v.Egress, controlplanev1beta2.DirectionOut}
	switch {
	case out.Action != policy.Allow:
		return out
	case in.Action != policy.Allow || in.Policy != "":
		return in
	}
	return out
}

func decisionOf(s policy.Snapshot, d policy.Decision) controlplanev1beta2.EvaluationDecision {
	out := controlplanev1beta2.EvaluationDecision{Verdict: antreav1beta1.RuleAction(d.Action.String()), Reason: d.Reason.String(), RuleName: d.Rule}
	if d.Policy != "" {
		r := reference(s, d.Policy)
		out.NetworkPolicy = &r
	}
	if d.Reason == policy.ByRule {
		out.RuleIndex = new(int32(d.Index))
	}
	for _, id := range d.Ties {
		out.Ties = append(out.Ties, reference(s, id))
	}
	return out
}

// reference names the policy of an ID that s has.
func reference(s policy.Snapshot, id string) controlplanev1beta2.NetworkPolicyReference {
	p, ok := s.Policies.Get(id)
	if !ok {
		return controlplanev1beta2.NetworkPolicyReference{Name: id}
	}
	return convert.PolicyReference(p)
}

// flowOf reads a request.
func flowOf(s policy.Snapshot, in *controlplanev1beta2.NetworkPolicyEvaluationRequest) (f policy.Flow, err error) {
	if f.From, err = endpoint(s, "source", in.Source); err != nil {
		return f, err
	}
	if f.To, err = endpoint(s, "destination", in.Destination); err != nil {
		return f, err
	}
	if in.Flow == nil {
		if in.Source.Pod == nil || in.Destination.Pod == nil {
			return f, fmt.Errorf("flow: missing; only between two Pods it may be left out")
		}
		f.Protocol = policy.TCP
		return f, nil
	}
	x := in.Flow
	if f.Protocol, err = policy.ParseProtocol(string(x.Protocol)); err != nil {
		return f, fmt.Errorf("flow.%w", err)
	}
	for _, n := range []struct {
		name       string
		value, max int32
		to         func(int32)
		fits       bool
	}{
		{"port", x.Port, 65535, func(n int32) { f.Port = uint16(n) }, f.Protocol.HasPorts()},
		{"sourcePort", x.SourcePort, 65535, func(n int32) { f.SourcePort = uint16(n) }, f.Protocol.HasPorts()},
		{"icmpType", x.ICMPType, 255, func(n int32) { f.ICMPType = uint8(n) }, f.Protocol == policy.ICMP || f.Protocol == policy.IGMP},
		{"icmpCode", x.ICMPCode, 255, func(n int32) { f.ICMPCode = uint8(n) }, f.Protocol == policy.ICMP},
	} {
		if n.value < 0 || n.value > n.max {
			return f, fmt.Errorf("flow.%s: %d: want 0 to %d", n.name, n.value, n.max)
		}
		if n.value != 0 && !n.fits {
			return f, fmt.Errorf("flow.%s: %v has none", n.name, f.Protocol)
		}
		n.to(n.value)
	}
	if f.Protocol.HasPorts() && f.Port == 0 {
		return f, fmt.Errorf("flow.port: missing; %v has ports, from 1 to 65535", f.Protocol)
	}
	f.ToName = x.ToName
	return f, nil
}

// endpoint reads one end; what it names is in s.
func endpoint(s policy.Snapshot, path string, in controlplanev1beta2.Entity) (e policy.Endpoint, err error) {
	var ids []string
	if p := in.Pod; p != nil {
		ids = append(ids, policy.WorkloadID(policy.KindPod, p.Namespace, p.Name))
	}
	if x := in.ExternalEntity; x != nil {
		ids = append(ids, policy.WorkloadID(policy.KindExternal, x.Namespace, x.Name))
	}
	if n := in.Node; n != nil {
		ids = append(ids, policy.WorkloadID(policy.KindNode, "", n.Name))
	}
	if len(ids) > 1 || len(ids) == 0 && in.IP == nil {
		return e, fmt.Errorf("%s: set one of pod, externalEntity and node, or ip", path)
	}
	if len(ids) == 1 {
		if e.Workload = ids[0]; !has(s, e.Workload) {
			return e, fmt.Errorf("%s: %s: %w", path, e.Workload, ErrNotFound)
		}
	}
	if in.IP != nil {
		if e.Addr, err = netip.ParseAddr(*in.IP); err != nil || e.Addr.Zone() != "" {
			return e, fmt.Errorf("%s.ip: %q is no address", path, *in.IP)
		}
		e.Addr = e.Addr.Unmap()
	}
	return e, nil
}

func has(s policy.Snapshot, workload string) bool {
	_, ok := s.Workloads.Get(workload)
	return ok
}

// whateverTraffic returns s as it looks to who does not ask what f is: each rule
// matches all traffic. It has only the policies that apply to an end of f.
func whateverTraffic(s policy.Snapshot, f policy.Flow) (policy.Snapshot, error) {
	from, to, err := s.Ends(f)
	if err != nil {
		return s, err
	}
	out := s
	out.Policies = policy.Table[*policy.Policy]{}
	for id, p := range s.Policies.All() {
		if appliesTo(s, p, from.Subject) || appliesTo(s, p, to.Subject) {
			q := *p
			q.Ingress, q.Egress = ofAllTraffic(p.Ingress), ofAllTraffic(p.Egress)
			out.Policies = out.Policies.Put(id, &q)
		}
	}
	return out, nil
}

func ofAllTraffic(rules []policy.Rule) []policy.Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		if len(rules[i].Traffic) > 0 { // a rule without any matches nothing
			rules[i].Traffic = policy.AllTraffic
		}
		rules[i].L7 = nil
	}
	return rules
}

// appliesTo says whether p, or any rule of it, applies to w.
func appliesTo(s policy.Snapshot, p *policy.Policy, w *policy.Workload) bool {
	if w == nil {
		return false
	}
	ns := s.NamespaceOf(w)
	picks := func(set policy.Set) bool {
		return slices.ContainsFunc(s.Subjects(set, p.Namespace), func(sel policy.Selection) bool { return sel.Picks(w, ns) })
	}
	ofRule := func(r policy.Rule) bool { return r.AppliedTo != nil && picks(*r.AppliedTo) }
	return picks(p.AppliedTo) || slices.ContainsFunc(p.Ingress, ofRule) || slices.ContainsFunc(p.Egress, ofRule)
}
