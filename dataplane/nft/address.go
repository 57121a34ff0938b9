package nft

import (
	"cmp"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// book says for whom addresses stand.
type book struct {
	// others are addresses that stand for something else than a given workload may say:
	// with the networks of all who have them. An address that workloads of one network
	// alone have is not in it.
	others   map[netip.Addr][]string
	networks map[string]bool // of all who are a peer
}

// newBook notes the addresses that workloads of several networks have.
func (l *lowering) newBook() *book {
	networks := map[string]bool{}
	b := &book{others: map[netip.Addr][]string{}, networks: networks}
	for _, e := range l.rs.Workloads {
		if e.Workload.IsPeer() {
			networks[e.Workload.Network] = true
		}
	}
	for i := range l.rs.Groups {
		for _, n := range l.memo.networks(&l.rs.Groups[i]) {
			networks[n] = true
		}
	}
	if len(networks) < 2 {
		return b // nearly always: nothing to keep of each address
	}
	first := map[netip.Addr]string{}
	note := func(w *policy.Workload) {
		for _, a := range w.Addrs {
			n, seen := first[a]
			if !seen {
				first[a] = w.Network
			} else if n != w.Network {
				list := append(b.others[a], n, w.Network)
				slices.Sort(list)
				b.others[a] = slices.Compact(list)
			}
		}
	}
	for _, e := range l.rs.Workloads {
		if e.Workload.IsPeer() {
			note(e.Workload)
		}
	}
	for i := range l.rs.Groups {
		for _, w := range l.rs.Groups[i].Workloads.All() {
			note(w)
		}
	}
	return b
}

// seen says what an address of w stands for, seen from a network: for w, or maybe for w,
// or for another.
func (b *book) seen(network string, w *policy.Workload, a netip.Addr) (certain, perhaps bool) {
	list := b.others[a]
	switch {
	case len(list) == 0, w.Network == network:
		return true, false
	case slices.Contains(list, network):
		return false, false // for that of the own network
	}
	return false, true
}

// span is a range of addresses, both ends included.
type span struct{ first, last netip.Addr }

// spans returns the addresses of one family that are in any of the blocks, sorted, as
// ranges that neither overlap nor touch.
func spans(blocks []policy.Block, family Family) []span {
	var out []span
	for _, b := range blocks {
		if !b.Prefix.IsValid() || familyOf(b.Prefix.Addr()) != family {
			continue
		}
		var holes []span
		for _, e := range b.Except {
			if e.IsValid() && familyOf(e.Addr()) == family && e.Overlaps(b.Prefix) {
				holes = append(holes, spanOf(e))
			}
		}
		out = append(out, without(spanOf(b.Prefix), join(holes))...)
	}
	return join(out)
}

func spanOf(p netip.Prefix) span {
	p = p.Masked()
	last := p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(last)
	return span{p.Addr(), a}
}

// join sorts ranges and joins those that overlap or touch.
func join(in []span) []span {
	slices.SortFunc(in, func(a, b span) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	var out []span
	for _, s := range in {
		if n := len(out); n > 0 && (s.first.Compare(out[n-1].last) <= 0 || s.first == out[n-1].last.Next()) {
			if s.last.Compare(out[n-1].last) > 0 {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// without returns s less the holes, which are joined.
func without(s span, holes []span) []span {
	var out []span
	for _, h := range holes {
		if h.first.Compare(s.first) > 0 {
			out = append(out, span{s.first, h.first.Prev()})
		}
		if h.last.Compare(s.last) >= 0 {
			return out
		}
		if h.last.Compare(s.first) >= 0 {
			s.first = h.last.Next()
		}
	}
	return append(out, s)
}
