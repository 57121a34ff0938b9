package convert_test

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"isobar.dev/api/convert"
	"isobar.dev/policy/policytest"
)

// A selector is read if and only if labels can have its keys and values: with others NotIn and
// DoesNotExist would be met by everything.
func TestSelectorsOfLabelsThatCannotBe(t *testing.T) {
	rnd := policytest.Rand(1)
	text := func() string {
		parts := []string{"a", "Z", "0", "-", "_", ".", "/", " ", "é", "x.y", strings.Repeat("n", 60), strings.Repeat("d.", 120)}
		var b strings.Builder
		for range rnd.IntN(6) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		return b.String()
	}
	read := 0
	for range 20_000 {
		key, value := text(), text()
		want := len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
		for _, sel := range []metav1.LabelSelector{
			{MatchLabels: map[string]string{key: value}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}}},
		} {
			_, problems := convert.NetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: sel}})
			if got := len(problems) == 0; got != want {
				t.Fatalf("%q: %q: read %t, want %t", key, value, got, want)
			}
		}
		if want {
			read++
		}
	}
	if read < 500 {
		t.Errorf("%d of 20,000 can be labels", read)
	}
}
