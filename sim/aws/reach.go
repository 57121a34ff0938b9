package aws

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Flow is the first packet of a connection.
type Flow struct {
	From string `json:"from"` // an instance, database or load balancer (its first interface), an interface, or an address
	To   string `json:"to"`   // the same
	// Protocol is tcp, udp, icmp, icmpv6, sctp, or a number; icmp becomes icmpv6 between IPv6 addresses.
	Protocol string `json:"protocol"`
	Port     int    `json:"port,omitempty"` // destination port of TCP and UDP
	ICMPType int    `json:"icmpType,omitempty"`
	ICMPCode int    `json:"icmpCode,omitempty"`
	// Family is ipv4 or ipv6; empty is that of an address, else IPv4 where both ends have it.
	Family string `json:"family,omitempty"`
}

// Result is the answer about a flow.
type Result string

const (
	Allowed     Result = "allowed"
	Denied      Result = "denied"      // a security group stops it
	Unreachable Result = "unreachable" // it has no way to get there; the sides still tell what the groups say
	Invalid     Result = "invalid"     // the flow itself makes no sense
)

// Verdict says whether a flow passes and who decided.
type Verdict struct {
	Flow   Flow   `json:"flow"`
	Result Result `json:"result"`
	Reason string `json:"reason,omitempty"`
	// Path is vpc, peering, internet, on-premises, local or amazon.
	Path string `json:"path,omitempty"`
	// Source and Destination are the addresses that the destination and the source see.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination,omitzero"`
	Egress      Side       `json:"egress"`  // at the source
	Ingress     Side       `json:"ingress"` // at the destination
}

// Side is what the groups of one interface say.
type Side struct {
	// Result is Allowed or Denied, or empty for an end outside, which no group guards.
	Result    Result   `json:"result,omitempty"`
	Interface string   `json:"interface,omitempty"`
	Groups    []string `json:"groups,omitempty"` // all of the interface
	Group     string   `json:"group,omitempty"`  // the one that allowed
	Rule      string   `json:"rule,omitempty"`
}

// end is one end of a flow: an interface, or an address outside.
type end struct {
	site  *site
	eni   *Interface
	given netip.Addr // the address that the flow names, if it names one
}

// Reach says whether a new connection passes now, by EC2's rules: every interface may send what any
// rule of any of its groups allows, and receive likewise; answers pass; a rule that refers to a group
// means the private addresses of the interfaces that carry the group at this moment.
func (c *Cloud) Reach(f Flow) Verdict { return c.ReachAll([]Flow{f})[0] }

// ReachAll answers many flows about one moment.
func (c *Cloud) ReachAll(fs []Flow) []Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.advance(c.opts.Now())
	out := make([]Verdict, 0, len(fs))
	for _, f := range fs {
		out = append(out, c.w.reach(f))
	}
	return out
}

func (w *world) reach(f Flow) Verdict {
	v := Verdict{Flow: f}
	stop := func(r Result, format string, args ...any) Verdict {
		v.Result, v.Reason = r, fmt.Sprintf(format, args...)
		return v
	}
	protocol, err := f.protocol()
	if err != nil {
		return stop(Invalid, "%v", err)
	}
	from, err := w.locate(f.From)
	if err != nil {
		return stop(Invalid, "from: %v", err)
	}
	to, err := w.locate(f.To)
	if err != nil {
		return stop(Invalid, "to: %v", err)
	}
	if to, err = w.near(from, to); err != nil {
		return stop(Invalid, "to: %v", err)
	}
	if from, err = w.near(to, from); err != nil {
		return stop(Invalid, "from: %v", err)
	}
	v4, err := f.family(protocol, from, to)
	if err != nil {
		return stop(Unreachable, "%v", err)
	}
	if !v4 && protocol == 1 {
		protocol = 58
	}
	p := w.route(from, to, v4)
	v.Path, v.Source, v.Destination = p.kind, p.source, p.destination
	pk := packet{protocol: protocol, port: f.Port, icmpType: f.ICMPType, icmpCode: f.ICMPCode}
	if p.kind == "local" || p.kind == "amazon" {
		return stop(Allowed, "%s", p.reason) // groups do not see such traffic
	}
	inside := p.kind == "vpc" || p.kind == "peering"
	if from.eni != nil {
		pk.peer, pk.peerENI = p.destination, nil
		if inside {
			pk.peerENI = to.eni
		}
		v.Egress = w.judge(from, true, pk)
	}
	if to.eni != nil {
		pk.peer, pk.peerENI = p.source, nil
		if inside {
			pk.peerENI = from.eni
		}
		v.Ingress = w.judge(to, false, pk)
	}
	switch {
	case p.kind == "":
		return stop(Unreachable, "%s", p.reason)
	case !from.up() || !to.up():
		return stop(Unreachable, "an instance is not running")
	case v.Egress.Result == Denied:
		return stop(Denied, "no group of %s lets it out", v.Egress.Interface)
	case v.Ingress.Result == Denied:
		return stop(Denied, "no group of %s lets it in", v.Ingress.Interface)
	}
	v.Result = Allowed
	return v
}

