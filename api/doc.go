// Package api is the room of what users and machines write down: the kinds of
// every API that Isobar reads, one package per group and version.
//
// The CRDs and the deep copies are generated from the types.
package api

// The float64 of a policy's priority is upstream's; hence allowDangerousTypes.

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./antrea/...;./cloud/...;./isobar/...;./netpol/...;./nimbess/...;./runtime/...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd:allowDangerousTypes=true,generateEmbeddedObjectMeta=false paths=./antrea/...;./cloud/...;./netpol/...;./nimbess/... output:crd:dir=../deploy/crd
