// Package v1alpha2 holds the ClusterNetworkPolicy of
// policy.networking.k8s.io/v1alpha2: policies of the cluster's administrator
// before and after those of its users.
//
// +kubebuilder:object:generate=true
// +groupName=policy.networking.k8s.io
package v1alpha2
