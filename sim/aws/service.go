package aws

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// loadService plugs in the interfaces of a service: those that are given, or one in each subnet.
func (w *world) loadService(s *site, id, manager, description string, subnets, groups []string, public bool, ns []*Interface) (vpc string, out []*Interface, err error) {
	if len(subnets) == 0 {
		return "", nil, fmt.Errorf("%s: no subnet", id)
	}
	for _, name := range subnets {
		sub := s.subnets[name]
		if sub == nil || vpc != "" && sub.VPC != vpc {
			return "", nil, fmt.Errorf("%s: subnet %q is unknown, or of another vpc", id, name)
		}
		vpc = sub.VPC
		if len(ns) == 0 || len(out) > 0 {
			out = append(out, &Interface{Subnet: name})
		}
	}
	if len(ns) > 0 {
		out = ns
	}
	for _, n := range out {
		if n == nil {
			return "", nil, fmt.Errorf("%s: an interface is null", id)
		}
		n.manager, n.Description, n.Groups = manager, description, slices.Clone(groups)
		if public && !n.PublicIP.IsValid() {
			n.PublicIP = w.newPublicIP()
		}
		if err := w.loadInterface(s, n, nil, 0); err != nil {
			return "", nil, fmt.Errorf("%s: %w", id, err)
		}
	}
	return vpc, out, nil
}

// serviceInterfaces are those of the database or load balancer with that id.
func (s *site) serviceInterfaces(id string) []*Interface {
	if d := s.databases[id]; d != nil {
		return d.Interfaces
	}
	if b := s.balancers[id]; b != nil {
		return b.Interfaces
	}
	return nil
}

// checkServiceGroups refuses groups that a service in a VPC cannot have.
func (q *request) checkServiceGroups(ids []string, vpc string, most int, bad string) error {
	if len(ids) == 0 || len(ids) > most {
		return errf(bad, "%d security groups; at least 1 and at most %d", len(ids), most)
	}
	for i, id := range ids {
		if g := q.s.groups[id]; g == nil || !q.sees(g) || g.VPC != vpc || slices.Contains(ids[:i], id) {
			return errf(bad, "Security group %s does not exist, is of another VPC, or is given twice", id)
		}
	}
	return nil
}

// within returns the structure of that name, to be asked for a list in it.
func (p *params) within(name string) *params {
	if k := p.kids[name]; k != nil {
		return k
	}
	return &params{root: p.root}
}

// serviceTagRE is what the services allow in tags; EC2 allows any text.
var serviceTagRE = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// addServiceTags returns tags with those of a list besides.
func addServiceTags(have map[string]string, list []*params) (map[string]string, error) {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	for _, t := range list {
		t.allow("Key", "Value")
		k, v := t.str("Key"), t.str("Value")
		if !serviceTagRE.MatchString(k) || !serviceTagRE.MatchString(v) {
			return nil, invalid("The tag '%s' has characters that are not allowed", k)
		}
		out[k] = v
	}
	return out, checkTags("", out)
}

func tagMembers(name, each string, tags map[string]string) elem {
	return named(name, each, sortedKeys(tags), func(k string) []elem { return []elem{tx("Key", k), tx("Value", tags[k])} })
}

// LookupNetIP answers as the DNS of AWS does to those inside a VPC: the name of a database's
// endpoint has the private address of the interface that serves.
func (c *Cloud) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.w.sites {
		for _, d := range s.databases {
			if s.endpoint(d) == host {
				return slices.Clone(d.Interfaces[0].PrivateIPs[:1]), nil
			}
		}
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}
