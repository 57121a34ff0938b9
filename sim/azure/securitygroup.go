package azure

import (
	"slices"
	"strconv"
)

// securityGroup is what matters of a network security group: its rules by direction and priority.
type securityGroup struct {
	rules []*rule
}

// securityGroupType is how network security groups behave.
type securityGroupType struct{}

type securityGroupDoc struct {
	Properties struct {
		SecurityRules []ruleDoc `json:"securityRules"`
	} `json:"properties"`
}

func (securityGroupType) parse(r *resource) *apiError {
	props := object(r.doc, "properties")
	without(props, "defaultSecurityRules", "networkInterfaces", "subnets", "flowLogs")
	for _, o := range objects(props, "securityRules") {
		completeRule(object(o, "properties"))
	}
	d, err := view[securityGroupDoc](r.doc)
	if err != nil {
		return malformed("InvalidRequestContent", "%v", err)
	}
	g := &securityGroup{}
	type slot struct {
		in       bool
		priority int
	}
	taken := map[slot]string{}
	for _, rd := range d.Properties.SecurityRules {
		ru, fail := parseRule(r.id.child("securityRules", rd.Name), rd)
		if fail != nil {
			return fail
		}
		s := slot{ru.in, ru.priority}
		if o, ok := taken[s]; ok {
			return errf("SecurityRuleConflict", "Security rule %s conflicts with rule %s. Rules cannot have the same Priority and Direction.", ru.name, o)
		}
		taken[s] = ru.name
		g.rules = append(g.rules, ru)
	}
	slices.SortFunc(g.rules, func(a, b *rule) int { return a.priority - b.priority })
	r.view = g
	return nil
}

func (securityGroupType) links(r *resource) []link {
	var out []link
	for _, ru := range r.view.(*securityGroup).rules {
		for _, id := range slices.Concat(ru.from.groups, ru.to.groups) {
			out = append(out, link{id, "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action"})
		}
	}
	return out
}

func (securityGroupType) check(w *world, r, _ *resource) *apiError {
	g, q := r.view.(*securityGroup), w.quotas(r)
	if fail := w.overQuota(r, "NetworkSecurityGroupCountLimitReached", q.SecurityGroups); fail != nil {
		return fail
	}
	if len(g.rules) > q.RulesPerSecurityGroup {
		return errf("SecurityRuleCountLimitReached", "A security group cannot have more than %d security rules.", q.RulesPerSecurityGroup)
	}
	sums := map[string]int{}
	distinct := map[string]bool{}
	for _, ru := range g.rules {
		id := r.id.child("securityRules", ru.name)
		for _, s := range []struct {
			name string
			side side
		}{{"Source", ru.from}, {"Destination", ru.to}} {
			sums[s.name+"AddressPrefixes"] += len(s.side.prefixes)
			sums[s.name+"PortRanges"] += len(s.side.ports)
			if len(s.side.groups) > q.ApplicationGroupsPerRule {
				return errf("SecurityRuleApplicationSecurityGroupsLimitReached", "Security rule %s has %d %sApplicationSecurityGroups. A security rule cannot have more than %d.", id, len(s.side.groups), s.name, q.ApplicationGroupsPerRule)
			}
			for _, gid := range s.side.groups {
				distinct[keyOf(gid)] = true
				if fail := w.resolve(r, gid, applicationGroups, true); fail != nil {
					return fail
				}
			}
			for _, t := range s.side.tags {
				if !w.knowsTag(t) {
					return invalidPrefix(id, t)
				}
			}
		}
	}
	for _, what := range sortedKeys(sums) {
		if sums[what] > q.AddressesPerGroup {
			return errf("SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached",
				"Network security group %s has %d %s. A security group cannot have more than %d %s as per the limit MaxSecurityRuleAddressesOrPortsPerSecurityGroup.",
				r.id, sums[what], what, q.AddressesPerGroup, what)
		}
	}
	if len(distinct) > q.ApplicationGroupsPerSecurity {
		return errf("ApplicationSecurityGroupsPerSecurityGroupLimitReached", "Network security group %s refers to %d application security groups; at most %d.", r.id, len(distinct), q.ApplicationGroupsPerSecurity)
	}
	return w.oneNetwork(r, "", "", "")
}

