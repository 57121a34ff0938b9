package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	types "k8s.io/apimachinery/pkg/types"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// NetworkPolicyEvaluation asks which rule decides between two Pods. It can only be
// created, and is answered at once.
//
// +kubebuilder:object:root=true
type NetworkPolicyEvaluation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,3,opt,name=metadata"`
	// Request is the question.
	Request *NetworkPolicyEvaluationRequest `json:"request,omitempty" protobuf:"bytes,1,opt,name=request"`
	// Response is the answer; nil when no rule decides.
	Response *NetworkPolicyEvaluationResponse `json:"response,omitempty" protobuf:"bytes,2,opt,name=response"`
}

// NetworkPolicyEvaluationRequest names both ends.
type NetworkPolicyEvaluationRequest struct {
	Source      Entity `json:"source,omitempty" protobuf:"bytes,1,opt,name=source"`
	Destination Entity `json:"destination,omitempty" protobuf:"bytes,2,opt,name=destination"`
}

// Entity is an end.
type Entity struct {
	Pod *PodReference `json:"pod,omitempty" protobuf:"bytes,1,opt,name=pod"`
}

// NetworkPolicyEvaluationResponse is the rule that decides.
type NetworkPolicyEvaluationResponse struct {
	NetworkPolicy NetworkPolicyReference `json:"networkPolicy,omitempty" protobuf:"bytes,1,opt,name=networkPolicy"`
	RuleIndex     int32                  `json:"ruleIndex,omitempty" protobuf:"varint,2,opt,name=ruleIndex"`
	Rule          RuleRef                `json:"rule,omitempty" protobuf:"bytes,3,opt,name=rule"`
}

// RuleRef tells of a rule.
type RuleRef struct {
	Direction Direction                 `json:"direction,omitempty" protobuf:"bytes,1,opt,name=direction"`
	Name      string                    `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
	Action    *antreav1beta1.RuleAction `json:"action,omitempty" protobuf:"bytes,3,opt,name=action"`
}

// ClusterGroupMembers are those of a ClusterGroup, whose name it has, by pages.
//
// +kubebuilder:object:root=true
type ClusterGroupMembers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	EffectiveMembers []GroupMember `json:"effectiveMembers" protobuf:"bytes,2,rep,name=effectiveMembers"`
	// +listType=atomic
	EffectiveIPBlocks []IPNet `json:"effectiveIPBlocks" protobuf:"bytes,3,rep,name=effectiveIPBlocks"`
	TotalMembers      int64   `json:"totalMembers" protobuf:"varint,4,opt,name=totalMembers"`
	TotalPages        int64   `json:"totalPages" protobuf:"varint,5,opt,name=totalPages"`
	CurrentPage       int64   `json:"currentPage" protobuf:"varint,6,opt,name=currentPage"`
}

// GroupMembers are those of a Group, whose name and namespace it has, by pages.
//
// +kubebuilder:object:root=true
type GroupMembers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	EffectiveMembers []GroupMember `json:"effectiveMembers" protobuf:"bytes,2,rep,name=effectiveMembers"`
	// +listType=atomic
	EffectiveIPBlocks []IPNet `json:"effectiveIPBlocks" protobuf:"bytes,3,rep,name=effectiveIPBlocks"`
	TotalMembers      int64   `json:"totalMembers" protobuf:"varint,4,opt,name=totalMembers"`
	TotalPages        int64   `json:"totalPages" protobuf:"varint,5,opt,name=totalPages"`
	CurrentPage       int64   `json:"currentPage" protobuf:"varint,6,opt,name=currentPage"`
}

// PaginationGetOptions say which page of members is asked for.
//
// +kubebuilder:object:root=true
type PaginationGetOptions struct {
	metav1.TypeMeta `json:",inline"`
	// Page counts from 1; 0 means all members.
	Page int64 `json:"page" protobuf:"varint,1,opt,name=page"`
	// Limit is how many members a page has.
	Limit int64 `json:"limit" protobuf:"varint,2,opt,name=limit"`
}

// GroupAssociation are the groups that have a Pod or ExternalEntity, whose name and
// namespace it has.
//
// +kubebuilder:object:root=true
type GroupAssociation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	AssociatedGroups []GroupReference `json:"associatedGroups" protobuf:"bytes,2,rep,name=associatedGroups"`
}

// IPGroupAssociation are the groups that have an address, which is its name.
//
// +kubebuilder:object:root=true
type IPGroupAssociation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	AssociatedGroups []GroupReference `json:"associatedGroups" protobuf:"bytes,2,rep,name=associatedGroups"`
}

// GroupReference names a Group, or, without a namespace, a ClusterGroup.
type GroupReference struct {
	Namespace string    `json:"namespace,omitempty" protobuf:"bytes,1,opt,name=namespace"`
	Name      string    `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
	UID       types.UID `json:"uid,omitempty" protobuf:"bytes,3,opt,name=uid"`
}
