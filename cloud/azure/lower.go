package azure

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/classes"
	"isobar.dev/policy/flat"
)

// Quotas are the limits of a subscription in a region. A zero field has Azure's
// default.
type Quotas struct {
	RulesPerNSG     int // 1,000, of both directions together
	AddressesPerNSG int // 4,000 sources, and as many destinations, over all rules
	NSGsPerRegion   int // 5,000, whoever made them

	ASGsPerRegion int // 3,000, whoever made them
	ASGsPerNIC    int // 20, whoever made them
	ASGsPerNSG    int // 100, over all rules
	ASGsPerRule   int // 10 as its source, and as many as its destination
	ConfigsPerASG int // 4,000 IP configurations
}

func (q Quotas) orDefaults() Quotas {
	return Quotas{
		cmp.Or(q.RulesPerNSG, 1000), cmp.Or(q.AddressesPerNSG, 4000), cmp.Or(q.NSGsPerRegion, 5000),
		cmp.Or(q.ASGsPerRegion, 3000), cmp.Or(q.ASGsPerNIC, 20), cmp.Or(q.ASGsPerNSG, 100), cmp.Or(q.ASGsPerRule, 10), cmp.Or(q.ConfigsPerASG, 4000),
	}
}

// check refuses what cannot be.
func (q Quotas) check() error {
	d := q.orDefaults()
	switch {
	case d.RulesPerNSG < 2, d.AddressesPerNSG < 1, d.NSGsPerRegion < 1:
		return errors.New("quotas: a limit that leaves no place for a rule in each direction")
	case d.ASGsPerRegion < 1, d.ASGsPerNIC < 1, d.ASGsPerNSG < 1, d.ASGsPerRule < 1, d.ConfigsPerASG < 1:
		return errors.New("quotas: a limit below 1")
	case d.RulesPerNSG > lastPriority-firstPriority+1:
		return fmt.Errorf("quotas: %d rules in a group: there are not so many priorities", d.RulesPerNSG)
	}
	return nil
}

// Place is what lowering knows of a VNet. The zero value knows nothing, and is
// ready to use.
type Place struct {
	Quotas   Quotas
	Prefixes []netip.Prefix // of the VNet; none means not known
	Peers    []Peer         // by VNet
	// Present are our NSGs, by class, as they are, and Attached is which of them each
	// network interface has, by its resource ID in lower case.
	Present  map[string]*NSG
	Attached map[string]string
	// Taken is how many rules of others are in each of our NSGs, by class.
	Taken map[string]int
	// Foreign is how many NSGs of the region are not ours, or are of another VNet, and
	// ForeignASGs how many ASGs.
	Foreign, ForeignASGs int
	// Interfaces are those of the VNet, by resource ID in lower case; nil means not known.
	Interfaces map[string]Interface
	Rules      map[string]*NSG // all our NSGs as they are, by key
	ASGs       []string        // the classes of our ASGs, sorted
	Spoiled    map[string]bool // those of them that others have given to what we do not write
	NoASGs     bool            // they may not be read or written
	// ManyPeers and ManyClasses are from how many prefixes, named by how many classes, a
	// group of peers gets an ASG; 0 means 200 and 2. A change of members then costs one
	// call for each member, whose interface is written, and not one for each class.
	ManyPeers, ManyClasses int
}

// Peer is a peered VNet.
type Peer struct {
	VNet     string // its resource ID in lower case
	Prefixes []netip.Prefix
}

// Lower returns the Objects that enforce rs in a VNet, and what they cannot. What
// it returns depends on its arguments alone.
func Lower(p Place, rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	p.Quotas, p.ManyPeers, p.ManyClasses = p.Quotas.orDefaults(), cmp.Or(p.ManyPeers, 200), cmp.Or(p.ManyClasses, 2)
	l := newLowering(p, rs)
	l.enroll(l.choose())
	for _, c := range l.classes {
		l.fit(c)
	}
	l.ration(max(p.Quotas.NSGsPerRegion-p.Foreign, 1))
	l.dropUnused()
	for l.nameNSGs(); l.untangle(); {
		l.nameNSGs()
	}
	return l.objects(), plan.SortRefusals(l.refusals)
}

