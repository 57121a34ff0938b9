// Package validate decides whether an object may be written: what the admission
// webhooks of upstream check, and what no schema can.
//
// It is pure. What it must know of other objects it asks of a [World]; the
// server around it answers from its caches, and refuses by itself while they
// are not filled. Each error names the field and how to put it right.
package validate
