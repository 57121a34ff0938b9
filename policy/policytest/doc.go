// Package policytest makes random worlds for tests of what compiles, enforces
// or stores policies.
//
//	for seed := range policytest.Seeds(t, 1000) {
//		rnd := policytest.Rand(seed)
//		s := policytest.World(rnd, 8) // or VMWorld: cloud VMs alone
//		for _, f := range policytest.Flows(rnd, s, 20) {
//			... // compare with policy.Evaluate(s, f); on failure print the seed and policytest.Print(s)
//		}
//	}
//
// Worlds are small and poor in labels, addresses and ports on purpose: so
// rules match, contradict and overlap. [Flows] looks at the edges of ranges and
// prefixes. [Walk] edits a world in small steps, and [Shrink] drops what a
// failing world does not need.
package policytest
