// Package reach says who can reach whom in a world, for all pairs of workloads at
// once.
//
// It asks [policy.Judge], as [policy.Evaluate] does, and so says of each pair what
// Evaluate says; but it asks once for all workloads that the policies of the world cannot tell
// apart (a class), and of these once for all that the rules of the Judge cannot tell
// apart (a kind of peers). What that costs grows with what policies say. The classes are then held
// against one another as numbers, of which there is one for each answer: a few nanoseconds a pair.
package reach
