package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "stats.antrea.io", Version: "v1alpha1"}

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NetworkPolicyStats{}, &NetworkPolicyStatsList{},
		&AntreaNetworkPolicyStats{}, &AntreaNetworkPolicyStatsList{},
		&AntreaClusterNetworkPolicyStats{}, &AntreaClusterNetworkPolicyStatsList{},
		&MulticastGroup{}, &MulticastGroupList{},
		&NodeLatencyStats{}, &NodeLatencyStatsList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
