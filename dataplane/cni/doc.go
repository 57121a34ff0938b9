// Package cni plugs Pods into a Node: it carries out the commands of the
// Container Network Interface, version 1.1, that the plugin isobar-cni passes on.
//
// A Pod has one end of a veth pair and whole addresses (/32 and /128) of the Node's
// ranges; the Node routes each address to the other end. The Pod's routes go by
// link-local gateways whose hardware addresses it has from the start, so nothing
// is ever asked by broadcast. A packet whose source is not routed to where it
// comes from is dropped, in a table of nftables that holds that one rule.
//
// Addresses are kept in files of the format of the host-local plugin: one for
// each, made exclusively, so that two Pods never have the same one. What is known
// of a Pod's attachment is in a file that is written before anything is done for
// it and removed when everything is undone; so after a crash at any point
// [NewServer] knows what to undo.
//
// After another plugin (chained) a Server plugs nothing in and gives no
// addresses: it notes which interface of the Node is the Pod's.
package cni
