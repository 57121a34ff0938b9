package v1beta2

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	types "k8s.io/apimachinery/pkg/types"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// NetworkPolicyEvaluation asks which rule decides between two ends. It can only be
// created, and is answered at once.
//
// Fields with numbers from 1001 on are ours; upstream's clients neither send nor
// read them. Without them a question is upstream's: two Pods, whatever they say to
// each other.
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
	// Flow is what the source sends. Without it the answer is the first rule that
	// names both ends, of whatever traffic: not what happens to any.
	Flow *EvaluationFlow `json:"flow,omitempty" protobuf:"bytes,1001,opt,name=flow"`
}

// Entity is an end: one of the references is set, or IP alone. IP beside a
// reference says which of its addresses is meant.
type Entity struct {
	Pod            *PodReference            `json:"pod,omitempty" protobuf:"bytes,1,opt,name=pod"`
	ExternalEntity *ExternalEntityReference `json:"externalEntity,omitempty" protobuf:"bytes,1001,opt,name=externalEntity"`
	Node           *NodeReference           `json:"node,omitempty" protobuf:"bytes,1002,opt,name=node"`
	// IP is an address in text, such as 10.0.0.1.
	IP *string `json:"ip,omitempty" protobuf:"bytes,1003,opt,name=ip"`
}

// EvaluationFlow is one connection, or one packet of a protocol without connections.
type EvaluationFlow struct {
	// Protocol is TCP, UDP, SCTP, ICMP or IGMP.
	Protocol Protocol `json:"protocol" protobuf:"bytes,1,opt,name=protocol"`
	// Port is the destination's, of TCP, UDP and SCTP.
	Port int32 `json:"port,omitempty" protobuf:"varint,2,opt,name=port"`
	// SourcePort: 0 is any, and the answer the strictest.
	SourcePort int32 `json:"sourcePort,omitempty" protobuf:"varint,3,opt,name=sourcePort"`
	// ICMPType is that of IGMP too.
	ICMPType int32 `json:"icmpType,omitempty" protobuf:"varint,4,opt,name=icmpType"`
	ICMPCode int32 `json:"icmpCode,omitempty" protobuf:"varint,5,opt,name=icmpCode"`
	// ToName is the DNS name by which the source has found the destination.
	ToName string `json:"toName,omitempty" protobuf:"bytes,6,opt,name=toName"`
}

// NetworkPolicyEvaluationResponse is the rule that decides: that of the end which
// denies, the source before the destination. When none does, all of it but Answer is
// empty.
type NetworkPolicyEvaluationResponse struct {
	NetworkPolicy NetworkPolicyReference `json:"networkPolicy,omitempty" protobuf:"bytes,1,opt,name=networkPolicy"`
	// RuleIndex is the rule's place among those of its direction; 2147483647, and no action, where
	// a Kubernetes NetworkPolicy isolates.
	RuleIndex int32   `json:"ruleIndex,omitempty" protobuf:"varint,2,opt,name=ruleIndex"`
	Rule      RuleRef `json:"rule,omitempty" protobuf:"bytes,3,opt,name=rule"`
	// Answer is what happens to the request's flow; nil when it has none.
	Answer *EvaluationAnswer `json:"answer,omitempty" protobuf:"bytes,1001,opt,name=answer"`
}

// EvaluationAnswer is what happens to a flow: it passes when both ends allow it.
type EvaluationAnswer struct {
	Verdict antreav1beta1.RuleAction `json:"verdict" protobuf:"bytes,1,opt,name=verdict"` // Allow, Drop or Reject
	Ingress EvaluationDecision       `json:"ingress" protobuf:"bytes,2,opt,name=ingress"`
	Egress  EvaluationDecision       `json:"egress" protobuf:"bytes,3,opt,name=egress"`
	// Needs are what the flow does not tell and another, less strict, answer may
	// depend on: dns, payload, source port, service endpoint.
	// +listType=atomic
	Needs []string `json:"needs,omitempty" protobuf:"bytes,4,rep,name=needs"`
}

// EvaluationDecision is the verdict at one end.
type EvaluationDecision struct {
	Verdict antreav1beta1.RuleAction `json:"verdict" protobuf:"bytes,1,opt,name=verdict"` // Allow, Drop or Reject
	// Reason is rule, isolation, vm isolation, default, not enforced or to itself.
	Reason string `json:"reason" protobuf:"bytes,2,opt,name=reason"`
	// NetworkPolicy is set where the reason is rule or isolation.
	NetworkPolicy *NetworkPolicyReference `json:"networkPolicy,omitempty" protobuf:"bytes,3,opt,name=networkPolicy"`
	// RuleIndex is set where the reason is rule.
	RuleIndex *int32 `json:"ruleIndex,omitempty" protobuf:"varint,4,opt,name=ruleIndex"`
	RuleName  string `json:"ruleName,omitempty" protobuf:"bytes,5,opt,name=ruleName"`
	// Ties are other policies that say otherwise at the same place in the order.
	// +listType=atomic
	Ties []NetworkPolicyReference `json:"ties,omitempty" protobuf:"bytes,6,rep,name=ties"`
}

// IsolationIndex is the RuleIndex where a Kubernetes NetworkPolicy isolates and none allows: no
// rule of it decides, and the RuleRef has no action. antctl calls that Isolate.
const IsolationIndex = math.MaxInt32

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
	// Page counts from 1; 0 means all members. One after the last is empty.
	Page int64 `json:"page" protobuf:"varint,1,opt,name=page"`
	// Limit is how many members a page has; 0 means all.
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
