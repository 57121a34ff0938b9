// Package v1beta2 holds controlplane.antrea.io/v1beta2: policies as a controller has
// computed them, for those who enforce them, and what these report.
//
// The kinds are served by an aggregated API server and kept nowhere; there is no
// CRD. They are spoken in JSON and, by agents, in protobuf: controlplane.proto is the
// contract, from which the numbers in the tags of the types are taken, and protogen
// writes the codec from the tags (docs/decisions/0016-protobuf.md).
//
// An enforcer watches three resources, each filtered by the name of its Node:
// NetworkPolicies, AppliedToGroups and AddressGroups. A watch begins with what there
// is, whole, as ADDED, then one BOOKMARK, then what changes: a NetworkPolicy whole, a
// group as its Patch kind. Names of groups are those of [GroupSelector]; an enforcer
// takes them as they come. There is no order between the three, so it waits with a
// rule until it has the groups that the rule names.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
package v1beta2
