// Package nft enforces Rulesets in the kernel of one machine, a Node or a VM with
// an agent, by one nftables table of its own.
//
// [Lower] turns a Ruleset into the Objects of that table: chains of rules, sets of
// addresses and ports, verdict maps that lead from an address to the rules of its
// workload, and a counter for each rule of a policy. It knows no kernel. A [Driver]
// reads what the kernel has, and changes what differs, in one transaction. [Judge]
// says what Objects do with a packet.
//
// # The table
//
// Three base chains look at packets that begin a connection: input, forward and
// output. What belongs to a connection that has passed is accepted before any rule
// is asked. Each asks the rules of egress of whose address the source is, and then
// those of ingress of whose address the destination is. There is a chain for each
// list of rules, direction and family: workloads under the same policies share it.
// An Allow returns from it, and a Pass goes to the chain of the tier that it leads to.
//
// Chains of rules, and sets that hold what rules say (ports and blocks), are named by a
// hash of what is in them and are never edited: what is another is under another name.
// Verdict maps lead from an address to a chain of that address, whose one rule leads on;
// that rule alone changes. Sets of group members are named by their group and edited by
// element. Why is in docs/decisions/0026-one-table-of-nftables.md.
//
// # What is said of the machine
//
// Packets must be routed: what a bridge carries between two Pods is not seen, unless
// the kernel calls nftables for bridges. See docs/nft.md.
package nft
