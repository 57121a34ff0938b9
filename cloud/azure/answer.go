package azure

import (
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Answer says what the Objects of a VNet say of a flow at one end: whether the NSGs
// of the workload w let it in or out, peer being the address of the other end.
// governed is false where none of w's interfaces has an NSG of ours: there the Objects
// say nothing.
//
// Of several interfaces that one counts which has w's address of the flow, or
// else, if the address is on none, all must agree.
func Answer(objects map[string]Object, w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
	self, peer := f.To.Addr, f.From.Addr
	if d == policy.Egress {
		self, peer = peer, self
	}
	if !peer.IsValid() {
		return false, false, fmt.Errorf("answer for %s: the flow's other end has no address", w.ID)
	}
	has := func(key string) bool {
		g := objects[key].ASG
		return g != nil && g.Members.Has(peer)
	}
	allowed = true
	for _, n := range w.Interfaces {
		o, ok := objects[NICKey(n.ID)]
		if !ok || o.NIC.NSG == "" || onAnother(w, n, self) {
			continue
		}
		governed = true
		nsg := objects[o.NIC.NSG].NSG
		if nsg == nil {
			return false, true, fmt.Errorf("answer for %s: %s is not there", w.ID, o.NIC.NSG)
		}
		allowed = allowed && nsg.passes(d, f, peer.Unmap(), has)
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

// passes asks the rules of one direction, one after the other. has says whether the peer
// has an ASG.
func (g *NSG) passes(d policy.Direction, f policy.Flow, peer netip.Addr, has func(string) bool) bool {
	for _, r := range g.rules(d) {
		if r.matches(f, peer, has) {
			return r.Allow
		}
	}
	return false
}

func (r Rule) matches(f policy.Flow, peer netip.Addr, has func(string) bool) bool {
	switch r.Protocol {
	case "*":
	case "Tcp", "Udp":
		if f.Protocol != map[string]policy.Protocol{"Tcp": policy.TCP, "Udp": policy.UDP}[r.Protocol] {
			return false
		}
	case "Icmp":
		if f.Protocol != policy.ICMP || !peer.Is4() {
			return false
		}
	default:
		return false
	}
	if len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(p Ports) bool { return p.First <= f.Port && f.Port <= p.Last }) {
		return false
	}
	return r.hasPeer(peer, has)
}

// hasPeer says whether the peer of that address is one of the rule's.
func (r Rule) hasPeer(peer netip.Addr, has func(string) bool) bool {
	return r.Any || slices.ContainsFunc(r.Prefixes, func(p netip.Prefix) bool { return p.Contains(peer) }) || slices.ContainsFunc(r.Groups, has)
}
