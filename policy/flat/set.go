package flat

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// Set is a set of addresses, IPv4 and IPv6 apart. The zero Set is empty. Sets
// are not changed once they are made.
type Set struct{ v4, v6 []span }

// span is a range of addresses as numbers, both ends included. The spans of a
// Set are in order and do not touch.
type span struct{ first, last number }

// number is a 128-bit number, so that one code serves both families.
type number struct{ hi, lo uint64 }

func (n number) compare(m number) int {
	if n.hi != m.hi {
		return cmp.Compare(n.hi, m.hi)
	}
	return cmp.Compare(n.lo, m.lo)
}

func (n number) less(m number) bool { return n.compare(m) < 0 }

func (n number) next() number {
	lo, carry := bits.Add64(n.lo, 1, 0)
	return number{n.hi + carry, lo}
}

func (n number) before() number {
	lo, borrow := bits.Sub64(n.lo, 1, 0)
	return number{n.hi - borrow, lo}
}

// trailing returns the number of zero bits at the low end, at most 128.
func (n number) trailing() int {
	if n.lo != 0 {
		return bits.TrailingZeros64(n.lo)
	}
	return 64 + bits.TrailingZeros64(n.hi)
}

// end returns the last number of the block of 2^size numbers that begins with n.
func (n number) end(size int) number {
	switch {
	case size >= 128:
		return number{^uint64(0), ^uint64(0)}
	case size >= 64:
		return number{n.hi | (1<<(size-64) - 1), ^uint64(0)}
	}
	return number{n.hi, n.lo | (1<<size - 1)}
}

var (
	max4 = number{0, 1<<32 - 1}
	max6 = number{^uint64(0), ^uint64(0)}

	all4 = []span{{number{}, max4}}
	all6 = []span{{number{}, max6}}
)

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) addr(is4 bool) netip.Addr {
	if is4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b)
}

// AllAddrs returns the set of every address.
func AllAddrs() Set { return Set{all4, all6} }

// SetOf returns the set of what the prefixes contain. Invalid ones contain nothing.
func SetOf(prefixes ...netip.Prefix) Set {
	var s Set
	for _, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		first, size := numberOf(p.Masked().Addr()), p.Addr().BitLen()-p.Bits()
		if p.Addr().Is4() {
			s.v4 = append(s.v4, span{first, first.end(size)})
		} else {
			s.v6 = append(s.v6, span{first, first.end(size)})
		}
	}
	return Set{normal(s.v4), normal(s.v6)}
}

// SetOfAddrs returns the set of the addresses, unmapped. Invalid ones are left out.
func SetOfAddrs(addrs ...netip.Addr) Set {
	var s Set
	for _, a := range addrs {
		a = a.Unmap()
		switch {
		case a.Is4():
			s.v4 = append(s.v4, span{numberOf(a), numberOf(a)})
		case a.Is6():
			s.v6 = append(s.v6, span{numberOf(a), numberOf(a)})
		}
	}
	return Set{normal(s.v4), normal(s.v6)}
}

