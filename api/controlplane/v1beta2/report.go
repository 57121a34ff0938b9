package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
)

// NetworkPolicyStatus is how far Nodes have realized a NetworkPolicy, whose name and
// UID it has. It can only be created.
//
// +kubebuilder:object:root=true
type NetworkPolicyStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	Nodes []NetworkPolicyNodeStatus `json:"nodes,omitempty" protobuf:"bytes,2,rep,name=nodes"`
}

// NetworkPolicyNodeStatus is what one Node has realized.
type NetworkPolicyNodeStatus struct {
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,1,opt,name=nodeName"`
	// Generation is that of the NetworkPolicy that the Node has realized.
	Generation         int64  `json:"generation,omitempty" protobuf:"varint,2,opt,name=generation"`
	RealizationFailure bool   `json:"realizationFailure" protobuf:"varint,3,opt,name=realizationFailure"`
	Message            string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`
}

// NodeStatsSummary is what the policies of a Node, whose name it has, have matched
// since the last one. It can only be created.
//
// +kubebuilder:object:root=true
type NodeStatsSummary struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	NetworkPolicies []NetworkPolicyStats `json:"networkPolicies,omitempty" protobuf:"bytes,2,rep,name=networkPolicies"`
	// +listType=atomic
	AntreaClusterNetworkPolicies []NetworkPolicyStats `json:"antreaClusterNetworkPolicies,omitempty" protobuf:"bytes,3,rep,name=antreaClusterNetworkPolicies"`
	// +listType=atomic
	AntreaNetworkPolicies []NetworkPolicyStats `json:"antreaNetworkPolicies,omitempty" protobuf:"bytes,4,rep,name=antreaNetworkPolicies"`
	// Multicast are the groups that Pods of the Node have joined.
	// +listType=atomic
	Multicast []MulticastGroupInfo `json:"multicast,omitempty" protobuf:"bytes,5,rep,name=multicast"`
}

// NetworkPolicyStats counts what one policy and its rules have matched.
type NetworkPolicyStats struct {
	NetworkPolicy NetworkPolicyReference     `json:"networkPolicy,omitempty" protobuf:"bytes,1,opt,name=networkPolicy"`
	TrafficStats  statsv1alpha1.TrafficStats `json:"trafficStats,omitempty" protobuf:"bytes,2,opt,name=trafficStats"`
	// RuleTrafficStats are by the names of rules; a Kubernetes NetworkPolicy has none.
	// +listType=atomic
	RuleTrafficStats []statsv1alpha1.RuleTrafficStats `json:"ruleTrafficStats,omitempty" protobuf:"bytes,3,rep,name=ruleTrafficStats"`
}

// MulticastGroupInfo is who has joined the multicast group of an address.
type MulticastGroupInfo struct {
	Group string `json:"group,omitempty" protobuf:"bytes,1,opt,name=group"`
	// +listType=atomic
	Pods []PodReference `json:"pods,omitempty" protobuf:"bytes,2,rep,name=pods"`
}
