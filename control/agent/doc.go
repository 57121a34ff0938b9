// Package agent is the loop of a Node, or of a VM with an agent: what a controller
// tells it is enforced by one [Enforcer], and told back.
//
// # Never open for lack of knowledge
//
// Before it is known for the first time what has to be enforced, an Agent writes
// nothing: what is in the kernel from before a restart stays, and no Pod is
// attached. It is known from a controller, or from what was kept on disk. A Pod
// whose attachment is waited for ([Agent.Attach]) has its rules before its
// runtime hears of it, and while its rules cannot be written it is not attached.
package agent
