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
	p := Place{Quotas: d.account.config.Quotas}
	if d.ground == nil {
		return p
	}
	p.Prefixes, p.Peers, p.Foreign = d.ground.prefixes, d.ground.peers, d.ground.foreign
	p.Present, p.Attached, p.Taken = map[string]*NSG{}, map[string]string{}, map[string]int{}
	for _, f := range d.ground.nsgs {
		if strings.HasPrefix(f.now.Class, "e-") && !strings.Contains(f.now.Class, "~") {
			p.Present[f.now.Class] = f.now
		}
		for _, n := range f.foreign {
			p.Taken[f.now.Class] += n
		}
	}
	for key, f := range d.ground.nics {
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
// not done: those whose interfaces have the NSG, or are the interface.
func (d *Driver) Concerned(rs policy.Ruleset, objects map[string]Object, c plan.Change[Object]) plan.Workloads {
	var out plan.Workloads
	for _, e := range rs.Workloads {
		if slices.ContainsFunc(e.Workload.Interfaces, func(n policy.Interface) bool {
			key := NICKey(n.ID)
			o := objects[key]
			return key == c.Key || o.NIC != nil && o.NIC.NSG == c.Key
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
		switch c.Op() {
		case plan.Create:
			return "attach " + c.Want.NIC.NSG
		case plan.Delete:
			return "give back what it had"
		}
		return fmt.Sprintf("%s becomes %s", cmp.Or(c.Have.NIC.NSG, "what it has"), c.Want.NIC.NSG)
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

// minus returns the rules of a that are not in b.
func minus(a, b []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(a), func(r Rule) bool { return slices.ContainsFunc(b, r.Equal) })
}
