package aws

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/cloud"
)

// picker answers the matches of services of one call of VMs.
type picker struct {
	*Account
	region  *region
	names   map[string]string // of the VPCs
	matches []cloud.Match
	known   map[cloud.Kind]*listed
}

// listed are the services of a kind that may be picked, and as they are told.
type listed struct {
	services []service
	vms      []cloud.VM
	err      error
}

// pick returns the services that m picks, by ID. What fails for one kind says
// nothing of another.
func (p *picker) pick(ctx context.Context, m cloud.Match) ([]cloud.VM, error) {
	l := p.known[m.Kind]
	if l == nil {
		l = &listed{}
		l.services, l.vms, l.err = p.list(ctx, m.Kind)
		p.known[m.Kind] = l
	}
	if l.err != nil {
		return nil, l.err
	}
	var out []cloud.VM
	for i, s := range l.services {
		if s.mayBe(m, p.names) && s.hasTags(m.Tags) {
			out = append(out, l.vms[i])
		}
	}
	return out, nil
}

// list lists the services of a kind that any match may pick, with their tags and
// addresses. That it was asked is remembered: from then on Drivers read them, too.
func (p *picker) list(ctx context.Context, kind cloud.Kind) ([]service, []cloud.VM, error) {
	p.region.mu.Lock()
	p.region.selected[kind] = true
	p.region.mu.Unlock()
	list, err := p.region.services(ctx, kind)
	if err != nil {
		return nil, nil, err
	}
	// What it costs to know more of a service is spent on those that may be picked.
	list = slices.DeleteFunc(list, func(s service) bool {
		return !slices.ContainsFunc(p.matches, func(m cloud.Match) bool { return m.Kind == kind && s.mayBe(m, p.names) })
	})
	if err := p.region.tagged(ctx, list); err != nil {
		return nil, nil, err
	}
	at, err := p.addressesOf(ctx, p.region, kind, list)
	if err != nil {
		return nil, nil, err
	}
	vms := make([]cloud.VM, 0, len(list))
	for _, s := range list {
		vms = append(vms, s.vm(p.region.name, p.names[s.vpc], at))
	}
	return list, vms, nil
}

// shortID is the ID of a service without its kind.
func (s service) shortID() string { return s.id[strings.IndexByte(s.id, '/')+1:] }

func (s service) vm(region, network string, at addresses) cloud.VM {
	x := cloud.Interface{ID: s.id, Groups: s.groups}
	for _, n := range at.nics[s.id] {
		one := interfaceAddrs(n)
		x.Private, x.Public = append(x.Private, one.Private...), append(x.Public, one.Public...)
	}
	slices.SortFunc(x.Private, netip.Addr.Compare)
	slices.SortFunc(x.Public, netip.Addr.Compare)
	return cloud.VM{
		Kind: s.kind, ID: s.shortID(), Name: s.name, Region: region, NetworkID: s.vpc, NetworkName: network,
		State: s.state, Starting: s.isStarting, Tags: s.tags, Interfaces: []cloud.Interface{x}, Unknown: at.unknown[s.id],
	}
}

// mayBe says whether m picks s as far as its tags let it. Names are exact; a load
// balancer's ID may be its ARN.
func (s service) mayBe(m cloud.Match, names map[string]string) bool {
	if m.NetworkID != "" && !strings.EqualFold(m.NetworkID, s.vpc) || m.NetworkName != "" && m.NetworkName != names[s.vpc] || len(m.Subnets) > 0 {
		return false
	}
	return len(m.VMs) == 0 || slices.ContainsFunc(m.VMs, func(v cloud.VMMatch) bool {
		if v.Name != "" {
			return v.ID == "" && v.Name == s.name
		}
		return v.ID != "" && (strings.EqualFold(v.ID, s.shortID()) || strings.EqualFold(v.ID, s.arn))
	})
}

func (s service) hasTags(tags map[string]string) bool {
	for key, value := range tags {
		if have, ok := s.tags[key]; !ok || have != value {
			return false
		}
	}
	return true
}
