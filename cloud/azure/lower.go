package azure

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Quotas are the limits of a subscription in a region. A zero field has Azure's
// default.
type Quotas struct {
	RulesPerNSG     int // 1,000, of both directions together
	AddressesPerNSG int // 4,000 sources, and as many destinations, over all rules
	NSGsPerRegion   int // 5,000, whoever made them
}

func (q Quotas) orDefaults() Quotas {
	return Quotas{cmp.Or(q.RulesPerNSG, 1000), cmp.Or(q.AddressesPerNSG, 4000), cmp.Or(q.NSGsPerRegion, 5000)}
}

// check refuses what cannot be.
func (q Quotas) check() error {
	d := q.orDefaults()
	switch {
	case d.RulesPerNSG < 2, d.AddressesPerNSG < 1, d.NSGsPerRegion < 1:
		return errors.New("quotas: a limit that leaves no place for a rule in each direction")
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
	// Foreign is how many NSGs of the region are not ours, or are of another VNet.
	Foreign int
}

// Peer is a peered VNet.
type Peer struct {
	VNet     string // its resource ID in lower case
	Prefixes []netip.Prefix
}

// Lower returns the Objects that enforce rs in a VNet, and what they cannot. What
// it returns depends on its arguments alone.
func Lower(p Place, rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	p.Quotas = p.Quotas.orDefaults()
	l := newLowering(p, rs)
	for _, c := range l.classes {
		l.fit(c)
	}
	l.ration(max(p.Quotas.NSGsPerRegion-p.Foreign, 1))
	l.nameNSGs()
	out := map[string]Object{}
	for _, c := range l.classes {
		key := NSGKey(c.nsg.Class)
		out[key] = Object{NSG: c.nsg}
		for _, nic := range c.nics {
			out[NICKey(nic)] = Object{NIC: &NIC{NSG: key, Kept: true}}
		}
	}
	return out, plan.SortRefusals(l.refusals)
}

// lowering is one call of Lower.
type lowering struct {
	Place
	rs       policy.Ruleset
	f        *flat.Flattener
	classes  []*class // by ID
	refusals []policy.Refusal
}

// class is all network interfaces that are under the same policy.
type class struct {
	id        string
	parts     []part // more than one where several workloads have one interface
	workloads []string
	nics      []string
	families  flat.Set // all addresses of the families that it may speak
	nsg       *NSG
	carriers  []string // network interfaces that have the NSG: those of twins, too
	twin      *class   // whose NSG it shares, since they have the same rules
	closed    bool     // it shares the one that lets nothing pass
	stay      int      // how many interfaces have its NSG already
	fresh     bool     // the NSG must be a new one
}

// part is what one workload brings to a class: a flow passes if all parts allow it.
type part struct{ in, out flat.Input }

func (p part) input(d policy.Direction) flat.Input {
	if d == policy.Egress {
		return p.out
	}
	return p.in
}

var directions = []policy.Direction{policy.Ingress, policy.Egress}

func newLowering(p Place, rs policy.Ruleset) *lowering {
	l := &lowering{Place: p, rs: rs}
	o := flat.Options{Prefixes: p.Prefixes}
	if len(rs.Workloads) > 0 {
		o.Network = rs.Workloads[0].Workload.Network
	}
	for _, x := range p.Peers {
		o.Joined = append(o.Joined, flat.Network{ID: x.VNet, Prefixes: x.Prefixes})
	}
	l.f = flat.New(rs, o)
	l.classify()
	return l
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// classify finds the classes of all interfaces.
func (l *lowering) classify() {
	complete := map[string]int{} // how many rules each policy has here
	for i := range l.rs.Rules {
		complete[l.rs.Rules[i].Policy]++
	}
	type entry struct {
		id, workload string
		part         part
	}
	byNIC, addrs := map[string][]entry{}, map[string][]netip.Addr{}
	for _, e := range l.rs.Workloads {
		if !isEnforced(e) {
			continue
		}
		if len(e.Workload.Interfaces) == 0 {
			l.refuse(policy.Refusal{Workloads: []string{e.Workload.ID}, Reason: policy.RefusedIsolation,
				Message: "the VM has no network interface that is known, so nothing can be attached"})
		}
		in := part{flat.InputOf(e, policy.Ingress), flat.InputOf(e, policy.Egress)}
		for _, n := range e.Workload.Interfaces {
			id := strings.ToLower(n.ID)
			byNIC[id] = append(byNIC[id], entry{l.identity(e, complete), e.Workload.ID, in})
			addrs[id] = append(addrs[id], n.Addrs...)
		}
	}
	byID := map[string]*class{}
	for _, nic := range slices.Sorted(maps.Keys(byNIC)) {
		entries := byNIC[nic]
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.workload, b.workload)) })
		var ids []string
		var parts []part
		for _, e := range entries {
			if n := len(ids); n == 0 || ids[n-1] != e.id {
				ids, parts = append(ids, e.id), append(parts, e.part)
			}
		}
		id := ids[0]
		if len(ids) > 1 {
			id = hash(ids...)
		}
		c := byID[id]
		if c == nil {
			c = &class{id: id, parts: parts}
			byID[id] = c
		}
		c.nics, c.families = append(c.nics, nic), c.families.Union(familiesOf(addrs[nic]))
		for _, e := range entries {
			c.workloads = append(c.workloads, e.workload)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		c := byID[id]
		slices.Sort(c.workloads)
		c.workloads, c.carriers = slices.Compact(c.workloads), c.nics
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

// isEnforced says whether any policy has a say about e. The interfaces of the
// others keep what they have.
func isEnforced(e policy.Enforced) bool {
	return len(e.Ingress)+len(e.Egress) > 0 || e.IsolatedIngress != "" || e.IsolatedEgress != "" || e.DeniesIngress || e.DeniesEgress
}

// identity names the policies that e is under. It stays when a policy's rules
// change, as long as all of them apply, and when members of groups do: then a
// class keeps its NSG, and no interface has to change.
func (l *lowering) identity(e policy.Enforced, complete map[string]int) string {
	byPolicy := map[string][]string{}
	named := false
	for _, key := range slices.Concat(e.Ingress, e.Egress) {
		r := l.f.Rule(key)
		if r == nil {
			continue
		}
		byPolicy[r.Policy] = append(byPolicy[r.Policy], key)
		named = named || r.Direction == policy.Ingress && slices.ContainsFunc(r.Traffic, func(t policy.Traffic) bool { return t.PortName != "" })
	}
	parts := []string{fmt.Sprint(e.IsolatedIngress != "", e.IsolatedEgress != "", e.DeniesIngress, e.DeniesEgress)}
	for _, id := range slices.Sorted(maps.Keys(byPolicy)) {
		parts = append(parts, id)
		if keys := byPolicy[id]; len(keys) != complete[id] {
			parts = append(parts, strings.Join(keys, " "))
		}
	}
	if named {
		parts = append(parts, fmt.Sprint(e.Workload.Ports))
	}
	return hash(parts...)
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
