package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrafficStats counts what a policy or a rule has matched.
type TrafficStats struct {
	Packets  int64 `json:"packets,omitempty" protobuf:"varint,1,opt,name=packets"`
	Bytes    int64 `json:"bytes,omitempty" protobuf:"varint,2,opt,name=bytes"`
	Sessions int64 `json:"sessions,omitempty" protobuf:"varint,3,opt,name=sessions"`
}

// RuleTrafficStats counts what the rule of that name has matched.
type RuleTrafficStats struct {
	Name         string       `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	TrafficStats TrafficStats `json:"trafficStats,omitempty" protobuf:"bytes,2,opt,name=trafficStats"`
}

// NetworkPolicyStats counts what a Kubernetes NetworkPolicy has matched; its rules
// have no names, so there are no numbers for each.
//
// +kubebuilder:object:root=true
type NetworkPolicyStats struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	TrafficStats TrafficStats `json:"trafficStats,omitempty" protobuf:"bytes,2,opt,name=trafficStats"`
}

// NetworkPolicyStatsList is a list of NetworkPolicyStats.
//
// +kubebuilder:object:root=true
type NetworkPolicyStatsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []NetworkPolicyStats `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// AntreaNetworkPolicyStats counts what a NetworkPolicy of crd.antrea.io has matched.
//
// +kubebuilder:object:root=true
type AntreaNetworkPolicyStats struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	TrafficStats TrafficStats `json:"trafficStats,omitempty" protobuf:"bytes,2,opt,name=trafficStats"`
	// +listType=atomic
	RuleTrafficStats []RuleTrafficStats `json:"ruleTrafficStats,omitempty" protobuf:"bytes,3,rep,name=ruleTrafficStats"`
}

// AntreaNetworkPolicyStatsList is a list of AntreaNetworkPolicyStats.
//
// +kubebuilder:object:root=true
type AntreaNetworkPolicyStatsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []AntreaNetworkPolicyStats `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// AntreaClusterNetworkPolicyStats counts what a ClusterNetworkPolicy of
// crd.antrea.io has matched.
//
// +kubebuilder:object:root=true
type AntreaClusterNetworkPolicyStats struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	TrafficStats TrafficStats `json:"trafficStats,omitempty" protobuf:"bytes,2,opt,name=trafficStats"`
	// +listType=atomic
	RuleTrafficStats []RuleTrafficStats `json:"ruleTrafficStats,omitempty" protobuf:"bytes,3,rep,name=ruleTrafficStats"`
}

// AntreaClusterNetworkPolicyStatsList is a list of AntreaClusterNetworkPolicyStats.
//
// +kubebuilder:object:root=true
type AntreaClusterNetworkPolicyStatsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []AntreaClusterNetworkPolicyStats `json:"items" protobuf:"bytes,2,rep,name=items"`
}
