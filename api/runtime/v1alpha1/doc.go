// Package v1alpha1 holds the cloud inventory of runtime.cloud.antrea.io/v1alpha1:
// VMs, VPCs, security groups and how far policies are enforced on VMs.
//
// These kinds are served by an aggregated API server and kept in memory; there is
// no CRD. The resource names are singular: see the Resource constants.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1alpha1
