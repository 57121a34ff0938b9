package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// End is one end of a flow, resolved.
type End struct {
	Owner   *Workload   // the workload that sends or receives; nil when none is known
	Subject *Workload   // whose policies apply there; nil when none can
	Addr    netip.Addr  // never mapped
	Peers   []*Workload // the workloads that a rule finds at that address, by ID
}

// Ends resolves both ends of f and gives them addresses of one family. The
// error is about an end that is unknown, has no address, or is not clear.
func (s Snapshot) Ends(f Flow) (from, to End, err error) {
	if from.Owner, err = s.named(f.From); err != nil {
		return from, to, err
	}
	if to.Owner, err = s.named(f.To); err != nil {
		return from, to, err
	}
	// An address is looked up beside the other end first: what has it in the
	// other end's network is what that end reaches.
	if from.Owner == nil {
		if from.Owner, err = s.at(f.From.Addr, to.Owner); err != nil {
			return from, to, err
		}
	}
	if to.Owner == nil {
		if to.Owner, err = s.at(f.To.Addr, from.Owner); err != nil {
			return from, to, err
		}
	}
	if from.Addr, to.Addr, err = addrs(f, from.Owner, to.Owner); err != nil {
		return from, to, err
	}
	s.complete(&from)
	s.complete(&to)
	return from, to, nil
}

// named returns the workload that e names, or nil when it names none.
func (s Snapshot) named(e Endpoint) (*Workload, error) {
	if e.Workload == "" {
		if !e.Addr.IsValid() {
			return nil, fmt.Errorf("an end of the flow has neither workload nor address")
		}
		return nil, nil
	}
	w, ok := s.Workloads.Get(e.Workload)
	if !ok {
		return nil, fmt.Errorf("workload %s: not found", e.Workload)
	}
	if e.Addr.IsValid() && !slices.Contains(w.Addrs, e.Addr.Unmap()) {
		return nil, fmt.Errorf("workload %s: does not have the address %v", w.ID, e.Addr)
	}
	return w, nil
}

// at returns the workload at an address as other reaches it, or nil when there
// is none. Workloads of several networks that have it, none of them other's, are
// an error.
func (s Snapshot) at(a netip.Addr, other *Workload) (*Workload, error) {
	a = a.Unmap()
	var best *Workload
	for _, w := range s.Workloads.All() {
		if !slices.Contains(w.Addrs, a) || w.Terminated {
			continue
		}
		if best == nil {
			best = w
			continue
		}
		near := func(w *Workload) bool { return other != nil && w.Network == other.Network }
		switch {
		case near(w) != near(best):
			if near(w) {
				best = w
			}
		case w.Network != best.Network:
			return nil, fmt.Errorf("address %v: %s and %s both have it, in different networks; name the one that is meant", a, best.ID, w.ID)
		case best.HostNetwork && !w.HostNetwork:
			best = w // the Node itself rather than a Pod that shares its network
		}
	}
	return best, nil
}

// addrs chooses the addresses of both ends: those that f names, else the first
// of each workload's that are of one family.
func addrs(f Flow, from, to *Workload) (a, b netip.Addr, err error) {
	list := func(e Endpoint, w *Workload) []netip.Addr {
		if e.Addr.IsValid() {
			return []netip.Addr{e.Addr.Unmap()}
		}
		return w.Addrs
	}
	for _, a := range list(f.From, from) {
		for _, b := range list(f.To, to) {
			if a.Is4() == b.Is4() {
				return a, b, nil
			}
		}
	}
	return a, b, fmt.Errorf("flow %v to %v: the ends have no addresses of one family", f.From, f.To)
}

// complete finds whose policies apply at e, and what rules find at its address.
func (s Snapshot) complete(e *End) {
	network := ""
	if w := e.Owner; w != nil {
		network = w.Network
		if w.IsSubject() {
			e.Subject = w
		} else if w.HostNetwork && !w.Terminated {
			e.Subject, _ = s.Workloads.Get(WorkloadID(KindNode, "", w.Node))
		}
	}
	for _, w := range s.Workloads.All() {
		if w.IsPeer() && w.Network == network && slices.Contains(w.Addrs, e.Addr) {
			e.Peers = append(e.Peers, w)
		}
	}
}

func (s Snapshot) isServiceAddr(a netip.Addr) bool {
	for _, svc := range s.Services.All() {
		if slices.Contains(svc.Addrs, a) {
			return true
		}
	}
	return false
}
