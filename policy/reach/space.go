package reach

import (
	"net/netip"
	"slices"
)

// edges are the addresses at which what rules tell of addresses may change.
func (t *terms) edges() []netip.Addr {
	var out []netip.Addr
	prefix := func(p netip.Prefix) {
		if !p.IsValid() {
			return
		}
		out = append(out, p.Masked().Addr())
		if next := lastOf(p).Next(); next.IsValid() {
			out = append(out, next)
		}
	}
	addr := func(a netip.Addr) { prefix(netip.PrefixFrom(a, a.BitLen())) }
	for _, b := range t.blocks {
		prefix(b.Prefix)
		for _, e := range b.Except {
			prefix(e)
		}
	}
	for a := range t.services {
		addr(a)
	}
	for _, a := range t.groups {
		addr(a)
	}
	return out
}

// lastOf returns the last address of p.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// sortedEdges returns where stretches of addresses begin, of both families.
func sortedEdges(edges []netip.Addr) []netip.Addr {
	all := append([]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}, edges...)
	slices.SortFunc(all, netip.Addr.Compare) // IPv4 first
	return slices.Compact(all)
}

// lastBefore returns the last address of the stretch that begins at edges[i].
func lastBefore(edges []netip.Addr, i int) netip.Addr {
	if i+1 < len(edges) && edges[i+1].Is4() == edges[i].Is4() {
		return edges[i+1].Prev()
	}
	return lastOf(netip.PrefixFrom(edges[i], 0))
}

// free returns an address from first to last that nobody has. An IPv4 address written as
// IPv6 is none: it stands for the other.
func free(first, last netip.Addr, taken func(netip.Addr) bool) (netip.Addr, bool) {
	for a := first; a.IsValid() && a.Compare(last) <= 0; a = a.Next() {
		if a.Is4In6() {
			return a, false
		}
		if !taken(a) {
			return a, true
		}
	}
	return first, false
}

// prefixes returns the fewest that have just the addresses from first to last.
func prefixes(first, last netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for first.IsValid() && first.Compare(last) <= 0 {
		bits := first.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(first, bits-1)
			if wider.Masked().Addr() != first || lastOf(wider).Compare(last) > 0 {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(first, bits)
		out = append(out, p)
		first = lastOf(p).Next()
	}
	return out
}
