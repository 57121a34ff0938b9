// Package kube feeds the world of one Kubernetes API server into Snapshots.
//
// A [Source] reads every kind that policies speak of, converts each object when
// it arrives and drops it: it keeps policy values alone, with their strings
// shared. An update that changes nothing of what policies see, as the heartbeat
// of a Node, keeps the old value and makes no new Snapshot.
//
// # What is true when the API server is not well
//
//   - A Source starts from a consistent read, and what it reads later is never older
//     than that: reads are streamed from, or asked for, no version older than
//     the last one seen, which a lagging API server refuses. Objects are replaced
//     by key, so a name that is deleted and made again, and an event that comes
//     twice, need no care.
//   - [Source.World] says how far each kind has been read, so that the worlds of two
//     Sources of one cluster can be compared, and the older one be known.
//   - While a kind cannot be read, its last known objects stay, and [Source.Status]
//     says why. Nothing is taken for deleted before a complete read says so.
//   - A kind whose definition is not installed has no objects, and is picked up
//     when it appears. A kind that is installed and was never read keeps
//     [Source.Synced] open: unreadable is not empty.
//   - When a definition is deleted, the API server first deletes its objects, one
//     event each, and these are honoured as the deletions that they are. What
//     was not deleted that way stays, as after any failed read, until the
//     definition is back or the process starts anew.
//   - An object that cannot be decoded, or whose conversion fails, keeps its last
//     known value, if there is one, and has a [Notice]. Others are not harmed.
package kube
