// Package v1alpha1 holds the ExternalNode of crd.antrea.io/v1alpha1: a machine
// outside the cluster that runs an agent.
//
// +kubebuilder:object:generate=true
// +groupName=crd.antrea.io
package v1alpha1
