// Package v1alpha2 holds isobar.dev/v1alpha2: the AgentIdentity, which says by what a
// machine's agent is known.
//
// Unlike isobar.dev/v1alpha1, which an aggregated API server answers from memory, it is kept: a CRD.
//
// +kubebuilder:object:generate=true
// +groupName=isobar.dev
package v1alpha2
