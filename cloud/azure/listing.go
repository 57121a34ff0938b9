package azure

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"isobar.dev/cloud"
)

// SecurityGroups lists the NSGs that are attached to some VNets of a region, to an
// interface or a subnet of theirs, by ID. One that is attached to several is listed
// for each; one that is attached nowhere is of none.
func (a *Account) SecurityGroups(ctx context.Context, regionName string, networkIDs []string) ([]cloud.SecurityGroup, error) {
	r, err := a.region(regionName)
	if err != nil || len(networkIDs) == 0 {
		return nil, err
	}
	out, err := r.groupsOf(ctx, networkIDs)
	return out, scrub(a.config.Credentials, err)
}

func (r *region) groupsOf(ctx context.Context, networkIDs []string) ([]cloud.SecurityGroup, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	groups, err := r.securityGroups(ctx, r.name)
	if err != nil {
		return nil, err
	}
	networks, err := r.networks(ctx, "")
	if err != nil {
		return nil, err
	}
	nics, err := r.networkInterfaces(ctx, r.name)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, id := range networkIDs {
		wanted[strings.ToLower(id)] = true
	}
	at := map[string]map[string]bool{} // networks by NSG
	attach := func(group *reference, network string) {
		if key := strings.ToLower(group.idOf()); key != "" && wanted[network] {
			if at[key] == nil {
				at[key] = map[string]bool{}
			}
			at[key][network] = true
		}
	}
	for _, n := range networks {
		for _, s := range n.Properties.Subnets {
			attach(s.Properties.NSG, n.key())
		}
	}
	for _, n := range nics {
		attach(n.Properties.NSG, n.network())
	}
	names, objects := groupNames(groups), networkNames(networks)
	var out []cloud.SecurityGroup
	for _, g := range groups {
		rules := rulesOf(g)
		for network := range at[g.key()] {
			out = append(out, cloud.SecurityGroup{
				ID: g.key(), Object: names[g.key()], Name: g.id.name(), Region: r.name, NetworkID: network, NetworkObject: objects[network], Rules: rules,
			})
		}
	}
	slices.SortFunc(out, func(a, b cloud.SecurityGroup) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.NetworkID, b.NetworkID))
	})
	return out, nil
}

// groupNames returns the names of the objects of NSGs, by their keys.
func groupNames(groups []*nsg) map[string]string {
	var all []creation
	for _, g := range groups {
		all = append(all, creation{key: g.key()})
	}
	return objectNames(all)
}

// rulesOf returns the rules of an NSG in order; those that every NSG has are left out.
func rulesOf(g *nsg) []cloud.SecurityGroupRule {
	var out []cloud.SecurityGroupRule
	for _, r := range g.Properties.Rules {
		p := r.Properties
		out = append(out, cloud.SecurityGroupRule{
			Ingress: strings.EqualFold(p.Direction, "Inbound"), ID: strings.ToLower(r.ID), Name: r.Name, Action: p.Access, Description: p.Description,
			Priority: &p.Priority, Protocol: protocolText(p.Protocol), Port: portText(p.DestinationPort, p.DestinationPorts),
			Source: peersOf(p.Source, p.Sources, p.SourceASGs), Destination: peersOf(p.Destination, p.Destinations, p.DestinationASGs),
		})
	}
	slices.SortFunc(out, cloud.SecurityGroupRule.Compare)
	return out
}

func protocolText(s string) string {
	if s == "*" {
		return "any"
	}
	return strings.ToLower(s)
}

// portText is "all", or ports and ranges with commas.
func portText(one string, several []string) string {
	if len(several) == 0 {
		several = []string{one}
	}
	if slices.Contains(several, "*") || slices.Contains(several, "") {
		return "all"
	}
	return strings.Join(several, ",")
}

// peersOf is one end of a rule: prefixes, service tags, "*" for all, or IDs of
// application security groups.
func peersOf(one string, several []string, groups []reference) []string {
	out := slices.Clone(several)
	if one != "" {
		out = append(out, one)
	}
	for _, g := range groups {
		out = append(out, strings.ToLower(g.ID))
	}
	slices.Sort(out)
	return out
}
