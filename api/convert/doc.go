// Package convert translates API objects into the vocabulary of package policy, and
// Rulesets into those of controlplane.antrea.io and back.
//
// A converter always returns a value that is safe to enforce, and says what it
// could not read as [Problem]s. What it cannot read never widens: an allow that
// it cannot read matches nothing, a denial that it cannot read matches
// everything, and a policy applies to nothing through a selector that it cannot
// read. A caller that holds the author of the object should refuse it instead.
package convert
