// Package apiserver serves the cloud inventory as the aggregated API
// runtime.cloud.antrea.io/v1alpha1: VMs, VPCs, security groups and how far policies
// are enforced on VMs, read and watched with kubectl like any other kind, from memory.
//
// Each [Group] that it is given is served besides, by the same server: with the same
// users and rights, and bounds on what agents may send.
//
// What there is comes from an [Inventory], which the loops of the controller
// have; here is what makes an API of it: versions, selectors, watches, tables, a
// schema for kubectl explain, and the users and rights of the API server in
// front. The one thing that users may write are a VM's tags, and those the
// Inventory keeps.
package apiserver

// The definitions are those of our kinds alone; see openapi.go for the rest.

//go:generate go tool -modfile=../../tools/go.mod openapi-gen --go-header-file=/dev/null --report-filename=/dev/null --output-pkg=isobar.dev/control/apiserver --output-dir=. --output-file=zz_generated.openapi.go isobar.dev/api/runtime/v1alpha1 isobar.dev/api/isobar/v1alpha1
