package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	sim "isobar.dev/sim/aws"
)

func TestNewAccountRefuses(t *testing.T) {
	ok := aws.Config{Credentials: aws.Credentials{AccessKeyID: "a", AccessKeySecret: "topsecret"}, Regions: []string{regionID}, Cluster: "c"}
	for name, change := range map[string]func(*aws.Config){
		"no region":          func(c *aws.Config) { c.Regions = nil },
		"bad region":         func(c *aws.Config) { c.Regions = []string{"everywhere"} },
		"no cluster":         func(c *aws.Config) { c.Cluster = "" },
		"bad cluster":        func(c *aws.Config) { c.Cluster = "a b" },
		"prefix sg":          func(c *aws.Config) { c.Prefix = "sg" },
		"prefix sg-":         func(c *aws.Config) { c.Prefix = "SG-isobar" },
		"prefix with blanks": func(c *aws.Config) { c.Prefix = "my prefix" },
		"half a key":         func(c *aws.Config) { c.Credentials.AccessKeyID = "" },
		"endpoint":           func(c *aws.Config) { c.Endpoint = "ftp://topsecret@x" },
		"no host":            func(c *aws.Config) { c.STSEndpoint = "topsecret" },
	} {
		c := ok
		change(&c)
		_, err := aws.NewAccount(context.Background(), c, aws.Options{})
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
	if _, err := aws.NewAccount(context.Background(), ok, aws.Options{}); err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	e := estate(shop(), sim.Quotas{})
	e.Accounts[0].Roles = []*sim.Role{{Name: "isobar", ExternalID: "topsecret-external"}}
	s := serve(t, e, sim.Options{})
	role := "arn:aws:iam::" + accountID + ":role/isobar"
	for _, tt := range []struct {
		name        string
		credentials aws.Credentials
		ok          bool
	}{
		{"keys", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret}, true},
		{"wrong key", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: "topsecret"}, false},
		{"unknown key", aws.Credentials{AccessKeyID: "AKIAtopsecret", AccessKeySecret: "topsecret"}, false},
		{"role", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret, RoleARN: role, ExternalID: "topsecret-external"}, true},
		{"role without external id", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret, RoleARN: role}, false},
		{"unknown role", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret, RoleARN: role + "x", ExternalID: "topsecret-external"}, false},
		{"token", aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret, SessionToken: "topsecret"}, false},
	} {
		a := s.account(t, aws.Options{}, func(c *aws.Config) { c.Credentials = tt.credentials })
		_, err := a.Networks(context.Background(), regionID)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v; want ok %t", tt.name, err, tt.ok)
		}
		if err != nil && (strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), keySecret)) {
			t.Errorf("%s: the error tells a secret: %v", tt.name, err)
		}
	}
	// The default chain: here the environment's.
	t.Setenv("AWS_ACCESS_KEY_ID", keyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", keySecret)
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	a := s.account(t, aws.Options{}, func(c *aws.Config) { c.Credentials = aws.Credentials{RoleARN: role, ExternalID: "topsecret-external"} })
	if _, err := a.Networks(context.Background(), regionID); err != nil {
		t.Errorf("role with the default chain: %v", err)
	}
	// The environment's proxy does not apply.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	if _, err := s.account(t, aws.Options{}).Networks(context.Background(), regionID); err != nil {
		t.Errorf("with a proxy in the environment: %v", err)
	}
}

