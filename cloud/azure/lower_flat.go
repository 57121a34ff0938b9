package azure

import (
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// area is addresses with which the same traffic of a kind is allowed.
type area struct {
	addrs flat.Set
	ports []Ports
}

// flatRules writes what is allowed, whatever rules made it so: exactly that, but for
// what an NSG cannot tell apart, which is allowed only as a whole. First comes what is
// allowed with all traffic, then kind by kind what else is, and then the rest of traffic,
// behind rules that deny the kinds which it must not open.
func (l *lowering) flatRules(d policy.Direction, allowed flat.Allowed, families flat.Set, members []*membership) []Rule {
	w := writer{l: l, d: d, members: members}
	tcp, udp := regions(allowed, policy.TCP, families), regions(allowed, policy.UDP, families)
	icmp, rest := wholes(allowed, families)
	all := icmp.Intersect(rest).Intersect(whole(tcp)).Intersect(whole(udp))
	w.write("", true, pattern{protocol: "*"}, all, all)
	kinds := []struct {
		protocol string
		list     []area
	}{{"Tcp", tcp}, {"Udp", udp}, {"Icmp", []area{{icmp.V4(), []Ports{{0, 65535}}}}}}
	for _, k := range kinds {
		for _, r := range k.list {
			m := pattern{k.protocol, r.ports}
			if r.isWhole() {
				m.ports = nil
			}
			w.write("", true, m, r.addrs.Minus(all), having(k.list, r))
		}
	}
	if extra := rest.Minus(all); !extra.IsEmpty() {
		for _, k := range kinds {
			closed := extra.Minus(whole(k.list))
			if k.protocol == "Icmp" {
				closed = closed.V4()
			}
			w.write("", false, pattern{protocol: k.protocol}, closed, closed)
		}
		w.write("", true, pattern{protocol: "*"}, extra, rest)
	}
	w.close()
	return w.rules
}

// regions cuts all addresses by the ports that are allowed with them.
func regions(allowed flat.Allowed, p policy.Protocol, families flat.Set) []area {
	var out []area
	left := families // with which nothing is allowed so far
	for _, c := range allowed {
		addrs := c.Addrs.Intersect(families)
		if c.Protocol != p || addrs.IsEmpty() {
			continue
		}
		ports := Ports{c.First, c.Last}
		var next []area
		for _, r := range out {
			if both := r.addrs.Intersect(addrs); !both.IsEmpty() {
				next = append(next, area{both, joined(r.ports, ports)})
			}
			if other := r.addrs.Minus(addrs); !other.IsEmpty() {
				next = append(next, area{other, r.ports})
			}
		}
		if fresh := addrs.Intersect(left); !fresh.IsEmpty() {
			next = append(next, area{fresh, []Ports{ports}})
		}
		out, left = next, left.Minus(addrs)
	}
	return out
}

// joined returns the ports with those that come after them.
func joined(list []Ports, p Ports) []Ports {
	list = slices.Clone(list)
	if n := len(list); list[n-1].Last+1 == p.First && p.First != 0 {
		list[n-1].Last = p.Last
		return list
	}
	return append(list, p)
}

func (r area) isWhole() bool { return len(r.ports) == 1 && r.ports[0] == Ports{0, 65535} }

// whole returns the addresses with which all of a kind is allowed.
func whole(list []area) flat.Set {
	var out flat.Set
	for _, r := range list {
		if r.isWhole() {
			out = out.Union(r.addrs)
		}
	}
	return out
}

// having returns the addresses with which at least what r allows is allowed.
func having(list []area, r area) flat.Set {
	out := r.addrs
	for _, o := range list {
		if !slices.ContainsFunc(r.ports, func(p Ports) bool {
			return !slices.ContainsFunc(o.ports, func(q Ports) bool { return q.First <= p.First && p.Last <= q.Last })
		}) {
			out = out.Union(o.addrs)
		}
	}
	return out
}

// wholes returns the addresses with which all ICMP is allowed, and all that is only
// within "*". The ICMP of IPv6 is of the latter.
func wholes(allowed flat.Allowed, families flat.Set) (icmp, rest flat.Set) {
	all := map[policy.Protocol]flat.Set{}
	size := map[policy.Protocol]int{}
	for _, c := range allowed {
		if size[c.Protocol] == 0 {
			all[c.Protocol] = families
		}
		size[c.Protocol] += (int(c.Last-c.First) + 1) * (int(c.LastCode-c.FirstCode) + 1)
		all[c.Protocol] = all[c.Protocol].Intersect(c.Addrs)
	}
	of := func(p policy.Protocol, want int) flat.Set {
		if size[p] != want {
			return flat.Set{}
		}
		return all[p]
	}
	any := of(policy.ICMP, 1<<16)
	rest = of(policy.SCTP, 1<<16).Intersect(of(policy.IGMP, 1)).Intersect(of(policy.OtherProtocol, 1))
	return any.V4().Union(families.V6()), rest.V4().Union(rest.Intersect(any).V6())
}
