package flat

import (
	"maps"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Options say where the rules are enforced. The zero value is ready to use.
type Options struct {
	// Network is that of the workloads on which the rules are enforced.
	Network string
	// Prefixes are those of the network. A workload of another network with an
	// address inside them cannot be reached at it from here. None means not known.
	Prefixes []netip.Prefix
	// Joined are the networks to which this one has a route. An address in one's
	// prefixes stands for a workload there, not for one of another cloud network.
	Joined []Network
	// WholeSCTP: the target tells SCTP from other protocols, but not its ports.
	WholeSCTP bool
}

// Network is a network and its prefixes.
type Network struct {
	ID       string
	Prefixes []netip.Prefix
}

// Flattener flattens the rules of one Ruleset. It may be used by one goroutine
// at a time; what it has found of a group it keeps.
type Flattener struct {
	o      Options
	local  Set
	rules  map[string]*policy.TargetRule
	groups map[string]*policy.Members
	known  map[netip.Addr][]*policy.Workload // those that an address may stand for
	// unclear are the addresses that may stand for workloads of several
	// networks, or for one of another network while they belong to this one.
	unclear    Set
	members    map[string]match
	peers      map[string]match
	portSets   map[portKey]Set
	groupPorts map[groupPort]match
	named      map[portKey][]uint16 // without ports
	allKnown   *Set
}

type groupPort struct {
	group string
	port  portKey
}

type portKey struct {
	name     string
	protocol policy.Protocol
	port     uint16
}

// match is a set of addresses that a rule matches for certain, and one of those
// that it may match or not. They may overlap: certain is certain.
type match struct{ certain, perhaps Set }

// New returns a Flattener for rs.
func New(rs policy.Ruleset, o Options) *Flattener {
	f := &Flattener{
		o: o, local: SetOf(o.Prefixes...),
		rules:  make(map[string]*policy.TargetRule, len(rs.Rules)),
		groups: make(map[string]*policy.Members, len(rs.Groups)),
		known:  map[netip.Addr][]*policy.Workload{}, members: map[string]match{},
		peers: map[string]match{}, portSets: map[portKey]Set{}, groupPorts: map[groupPort]match{}, named: map[portKey][]uint16{},
	}
	for i := range rs.Rules {
		f.rules[rs.Rules[i].Key] = &rs.Rules[i]
	}
	seen := map[string]bool{}
	learn := func(w *policy.Workload) {
		if seen[w.ID] || !w.IsPeer() {
			return
		}
		seen[w.ID] = true
		for _, a := range w.Addrs {
			f.known[a] = append(f.known[a], w)
		}
	}
	for i := range rs.Groups {
		f.groups[rs.Groups[i].Key] = &rs.Groups[i]
		for _, w := range rs.Groups[i].Workloads.All() {
			learn(w)
		}
	}
	for _, e := range rs.Workloads {
		learn(e.Workload)
	}
	f.settle()
	return f
}

// settle drops from f.known what cannot be reached from here, and finds what
// stays unclear.
func (f *Flattener) settle() {
	var unclear []netip.Addr
	for a, list := range f.known {
		here := slices.DeleteFunc(slices.Clone(list), func(w *policy.Workload) bool { return w.Network != f.o.Network })
		if len(here) > 0 {
			f.known[a] = here
			continue
		}
		joined := f.joined(a)
		if joined != "" {
			list = slices.DeleteFunc(slices.Clone(list), func(w *policy.Workload) bool { return w.Network != joined && w.Network != "" })
			if len(list) > 0 {
				f.known[a] = list
			}
		}
		switch {
		case f.local.Has(a), len(list) == 0, slices.ContainsFunc(list, func(w *policy.Workload) bool { return w.Network != list[0].Network }):
			unclear = append(unclear, a)
		}
	}
	f.unclear = SetOfAddrs(unclear...)
}

// joined returns the network of o.Joined that has an address, or "".
func (f *Flattener) joined(a netip.Addr) string {
	for _, n := range f.o.Joined {
		if slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return n.ID
		}
	}
	return ""
}

// Local returns the prefixes of the network as a Set.
func (f *Flattener) Local() Set { return f.local }

// Rule returns the rule of that key, or nil.
func (f *Flattener) Rule(key string) *policy.TargetRule { return f.rules[key] }

// Members returns the addresses at which the members of a group are seen from
// here, for certain. A group that is missing has none.
func (f *Flattener) Members(key string) Set { return f.group(key).certain }

func (f *Flattener) group(key string) match {
	m, ok := f.members[key]
	if !ok {
		m = f.addrsOf(key, func(*policy.Workload) bool { return true })
		f.members[key] = m
	}
	return m
}

