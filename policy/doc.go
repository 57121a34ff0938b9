// Package policy is the vocabulary of Isobar and what it means.
//
// A [Snapshot] is everything known at one moment: workloads, their namespaces,
// services, groups, tiers and policies, whatever dialect they were written in.
// [Evaluate] answers what happens to one [Flow] in it. Evaluate is slow, obvious
// and normative: all that compiles or enforces policies is tested against it.
//
// The zero value of everything that selects or matches selects and matches
// nothing, so that a forgotten field, an unreadable selector or a reference to
// something missing never widens anything.
//
// The package is pure: it has no clock, no goroutine, no logger and no network.
package policy
