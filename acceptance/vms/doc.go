// Package vms tries VMs with an agent as whoever runs them would: an `isobar server`, and machines with
// two network interfaces and both families of addresses each, which are network namespaces. On each runs the
// agent's own binary, which has joined by a token. What policies say is compared with packets.
package vms
