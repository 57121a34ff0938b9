// Package nodes stands in for the agents of thousands of Nodes: each holds three
// watches of controlplane.antrea.io over a TLS connection of its own, as an
// agent does, and they measure what the server makes of it.
//
// An agent here reads everything and enforces nothing. Of what it is told it keeps
// a sum for each object, 24 bytes beside the name that all agents share, so that
// thousands fit into one process; a group's is the sum of its members', so a Patch
// costs what it changes. The sums are compared with those of a fresh watch, so an
// event that was lost, doubled or wrong shows in the end. What agents of ours
// make of the events is not looked at here: the wire is read with Kubernetes' own types,
// independently of them.
//
// The server is any: ours or upstream's, its own address or an API server in
// front of it.
package nodes
