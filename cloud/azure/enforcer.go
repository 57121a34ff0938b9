package azure

import (
	"isobar.dev/cloud"
	"isobar.dev/plan"
)

// Enforcer returns what enforces on the VMs of a VNet. A region that the account
// does not have gives one whose calls fail.
func (a *Account) Enforcer(regionName, vnetID string) cloud.Enforcer {
	d := a.Driver(regionName, vnetID)
	if d.err != nil {
		return plan.NewSyncer("", d)
	}
	d.region.mu.Lock()
	defer d.region.mu.Unlock()
	key := d.vnet.key()
	if d.region.enforcers[key] == nil {
		d.region.enforcers[key] = plan.NewSyncer("", d)
	}
	return d.region.enforcers[key]
}

// Driver returns a new Driver of a VNet. A region that the account does not have, or
// what is no VNet, gives one whose calls fail.
func (a *Account) Driver(regionName, vnetID string) *Driver {
	r, err := a.region(regionName)
	if err != nil {
		return &Driver{account: a, err: err}
	}
	id, err := parseID(vnetID)
	if err == nil && !id.is(typeVNet) {
		err = errNoVNet
	}
	return &Driver{account: a, region: r, vnet: id, err: err}
}
