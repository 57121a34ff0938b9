package acceptance_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	sim "isobar.dev/sim/aws"
)

// network is a VPC with one subnet that is all of it, and its VMs.
type network struct {
	id      string       // begins with vpc-
	name    string       // its tag Name; may be empty
	region  string       // empty is us-east-1
	account string       // empty is the sample's
	cidr    string       // IPv4; empty is 10.<number of the network>.0.0/16
	ipv6    string       // a prefix of 64 bits; empty is none
	pods    string       // a prefix that routes lead to with addresses unchanged; empty is none
	groups  []*sim.Group // of users
	vms     []vm
	private bool // no VM has a public address
	peered  bool // with all others of the estate that are
	number  int  // of an estate that is shared out between clouds
}

// vm is a machine of a network. It has an address and, outside of it, a public one.
type vm struct {
	name   string            // its tag Name; i-<name> is its ID
	role   string            // its tag Role
	tags   map[string]string // others
	groups []string          // none is the VPC's default group, whose members reach each other
	more   [][]string        // groups of further interfaces; an empty list likewise
	state  string            // empty is running
}

const (
	region1, region2 = "us-east-1", "eu-west-1"
	outside          = "198.51.100.77" // somewhere in the Internet
)

// estate is the sample's account, and others that are named, with networks. Addresses are
// given in order, from the fifth of a network on.
func estate(networks ...network) sim.Estate {
	accounts := map[string]*sim.Account{}
	for i, n := range networks {
		id := cmp.Or(n.account, sim.SampleAccount)
		a := accounts[id]
		if a == nil {
			a = &sim.Account{ID: id, Keys: []*sim.AccessKey{keyOf(id)}}
			accounts[id] = a
		}
		region := cmp.Or(n.region, region1)
		at := slices.IndexFunc(a.Regions, func(r *sim.Region) bool { return r.Name == region })
		if at < 0 {
			at = len(a.Regions)
			a.Regions = append(a.Regions, &sim.Region{Name: region})
		}
		n.cidr = cmp.Or(n.cidr, fmt.Sprintf("10.%d.0.0/16", i))
		n.addTo(a.Regions[at], i)
	}
	var e sim.Estate
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		e.Accounts = append(e.Accounts, accounts[id])
	}
	for i, a := range networks {
		for k, b := range networks[:i] {
			if a.peered && b.peered {
				e = peer(e, fmt.Sprintf("pcx-%d%02d", k+1, i), b, a)
			}
		}
	}
	return e
}

// keyOf is the access key of an account.
func keyOf(account string) *sim.AccessKey {
	if account == sim.SampleAccount {
		return &sim.AccessKey{ID: sim.SampleKeyID, Secret: sim.SampleKeySecret}
	}
	return &sim.AccessKey{ID: "AKIA" + account, Secret: "secretForTheSimulatorOnly" + account}
}

func (n network) addTo(r *sim.Region, number int) {
	cidrs := []netip.Prefix{netip.MustParsePrefix(n.cidr)}
	if n.ipv6 != "" {
		cidrs = append(cidrs, netip.MustParsePrefix(n.ipv6))
	}
	v := &sim.VPC{ID: n.id, CIDRs: cidrs}
	if n.name != "" {
		v.Tags = map[string]string{"Name": n.name}
	}
	if n.pods != "" {
		v.OnPremises = []netip.Prefix{netip.MustParsePrefix(n.pods)}
	}
	subnet := "subnet-" + n.id[len("vpc-"):]
	r.VPCs = append(r.VPCs, v)
	r.Subnets = append(r.Subnets, &sim.Subnet{ID: subnet, VPC: n.id, CIDRs: cidrs})
	r.Groups = append(r.Groups, n.groups...)
	next := cidrs[0].Addr()
	for range 4 {
		next = next.Next()
	}
	count := 0
	addInterface := func(i *sim.Instance, groups []string) {
		x := &sim.Interface{ID: fmt.Sprintf("eni-%s%d", i.ID[len("i-"):], len(i.Interfaces)), Subnet: subnet, Groups: groups, PrivateIPs: []netip.Addr{next}}
		if len(i.Interfaces) == 0 && !n.private {
			x.PublicIP = netip.AddrFrom4([4]byte{198, 18, byte(number), byte(10 + count)})
		}
		if n.ipv6 != "" {
			a := cidrs[1].Addr().As16()
			a[15] = byte(10 + count)
			x.IPv6 = []netip.Addr{netip.AddrFrom16(a)}
		}
		i.Interfaces = append(i.Interfaces, x)
		next = next.Next()
		count++
	}
	for _, m := range n.vms {
		i := &sim.Instance{ID: "i-" + m.name, State: m.state, Tags: map[string]string{"Name": m.name}}
		if m.role != "" {
			i.Tags["Role"] = m.role
		}
		maps.Copy(i.Tags, m.tags)
		addInterface(i, m.groups)
		for _, groups := range m.more {
			addInterface(i, groups)
		}
		r.Instances = append(r.Instances, i)
	}
}

// peer joins two networks of the sample's account.
func peer(e sim.Estate, id string, a, b network) sim.Estate {
	end := func(n network) sim.End {
		return sim.End{Account: cmp.Or(n.account, sim.SampleAccount), Region: cmp.Or(n.region, region1), VPC: n.id}
	}
	e.Peerings = append(e.Peerings, &sim.Peering{ID: id, Requester: end(a), Accepter: end(b)})
	return e
}

// namesOf returns what matrices call each interface: "web", and "web#1" for the second of
// a VM.
func namesOf(e sim.Estate) map[string]string {
	out := map[string]string{}
	for _, a := range e.Accounts {
		for _, r := range a.Regions {
			for _, i := range r.Instances {
				name := cmp.Or(i.Tags["Name"], i.ID)
				out[name] = i.ID
				for k, n := range i.Interfaces {
					if k > 0 {
						out[fmt.Sprintf("%s#%d", name, k)] = n.ID
					}
				}
			}
		}
	}
	return out
}

// networksOf returns the VPCs, by their IDs.
func networksOf(e sim.Estate) map[string]string {
	out := map[string]string{}
	for _, a := range e.Accounts {
		for _, r := range a.Regions {
			for _, v := range r.VPCs {
				out[v.ID] = v.ID
			}
		}
	}
	return out
}

// wide gives the VMs of a network that have no groups of their own one of a user's that
// lets everything in and out, so that policies alone decide. The default group knows its
// members only, and VMs that are under a policy are none.
func wide(n network) network {
	rule := func(egress bool, cidr string) *sim.Rule {
		return &sim.Rule{Egress: egress, Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix(cidr)}
	}
	id := "sg-wide" + n.id[len("vpc-"):]
	n.groups = append(n.groups, &sim.Group{ID: id, VPC: n.id, Name: "wide", Rules: []*sim.Rule{
		rule(false, "0.0.0.0/0"), rule(true, "0.0.0.0/0"), rule(false, "::/0"), rule(true, "::/0"),
	}})
	n.vms = slices.Clone(n.vms)
	for i := range n.vms {
		if n.vms[i].groups == nil {
			n.vms[i].groups = []string{id}
		}
		n.vms[i].more = slices.Clone(n.vms[i].more)
		for k, groups := range n.vms[i].more {
			if groups == nil {
				n.vms[i].more[k] = []string{id}
			}
		}
	}
	return n
}
