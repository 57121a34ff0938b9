package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// manyServices is a region with two VPCs, n databases and n load balancers, half
// of which are in each, and some of other sorts.
func manyServices(n int) sim.Estate {
	r := &sim.Region{Name: regionID, Quotas: sim.Quotas{Interfaces: 5000}}
	addVPC(r, "vpc-1")
	addVPC(r, "vpc-2")
	for i := range n {
		vpc := fmt.Sprint("vpc-", 1+i%2)
		r.Databases = append(r.Databases, &sim.Database{ID: fmt.Sprintf("db%d", i), Resource: fmt.Sprintf("db-R%d", i),
			Subnets: []string{subnetOf(vpc)}, Groups: []string{ownGroup(vpc)}, Tags: map[string]string{"Tier": fmt.Sprint("t", i%3)}})
		r.LoadBalancers = append(r.LoadBalancers, &sim.LoadBalancer{ID: fmt.Sprintf("app/lb%d/%016x", i, i),
			Subnets: []string{subnetOf(vpc)}, Groups: []string{ownGroup(vpc)}, Tags: map[string]string{"Tier": fmt.Sprint("t", i%3)}})
	}
	r.LoadBalancers = append(r.LoadBalancers, &sim.LoadBalancer{ID: "gwy/gate/0123456789abcdef", Subnets: []string{subnetOf("vpc-1")}})
	// What a user has made only looks like what belongs to a service.
	r.Interfaces = append(r.Interfaces,
		&sim.Interface{ID: "eni-fake1", Subnet: subnetOf("vpc-1"), Description: "ELB app/lb0/0000000000000000"},
		&sim.Interface{ID: "eni-fake2", Subnet: subnetOf("vpc-1"), Description: "RDSNetworkInterface"})
	return sim.Estate{Accounts: []*sim.Account{{ID: accountID, Keys: []*sim.AccessKey{{ID: keyID, Secret: keySecret}}, Regions: []*sim.Region{r}}}}
}

func namesOf(vms []cloud.VM) string {
	var out []string
	for _, vm := range vms {
		out = append(out, vm.Name)
	}
	return strings.Join(out, " ")
}

func TestServicesAreListed(t *testing.T) {
	const n = 430 // more than a page of either
	e := serve(t, manyServices(n), sim.Options{NoThrottle: true})
	a := e.account(t, aws.Options{})
	matches := []cloud.Match{
		{Kind: cloud.Database},
		{Kind: cloud.LoadBalancer},
		{Kind: cloud.Database, NetworkID: "VPC-2", VMs: []cloud.VMMatch{{Name: "db0"}, {Name: "db1"}, {ID: "DB-r3"}, {Name: "DB5"}}},
		{Kind: cloud.LoadBalancer, VMs: []cloud.VMMatch{{Name: "lb7"}, {ID: "app/lb8/0000000000000008"},
			{ID: "arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/lb9/0000000000000009"}, {ID: "lb10"}}},
		{Kind: cloud.Database, NetworkName: "Name of vpc-1", Tags: map[string]string{"Tier": "t1"}, VMs: []cloud.VMMatch{{Name: "db3"}, {Name: "db4"}}},
		{Kind: cloud.LoadBalancer, Tags: map[string]string{"Tier": "t1"}, VMs: []cloud.VMMatch{{Name: "lb3"}, {Name: "lb4"}}},
		{Kind: cloud.Database, NetworkName: "nothing"},
		{},
	}
	got := a.VMs(context.Background(), regionID, matches)
	for i, want := range []string{"", "", "db1 db3", "lb7 lb8 lb9", "db4", "lb4", "", ""} {
		if got[i].Err != nil {
			t.Fatalf("match %d: %v", i, got[i].Err)
		}
		if names := namesOf(got[i].VMs); i > 1 && names != want {
			t.Errorf("match %d: %q, want %q", i, names, want)
		}
	}
	if len(got[0].VMs) != n || len(got[1].VMs) != n+1 {
		t.Fatalf("%d databases and %d load balancers, want %d and %d", len(got[0].VMs), len(got[1].VMs), n, n+1)
	}
	estate := e.Estate().Accounts[0].Regions[0]
	for _, d := range estate.Databases {
		i := slices.IndexFunc(got[0].VMs, func(vm cloud.VM) bool { return vm.Name == d.ID })
		vm := got[0].VMs[i]
		if vm.ID != d.Resource || vm.Kind != cloud.Database || vm.Unknown != "" || len(vm.Interfaces) != 1 ||
			vm.Interfaces[0].ID != "rds/"+d.Resource || !slices.Equal(vm.Interfaces[0].Private, d.Interfaces[0].PrivateIPs) || vm.Tags["Tier"] != d.Tags["Tier"] {
			t.Fatalf("database %s is %+v", d.ID, vm)
		}
	}
	for _, b := range estate.LoadBalancers {
		i := slices.IndexFunc(got[1].VMs, func(vm cloud.VM) bool { return vm.ID == b.ID })
		vm := got[1].VMs[i]
		if vm.Interfaces[0].ID != "lb/"+b.ID || !slices.Equal(vm.Interfaces[0].Private, b.Interfaces[0].PrivateIPs) || vm.Tags["Tier"] != b.Tags["Tier"] {
			t.Fatalf("load balancer %s is %+v", b.ID, vm)
		}
	}
}

