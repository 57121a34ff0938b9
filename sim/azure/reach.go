package azure

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Flow is the first packet of a connection.
type Flow struct {
	From string `json:"from"` // the id or name of a virtual machine (its primary interface) or of an interface, or an address
	To   string `json:"to"`   // the same
	// Protocol is tcp, udp, icmp, icmpv6, esp, ah, sctp, or a number; icmp becomes icmpv6 between IPv6 addresses.
	Protocol   string `json:"protocol"`
	Port       int    `json:"port,omitempty"`       // destination port of TCP and UDP
	SourcePort int    `json:"sourcePort,omitempty"` // 0 is 50000
	ICMPType   int    `json:"icmpType,omitempty"`   // taken for what other simulators and commands give; Azure does not look at it
	ICMPCode   int    `json:"icmpCode,omitempty"`
	// Family is ipv4 or ipv6; empty is that of an address, else IPv4 where both ends have it.
	Family string `json:"family,omitempty"`
}

// Result is the answer about a flow.
type Result string

const (
	Allowed     Result = "allowed"
	Denied      Result = "denied"      // a security group or an admin rule stops it
	Unreachable Result = "unreachable" // it has no way to get there; the sides still tell what the rules say
	Invalid     Result = "invalid"     // the flow itself makes no sense
)

// Verdict says whether a flow passes and who decided.
type Verdict struct {
	Flow   Flow   `json:"flow"`
	Result Result `json:"result"`
	Reason string `json:"reason,omitempty"`
	// Path is vnet, peering, internet, on-premises, local or platform.
	Path string `json:"path,omitempty"`
	// Source and Destination are the addresses that the destination and the source see.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination,omitzero"`
	Egress      Side       `json:"egress"`  // at the source
	Ingress     Side       `json:"ingress"` // at the destination
}

// Side is what the rules of one interface say.
type Side struct {
	// Result is Allowed or Denied, or empty for an end outside, which nothing guards.
	Result    Result `json:"result,omitempty"`
	Interface string `json:"interface,omitempty"` // id
	AdminRule string `json:"adminRule,omitempty"` // the admin rule that matched first
	// Interface's own security group and that of its subnet, each with the rule that matched first; empty
	// for none. Both must allow.
	Group       string `json:"group,omitempty"`
	Rule        string `json:"rule,omitempty"`
	SubnetGroup string `json:"subnetGroup,omitempty"`
	SubnetRule  string `json:"subnetRule,omitempty"`
}

// end is one end of a flow: an IP configuration of an interface, or an address outside.
type end struct {
	nic     *resource
	network string     // key
	given   netip.Addr // the address that the flow names, if it names one
}

// Reach says whether a new connection passes now, by Azure's rules: admin rules first, then the security
// group of the interface and that of its subnet, which must both allow, at the source outbound and at the
// destination inbound; answers pass. What an operation under way will bring is not in force yet.
func (c *Cloud) Reach(f Flow) Verdict { return c.ReachAll([]Flow{f})[0] }

// ReachAll answers many flows about one moment.
func (c *Cloud) ReachAll(fs []Flow) []Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.advance(c.opts.Now())
	if c.w.judges == nil {
		c.w.judges = c.w.newIndex()
	}
	out := make([]Verdict, 0, len(fs))
	for _, f := range fs {
		out = append(out, c.w.judges.reach(f))
	}
	return out
}

