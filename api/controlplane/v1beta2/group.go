package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GroupMember is a workload in a group: one of the references is set.
type GroupMember struct {
	Pod            *PodReference            `json:"pod,omitempty" protobuf:"bytes,1,opt,name=pod"`
	ExternalEntity *ExternalEntityReference `json:"externalEntity,omitempty" protobuf:"bytes,2,opt,name=externalEntity"`
	// IPs are its addresses, IPv4 in 16 bytes; a member of an AppliedToGroup has none.
	// +listType=atomic
	IPs []IPAddress `json:"ips,omitempty" protobuf:"bytes,3,rep,name=ips"`
	// +listType=atomic
	Ports   []NamedPort       `json:"ports,omitempty" protobuf:"bytes,4,rep,name=ports"`
	Node    *NodeReference    `json:"node,omitempty" protobuf:"bytes,5,opt,name=node"`
	Service *ServiceReference `json:"service,omitempty" protobuf:"bytes,6,opt,name=service"`
}

// NamedPort is a port that a workload declares.
type NamedPort struct {
	Port     int32    `json:"port,omitempty" protobuf:"varint,1,opt,name=port"`
	Name     string   `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
	Protocol Protocol `json:"protocol,omitempty" protobuf:"bytes,3,opt,name=protocol"`
}

// PodReference names a Pod.
type PodReference struct {
	Name      string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,2,opt,name=namespace"`
}

// ExternalEntityReference names an ExternalEntity.
type ExternalEntityReference struct {
	Name      string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,2,opt,name=namespace"`
}

// NodeReference names a Node.
type NodeReference struct {
	Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	Name      string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,2,opt,name=namespace"`
}

// AddressGroup is who rules have as peers.
//
// +kubebuilder:object:root=true
type AddressGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	GroupMembers []GroupMember `json:"groupMembers,omitempty" protobuf:"bytes,2,rep,name=groupMembers"`
}

// AddressGroupList is a list of AddressGroup.
//
// +kubebuilder:object:root=true
type AddressGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []AddressGroup `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// AddressGroupPatch is what has changed in an AddressGroup, in a watch: a member that
// is different is removed as it was and added as it is.
//
// +kubebuilder:object:root=true
type AddressGroupPatch struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	AddedGroupMembers []GroupMember `json:"addedGroupMembers,omitempty" protobuf:"bytes,2,rep,name=addedGroupMembers"`
	// +listType=atomic
	RemovedGroupMembers []GroupMember `json:"removedGroupMembers,omitempty" protobuf:"bytes,3,rep,name=removedGroupMembers"`
}

// AppliedToGroup is whom rules apply to. In a watch filtered by a Node it has the
// members on that Node alone.
//
// +kubebuilder:object:root=true
type AppliedToGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	GroupMembers []GroupMember `json:"groupMembers,omitempty" protobuf:"bytes,2,rep,name=groupMembers"`
}

// AppliedToGroupList is a list of AppliedToGroup.
//
// +kubebuilder:object:root=true
type AppliedToGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []AppliedToGroup `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// AppliedToGroupPatch is what has changed in an AppliedToGroup, as in AddressGroupPatch.
//
// +kubebuilder:object:root=true
type AppliedToGroupPatch struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	AddedGroupMembers []GroupMember `json:"addedGroupMembers,omitempty" protobuf:"bytes,2,rep,name=addedGroupMembers"`
	// +listType=atomic
	RemovedGroupMembers []GroupMember `json:"removedGroupMembers,omitempty" protobuf:"bytes,3,rep,name=removedGroupMembers"`
}

// EgressGroup is whom an Egress applies to; its name and UID are the Egress's.
//
// +kubebuilder:object:root=true
type EgressGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	GroupMembers []GroupMember `json:"groupMembers,omitempty" protobuf:"bytes,2,rep,name=groupMembers"`
}

// EgressGroupList is a list of EgressGroup.
//
// +kubebuilder:object:root=true
type EgressGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []EgressGroup `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// EgressGroupPatch is what has changed in an EgressGroup, as in AddressGroupPatch.
//
// Upstream gave it no JSON tags: its metadata are not below "metadata", and its
// lists have the names of Go. Whoever reads or writes it in JSON needs just that, of
// which no schema can be generated.
//
// +k8s:openapi-gen=false
// +kubebuilder:object:root=true
type EgressGroupPatch struct {
	metav1.TypeMeta
	metav1.ObjectMeta `protobuf:"bytes,1,opt,name=objectMeta"`
	// +listType=atomic
	AddedGroupMembers []GroupMember `protobuf:"bytes,2,rep,name=addedGroupMembers"`
	// +listType=atomic
	RemovedGroupMembers []GroupMember `protobuf:"bytes,3,rep,name=removedGroupMembers"`
}
