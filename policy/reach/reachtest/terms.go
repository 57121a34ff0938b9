package reachtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// terms are all that the rules of a world tell peers apart by.
type terms struct {
	selections map[string]policy.Selection // by their canonical form; none is relative
	relative   []policy.Selection          // as they would be in all namespaces
	blocks     []policy.Block
	services   map[netip.Addr][]string // IDs, by address
	ports      map[string]bool         // names of ports
	groups     []netip.Addr            // that rules of IGMP name
}

func termsOf(s policy.Snapshot) terms {
	t := terms{selections: map[string]policy.Selection{}, services: map[netip.Addr][]string{}, ports: map[string]bool{}}
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
	selections := func(list []policy.Selection) {
		for _, sel := range list {
			if sel.IsRelative() {
				sel.Scope = policy.AllNamespaces
				t.relative = append(t.relative, sel)
				continue
			}
			t.selections[sel.String()] = sel
		}
	}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			selections(r.Peers.Set.Selections)
			blocks(r.Peers.Blocks)
			for _, id := range r.Peers.Set.Groups {
				sel, bl, _ := s.Members(id)
				selections(sel)
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

// tell returns what rules tell of a peer.
func (t terms) tell(p *policy.Workload, ns *policy.Namespace) string {
	var out []string
	for key, sel := range t.selections {
		if sel.Picks(p, ns) {
			out = append(out, key)
		}
	}
	for _, sel := range t.relative {
		if sel.Picks(p, ns) {
			// Whom it stands for depends on the namespace, then.
			out = append(out, fmt.Sprintf("%v in %s", sel, p.Namespace))
		}
	}
	for _, x := range p.Ports {
		if t.ports[x.Name] {
			out = append(out, fmt.Sprintf("port %#v", x))
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ";")
}

// tellAddr returns what rules tell of an address.
func (t terms) tellAddr(a netip.Addr) string {
	var b strings.Builder
	for i, x := range t.blocks {
		if x.Has(a) {
			fmt.Fprint(&b, " ", i)
		}
	}
	fmt.Fprint(&b, " ", t.services[a], t.groupsAt(a))
	return b.String()
}

func (t terms) isService(a netip.Addr) bool { return len(t.services[a]) > 0 }

// groupsAt returns the address if a rule of IGMP names it.
func (t terms) groupsAt(a netip.Addr) []netip.Addr {
	if slices.Contains(t.groups, a) {
		return []netip.Addr{a}
	}
	return nil
}