func (x *index) reach(f Flow) Verdict {
	v := Verdict{Flow: f}
	stop := func(r Result, format string, args ...any) Verdict {
		v.Result, v.Reason = r, fmt.Sprintf(format, args...)
		return v
	}
	protocol, err := f.protocol()
	if err != nil {
		return stop(Invalid, "%v", err)
	}
	from, err := x.locate(f.From)
	if err != nil {
		return stop(Invalid, "from: %v", err)
	}
	to, err := x.locate(f.To)
	if err != nil {
		return stop(Invalid, "to: %v", err)
	}
	if to, err = x.near(from, to); err != nil {
		return stop(Invalid, "to: %v", err)
	}
	if from, err = x.near(to, from); err != nil {
		return stop(Invalid, "from: %v", err)
	}
	v4, err := f.family(protocol, from, to)
	if err != nil {
		return stop(Unreachable, "%v", err)
	}
	if !v4 && protocol == 1 {
		protocol = 58
	}
	p := x.route(from, to, v4)
	v.Path, v.Source, v.Destination = p.kind, p.source, p.destination
	if p.kind == "local" {
		return stop(Allowed, "%s", p.reason)
	}
	pk := packet{protocol: protocol, sourcePort: f.SourcePort, port: f.Port}
	if pk.sourcePort == 0 {
		pk.sourcePort = 50000
	}
	if from.nic != nil && p.kind != "platform" {
		// A packet leaves with its private address; it is translated later.
		pk.source, pk.destination = x.inner(from, v4), p.destination
		v.Egress = x.judge(from, false, pk, false)
	}
	if to.nic != nil {
		pk.source, pk.destination = p.source, x.inner(to, v4)
		v.Ingress = x.judge(to, true, pk, p.kind == "internet" && x.closed(to))
	}
	switch {
	case p.kind == "":
		return stop(Unreachable, "%s", p.reason)
	case !x.up(from) || !x.up(to):
		return stop(Unreachable, "a virtual machine is not running")
	case v.Egress.Result == Denied:
		return stop(Denied, "%s does not let it out", v.Egress.Interface)
	case v.Ingress.Result == Denied:
		return stop(Denied, "%s does not let it in", v.Ingress.Interface)
	}
	v.Result = Allowed
	return v
}

