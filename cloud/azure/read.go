package azure

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// The tags by which we know what is ours. Names never count. Azure takes no slashes in
// the names of tags.
const (
	tagCluster  = "isobar.dev-cluster" // the owner
	tagKind     = "isobar.dev-kind"    // of a group, as are the next ones
	tagClass    = "isobar.dev-class"
	tagVNet     = "isobar.dev-vnet"     // of a group, which Azure keeps for all VNets of the region: see vnetMark
	tagOriginal = "isobar.dev-original" // of an interface: see original
	tagMember   = "isobar.dev-member"   // of an interface that has ASGs of ours: the owner of these
)

// What tagKind says of an NSG and of an ASG.
const (
	kindEnforcement = "enforcement"
	kindMembership  = "membership"
)

// ground is what Read found in a VNet, kept up to date by what Apply writes.
type ground struct {
	prefixes []netip.Prefix
	group    string // resource group of the VNet
	location string
	peers    []Peer
	nsgs     map[string]*nsgFacts // by key
	keys     map[string]string    // of our NSGs, by resource key
	exists   map[string]string    // IDs of all NSGs of the region, by resource key
	asgs     map[string]*asgFacts // by key
	asgKeys  map[string]string    // of our ASGs, by resource key
	nics     map[string]*nicFacts // by key
	foreign  int                  // NSGs of the region that are not ours, or are of another VNet
	others   int                  // ASGs of the region of which that is true
	noASGs   bool                 // the credentials may not list them
	notes    []plan.Note
}

// asgFacts is an ASG of ours.
type asgFacts struct {
	id      resourceID
	now     *ASG
	spoiled bool // something has it that we do not write
}

// nsgFacts is an NSG of ours.
type nsgFacts struct {
	id      resourceID
	now     *NSG // as it is, without the rules of others
	foreign map[policy.Direction]int
}

// nicFacts is an interface of a VM.
type nicFacts struct {
	id    resourceID
	nsg   string // key of ours; empty for another or none
	kept  bool   // the tag that remembers is there
	owner string // the cluster of the tag

	groups []string // keys of the ASGs of ours, in order
	member string   // the owner in its tag
	others int      // how many it has besides
	addrs  []netip.Addr
}

// mark begins the description of our rules.
func (d *Driver) mark() string { return "isobar.dev/cluster=" + d.cluster() }

// vnetMark is what the tag of a group says of its VNet, whose ID may be longer than a
// tag's value.
func vnetMark(vnet resourceID) string { return hash(vnet.key()) }

// Read returns our Objects in the VNet.
func (d *Driver) Read(ctx context.Context) (map[string]Object, error) {
	d.ground = nil
	objects, g, err := d.read(ctx)
	if err != nil {
		return nil, scrub(d.account.config.Credentials, err)
	}
	d.ground = g
	return objects, nil
}

func (d *Driver) read(ctx context.Context) (map[string]Object, *ground, error) {
	if d.err != nil {
		return nil, nil, d.err
	}
	g := &ground{
		nsgs: map[string]*nsgFacts{}, keys: map[string]string{}, exists: map[string]string{}, nics: map[string]*nicFacts{},
		asgs: map[string]*asgFacts{}, asgKeys: map[string]string{},
	}
	net, err := d.readNetwork(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	groups, err := d.region.securityGroups(ctx, d.region.name)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]Object{}
	if err := d.readASGs(ctx, g, groups, out); err != nil {
		return nil, nil, err
	}
	for _, x := range groups {
		g.exists[x.key()] = x.ID
		if key := d.learn(g, x); key != "" {
			out[key] = Object{NSG: g.nsgs[key].now}
		}
	}
	nics, err := d.region.networkInterfaces(ctx, d.region.name)
	if err != nil {
		return nil, nil, err
	}
	governed := map[string]bool{} // subnets
	for _, n := range nics {
		here := n.network() == d.vnet.key()
		if !here && len(g.asgs) == 0 {
			continue
		}
		f, err := d.nic(g, n)
		if err != nil {
			return nil, nil, err
		}
		if !here || n.Properties.PrivateEndpoint != nil { // whose interface cannot be written
			g.spoil(n.ID, f.groups)
			f.groups = nil
		}
		if !here {
			continue
		}
		ours := f.nsg != "" || f.kept && f.owner == d.cluster() || len(f.groups) > 0 || f.member == d.cluster()
		if n.Properties.VM == nil && !ours {
			continue
		}
		key := NICKey(n.ID)
		g.nics[key] = f
		if !ours {
			continue
		}
		out[key] = Object{NIC: &NIC{NSG: f.nsg, Kept: f.kept && f.owner == d.cluster(), Groups: f.groups, Marked: f.member == d.cluster(), Unsettled: !isSettled(n.Properties.ProvisioningState)}}
		if f.nsg != "" && !f.kept {
			g.notes = append(g.notes, plan.Note{Key: key, Text: "it is not known what NSG it had before ours: when ours leaves it gets none"})
		}
		if f.nsg == "" {
			continue
		}
		for _, s := range n.subnets() {
			governed[s] = true
		}
	}
	for _, s := range net.Properties.Subnets {
		if other := s.Properties.NSG.idOf(); governed[strings.ToLower(s.ID)] && other != "" {
			g.notes = append(g.notes, plan.Note{Key: "subnet/" + s.Name, Text: fmt.Sprintf("has the NSG %s, which is not ours: what that denies no policy allows", lastName(other))})
		}
	}
	if len(governed) > 0 {
		g.notes = append(g.notes, d.adminNotes(ctx)...)
	}
	slices.SortFunc(g.notes, func(a, b plan.Note) int { return strings.Compare(a.Key+a.Text, b.Key+b.Text) })
	return out, g, nil
}

