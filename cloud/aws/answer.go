package aws

import (
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Answer says what the Objects of a VPC say of a flow at one end: whether the
// groups of the workload w let it in or out, peer being the address of the other
// end. governed is false where none of w's interfaces has a group of ours that
// enforces: there the Objects say nothing. All Objects that w's VPC has must be
// given; those of other VPCs do not matter.
//
// Of several interfaces that one counts which has w's address of the flow, or
// else, if the address is on none, all must agree.
func Answer(objects map[string]Object, w *policy.Workload, members []*policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
	self, peer := f.To.Addr, f.From.Addr
	if d == policy.Egress {
		self, peer = peer, self
	}
	if !peer.IsValid() {
		return false, false, fmt.Errorf("answer for %s: the flow's other end has no address", w.ID)
	}
	peer = peer.Unmap()
	peers := peersIn(objects, members)
	allowed = true
	for _, n := range w.Interfaces {
		o, ok := objects[NICKey(n.ID)]
		if !ok || !o.NIC.Kept || onAnother(w, n, self) {
			continue
		}
		governed = true
		allowed = allowed && slices.ContainsFunc(o.NIC.Groups, func(key string) bool {
			g := objects[key].Group
			return g != nil && slices.ContainsFunc(g.rules(d), func(r Rule) bool { return r.matches(f, peer, peers) })
		})
	}
	return allowed, governed, nil
}

// onAnother says whether the address is on an interface of w that is not n.
func onAnother(w *policy.Workload, n policy.Interface, a netip.Addr) bool {
	if !a.IsValid() || slices.Contains(n.Addrs, a) {
		return false
	}
	return slices.ContainsFunc(w.Interfaces, func(o policy.Interface) bool { return slices.Contains(o.Addrs, a) })
}

// peersIn returns what a rule means that names a group or a list: the private
// addresses of the interfaces that carry the one, given the workloads that have the
// interfaces, and the entries of the other.
func peersIn(objects map[string]Object, workloads []*policy.Workload) func(string) flat.Set {
	known := map[string]flat.Set{}
	return func(key string) flat.Set {
		s, ok := known[key]
		if ok {
			return s
		}
		if x := objects[key].List; x != nil {
			known[key] = flat.SetOf(x.Entries...)
			return known[key]
		}
		var addrs []netip.Addr
		for _, w := range workloads {
			for _, n := range w.Interfaces {
				if o := objects[NICKey(n.ID)]; o.NIC == nil || !slices.Contains(o.NIC.Groups, key) {
					continue
				}
				for _, a := range n.Addrs {
					if a.IsPrivate() || a.Is6() {
						addrs = append(addrs, a)
					}
				}
			}
		}
		s = flat.SetOfAddrs(addrs...)
		known[key] = s
		return s
	}
}
