// Package plane finds, builds and runs the embedded control plane as a child
// process.
//
// The control plane is a binary of its own, isobar-control-plane, from the module
// in embedded/: its 2,000 packages would otherwise be linked into everything.
// Release archives carry it beside isobar. In a checkout it is built once and
// kept in the user's cache directory, under a key of its sources, the Go version
// and the build settings, so that it can never be stale.
//
// Nothing here downloads anything by itself; a first build lets the go command
// download the modules that embedded/go.sum names.
package plane

// BinaryName is the name of the control plane's binary.
const BinaryName = "isobar-control-plane"