// readNetwork reads the VNet, and those that it is peered with.
func (d *Driver) readNetwork(ctx context.Context, g *ground) (*vnet, error) {
	doc, err := d.region.get(ctx, d.vnet)
	if err != nil {
		return nil, fmt.Errorf("VNet %s: %w", d.vnet, err)
	}
	var net vnet
	if err := doc.into(&net); err != nil {
		return nil, fmt.Errorf("VNet %s: %w", d.vnet, err)
	}
	if locationOf(net.Location) != d.region.name {
		return nil, fmt.Errorf("VNet %s: in region %q, not %q", d.vnet, locationOf(net.Location), d.region.name)
	}
	g.prefixes, g.group, g.location = prefixesOf(net.Properties.Space.Prefixes), d.vnet.group, net.Location
	for _, p := range net.Properties.Peerings {
		if strings.EqualFold(p.Properties.State, "Connected") && p.Properties.AllowsAccess {
			g.peers = append(g.peers, Peer{strings.ToLower(p.Properties.Remote.idOf()), prefixesOf(p.Properties.RemoteSpace.Prefixes)})
		}
	}
	slices.SortFunc(g.peers, func(a, b Peer) int { return strings.Compare(a.VNet, b.VNet) })
	return &net, nil
}

// learn notes an NSG, and returns its key if it is ours and of this VNet. Two of one
// class cannot be: the one that comes first is, and the other is known by its ID, so
// that it goes.
func (d *Driver) learn(g *ground, x *nsg) string {
	class := tag(x.Tags, tagClass)
	if tag(x.Tags, tagCluster) != d.cluster() || tag(x.Tags, tagKind) != kindEnforcement || tag(x.Tags, tagVNet) != vnetMark(d.vnet) || class == "" {
		g.foreign++
		return ""
	}
	key := NSGKey(class)
	if g.nsgs[key] != nil {
		class += "~" + hash(x.key())
		key = NSGKey(class)
	}
	f := &nsgFacts{id: x.id, now: &NSG{Class: class, Unsettled: !isSettled(x.Properties.ProvisioningState)}, foreign: map[policy.Direction]int{}}
	rules := slices.Clone(x.Properties.Rules)
	slices.SortStableFunc(rules, func(a, b securityRule) int { return int(a.Properties.Priority - b.Properties.Priority) })
	for i := range rules {
		dir := policy.Ingress
		if strings.EqualFold(rules[i].Properties.Direction, "Outbound") {
			dir = policy.Egress
		}
		r, ours := d.rule(g, &rules[i], dir)
		switch {
		case !ours:
			f.foreign[dir]++
			g.notes = append(g.notes, plan.Note{Key: key, Text: fmt.Sprintf("%v rule %q of %s, priority %d, is not ours: what it matches, and no rule before it, is %s whatever the policies say",
				dir, rules[i].Name, x.Name, rules[i].Properties.Priority, map[bool]string{true: "allowed", false: "denied"}[strings.EqualFold(rules[i].Properties.Access, "Allow")])})
		case dir == policy.Egress:
			f.now.Egress = append(f.now.Egress, r)
		default:
			f.now.Ingress = append(f.now.Ingress, r)
		}
	}
	g.nsgs[key], g.keys[x.key()] = f, key
	return key
}

