package compile

// Nodes returns how many things e holds, by what they are: none when it has seen
// an empty Snapshot last.
func (e *Engine) Nodes() map[string]int {
	n := map[string]int{
		"spaces": len(e.spaces), "spacesBy": len(e.spacesBy), "nsels": len(e.nsels), "nselScope": len(e.nselScope.shelves),
		"profiles": len(e.profiles), "postings": len(e.postings), "selections": len(e.selections),
		"policies": len(e.policies), "users": len(e.users), "applied": len(e.applied), "axisKeys": len(e.axisKeys),
		"roles": len(e.roles), "targets": len(e.targets), "realms": len(e.realms),
	}
	for i := range e.everywhere {
		n["everywhere"] += len(e.everywhere[i].shelves)
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
