// Package reach says who can reach whom in a world, for all pairs of workloads at
// once.
//
// It asks [policy.Judge], as [policy.Evaluate] does, once for all workloads that the
// policies of the world cannot tell apart, and so says of each pair what Evaluate
// says. What it costs grows with the kinds of workloads, not with their number.
package reach
