package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Target is one place that enforces, such as a VPC, and how it fares. It can only be
// read. Its name is that of the place with dots for slashes.
//
// +kubebuilder:object:root=true
type Target struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is how it fares.
	// +optional
	Status TargetStatus `json:"status,omitempty"`
}

// TargetList is a list of Targets.
//
// +kubebuilder:object:root=true
type TargetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Target `json:"items"`
}

// TargetState is a word for how a target fares.
type TargetState string

// The states of a target.
const (
	TargetHeld    TargetState = "Held"    // nothing is written there yet, because not all that concerns it has been read
	TargetPending TargetState = "Pending" // it does not enforce yet what it should
	TargetFailed  TargetState = "Failed"  // likewise, and the last try has failed
	TargetSynced  TargetState = "Synced"  // it enforces what it should
)

// TargetStatus is how a target fares, as the replica that answers sees it.
type TargetStatus struct {
	// Target is its name: provider/namespace/account/region/network.
	Target string `json:"target"`
	// State is Held, Pending, Failed or Synced.
	State TargetState `json:"state"`
	// Error is how the last try ended; empty after a success.
	// +optional
	Error string `json:"error,omitempty"`
	// LastSync is when it was found or made to be as it should for the last time.
	// +optional
	LastSync *metav1.Time `json:"lastSync,omitempty"`
	// Objects counts what it has of ours: groups and attachments.
	Objects int32 `json:"objects"`
	// Refusals counts what it does not enforce exactly.
	Refusals int32 `json:"refusals"`
	// Usage is what it uses of its quotas.
	// +optional
	// +listType=atomic
	Usage []TargetUsage `json:"usage,omitempty"`
}

// TargetUsage is how much of a quota a target uses.
type TargetUsage struct {
	// Quota in the words of the cloud.
	Quota string `json:"quota"`
	// Of is the fullest of the things that the quota counts for.
	// +optional
	Of string `json:"of,omitempty"`
	// Used of the quota.
	Used int32 `json:"used"`
	// Limit of the quota.
	Limit int32 `json:"limit"`
}
