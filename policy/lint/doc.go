// Package lint finds what is probably a mistake in the policies of a world: rules that
// decide nothing, selections of nothing, references to what is missing, contradictions,
// and workloads that are cut off.
//
// Each Finding is true of the world: what it says of flows is what [policy.Evaluate]
// says of them. That a rule decides nothing is found by asking about all flows that it
// matches, between all workloads and all other addresses.
package lint
