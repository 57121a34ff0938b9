package azure

import (
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
	fullest := func(u *plan.Usage, n int, of string) {
		if n > u.Used || n == u.Used && (u.Of == "" || of < u.Of) {
			u.Used, u.Of = n, of
		}
	}
	for key, o := range objects {
		if o.NSG == nil {
			continue
		}
		nsgs.Used++
		fullest(&rules, len(o.NSG.Ingress)+len(o.NSG.Egress)+p.Taken[o.NSG.Class], key)
		fullest(&sources, addresses(o.NSG.rules(policy.Ingress)), key)
		fullest(&destinations, addresses(o.NSG.rules(policy.Egress)), key)
	}
	return []plan.Usage{rules, sources, destinations, nsgs}
}
