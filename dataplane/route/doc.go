// Package route leads packets between the Pods of different Nodes, and out of the
// cluster.
//
// Each Node has a route for each range of Pods of each other one: straight to that
// Node where it is on a network of this one, and else through a VXLAN device.
// Where a range is behind which hardware address is told to the kernel, so that
// nothing is learned and nothing asked by broadcast.
//
// What leaves the cluster has the Node's address: one table of nftables does that,
// with a set of all ranges of Pods. Another has the kernel not follow the tunnel's own
// packets, between the Nodes of a set.
package route