// normal sorts spans and joins those that touch. It may use their memory.
func normal(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.first.compare(b.first) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && touches(out[n-1].last, s.first) {
			if out[n-1].last.less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return slices.Clip(out)
}

// touches says whether a span that ends with last leaves no gap before first.
func touches(last, first number) bool {
	return !last.less(first) || last.next() == first
}

// Union returns what is in either set.
func (s Set) Union(t Set) Set { return Set{union(s.v4, t.v4), union(s.v6, t.v6)} }

// Intersect returns what is in both sets.
func (s Set) Intersect(t Set) Set { return Set{intersect(s.v4, t.v4), intersect(s.v6, t.v6)} }

// Minus returns what is in s and not in t.
func (s Set) Minus(t Set) Set {
	return Set{intersect(s.v4, complement(t.v4, max4)), intersect(s.v6, complement(t.v6, max6))}
}

// V4 returns the IPv4 addresses of s.
func (s Set) V4() Set { return Set{v4: s.v4} }

// V6 returns the IPv6 addresses of s.
func (s Set) V6() Set { return Set{v6: s.v6} }

// IsEmpty says whether nothing is in s.
func (s Set) IsEmpty() bool { return len(s.v4) == 0 && len(s.v6) == 0 }

// Equal says whether both have the same addresses.
func (s Set) Equal(t Set) bool { return slices.Equal(s.v4, t.v4) && slices.Equal(s.v6, t.v6) }

// Within says whether all of s is in t.
func (s Set) Within(t Set) bool { return s.Minus(t).IsEmpty() }

// Overlaps says whether anything is in both.
func (s Set) Overlaps(t Set) bool { return !s.Intersect(t).IsEmpty() }

// Has says whether a, unmapped, is in s.
func (s Set) Has(a netip.Addr) bool {
	a = a.Unmap()
	spans := s.v6
	if a.Is4() {
		spans = s.v4
	}
	n := numberOf(a)
	i, found := slices.BinarySearchFunc(spans, n, func(x span, n number) int { return x.first.compare(n) })
	return found || i > 0 && !spans[i-1].last.less(n)
}

func union(a, b []span) []span {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]span, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var s span
		if len(b) == 0 || len(a) > 0 && a[0].first.less(b[0].first) {
			s, a = a[0], a[1:]
		} else {
			s, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && touches(out[n-1].last, s.first) {
			if out[n-1].last.less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

func intersect(a, b []span) []span {
	var out []span
	for len(a) > 0 && len(b) > 0 {
		first, last := a[0].first, a[0].last
		if first.less(b[0].first) {
			first = b[0].first
		}
		if b[0].last.less(last) {
			last = b[0].last
		}
		if !last.less(first) {
			out = append(out, span{first, last})
		}
		if a[0].last.less(b[0].last) {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

func complement(a []span, end number) []span {
	out := make([]span, 0, len(a)+1)
	next := number{}
	for _, s := range a {
		if next.less(s.first) {
			out = append(out, span{next, s.first.before()})
		}
		if s.last == end {
			return out
		}
		next = s.last.next()
	}
	return append(out, span{next, end})
}

// Prefixes returns the fewest prefixes that contain s and nothing else, IPv4 first.
func (s Set) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, x := range s.v4 {
		out = x.prefixes(out, true)
	}
	for _, x := range s.v6 {
		out = x.prefixes(out, false)
	}
	return out
}

// prefixes appends the prefixes of one span.
func (x span) prefixes(out []netip.Prefix, is4 bool) []netip.Prefix {
	width := 128
	if is4 {
		width = 32
	}
	for first := x.first; ; {
		size := min(first.trailing(), width)
		for x.last.less(first.end(size)) {
			size--
		}
		out = append(out, netip.PrefixFrom(first.addr(is4), width-size))
		last := first.end(size)
		if last == x.last {
			return out
		}
		first = last.next()
	}
}

// Cover returns the fewest prefixes that contain all of s and nothing outside
// of within, of which s is a part.
func (s Set) Cover(within Set) []netip.Prefix {
	return cover(s.v6, within.v6, false, cover(s.v4, within.v4, true, nil))
}

func cover(s, within []span, is4 bool, out []netip.Prefix) []netip.Prefix {
	width := 128
	if is4 {
		width = 32
	}
	for _, x := range within {
		for len(s) > 0 && s[0].last.less(x.first) {
			s = s[1:]
		}
		if len(s) == 0 {
			break
		}
		if x.last.less(s[0].first) {
			continue
		}
		for _, p := range x.prefixes(nil, is4) {
			first := numberOf(p.Addr())
			last := first.end(width - p.Bits())
			for len(s) > 0 && s[0].last.less(first) {
				s = s[1:]
			}
			if len(s) > 0 && !last.less(s[0].first) {
				out = append(out, p)
			}
		}
	}
	return out
}

// String returns the prefixes, with spaces between.
func (s Set) String() string {
	var parts []string
	for _, p := range s.Prefixes() {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, " ")
}
