package reach

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// terms are all that the rules of a world tell ends apart by.
type terms struct {
	s        policy.Snapshot
	peers    picker     // what the rules' peers select; the relative ones as they would be in all namespaces
	relative []bool     // by selection of peers
	subjects picker     // what policies apply to
	policies [][]string // IDs, by selection of subjects
	blocks   []policy.Block
	services map[netip.Addr][]string // IDs, by address
	ports    map[string]bool         // names of ports
	groups   []netip.Addr            // that rules of IGMP name
}

func termsOf(s policy.Snapshot) *terms {
	t := &terms{s: s, services: map[netip.Addr][]string{}, ports: map[string]bool{}}
	for id, svc := range s.Services.All() {
		for _, a := range svc.Addrs {
			t.services[a] = append(t.services[a], id)
		}
	}
	seen := map[string]bool{}
	blocks := func(list []policy.Block) {
		for _, b := range list {
			if k := b.String(); !seen[k] {
				seen[k] = true
				t.blocks = append(t.blocks, b)
			}
		}
	}
	for id, p := range s.Policies.All() {
		t.apply(id, p)
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, sel := range r.Peers.Set.Selections {
				t.peer(sel)
			}
			blocks(r.Peers.Blocks)
			for _, id := range r.Peers.Set.Groups {
				sel, bl, _ := s.Members(id)
				for _, sel := range sel {
					t.peer(sel)
				}
				blocks(bl)
			}
			for _, x := range r.Traffic {
				if x.PortName != "" {
					t.ports[x.PortName] = true
				}
				if x.GroupAddress.IsValid() && !slices.Contains(t.groups, x.GroupAddress) {
					t.groups = append(t.groups, x.GroupAddress)
				}
			}
		}
	}
	return t
}

// peer returns the number of a selection of peers.
func (t *terms) peer(sel policy.Selection) int32 {
	isRelative := sel.IsRelative()
	n := t.peers.add(everywhere(sel), isRelative)
	if int(n) == len(t.relative) {
		t.relative = append(t.relative, isRelative)
	}
	return n
}

// everywhere is what sel may select, whatever it is relative to.
func everywhere(sel policy.Selection) policy.Selection {
	if sel.IsRelative() {
		sel.Scope, sel.SameKeys = policy.AllNamespaces, nil
	}
	return sel
}

// apply notes what p applies to.
func (t *terms) apply(id string, p *policy.Policy) {
	note := func(set policy.Set) {
		for _, sel := range t.s.Subjects(set, p.Namespace) {
			n := t.subjects.add(sel, false)
			if int(n) == len(t.policies) {
				t.policies = append(t.policies, nil)
			}
			if list := t.policies[n]; len(list) == 0 || list[len(list)-1] != id {
				t.policies[n] = append(list, id)
			}
		}
	}
	note(p.AppliedTo)
	for _, d := range directions {
		for i := range p.Rules(d) {
			if set := p.Rules(d)[i].AppliedTo; set != nil {
				note(*set)
			}
		}
	}
}

// picker finds those of many selections that pick a workload, without asking each.
type picker struct {
	selections []policy.Selection
	numbers    map[pickerKey]int32
	drawers    map[drawer][]int32
	found      []int32
}

type pickerKey struct {
	form       string
	isRelative bool
}

// drawer holds selections that can pick only what is in one namespace, and only what
// has one label. Its zero value has those of which neither is known.
type drawer struct {
	isScoped  bool
	namespace string
	label     policy.Label
}

// add returns the number of sel, which is not relative.
func (p *picker) add(sel policy.Selection, isRelative bool) int32 {
	if p.numbers == nil {
		p.numbers, p.drawers = map[pickerKey]int32{}, map[drawer][]int32{}
	}
	key := pickerKey{sel.String(), isRelative}
	if n, ok := p.numbers[key]; ok {
		return n
	}
	n := int32(len(p.selections))
	p.numbers[key] = n
	p.selections = append(p.selections, sel)
	var in drawer
	if sel.Scope == policy.OneNamespace {
		in.isScoped, in.namespace = true, sel.Namespace
	}
	for _, r := range sel.Labels {
		if r.Op == policy.In {
			for _, v := range r.Values {
				in.label = policy.Label{Key: r.Key, Value: v}
				p.drawers[in] = append(p.drawers[in], n)
			}
			return n
		}
	}
	p.drawers[in] = append(p.drawers[in], n)
	return n
}

// picks returns the numbers of those that pick x, sorted. It is good until the next call.
func (p *picker) picks(x *policy.Workload, ns *policy.Namespace) []int32 {
	p.found = p.found[:0]
	look := func(in drawer) {
		for _, n := range p.drawers[in] {
			if p.selections[n].Picks(x, ns) {
				p.found = append(p.found, n)
			}
		}
	}
	for _, in := range []drawer{{}, {isScoped: true, namespace: x.Namespace}} {
		look(in)
		for _, l := range x.Labels {
			in.label = l
			if l != (policy.Label{}) {
				look(in)
			}
		}
	}
	slices.Sort(p.found)
	p.found = slices.Compact(p.found)
	return p.found
}

// tell appends what rules tell of a peer to key, and returns which selections pick it.
func (t *terms) tell(key []byte, x *policy.Workload) ([]byte, []int32) {
	found := t.peers.picks(x, t.s.NamespaceOf(x))
	isRelative := false
	for _, n := range found {
		key = binary.AppendUvarint(key, uint64(n)+1)
		isRelative = isRelative || t.relative[n]
	}
	key = append(key, 0, flag(isRelative))
	if isRelative { // whom it stands for depends on the namespace, then
		key = append(binary.AppendUvarint(key, uint64(len(x.Namespace))), x.Namespace...)
	}
	return t.tellPorts(key, x), found
}

// tellPorts appends what rules tell of the ports that x declares to key.
func (t *terms) tellPorts(key []byte, x *policy.Workload) []byte {
	if len(t.ports) == 0 {
		return key
	}
	var ports []policy.NamedPort
	for _, n := range x.Ports {
		if t.ports[n.Name] {
			ports = append(ports, n)
		}
	}
	if len(ports) > 1 {
		slices.SortFunc(ports, comparePorts)
		ports = slices.Compact(ports)
	}
	for _, n := range ports {
		key = append(binary.AppendUvarint(key, uint64(len(n.Name))), n.Name...)
		key = append(key, byte(n.Protocol), byte(n.Port>>8), byte(n.Port))
	}
	return key
}

// tellAddr returns what rules tell of an address.
func (t *terms) tellAddr(a netip.Addr) string {
	key := []byte{}
	for i, x := range t.blocks {
		if x.Has(a) {
			key = binary.AppendUvarint(key, uint64(i)+1)
		}
	}
	return fmt.Sprint(string(key), "|", t.services[a], t.groupsAt(a))
}

func (t *terms) isService(a netip.Addr) bool { return len(t.services[a]) > 0 }

// groupsAt returns the address if a rule of IGMP names it.
func (t *terms) groupsAt(a netip.Addr) []netip.Addr {
	if slices.Contains(t.groups, a) {
		return []netip.Addr{a}
	}
	return nil
}