// up says whether something answers at the end.
func (e end) up() bool {
	return e.eni == nil || e.eni.instance == nil || e.eni.instance.State == "running"
}

func (f Flow) protocol() (int, error) {
	n, ok := map[string]int{"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132}[strings.ToLower(f.Protocol)]
	if !ok {
		var err error
		if n, err = strconv.Atoi(f.Protocol); err != nil || n < 0 || n > 255 {
			return 0, fmt.Errorf("unknown protocol %q", f.Protocol)
		}
	}
	if f.Port < 0 || f.Port > 65535 || f.ICMPType < 0 || f.ICMPType > 255 || f.ICMPCode < 0 || f.ICMPCode > 255 {
		return 0, fmt.Errorf("port, ICMP type or code is out of range")
	}
	return n, nil
}

// locate finds what a flow names. An address stays an address until near has seen the other end.
func (w *world) locate(name string) (end, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return end{given: a.Unmap()}, nil
	}
	for _, s := range w.sites {
		if n := s.enis[name]; n != nil {
			return end{site: s, eni: n}, nil
		}
		if ns := s.serviceInterfaces(name); len(ns) > 0 {
			return end{site: s, eni: ns[0]}, nil
		}
		if i := s.instances[name]; i != nil {
			if n := i.primary(); n != nil {
				return end{site: s, eni: n}, nil
			}
			return end{}, fmt.Errorf("%s has ended", name)
		}
	}
	return end{}, fmt.Errorf("%q is no instance, service, interface or address", name)
}

