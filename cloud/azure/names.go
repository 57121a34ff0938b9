package azure

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Nephe's name of an object is that of the resource and the sum of the characters of
// its ID. Agents on VMs compute it too, so that it cannot be another one. But it does
// not tell resources apart whose IDs differ in the order of characters alone.

// objectName returns the name that Nephe has for a resource.
func objectName(id resourceID) string {
	sum := 0
	for _, b := range []byte(id.key()) {
		sum += int(b)
	}
	return word(id.name()) + "-" + strconv.Itoa(sum)
}

// word returns s as a part of the name of an object.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	var labels []string
	for _, label := range strings.Split(s, ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	return cmp.Or(strings.Join(labels, "."), "x")
}

// networkNames returns the names of the objects of VNets, by their keys. Azure does
// not tell how old they are.
func networkNames(networks []*vnet) map[string]string {
	var all []creation
	for _, n := range networks {
		all = append(all, creation{key: n.key()})
	}
	return objectNames(all)
}

// objectNames returns the names of the objects of VMs, by their keys. Of those that
// Nephe calls alike the oldest has that name; of those that are as old, the first by
// ID. So a new VM never takes the name of another. The others' names go on with a sum
// that does tell them apart.
func objectNames(all []creation) map[string]string {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b creation) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) })
	out, taken := map[string]string{}, map[string]bool{}
	for _, c := range all {
		id, err := parseID(c.key)
		if err != nil {
			continue
		}
		name := objectName(id)
		if taken[name] {
			name = distinct(name, c.key)
		}
		taken[name], out[c.key] = true, name
	}
	return out
}

// distinct returns a name that only the resource with that key has.
func distinct(name, key string) string {
	sum := sha256.Sum256([]byte(key))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// instanceName returns the name of the object of an instance of a uniform scale set.
// Nephe knows none of these, and gives them no name.
func instanceName(name, key string) string { return distinct(word(name), key) }

// macOf returns a MAC address as others write it: Azure has 00-0D-3A-00-00-01.
func macOf(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", ":")) }

// appendAddr adds the address that a text is, if there is one.
func appendAddr(addrs []netip.Addr, s string) ([]netip.Addr, error) {
	if s == "" {
		return addrs, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, errors.New("not an address in what Azure tells as one")
	}
	if slices.Contains(addrs, a.Unmap()) {
		return addrs, nil
	}
	return append(addrs, a.Unmap()), nil
}