// objects returns what has been lowered.
func (l *lowering) objects() map[string]Object {
	out := map[string]Object{}
	for _, c := range l.classes {
		key := NSGKey(c.nsg.Class)
		out[key] = Object{NSG: c.nsg}
		for _, nic := range c.nics {
			out[NICKey(nic)] = Object{NIC: &NIC{NSG: key, Kept: true}}
		}
	}
	for _, m := range l.members {
		out[m.key()] = Object{ASG: &ASG{Class: m.class, Members: m.addrs}}
		for _, nic := range m.nics {
			key := NICKey(nic)
			if out[key].NIC == nil {
				out[key] = Object{NIC: &NIC{}}
			}
			n := out[key].NIC
			n.Groups, n.Marked = append(n.Groups, m.key()), true
			slices.Sort(n.Groups)
		}
	}
	return out
}

// lowering is one call of Lower.
type lowering struct {
	Place
	rs       policy.Ruleset
	f        *flat.Flattener
	network  string
	classes  []*class // by ID
	refusals []policy.Refusal
	members  []*membership           // the larger first
	told     map[string][]netip.Addr // of interfaces, by workloads
	bases    map[string]where        // what the classes of ASGs stand for
}

// class is all network interfaces that are under the same policy.
type class struct {
	id        string
	parts     []classes.Part // more than one where several workloads have one interface
	workloads []string
	nics      []string
	families  flat.Set                     // all addresses of the families that it may speak
	peers     []string                     // Keys of the groups that its rules name, sorted
	usable    map[string]bool              // those of them for which its rules can name ASGs
	picks     map[string]bool              // those of these that it does name, where they are ASGs
	members   []*membership                // of these, the larger first
	plain     map[policy.Direction]attempt // see whole
	nsg       *NSG
	carriers  []string // network interfaces that have the NSG: those of twins, too
	twin      *class   // whose NSG it shares, since they have the same rules
	closed    bool     // it shares the one that lets nothing pass
	stay      int      // how many interfaces have its NSG already
	fresh     bool     // the NSG must be a new one
}

var directions = []policy.Direction{policy.Ingress, policy.Egress}

func newLowering(p Place, rs policy.Ruleset) *lowering {
	l := &lowering{Place: p, rs: rs, bases: map[string]where{}}
	if len(rs.Workloads) > 0 {
		l.network = rs.Workloads[0].Workload.Network
	}
	o := flat.Options{Prefixes: p.Prefixes, Network: l.network}
	for _, x := range p.Peers {
		o.Joined = append(o.Joined, flat.Network{ID: x.VNet, Prefixes: x.Prefixes})
	}
	l.f = flat.New(rs, o)
	l.tell()
	l.classify()
	for _, c := range l.classes {
		c.peers = l.peersOf(c)
	}
	return l
}

// hash returns a short name.
func hash(parts ...string) string { return classes.Hash(parts...) }

// classify finds the classes of all interfaces.
func (l *lowering) classify() {
	addrs := map[string][]netip.Addr{}
	for _, e := range l.rs.Workloads {
		if classes.IsEnforced(e) && len(e.Workload.Interfaces) == 0 {
			l.refuse(policy.Refusal{Workloads: []string{e.Workload.ID}, Reason: policy.RefusedIsolation,
				Message: "the VM has no network interface that is known, so nothing can be attached"})
		}
	}
	for _, x := range classes.Of(l.rs, l.f, func(w *policy.Workload, n policy.Interface) string {
		id := strings.ToLower(n.ID)
		if isInstanceNIC(id) {
			l.refuse(policy.Refusal{Workloads: []string{w.ID}, Reason: policy.RefusedIsolation,
				Message: n.ID + " is not governed: an interface of a uniform scale set has what the set says"})
			return ""
		}
		addrs[id] = append(addrs[id], n.Addrs...)
		return id
	}) {
		c := &class{id: x.ID, parts: x.Parts, workloads: x.Workloads, nics: x.NICs, carriers: x.NICs}
		for _, nic := range x.NICs {
			c.families = c.families.Union(familiesOf(addrs[nic]))
		}
		l.classes = append(l.classes, c)
	}
}

// familiesOf returns all addresses that an interface of such addresses may talk to.
// One of which none is known may talk to any.
func familiesOf(addrs []netip.Addr) flat.Set {
	if len(addrs) == 0 || slices.ContainsFunc(addrs, netip.Addr.Is6) {
		return flat.AllAddrs()
	}
	return flat.AllAddrs().V4()
}

func (l *lowering) refuse(r policy.Refusal) {
	r.Target = l.rs.Target
	l.refusals = append(l.refusals, r)
}

// refuseAll refuses for all workloads of a class.
func (l *lowering) refuseAll(c *class, refusals []policy.Refusal) {
	for _, r := range refusals {
		r.Workloads = c.workloads
		l.refuse(r)
	}
}