// groupHaving returns the addresses of the members that declare a port.
func (f *Flattener) groupHaving(key string, k portKey) match {
	id := groupPort{key, k}
	m, ok := f.groupPorts[id]
	if !ok {
		m = f.addrsOf(key, func(w *policy.Workload) bool { return w.HasPort(k.name, k.protocol, k.port) })
		f.groupPorts[id] = m
	}
	return m
}

// addrsOf returns the addresses of those members of a group that has picks.
func (f *Flattener) addrsOf(key string, has func(*policy.Workload) bool) match {
	var certain, perhaps []netip.Addr
	g := f.groups[key]
	if g == nil {
		return match{}
	}
	for _, w := range g.Workloads.All() {
		if !has(w) {
			continue
		}
		for _, a := range w.Addrs {
			switch {
			case !f.knows(a, w.ID): // another is here in its place
			case f.unclear.Has(a):
				perhaps = append(perhaps, a)
			default:
				certain = append(certain, a)
			}
		}
	}
	return match{SetOfAddrs(certain...), SetOfAddrs(perhaps...)}
}

// knows says whether the workload of that ID is among those at a.
func (f *Flattener) knows(a netip.Addr, id string) bool {
	return slices.ContainsFunc(f.known[a], func(w *policy.Workload) bool { return w.ID == id })
}

// peersOf returns the addresses of the peers of r, whatever the traffic, without
// its services.
func (f *Flattener) peersOf(r *policy.TargetRule) match {
	if m, ok := f.peers[r.Key]; ok {
		return m
	}
	m := match{certain: f.byAddr(r)}
	for _, key := range r.Groups {
		g := f.group(key)
		m.certain, m.perhaps = m.certain.Union(g.certain), m.perhaps.Union(g.perhaps)
	}
	if len(r.Names) > 0 && r.Direction == policy.Egress {
		m.perhaps = AllAddrs()
	}
	f.peers[r.Key] = m
	return m
}

// byAddr returns the peers of r that it names by address.
func (f *Flattener) byAddr(r *policy.TargetRule) Set {
	if r.AllPeers {
		return AllAddrs()
	}
	var s Set
	for _, b := range r.Blocks {
		s = s.Union(SetOf(b.Prefix).Minus(SetOf(b.Except...)))
	}
	return s
}

// peersHaving returns the peers of r that declare one of the ports. Where a peer
// is given as a group, its member itself must declare it.
func (f *Flattener) peersHaving(r *policy.TargetRule, ports []portKey) match {
	unknown := f.unknownPorts(r)
	m := match{perhaps: f.byAddr(r).Intersect(unknown)}
	if len(r.Names) > 0 {
		m.perhaps = m.perhaps.Union(unknown)
	}
	for _, k := range ports {
		having := f.havingPort(k)
		m.certain = m.certain.Union(f.byAddr(r).Intersect(having))
		if len(r.Names) > 0 {
			m.perhaps = m.perhaps.Union(having)
		}
	}
	for _, key := range r.Groups {
		for _, k := range ports {
			g := f.groupHaving(key, k)
			m.certain, m.perhaps = m.certain.Union(g.certain), m.perhaps.Union(g.perhaps)
		}
	}
	return m
}

// havingPort returns the addresses at which a known workload has a port of that
// name. An unclear address is not among them.
func (f *Flattener) havingPort(k portKey) Set {
	if s, ok := f.portSets[k]; ok {
		return s
	}
	var addrs []netip.Addr
	for a, list := range f.known {
		if slices.ContainsFunc(list, func(w *policy.Workload) bool { return w.HasPort(k.name, k.protocol, k.port) }) {
			addrs = append(addrs, a)
		}
	}
	s := SetOfAddrs(addrs...).Minus(f.unclear)
	f.portSets[k] = s
	return s
}

// portless returns the addresses of which nobody here knows what ports they have.
func (f *Flattener) portless() Set {
	if f.allKnown == nil {
		s := SetOfAddrs(slices.Collect(maps.Keys(f.known))...).Minus(f.unclear)
		f.allKnown = &s
	}
	return AllAddrs().Minus(*f.allKnown)
}

// unknownPorts returns the addresses of which it is not known here whether they
// have a port that r names.
func (f *Flattener) unknownPorts(r *policy.TargetRule) Set {
	if len(r.PortGroups) > 0 {
		return f.unclear // everybody else who may declare a port is in the Ruleset
	}
	return f.portless()
}

// portsNamed returns the ports that known workloads declare under a name, sorted.
func (f *Flattener) portsNamed(name string, p policy.Protocol) []uint16 {
	k := portKey{name: name, protocol: p}
	out, ok := f.named[k]
	if ok {
		return out
	}
	for _, list := range f.known {
		for _, w := range list {
			for _, x := range w.Ports {
				if x.Name == name && x.Protocol == p {
					out = append(out, x.Port)
				}
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	f.named[k] = out
	return out
}
