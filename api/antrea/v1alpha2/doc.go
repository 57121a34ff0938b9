// Package v1alpha2 holds the ExternalEntity of crd.antrea.io/v1alpha2: a workload
// outside the cluster.
//
// +kubebuilder:object:generate=true
// +groupName=crd.antrea.io
package v1alpha2