func (f Flow) protocol() (int, error) {
	n, ok := map[string]int{"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "esp": 50, "ah": 51, "sctp": 132}[strings.ToLower(f.Protocol)]
	if !ok {
		var err error
		if n, err = strconv.Atoi(f.Protocol); err != nil || n < 0 || n > 255 {
			return 0, fmt.Errorf("unknown protocol %q", f.Protocol)
		}
	}
	for _, p := range []int{f.Port, f.SourcePort} {
		if p < 0 || p > 65535 {
			return 0, fmt.Errorf("port %d is out of range", p)
		}
	}
	return n, nil
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

// locate finds what a flow names. An address stays an address until near has seen the other end.
func (x *index) locate(name string) (end, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return end{given: a.Unmap()}, nil
	}
	r := x.w.things[keyOf(name)]
	if r == nil {
		switch named := x.names[fold(name)]; len(named) {
		case 0:
			return end{}, fmt.Errorf("%q is no virtual machine, interface or address", name)
		case 1:
			r = named[0]
		default:
			return end{}, fmt.Errorf("%d virtual machines or interfaces are called %q; give the id", len(named), name)
		}
	}
	switch v := r.live.(type) {
	case *machine:
		n := x.w.things[keyOf(v.nics[v.primary])]
		if n == nil || n.live == nil {
			return end{}, fmt.Errorf("%s has no interface", name)
		}
		return end{nic: n, network: n.live.(*nic).network}, nil
	case *nic:
		return end{nic: r, network: v.network}, nil
	}
	return end{}, fmt.Errorf("%q is no virtual machine or interface that is there yet", name)
}

// near finds the interface behind the address of e, as seen from o: in its virtual network, in one that
// is peered with it, or by public address. An address of nobody is outside.
func (x *index) near(o, e end) (end, error) {
	if e.nic != nil {
		return e, nil
	}
	if o.nic != nil {
		if n := x.owners[netAddr{o.network, e.given}]; n != nil {
			return end{n, o.network, e.given}, nil
		}
	}
	var found []end
	for _, n := range x.byAddr[e.given] {
		network := n.live.(*nic).network
		if o.nic == nil || x.w.connected(o.network, network) {
			found = append(found, end{n, network, e.given})
		}
	}
	if n := x.publics[e.given]; n != nil && len(found) == 0 {
		found = append(found, end{n, n.live.(*nic).network, e.given})
	}
	switch len(found) {
	case 0:
		return e, nil
	case 1:
		return found[0], nil
	}
	return end{}, fmt.Errorf("%s is an address of %d interfaces; name one of them", e.given, len(found))
}

// way is how packets get from one end to the other. An empty kind is no way.
type way struct {
	kind, reason        string
	source, destination netip.Addr
}

// inner is the address of an end inside its virtual network.
func (x *index) inner(e end, v4 bool) netip.Addr {
	if e.nic == nil {
		return e.given
	}
	configs := e.nic.live.(*nic).configs
	for _, c := range configs {
		if c.addr == e.given || c.public != "" && x.publicOf[keyOf(c.public)] == e.given && e.given.IsValid() {
			return c.addr
		}
	}
	for _, c := range configs {
		if c.addr.IsValid() && c.addr.Is4() == v4 && (c.primary || !v4) {
			return c.addr
		}
	}
	return netip.Addr{}
}

// outer is the public address of an end; invalid when it has none.
func (x *index) outer(e end, v4 bool) netip.Addr {
	inner := x.inner(e, v4)
	for _, c := range e.nic.live.(*nic).configs {
		if c.addr == inner && c.public != "" {
			return x.publicOf[keyOf(c.public)]
		}
	}
	return netip.Addr{}
}

// hostAddr is Azure's virtual address of the host: name service, health probes, metadata.
var hostAddr = netip.MustParseAddr("168.63.129.16") // read only

func (x *index) route(from, to end, v4 bool) way {
	p := way{source: x.inner(from, v4), destination: x.inner(to, v4)}
	if !p.source.IsValid() || !p.destination.IsValid() {
		p.reason = "an end has no address of the family"
		return p
	}
	if p.source.Is4() != p.destination.Is4() {
		p.reason = "the ends have no IP family in common"
		return p
	}
	byPublic := func(e end) bool { return e.nic != nil && e.given.IsValid() && e.given != x.inner(e, v4) }
	inside := from.nic != nil && to.nic != nil && !byPublic(from) && !byPublic(to)
	switch {
	case from.nic == nil && to.nic == nil:
		p.reason = "both ends are outside"
	case from.nic == to.nic:
		p.kind, p.reason = "local", "both ends are one interface"
	case from.nic != nil && to.nic == nil && (to.given == hostAddr || to.given.Is4() && to.given.IsLinkLocalUnicast()):
		p.kind, p.reason = "platform", "security groups do not filter what goes to the platform"
	case from.nic == nil && from.given == hostAddr:
		p.kind = "platform"
	case inside && from.network == to.network:
		p.kind = "vnet"
	case inside && x.w.connected(from.network, to.network):
		p.kind = "peering"
	case from.nic == nil && x.onPremises(to.network, from.given), to.nic == nil && x.onPremises(from.network, to.given):
		p.kind = "on-premises"
	default:
		return x.internet(from, to, v4)
	}
	return p
}

// internet is the way by public addresses: the interface's own, or outbound the network's NAT.
func (x *index) internet(from, to end, v4 bool) way {
	p := way{source: x.inner(from, v4), destination: x.inner(to, v4)}
	if from.nic != nil {
		p.source = x.outer(from, v4)
		if nat := x.uplinks[from.network].NAT; !p.source.IsValid() && v4 {
			p.source = nat
		}
		if !p.source.IsValid() {
			p.source = x.inner(from, v4)
			p.reason = "the source has no public address, its network no NAT, and there is no peering or private way"
			return p
		}
	}
	if to.nic != nil {
		out := x.outer(to, v4)
		if !out.IsValid() {
			p.reason = "the destination has no public address, and there is no peering or private way"
			return p
		}
		p.destination = out
	}
	for _, e := range []end{from, to} {
		if e.nic == nil && !global(e.given) {
			p.reason = fmt.Sprintf("there is no way to %s over the Internet", e.given)
			return p
		}
	}
	p.kind = "internet"
	return p
}

// global says whether an address is of the public Internet.
func global(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(a)
}

// up says whether something answers at the end.
func (x *index) up(e end) bool {
	if e.nic == nil {
		return true
	}
	vm := x.machines[e.nic.key()]
	return vm == nil || vm.power == "running"
}
