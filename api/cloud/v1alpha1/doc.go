// Package v1alpha1 holds the accounts and selectors of crd.cloud.antrea.io/v1alpha1:
// which clouds, and which of their VMs, policies are to govern.
//
// +kubebuilder:object:generate=true
// +groupName=crd.cloud.antrea.io
package v1alpha1
