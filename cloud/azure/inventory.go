package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"isobar.dev/cloud"
)

// locationsVersion is that of the API that tells the regions of a subscription.
const locationsVersion = "2022-12-01"

// check says whether the subscription has the region: without, it would seem to be
// empty.
func (r *region) check(ctx context.Context) error {
	r.mu.Lock()
	known := r.exists
	r.mu.Unlock()
	if known {
		return nil
	}
	found := false
	err := r.listAt(ctx, "/subscriptions/"+r.subscription+"/locations", url.Values{"api-version": {locationsVersion}}, func(raw json.RawMessage) error {
		var l struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &l); err != nil || l.Name == "" {
			return errors.New("not the region of a subscription")
		}
		found = found || locationOf(l.Name) == r.name
		return nil
	})
	if err != nil {
		return fmt.Errorf("region %s: list the regions of the subscription: %w", r.name, err)
	}
	if !found {
		return fmt.Errorf("region %s: the subscription has no such region", r.name)
	}
	r.mu.Lock()
	r.exists = true
	r.mu.Unlock()
	return nil
}

// Networks lists every VNet of a region, by ID.
func (a *Account) Networks(ctx context.Context, regionName string) ([]cloud.Network, error) {
	r, err := a.region(regionName)
	if err != nil {
		return nil, err
	}
	if err := r.check(ctx); err != nil {
		return nil, scrub(a.config.Credentials, err)
	}
	networks, err := r.networks(ctx, "") // names are of the whole subscription
	if err != nil {
		return nil, scrub(a.config.Credentials, err)
	}
	names := networkNames(networks)
	out := make([]cloud.Network, 0, len(networks))
	for _, n := range networks {
		if locationOf(n.Location) != r.name {
			continue
		}
		out = append(out, cloud.Network{
			ID: n.key(), UID: strings.ToLower(n.Properties.GUID), Object: names[n.key()], Ref: n.id.ref(), Name: strings.ToLower(n.id.name()), Region: r.name,
			Prefixes: prefixesOf(n.Properties.Space.Prefixes), Tags: n.Tags,
		})
	}
	return out, nil
}

// VMs lists the VMs of a region that each Match picks. IDs, names of VMs and VNets and
// the keys of tags count in any case, as they do in Azure. What has no power state
// yet is Starting.
func (a *Account) VMs(ctx context.Context, regionName string, matches []cloud.Match) []cloud.VMs {
	out := make([]cloud.VMs, len(matches))
	fail := func(err error) []cloud.VMs {
		for i := range out {
			out[i].Err = scrub(a.config.Credentials, err)
		}
		return out
	}
	r, err := a.region(regionName)
	if err != nil || len(matches) == 0 {
		return fail(err)
	}
	if err := r.check(ctx); err != nil {
		return fail(err)
	}
	// Lists are of everything: there is nothing to ask for each Match.
	e, err := r.estate(ctx)
	if err != nil {
		return fail(err)
	}
	all, err := e.vms(ctx)
	if err != nil {
		return fail(err)
	}
	for i, m := range matches {
		out[i].VMs, out[i].Err = pick(m, all)
	}
	return out
}

// pick returns the VMs that m picks.
func pick(m cloud.Match, all []listed) ([]cloud.VM, error) {
	if m.Kind != cloud.VirtualMachine {
		return nil, fmt.Errorf("%s: not a kind that is listed in Azure", m.Kind)
	}
	for _, v := range m.VMs {
		if v.ID != "" && v.Name != "" {
			return nil, fmt.Errorf("match of VM %q named %q: want one of ID and name", v.ID, v.Name)
		}
	}
	out := []cloud.VM{}
	for _, vm := range all {
		if picks(m, vm) {
			out = append(out, vm.VM)
		}
	}
	return out, nil
}

func picks(m cloud.Match, vm listed) bool {
	if m.NetworkID != "" && !strings.EqualFold(m.NetworkID, vm.NetworkID) || m.NetworkName != "" && !strings.EqualFold(m.NetworkName, vm.NetworkName) {
		return false
	}
	for key, value := range m.Tags {
		if !hasTag(vm.Tags, key, value) {
			return false
		}
	}
	in := func(s string) bool {
		return slices.ContainsFunc(vm.subnets, func(o string) bool { return strings.EqualFold(s, o) })
	}
	if len(m.Subnets) > 0 && !slices.ContainsFunc(m.Subnets, in) {
		return false
	}
	is := func(v cloud.VMMatch) bool {
		return v.ID != "" && strings.EqualFold(v.ID, vm.ID) || v.ID == "" && v.Name != "" && strings.EqualFold(v.Name, vm.Name)
	}
	return len(m.VMs) == 0 || slices.ContainsFunc(m.VMs, is)
}

// hasTag says whether there is a tag with that value. Azure takes no two keys that
// differ in their case alone.
func hasTag(tags map[string]string, key, value string) bool {
	for k, v := range tags {
		if strings.EqualFold(k, key) && v == value {
			return true
		}
	}
	return false
}
