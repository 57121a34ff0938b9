package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/controlplane"
	"isobar.dev/policy"
)

// What an agent says of a policy is in its status, until it does not enforce it any more.
func TestStatusOfAPolicyOnNodes(t *testing.T) {
	e := newEnv(t)
	e.o.Reports = controlplane.NewReports(nil)
	e.start()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "a", Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{NodeName: "n1-" + e.ns, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	drop := antreav1beta1.RuleActionDrop
	p := &antreav1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "p"}, Spec: antreav1beta1.NetworkPolicySpec{
		Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}},
		Ingress: []antreav1beta1.Rule{{Action: &drop}}}}
	e.create(pod, p)
	is := func(phase antreav1beta1.PolicyPhase, current, desired int32, failure string) func() string {
		return func() string {
			have, err := get[antreav1beta1.NetworkPolicy](e, "p")
			if err != nil {
				return err.Error()
			}
			s, message := have.Status, ""
			for _, c := range s.Conditions {
				if c.Type == antreav1beta1.ConditionRealizationFailure {
					message = c.Message
				}
			}
			if s.Phase != phase || s.CurrentNodesRealized != current || s.DesiredNodesRealized != desired || message != failure {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		}
	}
	e.eventually("nobody has said anything", is(antreav1beta1.PolicyRealizing, 0, 1, ""))
	id, node := policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, "p"), "n1-"+e.ns
	e.o.Reports.Put(id, node, controlplane.NodeStatus{Generation: 1, Failure: "no room"})
	e.eventually("the agent fails", is(antreav1beta1.PolicyFailed, 0, 1, node+": no room"))
	e.o.Reports.Put(id, node, controlplane.NodeStatus{Generation: 1})
	e.eventually("the agent has it", is(antreav1beta1.PolicyRealized, 1, 1, ""))
	rules := p.Spec.Egress
	protocol, port := corev1.ProtocolTCP, intstr.FromString("web")
	update[antreav1beta1.NetworkPolicy](e, "p", func(p *antreav1beta1.NetworkPolicy) {
		p.Spec.Egress = []antreav1beta1.Rule{{Action: &drop, To: []antreav1beta1.NetworkPolicyPeer{{IPBlock: &antreav1beta1.IPBlock{CIDR: "10.0.0.0/8"}}},
			Ports: []antreav1beta1.NetworkPolicyPort{{Protocol: &protocol, Port: &port}}}}
	})
	e.o.Reports.Put(id, node, controlplane.NodeStatus{Generation: 2})
	e.eventually("the agent has something stricter", is(antreav1beta1.PolicyFailed, 1, 1, ""))
	update[antreav1beta1.NetworkPolicy](e, "p", func(p *antreav1beta1.NetworkPolicy) { p.Spec.Egress = rules })
	e.o.Reports.Put(id, node, controlplane.NodeStatus{Generation: 3})
	e.eventually("the agent has all of it", is(antreav1beta1.PolicyRealized, 1, 1, ""))
	update[corev1.Pod](e, "a", func(p *corev1.Pod) { p.Labels["app"] = "b" })
	e.eventually("it applies nowhere", is(antreav1beta1.PolicyRealized, 0, 0, ""))
	if ids := e.o.Reports.On(node); len(ids) > 0 {
		t.Errorf("the node is still remembered for %q", ids)
	}
}
