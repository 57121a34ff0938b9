package validate_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/validate"
)

func ExampleValidate() {
	allow := antreav1beta1.RuleActionAllow
	p := &antreav1beta1.NetworkPolicy{}
	p.Spec.AppliedTo = []antreav1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
	p.Spec.Ingress = []antreav1beta1.Rule{{
		Action: &allow,
		From:   []antreav1beta1.NetworkPolicyPeer{{IPBlock: &antreav1beta1.IPBlock{CIDR: "10.0.0.0"}}},
	}}
	errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: p}, nil)
	fmt.Println(errs.ToAggregate())
	// Output: spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.0": is not a CIDR such as 10.0.0.0/8 or fd00::/64
}

func ExampleDefault() {
	drop := antreav1beta1.RuleActionDrop
	p := &antreav1beta1.ClusterNetworkPolicy{}
	p.Spec.Ingress = []antreav1beta1.Rule{{Action: &drop}}
	fmt.Println(validate.Default(p), p.Spec.Tier, p.Spec.Ingress[0].Name)
	// Output: true application ingress-drop-742ade5
}
