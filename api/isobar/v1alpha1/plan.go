package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MaxPlanObjects bounds the objects of one Plan.
const MaxPlanObjects = 1000

// Plan asks what writes of objects would do in the clouds, without making them.
// It can only be created, and is answered at once: nothing is kept of it, and
// nothing is written anywhere.
//
// +kubebuilder:object:root=true
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata means nothing here.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec PlanSpec `json:"spec"`
	// Status is the answer.
	// +optional
	Status PlanStatus `json:"status,omitempty"`
}

// PlanSpec is the writes that a Plan is about: at most 1000 objects.
type PlanSpec struct {
	// Manifests are objects as they would be, whole: policies of every kind,
	// Groups, ClusterGroups, Tiers, Namespaces, Pods, Nodes, Services and
	// ExternalEntities. A Pod without a status keeps its address and gets the labels.
	// +optional
	// +listType=atomic
	Manifests []runtime.RawExtension `json:"manifests,omitempty"`
	// Delete names objects that would be deleted, after Manifests are written.
	// +optional
	// +listType=atomic
	Delete []PlanObject `json:"delete,omitempty"`
}

// PlanObject names an object.
type PlanObject struct {
	// APIVersion of the object, such as crd.antrea.io/v1beta1.
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace of the object, if it belongs to one.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
}

// PlanStatus is what the writes would do.
type PlanStatus struct {
	// Problems are what could not be taken of the objects as it is written.
	// +optional
	// +listType=atomic
	Problems []PlanProblem `json:"problems,omitempty"`
	// Targets are the places that would have something else to enforce, by name.
	// +optional
	// +listType=atomic
	Targets []TargetPlan `json:"targets,omitempty"`
	// Totals are sums over all targets.
	Totals PlanTotals `json:"totals"`
}

// PlanProblem is a part of an object that could not be taken as it is written.
type PlanProblem struct {
	// Index of the object: in manifests, or, counted on from their end, in delete.
	Index int32 `json:"index"`
	// Field is a JSON path in the object, such as spec.ingress[0].from[0].
	// +optional
	Field string `json:"field,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Warning is true when the object is right, but the part does not do here what
	// its author may expect.
	// +optional
	Warning bool `json:"warning,omitempty"`
}

// TargetPlan is what the writes would do at one target.
type TargetPlan struct {
	// Name of the target: provider/namespace/account/region/network.
	Name string `json:"name"`
	// Error is why nothing else is known of the target.
	// +optional
	Error string `json:"error,omitempty"`
	// Pending is true when the target is not yet as it should be without the writes:
	// what it lacks is among the changes too.
	// +optional
	Pending bool `json:"pending,omitempty"`
	// Changes are the writes in the cloud.
	// +optional
	// +listType=atomic
	Changes []PlanChange `json:"changes,omitempty"`
	// Refusals are what the target would not enforce exactly.
	// +optional
	// +listType=atomic
	Refusals []PlanRefusal `json:"refusals,omitempty"`
	// Usage is what the target would use of its quotas.
	// +optional
	// +listType=atomic
	Usage []PlanUsage `json:"usage,omitempty"`
}

// PlanChange is one object of a target that would change.
type PlanChange struct {
	// Key of the object, in the target's own words.
	Key string `json:"key"`
	// Op is create, update or delete.
	Op string `json:"op"`
	// Text says what changes.
	// +optional
	Text string `json:"text,omitempty"`
}

// PlanRefusal is what a target would not enforce exactly. An Allow that is refused
// is left out; a Drop that is refused keeps its whole match closed.
type PlanRefusal struct {
	// Policy that the refusal is about; empty when it is about all that apply.
	// +optional
	Policy string `json:"policy,omitempty"`
	// Rule of the policy; empty when the refusal is about all of it.
	// +optional
	Rule string `json:"rule,omitempty"`
	// Workloads that the rule would apply to.
	// +optional
	// +listType=atomic
	Workloads []string `json:"workloads,omitempty"`
	// Reason is a word for machines, such as QuotaExceeded.
	Reason string `json:"reason"`
	// Message says what, and what would fit.
	// +optional
	Message string `json:"message,omitempty"`
	// Limit of the quota that is exceeded, if one is.
	// +optional
	Limit int32 `json:"limit,omitempty"`
	// Need is what would be needed of the quota.
	// +optional
	Need int32 `json:"need,omitempty"`
	// Costs are the rules that need most of the quota, at most three, costliest first.
	// +optional
	// +listType=atomic
	Costs []PlanCost `json:"costs,omitempty"`
	// Already is true when the target refuses the same now, without the writes.
	// +optional
	Already bool `json:"already,omitempty"`
}

// PlanCost is what one rule needs of a quota when it is written alone.
type PlanCost struct {
	// Rule is the rule's key.
	Rule string `json:"rule"`
	// Policy that the rule is of.
	Policy string `json:"policy"`
	// Need is what the rule needs of the quota.
	Need int32 `json:"need"`
}

// PlanUsage is how much of a quota a target would use.
type PlanUsage struct {
	// Quota in the words of the cloud.
	Quota string `json:"quota"`
	// Of is the fullest of the things that the quota counts for.
	// +optional
	Of string `json:"of,omitempty"`
	// Used after the writes.
	Used int32 `json:"used"`
	// Before is what is used now.
	Before int32 `json:"before"`
	// Limit of the quota.
	Limit int32 `json:"limit"`
}

// PlanTotals are sums over all targets.
type PlanTotals struct {
	// Create counts objects that would be created in the clouds.
	Create int32 `json:"create"`
	// Update counts objects that would change.
	Update int32 `json:"update"`
	// Delete counts objects that would be deleted.
	Delete int32 `json:"delete"`
	// Refused counts refusals that are not there already.
	Refused int32 `json:"refused"`
	// Unknown counts targets with an error.
	Unknown int32 `json:"unknown"`
}
