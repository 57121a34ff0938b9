// Package antrea feeds what a controller has computed for one Node, over
// controlplane.antrea.io/v1beta2, into a Ruleset. The controller is ours or upstream's.
//
// A [Source] watches policies, the groups that they apply to and the groups of their
// peers, each filtered by the name of the Node. A watch begins with what there is, ends
// that with a BOOKMARK, and goes on with changes. There is no order between the three.
//
// # What is true at every moment
//
//   - What is given out is complete: each AddressGroup that a policy names is there, and
//     one of the AppliedToGroups. While one is on its way, the last State stays, for
//     [Options.Patience] after it was missed first. From then on its rules are read as
//     if it were unreadable, which never widens, and the Problems tell.
//   - What is given out is of one time. An Isobar says which events of the three watches
//     belong together, and they are given out together; upstream's controller does not.
//     While one of the watches is broken, the last State stays, though the others go on. A policy of now must not meet groups of
//     then, which may have members that it would not allow any more. So a watch is
//     started again alone, and costs the controller no more than that.
//   - What a watch begins with replaces what was held once it is there whole. Where it
//     is equal, nobody is told.
//   - What is given out lacks nothing of what was given out before, also by another replica of an
//     Isobar, or before a restart: one that has read less of the API server is waited for, then left, and
//     believed after [Options.Yield].
//   - Before the first State there is none, which is not an empty one. A controller that
//     is away takes nothing back.
//   - What cannot be understood, be it a kind, a frame, or a Patch of something else than
//     what is held, ends the watch, and what it begins with anew is right again.
//   - A rule with a field that is not known here, as a newer controller may send, allows
//     nothing, and what it denies it denies everyone: the field may be a condition.
//   - A connection that falls silent is noticed by client-go's checks of HTTP/2
//     connections, after 45 s.
//
// The reasons are in docs/decisions/0021-watching-a-controller.md.
//
// With [Options.Dir] the last State is kept in a file, for starts without a controller. The file
// is written every 5 s at most. In between it is marked as older, and a start without a controller
// has no State then: one of before would take back what is enforced already.
package antrea
