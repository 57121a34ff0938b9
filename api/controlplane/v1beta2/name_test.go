package v1beta2_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/api/controlplane/v1beta2"
)

// The names are those that upstream's own function gives.
func TestGroupName(t *testing.T) {
	all := &metav1.LabelSelector{}
	label := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	for _, tt := range []struct {
		in         v1beta2.GroupSelector
		text, name string
	}{
		{v1beta2.GroupSelector{Namespace: "ns1", PodSelector: label("a", "b")},
			"namespace=ns1 And podSelector=a=b", "be7d41cc-6e83-5836-9087-8ed1aa7bc2fa"},
		{v1beta2.GroupSelector{Namespace: "ns1", PodSelector: all},
			"namespace=ns1 And podSelector=", "55a46915-4c86-52f5-be2a-a86451399111"},
		{v1beta2.GroupSelector{Namespace: "aws-ns", ExternalEntitySelector: label("nephe.antrea.io/kind", "virtualmachine")},
			"eeSelector=nephe.antrea.io/kind=virtualmachine And namespace=aws-ns", "24de9c16-099b-5391-9189-60ebea28b4d8"},
		{v1beta2.GroupSelector{Namespace: "unused", NamespaceSelector: label("z", "1"), PodSelector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"c": "d"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "b", Operator: "NotIn", Values: []string{"y", "x"}}, {Key: "a", Operator: "DoesNotExist"}},
		}}, "namespaceSelector=z=1 And podSelector=!a,b notin (x,y),c=d", ""},
		{v1beta2.GroupSelector{NodeSelector: all}, "nodeSelector=", ""},
	} {
		text, err := tt.in.Normalize()
		if err != nil || text != tt.text {
			t.Errorf("Normalize(%+v) = %q, %v; want %q", tt.in, text, err, tt.text)
		}
		if name := v1beta2.GroupName(text); tt.name != "" && name != tt.name {
			t.Errorf("GroupName(%q) = %s, want %s", text, name, tt.name)
		}
	}
	bad := v1beta2.GroupSelector{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	if text, err := bad.Normalize(); err == nil {
		t.Errorf("a selector that cannot be read is %q", text)
	}
}
