// Package v1alpha1 holds console.isobar.dev/v1alpha1: what users see in the console.
//
// These kinds are served by an aggregated API server and kept nowhere; there is no
// CRD.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1alpha1
