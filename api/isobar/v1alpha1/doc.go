// Package v1alpha1 holds isobar.dev/v1alpha1: what only a running Isobar can answer.
//
// These kinds are served by an aggregated API server and kept nowhere; there is no
// CRD.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1alpha1