// isSettled says whether a resource is as its document says. What Azure tells no state
// of is.
func isSettled(state string) bool { return state == "" || strings.EqualFold(state, "Succeeded") }

// settle says whether a resource that is to change has to be written even where its
// document is right: what Azure could not do has to be asked for again. While it is
// still at it nothing can be written.
func settle(state string) (write bool, err error) {
	if isSettled(state) || strings.EqualFold(state, "Failed") {
		return !isSettled(state), nil
	}
	return false, fmt.Errorf("%w: it is %s", plan.ErrPending, strings.ToLower(state))
}

// tag returns the value of a tag, whose name Azure takes in any case.
func tag(tags map[string]string, name string) string {
	for k, v := range tags {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

func isTagged(tags map[string]string, name string) bool {
	for k := range tags {
		if strings.EqualFold(k, name) {
			return true
		}
	}
	return false
}

// nic reads what an interface has.
func (d *Driver) nic(g *ground, n *nic) (*nicFacts, error) {
	f := &nicFacts{id: n.id, nsg: g.keys[strings.ToLower(n.Properties.NSG.idOf())], kept: isTagged(n.Tags, tagOriginal), owner: tag(n.Tags, tagCluster), member: tag(n.Tags, tagMember)}
	for _, id := range n.asgs() {
		if key := g.asgKeys[id]; key != "" {
			f.groups = append(f.groups, key)
		} else {
			f.others++
		}
	}
	slices.Sort(f.groups)
	var err error
	f.addrs, err = n.addrs()
	return f, err
}

// rule reads a rule, and says whether it is ours: its description says so. One of ours
// that others have changed into what we never write is like none that we want.
func (d *Driver) rule(g *ground, x *securityRule, dir policy.Direction) (r Rule, ours bool) {
	p := &x.Properties
	if !d.isOurRule(x) {
		return Rule{}, false
	}
	about := strings.TrimPrefix(p.Description, d.mark())
	r = Rule{Name: x.Name, About: strings.TrimPrefix(about, " "), Allow: strings.EqualFold(p.Access, "Allow"), Protocol: p.Protocol}
	self, selves, selfASGs, peer, peers, peerASGs := p.Destination, p.Destinations, p.DestinationASGs, p.Source, p.Sources, p.SourceASGs
	if dir == policy.Egress {
		self, selves, selfASGs, peer, peers, peerASGs = peer, peers, peerASGs, self, selves, selfASGs
	}
	ok := self == "*" && len(selves)+len(selfASGs) == 0 && p.SourcePort == "*" && len(p.SourcePorts) == 0
	ok = ok && readPorts(&r, p.DestinationPort, p.DestinationPorts) && (len(peerASGs) > 0 && peer == "" && len(peers) == 0 && readGroups(&r, g, peerASGs) || len(peerASGs) == 0 && readPeers(&r, peer, peers))
	if !ok {
		return Rule{Name: x.Name, About: "changed by others"}, true
	}
	return r, true
}

// isOurRule says whether the description of a rule has our mark.
func (d *Driver) isOurRule(x *securityRule) bool {
	about, ours := strings.CutPrefix(x.Properties.Description, d.mark())
	return ours && (about == "" || about[0] == ' ')
}

func readGroups(r *Rule, g *ground, list []reference) bool {
	for _, x := range list {
		key := g.asgKeys[strings.ToLower(x.ID)]
		if key == "" {
			return false
		}
		r.Groups = append(r.Groups, key)
	}
	slices.Sort(r.Groups)
	return true
}

func readPorts(r *Rule, one string, many []string) bool {
	if one == "*" {
		return len(many) == 0
	}
	if one != "" {
		many = append([]string{one}, many...)
	}
	for _, s := range many {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil {
			return false
		}
		r.Ports = append(r.Ports, Ports{uint16(a), uint16(b)})
	}
	slices.SortFunc(r.Ports, func(a, b Ports) int { return int(a.First) - int(b.First) })
	return len(r.Ports) > 0
}

func readPeers(r *Rule, one string, many []string) bool {
	if one == "*" {
		r.Any = true
		return len(many) == 0
	}
	if one != "" {
		many = append([]string{one}, many...)
	}
	for _, s := range many {
		p, err := netip.ParsePrefix(s)
		if a, errAddr := netip.ParseAddr(s); err != nil && errAddr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return false
		}
		r.Prefixes = append(r.Prefixes, p)
	}
	slices.SortFunc(r.Prefixes, netip.Prefix.Compare)
	return len(r.Prefixes) > 0
}

// lastName returns the name at the end of a resource ID.
func lastName(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }
