package azure

import (
	"fmt"
	"net/http"
	"slices"
)

// adminRule reads a security admin rule.
func (w *world) adminRule(a AdminRule) (*rule, error) {
	ru := &rule{name: a.Name, priority: a.Priority, in: a.Direction == "Inbound", allow: a.Access != "Deny", always: a.Access == "AlwaysAllow", protocol: a.Protocol}
	if a.Protocol == "Any" {
		ru.protocol = "*"
	}
	switch {
	case a.Priority < 1 || a.Priority > 4096:
		return nil, fmt.Errorf("priority %d is not from 1 to 4096", a.Priority)
	case !slices.Contains([]string{"Inbound", "Outbound"}, a.Direction), !slices.Contains([]string{"Allow", "AlwaysAllow", "Deny"}, a.Access),
		!slices.Contains([]string{"*", "Tcp", "Udp", "Icmp", "Esp", "Ah"}, ru.protocol):
		return nil, fmt.Errorf("direction %q, access %q or protocol %q is unknown", a.Direction, a.Access, a.Protocol)
	}
	for _, s := range []struct {
		side  *side
		addrs []string
		ports []string
	}{{&ru.from, a.Sources, a.SourcePorts}, {&ru.to, a.Destinations, a.DestinationPorts}} {
		s.side.anywhere = len(s.addrs) == 0
		for _, t := range s.addrs {
			if fail := s.side.addAddress(resourceID{}, t); fail != nil {
				return nil, fmt.Errorf("%q is no prefix", t)
			}
		}
		for _, t := range s.side.tags {
			if !w.knowsTag(t) {
				return nil, fmt.Errorf("unknown service tag %q", t)
			}
		}
		s.side.anyPort = len(s.ports) == 0
		for _, t := range s.ports {
			p, ok := parsePorts(t)
			if !ok {
				return nil, fmt.Errorf("%q is no range of ports", t)
			}
			s.side.ports = append(s.side.ports, p)
		}
	}
	return ru, nil
}

// listAdminRules tells the admin rules that are in force in a virtual network.
func listAdminRules(q *request) (*answer, *apiError) {
	r := q.w.things[q.at.id.key()]
	if r == nil {
		return nil, noResource(q.at.id)
	}
	value := []any{}
	for _, k := range sortedKeys(q.w.subs) {
		s := q.w.subs[k]
		for _, a := range s.AdminRules {
			if !slices.ContainsFunc(a.VirtualNetworks, func(n string) bool { return keyOf(n) == r.key() }) {
				continue
			}
			protocol := a.Protocol
			if protocol == "*" {
				protocol = "Any"
			}
			value = append(value, Document{
				"kind": "Custom",
				"id":   "/subscriptions/" + s.ID + "/providers/Microsoft.Network/networkManagers/simulated/securityAdminConfigurations/simulated/ruleCollections/simulated/rules/" + a.Name,
				"properties": Document{
					"access": a.Access, "direction": a.Direction, "priority": a.Priority, "protocol": protocol, "provisioningState": "Succeeded",
					"sources": adminEnds(a.Sources), "destinations": adminEnds(a.Destinations),
					"sourcePortRanges": adminPorts(a.SourcePorts), "destinationPortRanges": adminPorts(a.DestinationPorts),
				},
			})
		}
	}
	return &answer{status: http.StatusOK, body: Document{"value": value, "skipToken": ""}}, nil
}

// adminEnds are the ends of an admin rule as Virtual Network Manager writes them.
func adminEnds(texts []string) []any {
	if len(texts) == 0 {
		texts = []string{"*"}
	}
	var out []any
	for _, t := range texts {
		kind := "IPPrefix"
		if isTag(t) {
			kind = "ServiceTag"
		}
		out = append(out, Document{"addressPrefix": t, "addressPrefixType": kind})
	}
	return out
}

func adminPorts(texts []string) []any {
	if len(texts) == 0 {
		return []any{"0-65535"}
	}
	return plain(texts)
}
