package controlplane

import (
	"maps"
	"slices"
	"strings"
	"sync"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/leader"
)

// NodeStatus is what a Node has last said of a policy.
type NodeStatus struct {
	Generation int64  // of the policy
	Failure    string // why it is not enforced; empty when it is
}

// Reports are what agents have said of policies in this term of office: what they said
// in one before may have changed since, and been told to another replica. Agents say all of
// it again whenever they begin to watch policies anew. Methods may be called by several
// goroutines.
type Reports struct {
	office *leader.Office

	mu      sync.Mutex
	term    string                           // in which all this was said
	of      map[string]map[string]NodeStatus // by Policy.ID and node
	on      map[string]map[string]struct{}   // the same, by node and Policy.ID
	dirty   map[string]struct{}              // Policy.IDs of which something else has been said
	changed chan struct{}                    // holds one
}

// NewReports returns Reports in which nobody has said anything. Of a nil Office there is
// one term.
func NewReports(office *leader.Office) *Reports {
	return &Reports{office: office, of: map[string]map[string]NodeStatus{}, on: map[string]map[string]struct{}{}, dirty: map[string]struct{}{}, changed: make(chan struct{}, 1)}
}

// maxFailure is how many bytes of a failure are kept: as many as a status has for all.
const maxFailure = 256

// Put keeps what a node says of a policy. After an error it has to be said again: the
// office is not held here, or may not be.
func (r *Reports) Put(policyID, node string, s NodeStatus) error {
	r.put(policyID, node, s)
	return r.office.Check() // afterwards: what was kept until here was kept in time
}

// begin forgets what was said in another term. The caller holds r.mu.
func (r *Reports) begin() {
	if term := r.office.Term(); term != r.term {
		r.term = term
		clear(r.of)
		clear(r.on)
		clear(r.dirty)
	}
}

func (r *Reports) put(policyID, node string, s NodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	if have, ok := r.of[policyID][node]; ok && have == s {
		return
	}
	if r.of[policyID] == nil {
		r.of[policyID] = map[string]NodeStatus{}
	}
	if r.on[node] == nil {
		r.on[node] = map[string]struct{}{}
	}
	r.of[policyID][node], r.on[node][policyID], r.dirty[policyID] = s, struct{}{}, struct{}{}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Changed receives after something else has been said. It holds one.
func (r *Reports) Changed() <-chan struct{} { return r.changed }

// Dirty returns the IDs of the policies of which something else has been said since the
// last call, sorted.
func (r *Reports) Dirty() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	out := slices.Sorted(maps.Keys(r.dirty))
	clear(r.dirty)
	return out
}

// Of returns what these nodes have said of a policy, and forgets what others have: they
// do not enforce it any more.
func (r *Reports) Of(policyID string, nodes []string) map[string]NodeStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	have := r.of[policyID]
	out := make(map[string]NodeStatus, len(have))
	for _, n := range nodes {
		if s, ok := have[n]; ok {
			out[n] = s
		}
	}
	if len(out) < len(have) {
		for n := range have {
			if _, ok := out[n]; !ok {
				r.drop(policyID, n)
			}
		}
	}
	return out
}

// Said returns what one node has said of a policy.
func (r *Reports) Said(policyID, node string) (NodeStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	s, ok := r.of[policyID][node]
	return s, ok
}

// drop forgets one status. The caller holds r.mu.
func (r *Reports) drop(policyID, node string) {
	if delete(r.of[policyID], node); len(r.of[policyID]) == 0 {
		delete(r.of, policyID)
	}
	if delete(r.on[node], policyID); len(r.on[node]) == 0 {
		delete(r.on, node)
	}
}

// On returns the IDs of the policies of which a node has said something, sorted.
func (r *Reports) On(node string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	return slices.Sorted(maps.Keys(r.on[node]))
}

// statusOf reads what a node says of itself.
func statusOf(in controlplanev1beta2.NetworkPolicyNodeStatus) NodeStatus {
	s := NodeStatus{Generation: in.Generation}
	if in.RealizationFailure {
		s.Failure = in.Message
		if s.Failure == "" {
			s.Failure = "the agent does not say why"
		}
		if len(s.Failure) > maxFailure {
			s.Failure = s.Failure[:maxFailure]
		}
		s.Failure = strings.ToValidUTF8(s.Failure, "")
	}
	return s
}
