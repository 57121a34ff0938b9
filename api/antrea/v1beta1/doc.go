// Package v1beta1 holds the policies, tiers and groups of crd.antrea.io/v1beta1, and
// what a controller tells of itself.
//
// The JSON is the contract of that API, so that manifests written for it need
// no change. The same type serves the namespaced and the cluster wide policy, as
// does the schema; which fields make sense where is for package validate.
//
// +kubebuilder:object:generate=true
// +groupName=crd.antrea.io
package v1beta1
