package aws

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var balancerRE = regexp.MustCompile(`^(app|net|gwy)/[A-Za-z0-9](-?[A-Za-z0-9]){0,31}/[0-9a-f]{16}$`)

func (w *world) loadBalancer(s *site, b *LoadBalancer) (err error) {
	if !balancerRE.MatchString(b.ID) || s.balancers[b.ID] != nil {
		return fmt.Errorf("load balancer %q: no id of one, or given twice", b.ID)
	}
	switch kind, n := b.kind(), len(b.Groups); {
	case kind == "application" && n == 0, kind == "gateway" && n > 0, n > s.limits().GroupsPerLoadBalancer:
		return fmt.Errorf("load balancer %s: %d groups do not become one of kind %s", b.ID, n, kind)
	}
	b.vpc, b.Interfaces, err = w.loadService(s, b.ID, "amazon-elb", "ELB "+b.ID, b.Subnets, b.Groups, b.Public, b.Interfaces)
	if err != nil {
		return fmt.Errorf("load balancer %w", err)
	}
	s.balancers[b.ID] = b
	return checkTags(b.ID, b.Tags)
}

func (b *LoadBalancer) kind() string {
	return map[string]string{"app": "application", "net": "network", "gwy": "gateway"}[b.ID[:3]]
}

func (q *request) balancerARN(b *LoadBalancer) string {
	return arn("elasticloadbalancing", q.key, "loadbalancer/"+b.ID)
}

// balancerNamed finds the load balancer of an ARN.
func (q *request) balancerNamed(name string) (*LoadBalancer, error) {
	id, _ := strings.CutPrefix(name, arn("elasticloadbalancing", q.key, "loadbalancer/"))
	if b := q.s.balancers[id]; b != nil {
		return b, nil
	}
	return nil, errf("LoadBalancerNotFound", "Load balancer '%s' not found", name)
}

// balancersNamed finds those of all ARNs, at most as many as given.
func (q *request) balancersNamed(list string, most int) ([]*LoadBalancer, error) {
	names := q.p.within(list).list("member")
	if len(names) == 0 || len(names) > most {
		return nil, errf("ValidationError", "%s: %d; at least 1 and at most %d", list, len(names), most)
	}
	var out []*LoadBalancer
	for _, name := range names {
		b, err := q.balancerNamed(name)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

var balancerPages = paging{1, 400, 400}

func describeBalancers(q *request) ([]elem, error) {
	all := sortedValues(q.s.balancers)
	if q.p.has("LoadBalancerArns") {
		var err error
		if all, err = q.balancersNamed("LoadBalancerArns", 20); err != nil {
			return nil, err
		}
	}
	if names := q.p.within("Names").list("member"); len(names) > 0 {
		all = slices.DeleteFunc(all, func(b *LoadBalancer) bool { return !slices.Contains(names, strings.Split(b.ID, "/")[1]) })
		if len(all) == 0 {
			return nil, errf("LoadBalancerNotFound", "Load balancers '%v' not found", names)
		}
	}
	all, marker, err := cutBy(q, all, func(b *LoadBalancer) string { return b.ID }, balancerPages, "PageSize", "Marker")
	if err != nil {
		return nil, err
	}
	return []elem{named("LoadBalancers", "member", all, q.balancerXML), opt("NextMarker", marker)}, nil
}

func (q *request) balancerXML(b *LoadBalancer) []elem {
	scheme := "internal"
	if b.Public {
		scheme = "internet-facing"
	}
	name := strings.Split(b.ID, "/")[1]
	e := []elem{
		tx("LoadBalancerArn", q.balancerARN(b)), tx("LoadBalancerName", name), tx("Type", b.kind()), tx("Scheme", scheme), tx("VpcId", b.vpc),
		tx("IpAddressType", "ipv4"), tx("DNSName", name+"-"+digest(b.ID)[:10]+"."+q.key.region+".elb.amazonaws.com"), el("State", tx("Code", "active")),
		named("AvailabilityZones", "member", b.Subnets, func(id string) []elem {
			return []elem{tx("SubnetId", id), tx("ZoneName", q.s.subnets[id].Zone)}
		}),
	}
	if len(b.Groups) > 0 {
		e = append(e, groupMembers("SecurityGroups", b.Groups))
	}
	return e
}

func groupMembers(name string, ids []string) elem {
	e := elem{name: name}
	for _, id := range ids {
		e.kids = append(e.kids, tx("member", id))
	}
	return e
}

func setBalancerGroups(q *request) ([]elem, error) {
	b, err := q.balancerNamed(q.p.str("LoadBalancerArn"))
	if err != nil {
		return nil, err
	}
	groups := q.p.within("SecurityGroups").list("member")
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	switch {
	case b.kind() == "gateway":
		return nil, errf("InvalidConfigurationRequest", "Security groups are not supported for load balancers with type 'gateway'")
	case len(b.Groups) == 0:
		return nil, errf("InvalidConfigurationRequest", "You cannot set security groups on a network load balancer that was created without security groups")
	case len(groups) > q.s.limits().GroupsPerLoadBalancer:
		return nil, errf("InvalidConfigurationRequest", "At most %d security groups can be set", q.s.limits().GroupsPerLoadBalancer)
	}
	if err := q.checkServiceGroups(groups, b.vpc, q.s.limits().GroupsPerLoadBalancer, "InvalidSecurityGroup"); err != nil {
		return nil, err
	}
	b.Groups = groups
	for _, n := range b.Interfaces {
		q.s.attach(n, slices.Clone(groups))
	}
	return []elem{groupMembers("SecurityGroupIds", groups)}, nil
}

func describeBalancerTags(q *request) ([]elem, error) {
	all, err := q.balancersNamed("ResourceArns", 20)
	if err != nil {
		return nil, err
	}
	return []elem{named("TagDescriptions", "member", all, func(b *LoadBalancer) []elem {
		return []elem{tx("ResourceArn", q.balancerARN(b)), tagMembers("Tags", "member", b.Tags)}
	})}, nil
}

func addBalancerTags(q *request) ([]elem, error) {
	all, err := q.balancersNamed("ResourceArns", 20)
	if err != nil {
		return nil, err
	}
	var after []map[string]string
	for _, b := range all {
		tags, err := addServiceTags(b.Tags, q.p.within("Tags").structs("member"))
		if err != nil {
			return nil, err
		}
		after = append(after, tags)
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	for i, b := range all {
		b.Tags = after[i]
	}
	return nil, nil
}

func removeBalancerTags(q *request) ([]elem, error) {
	all, err := q.balancersNamed("ResourceArns", 20)
	keys := q.p.within("TagKeys").list("member")
	if err == nil && q.p.bad != nil {
		err = q.p.bad
	}
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		for _, k := range keys {
			delete(b.Tags, k)
		}
	}
	return nil, nil
}