// What one kind cannot tell says nothing of another, and nobody is asked about
// what nobody has selected.
func TestServicesFailAlone(t *testing.T) {
	e := serve(t, manyServices(4), sim.Options{NoThrottle: true})
	a := e.account(t, aws.Options{})
	all := []cloud.Match{{}, {Kind: cloud.Database}, {Kind: cloud.LoadBalancer}}
	for _, tt := range []struct {
		action string
		fails  []bool
	}{
		{"DescribeDBInstances", []bool{false, true, false}},
		{"DescribeLoadBalancers", []bool{false, false, true}},
		{"DescribeTags", []bool{false, false, true}},
		{"DescribeNetworkInterfaces", []bool{false, true, true}},
		{"DescribeInstances", []bool{true, false, false}},
	} {
		if _, err := e.AddFault(sim.Fault{ID: "f", Kind: sim.FaultError, Code: "AccessDenied", Action: tt.action}); err != nil {
			t.Fatal(err)
		}
		for i, got := range a.VMs(context.Background(), regionID, all) {
			if (got.Err != nil) != tt.fails[i] {
				t.Errorf("%s fails: match %d: %v", tt.action, i, got.Err)
			}
		}
		e.ClearFaults("f")
	}
	for _, kind := range []sim.FaultKind{sim.FaultRepeatPage} {
		e := serve(t, manyServices(430), sim.Options{NoThrottle: true})
		if _, err := e.AddFault(sim.Fault{Kind: kind, Action: "DescribeDBInstances"}); err != nil {
			t.Fatal(err)
		}
		if got := e.account(t, aws.Options{}).VMs(context.Background(), regionID, all[1:2]); got[0].Err == nil {
			t.Error("a page that leads back to itself ends the listing without an error")
		}
	}
	e = serve(t, manyServices(4), sim.Options{NoThrottle: true})
	a = e.account(t, aws.Options{})
	a.VMs(context.Background(), regionID, all[:1])
	if _, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), policy.Ruleset{Target: "t"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Calls().Counts {
		if strings.Contains(c.Action, "DB") || strings.Contains(c.Action, "LoadBalancers") {
			t.Errorf("%d calls of %s, and nobody has selected a service", c.Calls, c.Action)
		}
	}
}

// dnsFunc is a Resolver.
type dnsFunc func(host string) ([]netip.Addr, error)

func (f dnsFunc) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) { return f(host) }

// What a name leads to is taken for a database's only where EC2 has an interface
// of a database there, in its VPC, that is nobody else's.
func TestDatabaseAddresses(t *testing.T) {
	e := serve(t, manyServices(4), sim.Options{NoThrottle: true})
	r := e.Estate().Accounts[0].Regions[0]
	at := func(i int) netip.Addr { return r.Databases[i].Interfaces[0].PrivateIPs[0] }
	lb := r.LoadBalancers[0].Interfaces[0].PrivateIPs[0]
	fake := r.Interfaces[slices.IndexFunc(r.Interfaces, func(n *sim.Interface) bool { return n.ID == "eni-fake2" })].PrivateIPs[0]
	notFound := &net.DNSError{Err: "no such host", IsNotFound: true}
	for _, tt := range []struct {
		name    string
		answer  map[string][]netip.Addr // by database; others are told the truth
		err     error                   // of db0
		want    []netip.Addr            // of db0
		unknown string
	}{
		{"the truth", nil, nil, []netip.Addr{at(0)}, ""},
		{"mapped", map[string][]netip.Addr{"db0": {netip.AddrFrom16(at(0).As16())}}, nil, []netip.Addr{at(0)}, ""},
		{"two addresses, one of nothing", map[string][]netip.Addr{"db0": {outside, at(0)}}, nil, []netip.Addr{at(0)}, ""},
		{"another's", map[string][]netip.Addr{"db0": {at(2)}}, nil, nil, "another database's"},
		{"in another VPC", map[string][]netip.Addr{"db0": {at(1)}, "db1": nil}, nil, nil, "no interface of a database in vpc-1"},
		{"a load balancer", map[string][]netip.Addr{"db0": {lb}}, nil, nil, "no interface of a database"},
		{"what a user has made", map[string][]netip.Addr{"db0": {fake}}, nil, nil, "no interface of a database"},
		{"outside", map[string][]netip.Addr{"db0": {outside}}, nil, nil, "no interface of a database"},
		{"no such name", nil, notFound, nil, "cannot be looked up"},
		{"nobody answers", nil, errors.New("timeout"), nil, "cannot be looked up"},
		{"no address", map[string][]netip.Addr{"db0": {}}, nil, nil, "cannot be looked up"},
	} {
		dns := dnsFunc(func(host string) ([]netip.Addr, error) {
			id, _, _ := strings.Cut(host, ".")
			if tt.err != nil && id == "db0" {
				return nil, tt.err
			}
			if addrs, ok := tt.answer[id]; ok {
				return addrs, nil
			}
			return e.LookupNetIP(context.Background(), "ip", host)
		})
		a := e.account(t, aws.Options{Resolver: dns})
		got := a.VMs(context.Background(), regionID, []cloud.Match{{Kind: cloud.Database}})
		if got[0].Err != nil || len(got[0].VMs) != 4 {
			t.Fatalf("%s: %+v", tt.name, got)
		}
		vm := got[0].VMs[0]
		if !slices.Equal(vm.Interfaces[0].Private, tt.want) || (vm.Unknown == "") != (tt.unknown == "") || !strings.Contains(vm.Unknown, tt.unknown) {
			t.Errorf("%s: addresses %v, unknown %q; want %v, %q", tt.name, vm.Interfaces[0].Private, vm.Unknown, tt.want, tt.unknown)
		}
	}
}

var outside = netip.MustParseAddr("198.51.100.7")
