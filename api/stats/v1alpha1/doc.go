// Package v1alpha1 holds stats.antrea.io/v1alpha1: what the rules of policies have
// matched, who has joined multicast groups, and how far Nodes are from each other.
//
// These kinds are served by an aggregated API server and kept nowhere; there is no
// CRD. See isobar.dev/api/controlplane/v1beta2 for their form on the wire.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1alpha1
