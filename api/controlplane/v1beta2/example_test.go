package v1beta2_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/api/controlplane/v1beta2"
)

func ExampleGroupSelector() {
	s := v1beta2.GroupSelector{Namespace: "ns1", PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	text, err := s.Normalize()
	fmt.Println(text, err)
	fmt.Println(v1beta2.GroupName(text))
	// Output:
	// namespace=ns1 And podSelector=a=b <nil>
	// be7d41cc-6e83-5836-9087-8ed1aa7bc2fa
}
