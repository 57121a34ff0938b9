// Package feed keeps what controlplane.antrea.io shows to those who enforce:
// policies, whom they apply to and who their peers are, each watcher only what
// concerns its Node, or its VM.
//
// An object is made when somebody asks for it, and encoded once for all who get
// it. A watcher that does not read holds up nobody: what it has not been sent yet
// is held as the difference to what it has, which never is more than there is to
// say. So no watcher has to be cut off, and none misses anything.
package feed
