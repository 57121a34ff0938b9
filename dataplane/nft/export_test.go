package nft

import (
	"net/netip"

	"isobar.dev/policy"
)

// InSpans says whether the ranges that are made of blocks have an address, and how many there are.
func InSpans(blocks []policy.Block, a netip.Addr) (has bool, n int) {
	list := spans(blocks, familyOf(a))
	for _, s := range list {
		has = has || s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0
	}
	return has, len(list)
}

// IsNameSet is isNameSet.
var IsNameSet = isNameSet
