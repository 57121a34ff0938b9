// Package names knows at which addresses the workloads of one machine have found DNS
// names: by the answers that they were given, for as long as those say.
//
// A [Reader] finds the answers in packets, a [Cache] keeps them. Neither has a clock, a
// socket or a goroutine. Who holds packets back, and who tells the kernel, are others.
//
// # Which name
//
// An address is found by the name that was asked for. The names that it leads through
// (CNAME) are not learned: nobody asked for them. This is upstream's meaning, and that of
// policy.Flow.ToName.
//
// # Bounds
//
// Who answers chooses how much there is to keep. Only names that some policy means are
// kept, a bounded number of them; those that were asked for longest ago go first. An answer
// that cannot be kept whole is an error, so that nobody gets it.
package names