// many is an estate of more VPCs, instances and groups than a page holds.
func many(n int) sim.Estate {
	r := &sim.Region{Name: regionID, Quotas: sim.Quotas{VPCs: n + 10, Interfaces: 4 * n, Groups: 4 * n}}
	for i := range n {
		id := fmt.Sprintf("vpc-%05d", i)
		r.VPCs = append(r.VPCs, &sim.VPC{ID: id, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	}
	r.Subnets = append(r.Subnets, &sim.Subnet{ID: "subnet-1", VPC: "vpc-00000", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	for i := range n {
		r.Instances = append(r.Instances, &sim.Instance{ID: fmt.Sprintf("i-%05d", i), Interfaces: []*sim.Interface{{Subnet: "subnet-1"}}})
	}
	return sim.Estate{Accounts: []*sim.Account{{ID: accountID, Keys: []*sim.AccessKey{{ID: keyID, Secret: keySecret}}, Regions: []*sim.Region{r}}}}
}

func TestPaging(t *testing.T) {
	e := serve(t, many(1100), sim.Options{})
	a := e.account(t, aws.Options{})
	networks, err := a.Networks(context.Background(), regionID)
	if err != nil || len(networks) != 1100 {
		t.Errorf("Networks: %d, %v; want 1100", len(networks), err)
	}
	vms := a.VMs(context.Background(), regionID, []cloud.Match{{}})
	if vms[0].Err != nil || len(vms[0].VMs) != 1100 {
		t.Errorf("VMs: %d, %v; want 1100", len(vms[0].VMs), vms[0].Err)
	}
	// A listing that goes round in circles ends, with an error.
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultRepeatPage, Action: "DescribeVpcs"}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Networks(context.Background(), regionID); err == nil {
		t.Errorf("Networks that repeat a page: %d and no error", len(n))
	}
}

func TestVMs(t *testing.T) {
	v := netip.MustParseAddr
	r := &sim.Region{Name: regionID}
	for i, name := range []string{"Shop", "shop", ""} {
		id := fmt.Sprint("vpc-", i+1)
		r.VPCs = append(r.VPCs, &sim.VPC{ID: id, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/56")}, Tags: map[string]string{"Name": name}})
		r.Subnets = append(r.Subnets, &sim.Subnet{ID: fmt.Sprint("subnet-", i+1), VPC: id, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}})
	}
	add := func(id, name, state string, vpc int) *sim.Instance {
		i := &sim.Instance{ID: id, State: state, Tags: map[string]string{"Name": name}, Interfaces: []*sim.Interface{{ID: "eni-" + id[2:], Subnet: fmt.Sprint("subnet-", vpc)}}}
		r.Instances = append(r.Instances, i)
		return i
	}
	a1 := add("i-a1", "web", "running", 1)
	a1.Interfaces[0].PrivateIPs, a1.Interfaces[0].PublicIP = []netip.Addr{v("10.0.0.10"), v("10.0.0.11")}, v("198.51.100.9")
	a1.Interfaces[0].IPv6 = []netip.Addr{v("fd00::10")}
	r.Subnets = append(r.Subnets, &sim.Subnet{ID: "subnet-1b", VPC: "vpc-1", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24")}})
	a1.Tags["Env"], a1.Tags["Star"] = "prod", "*"
	a1.Interfaces = append(a1.Interfaces, &sim.Interface{ID: "eni-0a1", Subnet: "subnet-1b", PrivateIPs: []netip.Addr{v("10.0.1.12")}})
	add("i-a2", "Web", "stopped", 1).Tags["Star"] = "star"
	add("i-b1", "web", "running", 2).Tags["Env"] = "prod"
	add("i-b2", "w*b", "running", 2)
	add("i-c1", "db", "pending", 3)
	r.Instances = append(r.Instances, &sim.Instance{ID: "i-c2", State: "terminated", Tags: map[string]string{"Name": "db"}})
	e := serve(t, sim.Estate{Accounts: []*sim.Account{{ID: accountID, Keys: []*sim.AccessKey{{ID: keyID, Secret: keySecret}}, Regions: []*sim.Region{r}}}}, sim.Options{Settle: time.Hour})
	a := e.account(t, aws.Options{Attempts: 1})

	matches := []cloud.Match{
		{},
		{NetworkID: "vpc-1"},
		{NetworkName: "Shop"},
		{NetworkName: "shop"},
		{NetworkName: "SHOP"},
		{NetworkID: "vpc-1", NetworkName: "shop"},
		{VMs: []cloud.VMMatch{{Name: "web"}}},
		{NetworkID: "vpc-1", VMs: []cloud.VMMatch{{Name: "web"}, {ID: "i-a2"}}},
		{VMs: []cloud.VMMatch{{ID: "i-b1"}, {ID: "i-c1"}}},
		{VMs: []cloud.VMMatch{{ID: "i-nothere"}}},
		{VMs: []cloud.VMMatch{{}}},
		{VMs: []cloud.VMMatch{{Name: "w*b"}}},
		{Tags: map[string]string{"Env": "prod"}},
		{Tags: map[string]string{"env": "prod"}}, // keys and values are exact
		{Tags: map[string]string{"Env": "Prod"}},
		{Tags: map[string]string{"Star": "*"}},
		{Tags: map[string]string{"Env": "prod", "Star": "*"}},
		{Tags: map[string]string{"Env": "prod"}, NetworkName: "shop"},
		{Tags: map[string]string{"Env": "prod"}, VMs: []cloud.VMMatch{{Name: "web"}, {ID: "i-b2"}}},
		{Tags: map[string]string{"Name": "web"}, VMs: []cloud.VMMatch{{Name: "web"}, {Name: "db"}, {ID: "i-a2"}}},
		{Tags: map[string]string{"Name": "web"}, VMs: []cloud.VMMatch{{Name: "db"}}},
		{Subnets: []string{"subnet-3", "SUBNET-1b"}}, // also of a second interface
		{Subnets: []string{"subnet-1"}, NetworkID: "vpc-2"},
		{Subnets: []string{"subnet-1", "subnet-2"}, Tags: map[string]string{"Env": "prod"}, VMs: []cloud.VMMatch{{Name: "web"}}},
	}
	want := [][]string{
		{"i-a1", "i-a2", "i-b1", "i-b2", "i-c1"}, {"i-a1", "i-a2"}, {"i-a1", "i-a2"}, {"i-b1", "i-b2"}, nil, nil,
		{"i-a1", "i-b1"}, {"i-a1", "i-a2"}, {"i-b1", "i-c1"}, nil, nil, {"i-b2"},
		{"i-a1", "i-b1"}, nil, nil, {"i-a1"}, {"i-a1"}, {"i-b1"}, {"i-a1", "i-b1"}, {"i-a1", "i-b1"}, nil,
		{"i-a1", "i-c1"}, nil, {"i-a1", "i-b1"},
	}
	for i, got := range a.VMs(context.Background(), regionID, matches) {
		var ids []string
		for _, vm := range got.VMs {
			ids = append(ids, vm.ID)
			if vm.Starting != (vm.ID == "i-c1") {
				t.Errorf("%s is starting: %t", vm.ID, vm.Starting)
			}
		}
		if got.Err != nil || !slices.Equal(ids, want[i]) {
			t.Errorf("VMs(%+v) = %v, %v; want %v", matches[i], ids, got.Err, want[i])
		}
	}
	vm := a.VMs(context.Background(), regionID, []cloud.Match{{NetworkID: "vpc-1"}})[0].VMs[0]
	for i := range vm.Interfaces {
		vm.Interfaces[i].MAC, vm.Interfaces[i].Groups = "", nil
	}
	if d := cmp.Diff(cloud.VM{
		ID: "i-a1", Name: "web", Region: regionID, NetworkID: "vpc-1", NetworkName: "Shop", State: "running", Tags: map[string]string{"Name": "web", "Env": "prod", "Star": "*"},
		Interfaces: []cloud.Interface{
			{ID: "eni-0a1", Subnet: "subnet-1b", Private: []netip.Addr{v("10.0.1.12")}},
			{ID: "eni-a1", Subnet: "subnet-1", Private: []netip.Addr{v("10.0.0.10"), v("10.0.0.11")}, Public: []netip.Addr{v("198.51.100.9"), v("fd00::10")}},
		},
	}, vm, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("i-a1: %s", d)
	}

	// One match that fails does not take the others with it.
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: "DescribeInstances", Skip: 1, Count: 1}); err != nil {
		t.Fatal(err)
	}
	got := a.VMs(context.Background(), regionID, []cloud.Match{{NetworkID: "vpc-1"}, {NetworkID: "vpc-2"}, {NetworkName: "Shop"}})
	if got[0].Err != nil || got[1].Err == nil || got[2].Err != nil || len(got[2].VMs) != 2 {
		t.Errorf("with one failing query: %v", got)
	}
	// A match that says two things at once says nothing.
	if got := a.VMs(context.Background(), regionID, []cloud.Match{{VMs: []cloud.VMMatch{{ID: "i-a1", Name: "db"}}}}); got[0].Err == nil {
		t.Error("a VM match with ID and name was taken")
	}
	if got := a.VMs(context.Background(), "eu-west-1", []cloud.Match{{}}); got[0].Err == nil {
		t.Error("a region that the account does not have was listed")
	}
	if _, err := a.Enforcer("eu-west-1", "vpc-1").Sync(context.Background(), rulesetOf(t, shop())); err == nil {
		t.Error("a region that the account does not have was synced")
	}
	if a.Enforcer(regionID, "vpc-1") != a.Enforcer(regionID, "vpc-1") {
		t.Error("two Enforcers of one VPC")
	}
}

// Throttled calls are tried again, and what was asked to end ends.
func TestThrottled(t *testing.T) {
	e := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true})
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Code: "RequestLimitExceeded", Count: 12, Probability: 0.5}); err != nil {
		t.Fatal(err)
	}
	e.sync(t, e.account(t, aws.Options{Attempts: 20, MaxBackoff: time.Millisecond}), shopVPC.States()["three"])

	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Code: "RequestLimitExceeded"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := e.account(t, aws.Options{Attempts: 1 << 20, MaxBackoff: time.Millisecond}).Networks(ctx, regionID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a throttled call that may take 300 ms: %v", err)
	}
}