// near finds the interface behind the address of e, as seen from o: in its VPC, in one that is
// peered with it, or by public address. An address of nobody is outside.
func (w *world) near(o, e end) (end, error) {
	if e.eni != nil {
		return e, nil
	}
	if o.eni != nil {
		if n := o.site.owner(o.eni.vpc, e.given); n != nil {
			return end{o.site, n, e.given}, nil
		}
	}
	var found []end
	for _, s := range w.sites {
		for vpc := range s.vpcs {
			n := s.owner(vpc, e.given)
			if n != nil && (o.eni == nil || w.peered(o.eni.vpc, vpc) != nil || e.given.Is6()) {
				found = append(found, end{s, n, e.given})
			}
		}
		if e.given.Is4() && !e.given.IsPrivate() {
			for _, n := range s.enis {
				if n.PublicIP == e.given {
					found = append(found, end{s, n, e.given})
				}
			}
		}
	}
	if len(found) > 1 {
		return end{}, fmt.Errorf("%s is an address of %d interfaces; name one of them", e.given, len(found))
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return e, nil
}

// family decides on IPv4 (true) or IPv6.
func (f Flow) family(protocol int, from, to end) (bool, error) {
	for _, e := range []end{from, to} {
		if e.given.IsValid() {
			if e.given.Is4() && f.Family == "ipv6" || e.given.Is6() && f.Family == "ipv4" {
				return false, fmt.Errorf("%s is not %s", e.given, f.Family)
			}
			return e.given.Is4(), nil
		}
	}
	switch f.Family {
	case "ipv4":
		return true, nil
	case "ipv6":
		return false, nil
	case "":
		return protocol != 58, nil
	}
	return false, fmt.Errorf("unknown family %q", f.Family)
}

// way is how packets get from one end to the other. An empty kind is no way.
type way struct {
	kind, reason        string
	source, destination netip.Addr
}

// inner is the address of an end inside its VPC.
func (e end) inner(v4 bool) netip.Addr {
	if e.eni == nil {
		return e.given
	}
	if e.given.IsValid() && e.eni.has(e.given) {
		return e.given
	}
	if v4 {
		return e.eni.PrivateIPs[0]
	}
	if len(e.eni.IPv6) > 0 {
		return e.eni.IPv6[0]
	}
	return netip.Addr{}
}

func (w *world) route(from, to end, v4 bool) way {
	p := way{source: from.inner(v4), destination: to.inner(v4)}
	if !p.source.IsValid() || !p.destination.IsValid() {
		p.reason = "an end has no IPv6 address"
		return p
	}
	if p.source.Is4() != p.destination.Is4() {
		p.reason = "the ends have no IP family in common"
		return p
	}
	byPublic := func(e end) bool { return e.eni != nil && e.given.IsValid() && e.given == e.eni.PublicIP }
	switch {
	case from.eni == nil && to.eni == nil:
		p.reason = "both ends are outside"
	case from.eni != nil && from.eni == to.eni:
		p.kind, p.reason = "local", "both ends are one interface"
	case from.eni != nil && to.eni == nil && amazonOwn(to.given):
		p.kind, p.reason = "amazon", "groups do not filter Amazon's link-local services"
	case from.eni != nil && to.eni != nil && !byPublic(from) && !byPublic(to) && from.eni.vpc == to.eni.vpc:
		p.kind = "vpc"
	case from.eni != nil && to.eni != nil && !byPublic(from) && !byPublic(to) && w.peered(from.eni.vpc, to.eni.vpc) != nil:
		p.kind = "peering"
	case from.eni == nil && onPremises(to, from.given):
		p.kind = "on-premises"
	case to.eni == nil && onPremises(from, to.given):
		p.kind = "on-premises"
	default:
		return w.internet(from, to, v4)
	}
	return p
}

func amazonOwn(a netip.Addr) bool {
	return a.Is4() && a.IsLinkLocalUnicast() || a.Is6() && netip.MustParsePrefix("fd00:ec2::/32").Contains(a)
}

// onPremises says whether the VPC of e has a private way to an address outside.
func onPremises(e end, a netip.Addr) bool {
	v := e.site.vpcs[e.eni.vpc]
	return !within(netip.PrefixFrom(a, a.BitLen()), v.CIDRs) &&
		slices.ContainsFunc(v.OnPremises, func(p netip.Prefix) bool { return p.Contains(a) })
}

// internet is the way by public addresses: an IPv6 address as it is, IPv4 by the interface's public
// one, or outbound by the VPC's NAT.
func (w *world) internet(from, to end, v4 bool) way {
	p := way{source: from.inner(v4), destination: to.inner(v4)}
	if from.eni != nil && v4 {
		p.source = from.eni.PublicIP
		if !p.source.IsValid() {
			p.source = from.site.vpcs[from.eni.vpc].NAT
		}
		if !p.source.IsValid() {
			p.source = from.inner(v4)
			p.reason = "the source has no public address, the VPC no NAT, and there is no peering or private way"
			return p
		}
	}
	if to.eni != nil && v4 {
		if !to.eni.PublicIP.IsValid() {
			p.reason = "the destination has no public address, and there is no peering or private way"
			return p
		}
		p.destination = to.eni.PublicIP
	}
	for _, e := range []end{from, to} {
		if e.eni == nil && (e.given.IsPrivate() || e.given.IsLoopback() || e.given.IsLinkLocalUnicast() || e.given.IsMulticast() || e.given.IsUnspecified()) {
			p.reason = fmt.Sprintf("there is no way to %s over the Internet", e.given)
			return p
		}
	}
	p.kind = "internet"
	return p
}

// packet is what rules look at.
type packet struct {
	protocol           int
	port               int
	icmpType, icmpCode int
	peer               netip.Addr
	peerENI            *Interface // behind peer, when it is seen with its private address
}

// judge asks the groups of an interface in the order in which they are attached.
func (w *world) judge(e end, egress bool, pk packet) Side {
	side := Side{Result: Denied, Interface: e.eni.ID, Groups: slices.Clone(e.eni.Groups)}
	if len(e.eni.Groups) == 0 {
		side.Result = Allowed // a load balancer without groups: nothing guards it
	}
	for _, id := range e.eni.Groups {
		g := e.site.groups[id]
		for _, r := range g.Rules {
			if r.Egress == egress && r.covers(pk) && w.peerMatches(e.site, g, r, pk) {
				side.Result, side.Group, side.Rule = Allowed, id, r.ID
				return side
			}
		}
	}
	return side
}

// covers says whether protocol, ports, type and code of a rule include the packet's.
func (r *Rule) covers(pk packet) bool {
	n, named := map[string]int{"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58}[r.Protocol]
	switch {
	case r.Protocol == "-1":
		return true
	case !named:
		return r.Protocol == strconv.Itoa(pk.protocol)
	case n != pk.protocol:
		return false
	case n == 6 || n == 17:
		return r.From <= pk.port && pk.port <= r.To
	}
	return r.From == -1 || r.From == pk.icmpType && (r.To == -1 || r.To == pk.icmpCode)
}

func (w *world) peerMatches(s *site, g *Group, r *Rule, pk packet) bool {
	switch {
	case r.Group != "":
		o, peer, _ := w.refers(s, g, r)
		return peer != nil && pk.peerENI != nil && o.carriers[peer.ID][pk.peerENI.ID] != nil
	case r.PrefixList != "":
		l := s.lists[r.PrefixList]
		return l != nil && slices.ContainsFunc(l.Entries, func(e Entry) bool { return e.CIDR.Contains(pk.peer) })
	}
	return r.CIDR.Contains(pk.peer)
}

// has says whether a is one of the addresses of n inside its VPC.
func (n *Interface) has(a netip.Addr) bool {
	return slices.Contains(n.PrivateIPs, a) || slices.Contains(n.IPv6, a) || slices.ContainsFunc(n.Delegated, func(p netip.Prefix) bool { return p.Contains(a) })
}
