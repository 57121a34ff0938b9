// Package compile turns a Snapshot into what each Target must enforce.
//
// [Rulesets] does it slowly and obviously, from nothing each time. [Engine]
// does it for a change at the cost of what the change touches; after any walk
// its answer is that of Rulesets, since it depends on the Snapshot alone.
// [Verdict] asks the Rulesets what [policy.Evaluate] asks the Snapshot, so that
// the two can be compared.
package compile
