package controller

import (
	"strings"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/controlplane"
	"isobar.dev/policy"
)

// TestStatusOfAgents: a policy may be of Nodes and of clouds.
func TestStatusOfAgents(t *testing.T) {
	p := &policy.Policy{ID: "annp/ns/p", Dialect: policy.AntreaNetworkPolicy, Generation: 3}
	ok, old, bad := controlplane.NodeStatus{Generation: 3}, controlplane.NodeStatus{Generation: 2}, controlplane.NodeStatus{Generation: 3, Failure: strings.Repeat("no ", 200)}
	vpc := targetState{name: "aws/ns/a/r/vpc-1", applies: true, realized: true}
	done := antreav1beta1.NetworkPolicyStatus{Phase: antreav1beta1.PolicyRealized, ObservedGeneration: 3}
	for _, tt := range []struct {
		name    string
		states  []targetState
		settled bool
		have    antreav1beta1.NetworkPolicyStatus
		phase   antreav1beta1.PolicyPhase // "" for nothing to say
		current int32
	}{
		{"all", []targetState{agentState("n1", 3, ok, true), agentState("n2", 3, ok, true)}, true, done, antreav1beta1.PolicyRealized, 2},
		{"one is silent", []targetState{agentState("n1", 3, ok, true), agentState("n2", 3, ok, false)}, true, done, antreav1beta1.PolicyRealizing, 1},
		{"one may not have said it again yet", []targetState{agentState("n1", 3, ok, true), agentState("n2", 3, ok, false)}, false, done, "", 0},
		{"the policy is another one since", []targetState{agentState("n1", 3, ok, true), agentState("n2", 3, ok, false)}, false,
			antreav1beta1.NetworkPolicyStatus{Phase: antreav1beta1.PolicyRealized, ObservedGeneration: 2}, antreav1beta1.PolicyRealizing, 1},
		{"one has what was before", []targetState{agentState("n1", 3, ok, true), agentState("n2", 3, old, true)}, true, done, antreav1beta1.PolicyRealizing, 1},
		{"one fails", []targetState{agentState("n1", 3, ok, true), agentState("ns/vm", 3, bad, true)}, true, done, antreav1beta1.PolicyFailed, 1},
		{"one fails, one is silent", []targetState{agentState("n1", 3, ok, false), agentState("ns/vm", 3, bad, true)}, true, done, antreav1beta1.PolicyRealizing, 0},
		{"a failure of before", []targetState{agentState("n1", 4, bad, true)}, true, done, antreav1beta1.PolicyRealizing, 0},
		{"with a VPC", []targetState{vpc, agentState("n1", 3, ok, true)}, true, done, antreav1beta1.PolicyRealized, 2},
		{"a VPC alone", []targetState{vpc, agentState("n1", 3, ok, false)}, true, done, antreav1beta1.PolicyRealizing, 1},
	} {
		next, says := statusOf(p, tt.have, tt.states, nil, tt.settled)
		if says != (tt.phase != "") {
			t.Errorf("%s: statusOf = %+v, %t", tt.name, next, says)
		}
		if !says {
			continue
		}
		if next.Phase != tt.phase || next.CurrentNodesRealized != tt.current || int(next.DesiredNodesRealized) != len(tt.states) || next.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, want %s with %d of %d", tt.name, next, tt.phase, tt.current, len(tt.states))
		}
		for _, c := range next.Conditions {
			if len(c.Message) > 256 {
				t.Errorf("%s: a message of %d bytes", tt.name, len(c.Message))
			}
			if fails := strings.HasPrefix(tt.name, "one fails"); c.Type == antreav1beta1.ConditionRealizationFailure && (c.Status == "True") != fails {
				t.Errorf("%s: %+v", tt.name, c)
			}
		}
	}
}
