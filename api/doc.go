// Package api is the room of what users and machines write down: the kinds of
// every API that Isobar reads, one package per group and version.
//
// The CRDs, the deep copies and the protobuf codecs are generated from the types.
package api

// The float64 of a policy's priority is upstream's; hence allowDangerousTypes.

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./antrea/...;./cloud/...;./console/...;./controlplane/...;./isobar/...;./netpol/...;./nimbess/...;./runtime/...;./stats/...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd:allowDangerousTypes=true,generateEmbeddedObjectMeta=false paths=./antrea/...;./cloud/...;./isobar/v1alpha2/...;./netpol/...;./nimbess/... output:crd:dir=../deploy/crd
//go:generate go -C ../tools run ./protogen ../api/controlplane/v1beta2 ../api/stats/v1alpha1
