package v1beta2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupSelector is what an AddressGroup or AppliedToGroup has its members by. A
// selector that is nil does not count; one that is empty selects all.
//
// +kubebuilder:object:generate=false
// +k8s:openapi-gen=false
type GroupSelector struct {
	Namespace              string // of the members; does not count where NamespaceSelector is set
	NamespaceSelector      *metav1.LabelSelector
	PodSelector            *metav1.LabelSelector
	ExternalEntitySelector *metav1.LabelSelector
	NodeSelector           *metav1.LabelSelector
}

// Normalize returns the text that stands for s: equal text means equal members. The
// error is about a selector that cannot be read.
func (s GroupSelector) Normalize() (string, error) {
	var parts []string
	if s.Namespace != "" && s.NamespaceSelector == nil {
		parts = append(parts, "namespace="+s.Namespace)
	}
	for _, x := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{
		{"namespaceSelector", s.NamespaceSelector}, {"podSelector", s.PodSelector},
		{"eeSelector", s.ExternalEntitySelector}, {"nodeSelector", s.NodeSelector},
	} {
		if x.selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(x.selector)
		if err != nil {
			return "", fmt.Errorf("%s: %w", x.name, err)
		}
		parts = append(parts, x.name+"="+selector.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, " And "), nil
}

// names is the namespace of the UUIDs that upstream's controller names groups by.
// Enforcers keep what they have under a name when another controller takes over, as
// long as that one gives the same names.
var names = uuid.MustParse("e4f24a48-ca1f-4d5b-819c-ea7632b22115")

// GroupName returns the name, which is the UID too, of the group that text stands
// for: of a selection what Normalize returns, of a Service "namespace/name".
func GroupName(text string) string { return uuid.NewSHA1(names, []byte(text)).String() }
