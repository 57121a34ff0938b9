// Package controlplane serves controlplane.antrea.io/v1beta2 and
// stats.antrea.io/v1alpha1: to agents what they enforce, of agents how far they
// have come, and to people who is in a group and which rule decides.
//
// It is a [Service], whose groups an apiserver.Server serves. What a Node sees is
// that Node's: a request that names one must come from it, or from a user with the
// right to do the same to nodes of the group controlplane.antrea.io
// (docs/decisions/0023-who-may-ask-for-a-node.md).
package controlplane

// The definitions are those of our kinds alone; see isobar.dev/control/apiserver.

//go:generate go tool -modfile=../../tools/go.mod openapi-gen --go-header-file=/dev/null --report-filename=/dev/null --output-pkg=isobar.dev/control/controlplane --output-dir=. --output-file=zz_generated.openapi.go isobar.dev/api/controlplane/v1beta2 isobar.dev/api/stats/v1alpha1 k8s.io/apimachinery/pkg/util/intstr
