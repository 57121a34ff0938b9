package azure

import (
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// UsageOf returns what Objects use of the quotas of a place.
func UsageOf(p Place, objects map[string]Object) []plan.Usage {
	q := p.Quotas.orDefaults()
	rules := plan.Usage{Quota: "rules in a network security group", Limit: q.RulesPerNSG}
	sources := plan.Usage{Quota: "source addresses in a network security group", Limit: q.AddressesPerNSG}
	destinations := plan.Usage{Quota: "destination addresses in a network security group", Limit: q.AddressesPerNSG}
	nsgs := plan.Usage{Quota: "network security groups in the region", Used: p.Foreign, Limit: q.NSGsPerRegion}
	asgs := plan.Usage{Quota: "application security groups in the region", Used: p.ForeignASGs, Limit: q.ASGsPerRegion}
	named := plan.Usage{Quota: "application security groups in a network security group", Limit: q.ASGsPerNSG}
	joined := plan.Usage{Quota: "application security groups of a network interface", Limit: q.ASGsPerNIC}
	members := plan.Usage{Quota: "members of an application security group", Limit: q.ConfigsPerASG}
	carriers := map[string]int{}
	fullest := func(u *plan.Usage, n int, of string) {
		if n > u.Used || n == u.Used && (u.Of == "" || of < u.Of) {
			u.Used, u.Of = n, of
		}
	}
	for key, o := range objects {
		switch {
		case o.ASG != nil:
			asgs.Used++
		case o.NIC != nil && len(o.NIC.Groups) > 0:
			nic := strings.TrimPrefix(key, "nic/")
			fullest(&joined, len(o.NIC.Groups)+p.Interfaces[nic].Others, key)
			for _, g := range o.NIC.Groups {
				carriers[g] += max(len(p.Interfaces[nic].Addrs), 1)
			}
		}
		if o.NSG == nil {
			continue
		}
		nsgs.Used++
		if n := len(o.NSG.named()); n > 0 {
			fullest(&named, n, key)
		}
		fullest(&rules, len(o.NSG.Ingress)+len(o.NSG.Egress)+p.Taken[o.NSG.Class], key)
		fullest(&sources, addresses(o.NSG.rules(policy.Ingress)), key)
		fullest(&destinations, addresses(o.NSG.rules(policy.Egress)), key)
	}
	out := []plan.Usage{rules, sources, destinations, nsgs}
	for key, n := range carriers {
		fullest(&members, n, key)
	}
	if len(carriers) > 0 { // where there is none it does not matter
		out = append(out, asgs, named, joined, members)
	}
	return out
}
