package v1beta1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tier is a band of policies that are evaluated together, lower number first.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tiers,shortName=tr,scope=Cluster
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="The order of the tier, lower first."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tier struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TierSpec `json:"spec"`
}

// TierList is a list of Tier.
//
// +kubebuilder:object:root=true
type TierList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tier `json:"items"`
}

// TierSpec is the order of a tier.
type TierSpec struct {
	// Priority from 0 to 255, lower first, unique among tiers and immutable.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Priority int32 `json:"priority"`

	// +optional
	Description string `json:"description,omitempty"`
}

// The built-in tiers.
const (
	TierEmergency   = "emergency"
	TierSecurityOps = "securityops"
	TierNetworkOps  = "networkops"
	TierPlatform    = "platform"
	TierApplication = "application" // of policies that name no tier
	TierBaseline    = "baseline"    // after Kubernetes NetworkPolicy
)

// MaxTiers is how many tiers may exist, the built-in ones included.
const MaxTiers = 20

// BuiltinTiers returns the priorities of the tiers that always exist, by name.
func BuiltinTiers() map[string]int32 {
	return map[string]int32{
		TierEmergency:   50,
		TierSecurityOps: 100,
		TierNetworkOps:  150,
		TierPlatform:    200,
		TierApplication: 250,
		TierBaseline:    253,
	}
}

// TierName returns the name of the tier that a policy's spec.tier means: empty is
// "application", and a built-in tier may be written with its legacy capitals.
func TierName(tier string) string {
	switch tier {
	case "":
		return TierApplication
	case "Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline":
		return strings.ToLower(tier)
	}
	return tier
}
