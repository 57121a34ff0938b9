package aws

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

func (w *world) newSite(account string, r *Region, now time.Time) (*site, error) {
	s := &site{
		siteKey: siteKey{account, r.Name}, disabled: r.Disabled, quotas: r.Quotas,
		vpcs: map[string]*VPC{}, subnets: map[string]*Subnet{}, groups: map[string]*Group{}, lists: awsLists(r.Name),
		instances: map[string]*Instance{}, enis: map[string]*Interface{}, carriers: map[string]map[string]*Interface{},
		databases: map[string]*Database{}, balancers: map[string]*LoadBalancer{},
		addrs: map[vpcAddr]*Interface{}, delegated: map[vpcPrefix]*Interface{}, replays: map[string]replayed{},
	}
	if err := r.Quotas.check(); err != nil {
		return nil, err
	}
	steps := []func() error{
		func() error { return each(r.VPCs, func(v *VPC) error { return w.loadVPC(s, v) }) },
		func() error { return each(r.Subnets, func(n *Subnet) error { return w.loadSubnet(s, n) }) },
		func() error { return each(r.PrefixLists, func(l *PrefixList) error { return w.loadList(s, l) }) },
		func() error { return each(r.Groups, func(g *Group) error { return w.loadGroup(s, g) }) },
		func() error {
			for _, id := range sortedKeys(s.vpcs) {
				if s.groupNamed(id, "default") == nil {
					w.addDefaultGroup(s, s.vpcs[id])
				}
			}
			return nil
		},
		func() error {
			return each(r.Interfaces, func(n *Interface) error { return w.loadInterface(s, n, nil, 0) })
		},
		func() error { return each(r.Instances, func(i *Instance) error { return w.loadInstance(s, i, now) }) },
		func() error { return each(r.Databases, func(d *Database) error { return w.loadDatabase(s, d, now) }) },
		func() error {
			return each(r.LoadBalancers, func(b *LoadBalancer) error { return w.loadBalancer(s, b) })
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// each calls f for every item; a nil item is an error.
func each[T any](items []*T, f func(*T) error) error {
	for i, it := range items {
		if it == nil {
			return fmt.Errorf("item %d is null", i)
		}
		if err := f(it); err != nil {
			return err
		}
	}
	return nil
}

// claim checks *id or makes one up, and refuses a second use.
func claim[T any](w *world, id *string, prefix string, taken map[string]T) error {
	if *id == "" {
		*id = w.newID(prefix)
	}
	tail, ok := strings.CutPrefix(*id, prefix+"-")
	if !ok || !idTailRE.MatchString(tail) {
		return fmt.Errorf("%q is not an id that begins with %s-", *id, prefix)
	}
	if _, ok := taken[*id]; ok {
		return fmt.Errorf("%s: given twice", *id)
	}
	return nil
}

// newID makes up an id of EC2's long form. The same history gives the same ids.
func (w *world) newID(prefix string) string {
	w.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", prefix, w.serial))
	return prefix + "-0" + hex.EncodeToString(sum[:8])
}

func (w *world) loadVPC(s *site, v *VPC) error {
	if err := claim(w, &v.ID, "vpc", s.vpcs); err != nil {
		return fmt.Errorf("vpc: %w", err)
	}
	for _, o := range w.sites { // a peer names a VPC without its region, so ids are global
		if o.vpcs[v.ID] != nil {
			return fmt.Errorf("%s: given twice", v.ID)
		}
	}
	if len(v.CIDRs) == 0 || !v.CIDRs[0].Addr().Is4() {
		return fmt.Errorf("%s: the first CIDR must be IPv4", v.ID)
	}
	for i, p := range v.CIDRs {
		if err := checkPrefix(p); err != nil {
			return fmt.Errorf("%s: %w", v.ID, err)
		}
		for _, o := range v.CIDRs[:i] {
			if o.Overlaps(p) {
				return fmt.Errorf("%s: %s and %s overlap", v.ID, o, p)
			}
		}
	}
	for _, p := range v.OnPremises {
		if err := checkPrefix(p); err != nil {
			return fmt.Errorf("%s: on premises: %w", v.ID, err)
		}
	}
	s.vpcs[v.ID] = v
	return checkTags(v.ID, v.Tags)
}

func checkPrefix(p netip.Prefix) error {
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
		return fmt.Errorf("%s is not a canonical CIDR", p)
	}
	return nil
}

func (w *world) loadSubnet(s *site, n *Subnet) error {
	if err := claim(w, &n.ID, "subnet", s.subnets); err != nil {
		return fmt.Errorf("subnet: %w", err)
	}
	v := s.vpcs[n.VPC]
	if v == nil {
		return fmt.Errorf("%s: unknown vpc %q", n.ID, n.VPC)
	}
	if len(n.CIDRs) == 0 || len(n.CIDRs) > 2 || !n.CIDRs[0].Addr().Is4() {
		return fmt.Errorf("%s: one IPv4 CIDR and at most one IPv6 CIDR", n.ID)
	}
	for _, p := range n.CIDRs {
		if err := checkPrefix(p); err != nil {
			return fmt.Errorf("%s: %w", n.ID, err)
		}
		if !within(p, v.CIDRs) {
			return fmt.Errorf("%s: %s is not in %s", n.ID, p, v.ID)
		}
		for _, o := range s.subnets {
			if o.VPC == n.VPC && slices.ContainsFunc(o.CIDRs, p.Overlaps) {
				return fmt.Errorf("%s: %s overlaps %s", n.ID, p, o.ID)
			}
		}
	}
	n.Zone = cmp.Or(n.Zone, s.region+"a")
	s.subnets[n.ID] = n
	return checkTags(n.ID, n.Tags)
}

// within says whether one of outer holds all of p.
func within(p netip.Prefix, outer []netip.Prefix) bool {
	return slices.ContainsFunc(outer, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
}

func (w *world) loadList(s *site, l *PrefixList) error {
	if err := claim(w, &l.ID, "pl", s.lists); err != nil {
		return fmt.Errorf("prefix list: %w", err)
	}
	l.Version = max(l.Version, 1)
	if err := checkList(l.Family, l.MaxEntries, l.Entries, s.limits().PrefixListEntries); err != nil {
		return fmt.Errorf("%s: %w", l.ID, err)
	}
	s.lists[l.ID] = l
	return checkTags(l.ID, l.Tags)
}

func (w *world) loadGroup(s *site, g *Group) error {
	if err := claim(w, &g.ID, "sg", s.groups); err != nil {
		return fmt.Errorf("security group: %w", err)
	}
	if s.vpcs[g.VPC] == nil {
		return fmt.Errorf("%s: unknown vpc %q", g.ID, g.VPC)
	}
	if g.Name == "" || s.groupNamed(g.VPC, g.Name) != nil {
		return fmt.Errorf("%s: the name %q is empty or given twice", g.ID, g.Name)
	}
	g.Description = cmp.Or(g.Description, g.Name)
	seen := map[ruleKey]bool{}
	for _, r := range g.Rules {
		if r == nil {
			return fmt.Errorf("%s: a rule is null", g.ID)
		}
		if r.ID == "" {
			r.ID = w.newID("sgr")
		}
		if err := normalise(r); err != nil {
			return fmt.Errorf("%s, rule %s: %w", g.ID, r.ID, err)
		}
		if r.Group != "" {
			r.GroupOwner = cmp.Or(r.GroupOwner, s.account)
		}
		if r.PrefixList != "" && s.lists[r.PrefixList] == nil {
			return fmt.Errorf("%s, rule %s: unknown prefix list %s", g.ID, r.ID, r.PrefixList)
		}
		if seen[r.key()] {
			return fmt.Errorf("%s, rule %s: given twice", g.ID, r.ID)
		}
		seen[r.key()] = true
	}
	s.groups[g.ID] = g
	return checkTags(g.ID, g.Tags)
}

// addDefaultGroup gives a VPC the group that EC2 makes with it: members reach each other, and all may leave.
func (w *world) addDefaultGroup(s *site, v *VPC) {
	g := &Group{ID: w.newID("sg"), VPC: v.ID, Name: "default", Description: "default VPC security group"}
	g.Rules = append(w.egressAll(v), &Rule{ID: w.newID("sgr"), Protocol: "-1", From: -1, To: -1, Group: g.ID, GroupOwner: s.account})
	s.groups[g.ID] = g
}

// egressAll are the rules that EC2 gives every new group.
func (w *world) egressAll(v *VPC) []*Rule {
	rules := []*Rule{{ID: w.newID("sgr"), Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix("0.0.0.0/0")}}
	if slices.ContainsFunc(v.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		rules = append(rules, &Rule{ID: w.newID("sgr"), Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix("::/0")})
	}
	return rules
}

func (w *world) loadInstance(s *site, i *Instance, now time.Time) error {
	if err := claim(w, &i.ID, "i", s.instances); err != nil {
		return fmt.Errorf("instance: %w", err)
	}
	i.State = cmp.Or(i.State, "running")
	if _, ok := stateCodes[i.State]; !ok {
		return fmt.Errorf("%s: unknown state %q", i.ID, i.State)
	}
	if i.Reservation == "" {
		i.Reservation = w.newID("r")
	}
	i.Image = cmp.Or(i.Image, "ami-0123456789abcdef0")
	i.Type = cmp.Or(i.Type, "t3.micro")
	if i.Launched.IsZero() {
		i.Launched = now.UTC().Truncate(time.Second)
	}
	if len(i.Interfaces) == 0 && i.State != "terminated" && i.State != "shutting-down" {
		return fmt.Errorf("%s: no interface", i.ID)
	}
	for d, n := range i.Interfaces {
		if n == nil {
			return fmt.Errorf("%s: an interface is null", i.ID)
		}
		if err := w.loadInterface(s, n, i, d); err != nil {
			return fmt.Errorf("%s: %w", i.ID, err)
		}
	}
	w.arm(i, now)
	s.instances[i.ID] = i
	return checkTags(i.ID, i.Tags)
}

func (w *world) loadInterface(s *site, n *Interface, i *Instance, device int) error {
	if err := claim(w, &n.ID, "eni", s.enis); err != nil {
		return fmt.Errorf("interface: %w", err)
	}
	sub := s.subnets[n.Subnet]
	if sub == nil {
		return fmt.Errorf("%s: unknown subnet %q", n.ID, n.Subnet)
	}
	n.vpc, n.instance, n.device = sub.VPC, i, device
	if n.MAC == "" {
		n.MAC = macOf(n.ID)
	}
	if i != nil && n.Attachment == "" {
		n.Attachment = w.newID("eni-attach")
	}
	if len(n.PrivateIPs) == 0 {
		a, err := s.freeAddr(sub)
		if err != nil {
			return fmt.Errorf("%s: %w", n.ID, err)
		}
		n.PrivateIPs = []netip.Addr{a}
	}
	for k, a := range slices.Concat(n.PrivateIPs, n.IPv6) {
		if a.Is6() != (k >= len(n.PrivateIPs)) || !slices.ContainsFunc(sub.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return fmt.Errorf("%s: %s is not in %s", n.ID, a, sub.ID)
		}
		if s.owner(n.vpc, a) != nil || slices.Contains(slices.Concat(n.PrivateIPs, n.IPv6)[:k], a) {
			return fmt.Errorf("%s: %s is used twice", n.ID, a)
		}
	}
	for k, p := range n.Delegated {
		if p.Bits() != map[bool]int{true: 28, false: 80}[p.Addr().Is4()] || p != p.Masked() || !slices.ContainsFunc(sub.CIDRs, func(c netip.Prefix) bool { return c.Bits() <= p.Bits() && c.Overlaps(p) }) {
			return fmt.Errorf("%s: %s cannot be delegated in %s", n.ID, p, sub.ID)
		}
		for _, o := range s.enis {
			if o.vpc == n.vpc && (slices.ContainsFunc(slices.Concat(o.PrivateIPs, o.IPv6), p.Contains) || slices.Contains(o.Delegated, p)) {
				return fmt.Errorf("%s: addresses of %s are %s's", n.ID, p, o.ID)
			}
		}
		if slices.Contains(n.Delegated[:k], p) || slices.ContainsFunc(slices.Concat(n.PrivateIPs, n.IPv6), p.Contains) {
			return fmt.Errorf("%s: addresses of %s are given twice", n.ID, p)
		}
	}
	if n.PublicIP.IsValid() && !n.PublicIP.Is4() {
		return fmt.Errorf("%s: the public address %s is not IPv4", n.ID, n.PublicIP)
	}
	if len(n.Groups) == 0 && n.manager == "" {
		n.Groups = []string{s.groupNamed(n.vpc, "default").ID}
	}
	if len(n.Groups) > s.limits().GroupsPerInterface {
		return fmt.Errorf("%s: %d groups, the quota is %d", n.ID, len(n.Groups), s.limits().GroupsPerInterface)
	}
	for k, id := range n.Groups {
		if g := s.groups[id]; g == nil || g.VPC != n.vpc || slices.Contains(n.Groups[:k], id) {
			return fmt.Errorf("%s: group %s is unknown, of another vpc, or given twice", n.ID, id)
		}
	}
	s.plug(n)
	return checkTags(n.ID, n.Tags)
}

// plug enters n into the indexes, unplug takes it out.
func (s *site) plug(n *Interface) {
	s.enis[n.ID] = n
	s.attach(n, n.Groups)
	for _, a := range slices.Concat(n.PrivateIPs, n.IPv6) {
		s.addrs[vpcAddr{n.vpc, a}] = n
	}
	for _, p := range n.Delegated {
		s.delegated[vpcPrefix{n.vpc, p}] = n
	}
}

func (s *site) unplug(n *Interface) {
	s.attach(n, nil)
	delete(s.enis, n.ID)
	for _, a := range slices.Concat(n.PrivateIPs, n.IPv6) {
		delete(s.addrs, vpcAddr{n.vpc, a})
	}
	for _, p := range n.Delegated {
		delete(s.delegated, vpcPrefix{n.vpc, p})
	}
}

// attach replaces the groups of n and keeps the index.
func (s *site) attach(n *Interface, groups []string) {
	for _, id := range n.Groups {
		delete(s.carriers[id], n.ID)
	}
	n.Groups = groups
	for _, id := range groups {
		if s.carriers[id] == nil {
			s.carriers[id] = map[string]*Interface{}
		}
		s.carriers[id][n.ID] = n
	}
}

// macOf derives a locally administered address.
func macOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("0e:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

func (w *world) addPeering(p *Peering, now time.Time) error {
	if p == nil {
		return fmt.Errorf("a peering is null")
	}
	if err := claim(w, &p.ID, "pcx", w.peerings); err != nil {
		return fmt.Errorf("peering: %w", err)
	}
	p.State = cmp.Or(p.State, "active")
	if !slices.Contains([]string{"initiating-request", "pending-acceptance", "provisioning", "active", "deleted", "rejected", "expired", "failed"}, p.State) {
		return fmt.Errorf("%s: unknown state %q", p.ID, p.State)
	}
	if p.State != "deleted" && (w.vpcAt(p.Requester) == nil || w.vpcAt(p.Accepter) == nil) {
		return fmt.Errorf("%s: an unknown vpc", p.ID)
	}
	w.peerings[p.ID] = p
	w.armPeering(p, now)
	return checkTags(p.ID, p.Tags)
}

func (w *world) vpcAt(e End) *VPC {
	if s := w.sites[siteKey{e.Account, e.Region}]; s != nil {
		return s.vpcs[e.VPC]
	}
	return nil
}