func (w *world) knowsTag(t string) bool {
	switch fold(t) {
	case "internet", "virtualnetwork", "azureloadbalancer":
		return true
	}
	_, ok := w.tags[fold(t)]
	return ok
}

// defaultRules are in every network security group, below all others.
func defaultRules() []*rule {
	define := func(name, note string, in bool, priority int, allow bool, from, to string) *rule {
		ru := &rule{name: name, note: note, in: in, priority: priority, allow: allow, protocol: "*"}
		for s, tag := range map[*side]string{&ru.from: from, &ru.to: to} {
			s.anyPort = true
			if s.anywhere = tag == "*"; !s.anywhere {
				s.tags = []string{tag}
			}
		}
		return ru
	}
	return []*rule{
		define("AllowVnetInBound", "Allow inbound traffic from all VMs in VNET", true, 65000, true, "VirtualNetwork", "VirtualNetwork"),
		define("AllowAzureLoadBalancerInBound", "Allow inbound traffic from azure load balancer", true, 65001, true, "AzureLoadBalancer", "*"),
		define("DenyAllInBound", "Deny all inbound traffic", true, 65500, false, "*", "*"),
		define("AllowVnetOutBound", "Allow outbound traffic from all VMs to all VMs in VNET", false, 65000, true, "VirtualNetwork", "VirtualNetwork"),
		define("AllowInternetOutBound", "Allow outbound traffic from all VMs to Internet", false, 65001, true, "*", "Internet"),
		define("DenyAllOutBound", "Deny all outbound traffic", false, 65500, false, "*", "*"),
	}
}

func (securityGroupType) render(w *world, r *resource, body Document) {
	props := object(body, "properties")
	var defaults []any
	for _, ru := range defaultRules() {
		one := func(s side) string {
			if s.anywhere {
				return "*"
			}
			return s.tags[0]
		}
		p := Document{
			"provisioningState": r.state, "description": ru.note, "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
			"sourceAddressPrefix": one(ru.from), "destinationAddressPrefix": one(ru.to),
			"access": ru.access(), "priority": ru.priority, "direction": ru.direction(),
		}
		completeRule(p)
		defaults = append(defaults, Document{
			"name": ru.name, "id": r.id.child("defaultSecurityRules", ru.name).String(), "etag": r.etag,
			"type": r.kind.name + "/defaultSecurityRules", "properties": p,
		})
	}
	props["defaultSecurityRules"] = defaults
	var nics, subnets []string
	for _, u := range w.usersOf(r.key()) {
		switch v := u.view.(type) {
		case *nic:
			nics = append(nics, u.id.String())
		case *network:
			for _, s := range v.subnets {
				if s.nsg == r.key() {
					subnets = append(subnets, u.id.child("subnets", s.name).String())
				}
			}
		}
	}
	if len(nics) > 0 {
		props["networkInterfaces"] = references(nics)
	}
	if len(subnets) > 0 {
		props["subnets"] = references(subnets)
	}
}

func (securityGroupType) inUse(w *world, r *resource) *apiError {
	var users []string
	for _, u := range w.usersOf(r.key()) {
		if v, ok := u.view.(*network); ok {
			for _, s := range v.subnets {
				if s.nsg == r.key() {
					users = append(users, u.id.child("subnets", s.name).String())
				}
			}
			continue
		}
		users = append(users, u.id.String())
	}
	if len(users) == 0 {
		return nil
	}
	const most = 10
	more := ""
	if len(users) > most {
		more, users = " and "+strconv.Itoa(len(users)-most)+" more", users[:most]
	}
	return errf("InUseNetworkSecurityGroupCannotBeDeleted", "Network security group %s cannot be deleted because it is in use by the following resources: %s%s. In order to delete the Network security group, remove the association with the resource(s). To learn how to do this, see aka.ms/deletensg.",
		r.id, joined(users), more)
}
