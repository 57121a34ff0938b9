// Package v1alpha1 holds the cloud inventory of runtime.cloud.antrea.io/v1alpha1:
// VMs, VPCs, security groups, how far policies are enforced on VMs, and what agents on VMs
// say of themselves.
//
// These kinds are served by an aggregated API server and kept in memory; there is
// no CRD. The resource names are singular, but for that of the agents: see the Resource constants.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1alpha1
