package azure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Driver enforces in one VNet. See [plan.Driver] for who may call it when.
type Driver struct {
	account *Account
	region  *region
	vnet    resourceID
	err     error   // why nothing can be done at all
	ground  *ground // what Read found; nil before
}

var errNoVNet = errors.New("not the ID of a VNet")

// cluster is the owner of all that we make.
func (d *Driver) cluster() string { return d.account.config.Cluster }

var (
	_ plan.Driver[Object]    = (*Driver)(nil)
	_ plan.Describer[Object] = (*Driver)(nil)
	_ plan.Meter[Object]     = (*Driver)(nil)
	_ plan.Observer          = (*Driver)(nil)
	_ plan.Locator[Object]   = (*Driver)(nil)
)

// Lower returns the Objects that enforce rs, by what the last Read found.
func (d *Driver) Lower(rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	return Lower(d.place(), rs)
}

func (d *Driver) place() Place {
	p := Place{Quotas: d.account.config.Quotas, ManyPeers: d.account.options.ManyPeers, ManyClasses: d.account.options.ManyClasses}
	if d.ground == nil {
		return p
	}
	p.Prefixes, p.Peers, p.Foreign, p.ForeignASGs, p.NoASGs = d.ground.prefixes, d.ground.peers, d.ground.foreign, d.ground.others, d.ground.noASGs
	p.Present, p.Attached, p.Taken = map[string]*NSG{}, map[string]string{}, map[string]int{}
	p.Interfaces, p.Rules, p.Spoiled = map[string]Interface{}, map[string]*NSG{}, map[string]bool{}
	for _, f := range d.ground.asgs {
		p.ASGs = append(p.ASGs, f.now.Class)
		p.Spoiled[f.now.Class] = f.spoiled
	}
	slices.Sort(p.ASGs)
	for key, f := range d.ground.nsgs {
		p.Rules[key] = f.now
		if strings.HasPrefix(f.now.Class, "e-") && !strings.Contains(f.now.Class, "~") {
			p.Present[f.now.Class] = f.now
		}
		for _, n := range f.foreign {
			p.Taken[f.now.Class] += n
		}
	}
	for key, f := range d.ground.nics {
		isOther := func(owner string) bool { return owner != "" && owner != d.cluster() }
		p.Interfaces[strings.TrimPrefix(key, "nic/")] = Interface{NSG: f.nsg, Addrs: f.addrs, Groups: f.groups, Others: f.others, Closed: isOther(f.owner) || isOther(f.member)}
		if g := d.ground.nsgs[f.nsg]; g != nil && p.Present[g.now.Class] != nil {
			p.Attached[strings.TrimPrefix(key, "nic/")] = g.now.Class
		}
	}
	return p
}

// Equal says whether have is what is wanted: rules in the same order, whatever their
// priorities.
func (d *Driver) Equal(have, want Object) bool { return have.Equal(want) }

// Notes returns what the last Read noticed: rules of others in our NSGs, NSGs of
// subnets, and interfaces of which it is not known what they had.
func (d *Driver) Notes() []plan.Note {
	if d.ground == nil {
		return nil
	}
	return d.ground.notes
}

// Usage returns what the Objects use of Azure's quotas.
func (d *Driver) Usage(objects map[string]Object) []plan.Usage { return UsageOf(d.place(), objects) }

// Concerned returns the workloads for which the policies may not hold while a change is
// not done: those whose interfaces have the NSG, or are the interface, and those whose
// rules name an ASG that is not there, or that the interface has and should not or the
// other way round.
func (d *Driver) Concerned(rs policy.Ruleset, objects map[string]Object, c plan.Change[Object]) plan.Workloads {
	var out plan.Workloads
	affected := map[string]bool{c.Key: true}
	var groups []string
	for _, o := range []*Object{c.Have, c.Want} {
		switch {
		case o == nil:
		case o.ASG != nil:
			groups = append(groups, c.Key)
		case o.NIC != nil:
			groups = append(groups, o.NIC.Groups...)
		}
	}
	for key, o := range objects {
		affected[key] = affected[key] || o.NSG != nil && len(groups) > 0 && slices.ContainsFunc(o.NSG.named(), func(g string) bool { return slices.Contains(groups, g) })
	}
	for _, e := range rs.Workloads {
		if slices.ContainsFunc(e.Workload.Interfaces, func(n policy.Interface) bool {
			key := NICKey(n.ID)
			o := objects[key]
			return affected[key] || o.NIC != nil && affected[o.NIC.NSG]
		}) {
			out.IDs = append(out.IDs, e.Workload.ID)
		}
	}
	return out
}

// Describe says what a change does, in one line.
func (d *Driver) Describe(c plan.Change[Object]) string {
	o := c.Want
	if o == nil {
		o = c.Have
	}
	if o.NIC != nil {
		return describeNIC(c)
	}
	if o.ASG != nil {
		return "ASG"
	}
	switch c.Op() {
	case plan.Create:
		return fmt.Sprintf("NSG with %d inbound and %d outbound rules", len(o.NSG.Ingress), len(o.NSG.Egress))
	case plan.Delete:
		return "NSG"
	}
	var parts []string
	for _, dir := range directions {
		have, want := c.Have.NSG.rules(dir), c.Want.NSG.rules(dir)
		add, gone := minus(want, have), minus(have, want)
		for _, r := range add {
			parts = append(parts, fmt.Sprintf("+%v %v", dir, r))
		}
		for _, r := range gone {
			parts = append(parts, fmt.Sprintf("-%v %v", dir, r))
		}
		if len(add)+len(gone) == 0 && !slices.EqualFunc(have, want, Rule.Equal) {
			parts = append(parts, fmt.Sprintf("%v rules in another order", dir))
		}
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("and %d more", len(parts)-8))
	}
	return strings.Join(parts, ", ")
}

// describeNIC says what a change of an interface does.
func describeNIC(c plan.Change[Object]) string {
	var have, want NIC
	if c.Have != nil {
		have = *c.Have.NIC
	}
	if c.Want != nil {
		want = *c.Want.NIC
	}
	var parts []string
	switch {
	case want.NSG == "" && (have.NSG != "" || have.Kept):
		parts = append(parts, "give back what it had")
	case want.NSG != "" && c.Have == nil:
		parts = append(parts, "attach "+want.NSG)
	case want.NSG != have.NSG || have.Kept != want.Kept || slices.Equal(have.Groups, want.Groups):
		parts = append(parts, fmt.Sprintf("%s becomes %s", cmp.Or(have.NSG, "what it has"), cmp.Or(want.NSG, "what it has")))
	}
	for _, key := range lacking(want.Groups, have.Groups) {
		parts = append(parts, "join "+key)
	}
	for _, key := range lacking(have.Groups, want.Groups) {
		parts = append(parts, "leave "+key)
	}
	return strings.Join(parts, ", ")
}

// minus returns the rules of a that are not in b.
func minus(a, b []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(a), func(r Rule) bool { return slices.ContainsFunc(b, r.Equal) })
}
