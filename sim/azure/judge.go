package azure

import (
	"cmp"
	"net/netip"
	"slices"
)

// index is the live state as the judge needs it.
type index struct {
	w        *world
	names    map[string][]*resource      // machines and interfaces that no machine of the same name has, by folded name
	machines map[string]*resource        // by key of an interface
	owners   map[netAddr]*resource       // interfaces by private address
	byAddr   map[netip.Addr][]*resource  // the same, in whatever network
	publics  map[netip.Addr]*resource    // interfaces by public address
	publicOf map[string]netip.Addr       // by key of a public address
	standard map[string]bool             // keys of public addresses of the standard SKU
	members  map[string]map[netAddr]bool // of application security groups, by key
	uplinks  map[string]Uplink           // by key of a network
	admin    map[string][]*rule          // in order, by key of a network
	spaces   map[string][]netip.Prefix   // what VirtualNetwork means, by key of a network
}

func (w *world) newIndex() *index {
	x := &index{
		w: w, names: map[string][]*resource{}, machines: map[string]*resource{}, owners: map[netAddr]*resource{}, byAddr: map[netip.Addr][]*resource{},
		publics: map[netip.Addr]*resource{}, publicOf: map[string]netip.Addr{}, standard: map[string]bool{}, members: map[string]map[netAddr]bool{},
		uplinks: map[string]Uplink{}, admin: map[string][]*rule{}, spaces: map[string][]netip.Prefix{},
	}
	keys := sortedKeys(w.things)
	for _, k := range keys {
		switch v := w.things[k].live.(type) {
		case *public:
			x.publicOf[k], x.standard[k] = v.addr, v.standard
		case *machine:
			name := fold(v.id.name())
			if w.things[k].kind == scaleMachines {
				name = fold(v.id.parent().name()) + "_" + name
			}
			x.names[name] = append(x.names[name], w.things[k])
			for _, n := range v.nics {
				x.machines[keyOf(n)] = w.things[k]
			}
		}
	}
	for _, k := range keys {
		if n, ok := w.things[k].live.(*nic); ok {
			x.addInterface(w.things[k], n)
		}
	}
	for _, s := range w.subs {
		for _, u := range s.Uplinks {
			x.uplinks[keyOf(u.VirtualNetwork)] = u
		}
		for _, a := range s.AdminRules {
			ru, err := w.adminRule(a)
			if err != nil {
				continue // loading has looked
			}
			for _, n := range a.VirtualNetworks {
				x.admin[keyOf(n)] = append(x.admin[keyOf(n)], ru)
			}
		}
	}
	for _, rules := range x.admin {
		slices.SortFunc(rules, func(a, b *rule) int { return cmp.Or(a.priority-b.priority, cmp.Compare(a.name, b.name)) })
	}
	for _, k := range keys {
		if n, ok := w.things[k].live.(*network); ok {
			x.spaces[k] = x.space(k, n)
		}
	}
	return x
}

func (x *index) addInterface(r *resource, n *nic) {
	if name := fold(r.id.name()); x.names[name] == nil || slices.Contains(anyInterface, x.names[name][0].kind) {
		x.names[name] = append(x.names[name], r)
	}
	for _, c := range n.configs {
		at := netAddr{n.network, c.addr}
		x.owners[at] = r
		x.byAddr[c.addr] = append(x.byAddr[c.addr], r)
		if a, ok := x.publicOf[keyOf(c.public)]; ok {
			x.publics[a] = r
		}
		for _, g := range c.groups {
			if x.members[keyOf(g)] == nil {
				x.members[keyOf(g)] = map[netAddr]bool{}
			}
			x.members[keyOf(g)][at] = true
		}
	}
}

// space is what the service tag VirtualNetwork means in a network: its own addresses, those of networks
// that are peered with it and may be reached, and those behind its gateway.
func (x *index) space(key string, n *network) []netip.Prefix {
	out := slices.Clone(n.prefixes)
	for _, p := range n.peerings {
		if o, ok := x.w.liveNetwork(p.remote); ok && p.access && x.w.connected(key, p.remote) {
			out = append(out, o.prefixes...)
		}
	}
	out = append(out, x.uplinks[key].OnPremises...)
	return append(out, netip.PrefixFrom(hostAddr, 32))
}

func (x *index) onPremises(network string, a netip.Addr) bool {
	n, ok := x.w.liveNetwork(network)
	return ok && !within(n.prefixes, a) && within(x.uplinks[network].OnPremises, a)
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
}

// packet is what rules look at.
type packet struct {
	protocol            int
	sourcePort, port    int
	source, destination netip.Addr
}

// closed says whether an interface has a public address that is closed unless a security group opens it.
func (x *index) closed(e end) bool {
	for _, c := range e.nic.live.(*nic).configs {
		if c.public != "" && x.standard[keyOf(c.public)] {
			return true
		}
	}
	return false
}

// judge asks the rules of an interface. shut says that without any security group nothing passes.
func (x *index) judge(e end, in bool, pk packet, shut bool) Side {
	s := Side{Result: Allowed, Interface: e.nic.id.String()}
	for _, ru := range x.admin[e.network] {
		if ru.in != in || !x.applies(ru, pk, e.network) {
			continue
		}
		s.AdminRule = ru.name
		if !ru.allow {
			s.Result = Denied
		}
		if !ru.allow || ru.always {
			return s
		}
		break
	}
	n := e.nic.live.(*nic)
	own, subnet := x.securityGroup(n.nsg), x.securityGroup(x.subnetGroup(n, pk, in))
	if own == nil && subnet == nil && shut {
		s.Result = Denied
	}
	if own != nil {
		s.Group = own.id.String()
		s.Rule = x.decide(own, in, pk, e.network, &s)
	}
	if subnet != nil {
		s.SubnetGroup = subnet.id.String()
		s.SubnetRule = x.decide(subnet, in, pk, e.network, &s)
	}
	return s
}

func (x *index) securityGroup(key string) *resource {
	r := x.w.things[key]
	if r == nil || r.live == nil {
		return nil
	}
	return r
}

// subnetGroup is the key of the security group of the subnet that a packet goes through.
func (x *index) subnetGroup(n *nic, pk packet, in bool) string {
	mine := pk.source
	if in {
		mine = pk.destination
	}
	for _, c := range n.configs {
		if c.addr != mine {
			continue
		}
		id, _ := parseID(c.subnet) // it has been read before
		if v, ok := x.w.liveNetwork(n.network); ok {
			for _, s := range v.subnets {
				if fold(s.name) == fold(id.name()) {
					return s.nsg
				}
			}
		}
	}
	return ""
}

// decide finds the first rule that matches, and denies when it does.
func (x *index) decide(g *resource, in bool, pk packet, network string, s *Side) string {
	for _, ru := range slices.Concat(g.live.(*securityGroup).rules, defaultRules()) {
		if ru.in != in || !x.applies(ru, pk, network) {
			continue
		}
		if !ru.allow {
			s.Result = Denied
		}
		return ru.name
	}
	s.Result = Denied // not reached: the last default rule matches everything
	return ""
}

// protocols are the numbers of a rule's protocol; Icmp is that of both families.
var protocols = map[string][]int{"Tcp": {6}, "Udp": {17}, "Icmp": {1, 58}, "Esp": {50}, "Ah": {51}} // read only

// applies says whether a rule matches a packet at an interface of a network.
func (x *index) applies(ru *rule, pk packet, network string) bool {
	if ru.protocol != "*" && !slices.Contains(protocols[ru.protocol], pk.protocol) {
		return false
	}
	switch {
	case pk.protocol == 6 || pk.protocol == 17:
		if !ru.from.hasPort(pk.sourcePort) || !ru.to.hasPort(pk.port) {
			return false
		}
	case ru.protocol == "*" && !(ru.from.anyPort && ru.to.anyPort):
		return false // the packet has no ports, and the rule asks for some
	}
	return x.matches(&ru.from, pk.source, network) && x.matches(&ru.to, pk.destination, network)
}

func (s *side) hasPort(n int) bool {
	return s.anyPort || slices.ContainsFunc(s.ports, func(p ports) bool { return p.first <= n && n <= p.last })
}

func (x *index) matches(s *side, a netip.Addr, network string) bool {
	if s.anywhere || within(s.prefixes, a) {
		return true
	}
	for _, t := range s.tags {
		if x.tagged(t, a, network) {
			return true
		}
	}
	for _, g := range s.groups {
		if x.members[keyOf(g)][netAddr{network, a}] {
			return true
		}
	}
	return false
}

// tagged says whether a service tag means an address, as seen from a network.
func (x *index) tagged(tag string, a netip.Addr, network string) bool {
	switch fold(tag) {
	case "virtualnetwork":
		return within(x.spaces[network], a)
	case "internet":
		return global(a) && !within(x.spaces[network], a)
	case "azureloadbalancer":
		return a == hostAddr
	}
	return within(x.w.tags[fold(tag)], a)
}
