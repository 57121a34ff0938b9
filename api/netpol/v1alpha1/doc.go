// Package v1alpha1 holds the AdminNetworkPolicy and BaselineAdminNetworkPolicy of
// policy.networking.k8s.io/v1alpha1, which ClusterNetworkPolicy replaced.
//
// +kubebuilder:object:generate=true
// +groupName=policy.networking.k8s.io
package v1alpha1
