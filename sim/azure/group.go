package azure

import (
	"slices"
	"strings"
)

// applicationGroupType is how application security groups behave: they have nothing of their own.
type applicationGroupType struct{}

func (applicationGroupType) parse(r *resource) *apiError        { r.view = struct{}{}; return nil }
func (applicationGroupType) links(*resource) []link             { return nil }
func (applicationGroupType) render(*world, *resource, Document) {}

func (applicationGroupType) check(w *world, r, _ *resource) *apiError {
	return w.overQuota(r, "ApplicationSecurityGroupCountLimitReached", w.quotas(r).ApplicationGroups)
}

func (applicationGroupType) inUse(w *world, r *resource) *apiError {
	for _, u := range w.usersOf(r.key()) {
		by := u.id.String() // a scale set
		switch v := u.view.(type) {
		case *nic:
			by = "IpConfiguration(s) " + u.id.child("ipConfigurations", v.configs[0].name).String()
		case *securityGroup:
			i := slices.IndexFunc(v.rules, func(ru *rule) bool {
				return slices.ContainsFunc(slices.Concat(ru.from.groups, ru.to.groups), func(id string) bool { return keyOf(id) == r.key() })
			})
			by = "security rule(s) " + u.id.child("securityRules", v.rules[i].name).String()
		}
		return errf("InUseApplicationSecurityGroupCannotBeDeleted", "Application Security Group %s cannot be deleted because it is referenced by %s.", r.id.name(), by)
	}
	return nil
}

// members are the interfaces in an application security group, less one that is being written.
func (w *world) members(group, but string) []*resource {
	return slices.DeleteFunc(w.usersOf(group, anyInterface...), func(r *resource) bool { return r.key() == but })
}

// checkMemberships refuses what would put interfaces of two virtual networks into one application security
// group or into those of one rule.
func (w *world) checkMemberships(r *resource, n *nic, q Quotas) *apiError {
	for _, id := range n.configs[0].groups {
		key := keyOf(id)
		configs := len(n.configs)
		for _, m := range w.members(key, r.key()) {
			o := m.view.(*nic)
			if o.network != n.network {
				return errf("ApplicationSecurityGroupReferencesMultipleVnets", "Application security group %s is used by network interfaces of virtual network %s; network interface %s is in %s. All network interfaces of an application security group must be in the same virtual network.",
					id, o.network, r.id, n.network)
			}
			configs += len(o.configs)
		}
		if configs > q.ConfigsPerApplicationGroup {
			return errf("IpConfigurationsPerApplicationSecurityGroupLimitReached", "Application security group %s cannot have more than %d IpConfigurations.", id, q.ConfigsPerApplicationGroup)
		}
		for _, g := range w.usersOf(key, securityGroups) {
			if fail := w.oneNetwork(g, key, r.key(), n.network); fail != nil {
				return fail
			}
		}
	}
	return nil
}

// oneNetwork refuses rules whose application security groups are of several virtual networks. joining is
// the key of a group that the interface nic, of a network, is about to join; they may be empty.
func (w *world) oneNetwork(g *resource, joining, nic, network string) *apiError {
	for _, rule := range g.view.(*securityGroup).rules {
		var found []string
		for _, id := range slices.Concat(rule.from.groups, rule.to.groups) {
			if joining != "" && keyOf(id) == joining {
				found = append(found, network)
			}
			if ms := w.members(keyOf(id), nic); len(ms) > 0 {
				found = append(found, ms[0].networkOf())
			}
		}
		slices.Sort(found)
		if found = slices.Compact(found); len(found) > 1 {
			return errf("AllApplicationSecurityGroupsInSecurityRuleMustBeFromSameVnet", "Security Rule %s has Application Security Groups (ASGs) from multiple virtual networks (%s). All ASGs on the Security Rule must be from the same virtual network.",
				g.id.child("securityRules", rule.name), strings.Join(found, ", "))
		}
	}
	return nil
}

func (r *resource) networkOf() string {
	if n, ok := r.view.(*nic); ok {
		return n.network
	}
	return ""
}
