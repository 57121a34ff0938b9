package azure

import (
	"fmt"
	"net/netip"
)

// Load is an estate to be generated for measurements.
type Load struct {
	Networks int      // at most 250; at least 1
	Machines int      // over all networks; at most 60,000 in each
	Roles    []string // values of the tag Role, dealt out in turn; none is web, app and db
	Peered   bool     // networks are peered in a ring
	Groups   int      // resource groups that machines are spread over; 0 is 1
	Subnets  int      // in each network; 0 is 1, at most 16
}

// Generate makes an estate of the sample's tenant, application and subscription with many machines: m-0
// and so on, each with one interface m-0-nic and without security groups, in the networks n-0 and so on.
// The same Load gives the same Estate.
func Generate(l Load) (Estate, error) {
	if l.Groups == 0 {
		l.Groups = 1
	}
	if l.Subnets == 0 {
		l.Subnets = 1
	}
	if len(l.Roles) == 0 {
		l.Roles = []string{"web", "app", "db"}
	}
	if l.Networks < 1 || l.Networks > 250 || l.Machines < 0 || l.Machines > 60000*l.Networks || l.Groups < 1 || l.Subnets < 1 || l.Subnets > 16 {
		return Estate{}, fmt.Errorf("generate: %d networks, %d machines, %d groups or %d subnets are out of range", l.Networks, l.Machines, l.Groups, l.Subnets)
	}
	e := Sample()
	s := e.Subscriptions[0]
	s.Resources, s.Uplinks, s.Groups = nil, nil, nil
	for i := range l.Groups {
		s.Groups = append(s.Groups, &ResourceGroup{Name: fmt.Sprintf("rg-%d", i), Location: SampleLocation})
	}
	home := Place{SampleSubscription, "rg-0", SampleLocation}
	networkID := func(i int) string {
		return ID(home.Subscription, home.Group, virtualNetworks.name, fmt.Sprintf("n-%d", i%l.Networks))
	}
	for i := range l.Networks {
		var subnets []SubnetSpec
		for j := range l.Subnets {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(256 / l.Subnets * j), 0}), 16+bits(l.Subnets))
			subnets = append(subnets, SubnetSpec{Name: fmt.Sprintf("s-%d", j), Prefixes: []string{p.Masked().String()}})
		}
		n := home.Network(fmt.Sprintf("n-%d", i), []string{fmt.Sprintf("10.%d.0.0/16", i)}, subnets...)
		if l.Peered && l.Networks > 1 {
			Peer(n, "next", networkID(i+1))
			if l.Networks > 2 {
				Peer(n, "previous", networkID(i+l.Networks-1))
			}
		}
		s.Resources = append(s.Resources, n)
	}
	for i := range l.Machines {
		at := Place{SampleSubscription, s.Groups[i%l.Groups].Name, SampleLocation}
		n, k := i%l.Networks, i/l.Networks // the k-th machine of network n
		sub, host := k%l.Subnets, k/l.Subnets+4
		start := 256 / l.Subnets * sub
		addr := netip.AddrFrom4([4]byte{10, byte(n), byte(start + host>>8), byte(host)})
		name := fmt.Sprintf("m-%d", i)
		nic := at.Interface(name+"-nic", InterfaceSpec{Subnet: fmt.Sprintf("%s/subnets/s-%d", networkID(n), sub), Addresses: []string{addr.String()}})
		s.Resources = append(s.Resources, nic, at.Machine(name, map[string]string{"Role": l.Roles[i%len(l.Roles)]}, nic["id"].(string)))
	}
	return e, nil
}

// bits is how many more bits a prefix must have for n parts.
func bits(n int) int {
	b := 0
	for 1<<b < n {
		b++
	}
	return b
}
