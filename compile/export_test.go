package compile

// Nodes returns how many things e holds, by what they are: none when it has seen
// an empty Snapshot last.
func (e *Engine) Nodes() map[string]int {
	n := map[string]int{
		"spaces": len(e.spaces), "spacesBy": len(e.spacesBy), "nsels": len(e.nsels), "shelves": len(e.shelves),
		"profiles": e.profiles.len(), "labels": e.labels.len(), "selections": e.selections.len(), "also": len(e.also),
		"policies": e.policies.len(), "users": len(e.users), "applied": len(e.applied), "axes": len(e.axes), "axisKeys": len(e.axisKeys),
		"roles": e.roles.len(), "targets": e.targets.len(), "realms": len(e.realms), "members": len(e.members),
	}
	for k, v := range n {
		if v == 0 {
			delete(n, k)
		}
	}
	return n
}

// EqualWorkloads is equalWorkloads, for its test.
var EqualWorkloads = equalWorkloads
