package cloudtest

import (
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Side is what a cloud says of a flow at one of its ends.
type Side int

const (
	Unasked Side = iota // nothing there is governed, or it was asked of another flow
	Denied
	Allowed
)

// SideOf reads a simulator's word: allowed, denied, or none.
func SideOf(result string) Side {
	return map[string]Side{"allowed": Allowed, "denied": Denied}[result]
}

// Told is what a cloud says of a flow at both of its ends.
type Told struct{ Egress, Ingress Side }

// Seen returns t where each end of the flow sees the address that the question has for
// the other, and else nothing: a flow that is translated on its way is another flow.
func (t Told) Seen(from, to policy.End, source, destination netip.Addr) Told {
	if source != from.Addr || destination != to.Addr {
		return Told{}
	}
	return t
}

// Enforced is a world and what its Targets could not enforce of it.
type Enforced struct {
	Snapshot policy.Snapshot
	Refusals map[string][]policy.Refusal // of every Target that is asked, by name
	Governed map[string]bool             // whose word counts, by workload; nil is everybody's
	// May are the reasons for which a Refusal may make a workload's side stricter; none is
	// every reason but that Reject is Drop, which is as strict.
	May []policy.RefusalReason
}

// Synced is a world as what syncing it reported, by Target. Only what a policy has a say
// about counts: others keep what they have of their own.
func Synced(s policy.Snapshot, rulesets []policy.Ruleset, reports map[string]plan.Report) Enforced {
	e := Enforced{Snapshot: s, Refusals: map[string][]policy.Refusal{}, Governed: map[string]bool{}}
	for target, r := range reports {
		e.Refusals[target] = r.Refusals
	}
	for _, rs := range rulesets {
		for _, w := range rs.Workloads {
			e.Governed[w.Workload.ID] = len(w.Ingress)+len(w.Egress) > 0 || w.IsolatedIngress != "" || w.IsolatedEgress != "" || w.DeniesIngress || w.DeniesEgress
		}
	}
	return e
}

// Tally counts decisions.
type Tally struct{ Exact, Stricter int }

// Add adds o to t.
func (t *Tally) Add(o Tally) { t.Exact, t.Stricter = t.Exact+o.Exact, t.Stricter+o.Stricter }

// Check holds what a cloud says of flows against policy.Evaluate. It must say the same,
// or deny where a Refusal names the workload. What nobody can tell who sees an
// address alone does not count.
func (e Enforced) Check(flows []policy.Flow, ask func(f policy.Flow, from, to policy.End) Told) (Tally, error) {
	var t Tally
	for _, f := range flows {
		from, to, err := e.Snapshot.Ends(f)
		if err != nil {
			continue // Evaluate has no answer either
		}
		want, err := policy.Evaluate(e.Snapshot, f)
		if err != nil || want.Ingress.Reason == policy.ToItself {
			continue
		}
		f.From.Addr, f.To.Addr = from.Addr, to.Addr
		told := ask(f, from, to)
		for _, x := range []struct {
			d    policy.Direction
			w    *policy.Workload
			peer policy.End
			want policy.Decision
			got  Side
		}{{policy.Ingress, to.Subject, from, want.Ingress, told.Ingress}, {policy.Egress, from.Subject, to, want.Egress, told.Egress}} {
			if x.w == nil || x.got == Unasked || e.Governed != nil && !e.Governed[x.w.ID] {
				continue
			}
			refusals, asked := e.Refusals[x.w.Target]
			switch got := x.got == Allowed; {
			case !asked:
			case got == (x.want.Action == policy.Allow):
				t.Exact++
			case Elsewhere(e.Snapshot, x.w, x.peer):
			case !got && e.MayBeStricter(x.w):
				t.Stricter++
			default:
				return t, fmt.Errorf("%v of %s, %v %s:%d type %d/%d with %v: allowed %t, the meaning %v\nrefusals %v",
					x.d, x.w.ID, f, f.Protocol, f.Port, f.ICMPType, f.ICMPCode, x.peer.Addr, got, x.want, refusals)
			}
		}
	}
	return t, nil
}

// MayBeStricter says whether a Refusal names a workload.
func (e Enforced) MayBeStricter(w *policy.Workload) bool {
	return slices.ContainsFunc(e.Refusals[w.Target], func(r policy.Refusal) bool {
		if len(e.May) > 0 && !slices.Contains(e.May, r.Reason) {
			return false
		}
		return r.Reason != policy.RefusedReject && slices.Contains(r.Workloads, w.ID)
	})
}

// Elsewhere says whether peer is a workload of another network than w whose address
// others have too: nobody who sees the address can tell.
func Elsewhere(s policy.Snapshot, w *policy.Workload, peer policy.End) bool {
	if peer.Owner == nil || peer.Owner.Network == w.Network {
		return false
	}
	for _, o := range s.Workloads.All() {
		if o.Network != peer.Owner.Network && slices.Contains(o.Addrs, peer.Addr) {
			return true
		}
	}
	return false
}
