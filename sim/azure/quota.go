package azure

import "fmt"

// Quotas are Azure's limits for one subscription. A zero field keeps Azure's default.
type Quotas struct {
	SecurityGroups        int `json:"securityGroups,omitempty"`        // 5,000 in a location
	RulesPerSecurityGroup int `json:"rulesPerSecurityGroup,omitempty"` // 1,000, both directions together
	AddressesPerGroup     int `json:"addressesPerGroup,omitempty"`     // 4,000 sources, as many destinations, as many ports of each, over all rules of a security group

	ApplicationGroups            int `json:"applicationGroups,omitempty"`            // 3,000 in a location
	ApplicationGroupsPerConfig   int `json:"applicationGroupsPerConfig,omitempty"`   // 20 on an IP configuration
	ApplicationGroupsPerRule     int `json:"applicationGroupsPerRule,omitempty"`     // 10 on each side
	ApplicationGroupsPerSecurity int `json:"applicationGroupsPerSecurity,omitempty"` // 100 in all rules of a security group
	ConfigsPerApplicationGroup   int `json:"configsPerApplicationGroup,omitempty"`   // 4,000

	Interfaces      int `json:"interfaces,omitempty"`      // 65,536 in a location
	VirtualNetworks int `json:"virtualNetworks,omitempty"` // 1,000 in a location
	Subnets         int `json:"subnets,omitempty"`         // 3,000 in a virtual network
	Peerings        int `json:"peerings,omitempty"`        // 500 in a virtual network
	PublicAddresses int `json:"publicAddresses,omitempty"` // 1,000 in a location
	VirtualMachines int `json:"virtualMachines,omitempty"` // 25,000 in a location
}

var defaultQuotas = Quotas{5000, 1000, 4000, 3000, 20, 10, 100, 4000, 65536, 1000, 3000, 500, 1000, 25000} // read only

// fields lists the numbers, so that defaults are filled in one place.
func (q *Quotas) fields() []*int {
	return []*int{&q.SecurityGroups, &q.RulesPerSecurityGroup, &q.AddressesPerGroup, &q.ApplicationGroups,
		&q.ApplicationGroupsPerConfig, &q.ApplicationGroupsPerRule, &q.ApplicationGroupsPerSecurity, &q.ConfigsPerApplicationGroup,
		&q.Interfaces, &q.VirtualNetworks, &q.Subnets, &q.Peerings, &q.PublicAddresses, &q.VirtualMachines}
}

func (q Quotas) check() error {
	for _, n := range q.fields() {
		if *n < 0 {
			return fmt.Errorf("quotas: %d is negative", *n)
		}
	}
	return nil
}

func (q Quotas) filled() Quotas {
	d := defaultQuotas
	for i, n := range q.fields() {
		if *n == 0 {
			*n = *d.fields()[i]
		}
	}
	return q
}

// overQuota refuses a new resource of which a location of the subscription has enough.
func (w *world) overQuota(r *resource, what string, most int) *apiError {
	if w.things[r.key()] != nil {
		return nil
	}
	if w.counts[countKeyOf(r)] < most {
		return nil
	}
	return errf(what, "Cannot create more than %d %s for this subscription in this region.", most, r.kind.plural())
}

func (w *world) quotas(r *resource) Quotas { return w.subs[fold(r.id.subscription)].Quotas.filled() }
