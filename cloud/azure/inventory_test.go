package azure_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud"
	"isobar.dev/cloud/azure"
	"isobar.dev/policy"
	sim "isobar.dev/sim/azure"
)

// groupOf is a resource group, in which resources are made.
type groupOf struct {
	sub             *sim.Subscription
	group, location string
}

func newGroup(sub *sim.Subscription, group, location string) *groupOf {
	sub.Groups = append(sub.Groups, &sim.ResourceGroup{Name: group, Location: location})
	return &groupOf{sub, group, location}
}

func (p *groupOf) add(kind, name string, properties, more object) string {
	id := "/subscriptions/" + p.sub.ID + "/resourceGroups/" + p.group + "/providers/" + kind + "/" + name
	d := sim.Document{"id": id, "type": kind, "location": p.location, "properties": properties}
	maps.Copy(d, more)
	p.sub.Resources = append(p.sub.Resources, d)
	return id
}

func (p *groupOf) vnet(name string, prefixes ...any) string {
	return p.add("Microsoft.Network/virtualNetworks", name, object{
		"addressSpace": object{"addressPrefixes": prefixes},
		"subnets":      []any{object{"name": "main", "properties": object{"addressPrefixes": prefixes}}},
	}, nil)
}

func (p *groupOf) nic(name, subnet string, more object, addrs ...string) string {
	var configs []any
	for i, a := range addrs {
		addr := netip.MustParseAddr(a)
		version := map[bool]string{true: "IPv4", false: "IPv6"}[addr.Is4()]
		c := object{"primary": i == 0, "privateIPAddress": a, "privateIPAllocationMethod": "Static", "privateIPAddressVersion": version, "subnet": object{"id": subnet}}
		if i == 0 {
			maps.Copy(c, more)
		}
		configs = append(configs, object{"name": fmt.Sprint("ip", i), "properties": c})
	}
	return p.add("Microsoft.Network/networkInterfaces", name, object{"ipConfigurations": configs}, nil)
}

func (p *groupOf) vm(name, created, power string, tags object, nics ...string) string {
	var refs []any
	for i, n := range nics {
		refs = append(refs, object{"id": n, "properties": object{"primary": i == 0}})
	}
	properties := object{"networkProfile": object{"networkInterfaces": refs}, "timeCreated": created}
	if power != "" {
		properties["instanceView"] = object{"statuses": []any{object{"code": "PowerState/" + power}}}
	}
	return p.add("Microsoft.Compute/virtualMachines", name, properties, object{"tags": tags})
}

func emptyEstate(locations ...string) (sim.Estate, *sim.Subscription) {
	sub := &sim.Subscription{ID: subscriptionID, Tenant: tenantID, Locations: locations}
	return sim.Estate{
		Tenants:       []*sim.Tenant{{ID: tenantID, Applications: []*sim.Application{{ClientID: clientID, Secrets: []sim.ClientSecret{{Value: clientKey}}}}}},
		Subscriptions: []*sim.Subscription{sub},
	}, sub
}

func lowerCase(s string) string { return strings.ToLower(s) }

func names(answer cloud.VMs) []string {
	var out []string
	for _, vm := range answer.VMs {
		out = append(out, vm.Object)
	}
	slices.Sort(out)
	return out
}

// What is listed is all of a VM: its addresses, tags and state, and what Nephe calls it.
func TestVMs(t *testing.T) {
	e, sub := emptyEstate("westeurope", "eastus")
	p := newGroup(sub, "Shop", "westeurope")
	net := p.vnet("Net", "10.0.0.0/16", "fd00:1::/64")
	ip := p.add("Microsoft.Network/publicIPAddresses", "ip1", object{"ipAddress": "198.18.0.77"}, nil)
	own := p.add("Microsoft.Network/networkSecurityGroups", "own", object{}, nil)
	app := p.add("Microsoft.Network/applicationSecurityGroups", "App", object{}, nil)
	n1 := p.nic("nic1", net+"/subnets/main", object{"publicIPAddress": object{"id": ip}, "applicationSecurityGroups": []any{object{"id": app}}}, "10.0.0.5")
	sub.Resources[len(sub.Resources)-1]["properties"].(object)["networkSecurityGroup"] = object{"id": own}
	n2 := p.nic("nic2", net+"/subnets/main", nil, "10.0.0.6", "10.0.0.7", "fd00:1::6")
	web := p.vm("Web", "2024-01-01T00:00:00Z", "deallocated", object{"Role": "web"}, n1, n2)
	other := newGroup(sub, "far", "eastus")
	far := other.vnet("net", "10.0.0.0/16")
	other.vm("away", "2024-01-01T00:00:00Z", "", nil, other.nic("nic3", far+"/subnets/main", nil, "10.0.0.5"))
	cloudOf := serve(t, e, sim.Options{PageSize: 1})
	a := cloudOf.account(t)

	got := a.VMs(context.Background(), "westeurope", []cloud.Match{{}})[0]
	if got.Err != nil || len(got.VMs) != 1 {
		t.Fatalf("VMs = %+v", got)
	}
	sum := 0
	for _, b := range []byte(lowerCase(web)) {
		sum += int(b)
	}
	vm := got.VMs[0]
	if vm.UID == "" || vm.NetworkUID == "" || !strings.HasPrefix(vm.NetworkObject, "net-") {
		t.Errorf("IDs for machines: %q, %q of %q", vm.UID, vm.NetworkUID, vm.NetworkObject)
	}
	if n, err := a.Networks(context.Background(), "westeurope"); err != nil || len(n) != 1 || n[0].Ref != vm.NetworkRef || n[0].ID != vm.NetworkID {
		t.Errorf("networks %+v, %v; the VM's is %s, or %s", n, err, vm.NetworkID, vm.NetworkRef)
	}
	vm.UID, vm.NetworkUID, vm.NetworkObject = "", "", ""
	for i := range vm.Interfaces {
		vm.Interfaces[i].MAC = ""
	}
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	want := cloud.VM{
		ID: lowerCase(web), Name: "web", Object: fmt.Sprint("web-", sum), Region: "westeurope", NetworkID: lowerCase(net), NetworkName: "net", NetworkRef: "shop:net/" + subscriptionID, State: "stopped", Tags: map[string]string{"Role": "web"},
		Interfaces: []cloud.Interface{
			{ID: lowerCase(n1), Subnet: lowerCase(net) + "/subnets/main", Private: addrs("10.0.0.5"), Public: addrs("198.18.0.77"), Groups: []string{lowerCase(own)}, ApplicationGroups: []string{lowerCase(app)}},
			{ID: lowerCase(n2), Subnet: lowerCase(net) + "/subnets/main", Private: addrs("10.0.0.6", "10.0.0.7", "fd00:1::6")},
		},
	}
	if d := cmp.Diff(want, vm, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}

	networks, err := a.Networks(context.Background(), "westeurope")
	if err != nil || len(networks) != 1 || networks[0].ID != lowerCase(net) || networks[0].Name != "net" || networks[0].Object != got.VMs[0].NetworkObject || networks[0].UID != got.VMs[0].NetworkUID ||
		fmt.Sprint(networks[0].Prefixes) != "[10.0.0.0/16 fd00:1::/64]" {
		t.Errorf("Networks = %+v, %v", networks, err)
	}

	// Names and IDs count in any case, and so do the keys of tags.
	for _, tt := range []struct {
		m  cloud.Match
		is bool
	}{
		{cloud.Match{VMs: []cloud.VMMatch{{Name: "WEB"}}}, true},
		{cloud.Match{VMs: []cloud.VMMatch{{Name: "we"}}}, false},
		{cloud.Match{VMs: []cloud.VMMatch{{}}}, false},
		{cloud.Match{VMs: []cloud.VMMatch{{ID: strings.ToUpper(web)}, {Name: "x"}}}, true},
		{cloud.Match{NetworkID: strings.ToUpper(net)}, true},
		{cloud.Match{NetworkID: net + "x"}, false},
		{cloud.Match{NetworkName: "NET", Tags: map[string]string{"role": "web"}}, true},
		{cloud.Match{Tags: map[string]string{"Role": "Web"}}, false},
		{cloud.Match{Subnets: []string{strings.ToUpper(net) + "/subnets/MAIN"}}, true},
		{cloud.Match{Subnets: []string{net + "/subnets/other"}}, false},
	} {
		if got := a.VMs(context.Background(), "westeurope", []cloud.Match{tt.m})[0]; got.Err != nil || (len(got.VMs) == 1) != tt.is {
			t.Errorf("match %+v: %d VMs, %v; want any %t", tt.m, len(got.VMs), got.Err, tt.is)
		}
	}
	for _, m := range []cloud.Match{{Kind: cloud.Database}, {VMs: []cloud.VMMatch{{ID: "a", Name: "b"}}}} {
		answers := a.VMs(context.Background(), "westeurope", []cloud.Match{m, {}})
		if answers[0].Err == nil || answers[1].Err != nil {
			t.Errorf("match %+v: %v; the one beside it: %v", m, answers[0].Err, answers[1].Err)
		}
	}
}

// Of VMs that Nephe calls alike the older keeps the name, whoever is listed first, and
// whatever has come since.
func TestNames(t *testing.T) {
	build := func(created map[string]string) []string {
		e, sub := emptyEstate("westeurope")
		for _, group := range slices.Sorted(maps.Keys(created)) {
			p := newGroup(sub, group, "westeurope")
			net := p.vnet("net", "10.0.0.0/16")
			p.vm("vm", created[group], "", nil, p.nic("nic", net+"/subnets/main", nil, "10.0.0.5"))
		}
		c := serve(t, e, sim.Options{PageSize: 1})
		got := c.account(t).VMs(context.Background(), "westeurope", []cloud.Match{{}})[0]
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		var out []string
		for _, vm := range got.VMs {
			out = append(out, vm.Object) // by ID, so by group
		}
		return out
	}
	alone := build(map[string]string{"rg12": "2024-02-01T00:00:00Z"})[0]
	for _, tt := range []struct {
		created map[string]string
		classic int
	}{
		{map[string]string{"rg12": "2024-02-01T00:00:00Z", "rg21": "2024-03-01T00:00:00Z"}, 0},
		{map[string]string{"rg12": "2024-02-01T00:00:00Z", "rg21": "2024-01-01T00:00:00Z"}, 1},
		{map[string]string{"rg12": "2024-02-01T00:00:00Z", "rg21": "2024-02-01T00:00:00Z"}, 0},
	} {
		got := build(tt.created)
		if len(got) != 2 || got[tt.classic] != alone || !strings.HasPrefix(got[1-tt.classic], alone+"-") {
			t.Errorf("%v: the names are %q; want %s for the one of number %d", tt.created, got, alone, tt.classic)
		}
	}
}

// A region that cannot be read says nothing, and nothing of others; an account that has no
// such region has no empty one.
func TestUnreadable(t *testing.T) {
	e, sub := emptyEstate("westeurope", "eastus")
	for _, location := range []string{"westeurope", "eastus"} {
		p := newGroup(sub, location, location)
		net := p.vnet("net", "10.0.0.0/16")
		p.vm("vm", "2024-02-01T00:00:00Z", "", nil, p.nic("nic", net+"/subnets/main", nil, "10.0.0.5"))
	}
	c := serve(t, e, sim.Options{})
	a := c.account(t, func(c *azure.Config) { c.Regions = []string{"West Europe", "eastus", "mars"} })
	if d := cmp.Diff([]string{"eastus", "mars", "westeurope"}, a.Regions()); d != "" {
		t.Errorf("Regions: %s", d)
	}
	ctx := context.Background()
	if _, err := a.Networks(ctx, "mars"); err == nil || !strings.Contains(err.Error(), "no such region") {
		t.Errorf("Networks of a region that is not there: %v", err)
	}
	for _, operation := range []string{"VirtualMachines_ListAll", "NetworkInterfaces_ListAll", "PublicIPAddresses_ListAll", "VirtualNetworks_ListAll", "VirtualMachineScaleSets_ListAll"} {
		id, err := c.AddFault(sim.Fault{Kind: sim.FaultError, Code: "AuthorizationFailed", Operation: operation})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range a.VMs(ctx, "eastus", []cloud.Match{{}, {NetworkID: "x"}}) {
			if got.Err == nil || got.VMs != nil {
				t.Errorf("without %s: %+v", operation, got)
			}
		}
		c.ClearFaults(id)
	}
	id, err := c.AddFault(sim.Fault{Kind: sim.FaultError, Code: "AuthorizationFailed", Operation: "VirtualMachines_ListAll", Skip: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.VMs(ctx, "eastus", []cloud.Match{{}})[0]; got.Err == nil || got.VMs != nil {
		t.Errorf("without states: %+v", got)
	}
	c.ClearFaults(id)
	if got := a.VMs(ctx, "eastus", []cloud.Match{{}}); got[0].Err != nil || len(got[0].VMs) != 1 {
		t.Errorf("afterwards: %+v", got)
	}
}

// What a list lacks although a VM refers to it is read by itself: lists lag behind. What
// is gone by then is no error.
func TestListsLagBehind(t *testing.T) {
	e, sub := emptyEstate("westeurope")
	p := newGroup(sub, "rg", "westeurope")
	net := p.vnet("net", "10.0.0.0/16")
	ip := p.add("Microsoft.Network/publicIPAddresses", "ip", object{"ipAddress": "198.18.0.7"}, nil)
	p.vm("vm", "", "", nil, p.nic("nic1", net+"/subnets/main", object{"publicIPAddress": object{"id": ip}}, "10.0.0.5"), p.nic("nic2", net+"/subnets/main", nil, "10.0.0.6"))
	c := serve(t, e, sim.Options{})
	a := c.account(t)
	addrs := func() string {
		t.Helper()
		got := a.VMs(context.Background(), "westeurope", []cloud.Match{{}})[0]
		if got.Err != nil || len(got.VMs) != 1 {
			t.Fatalf("%+v", got)
		}
		var out []netip.Addr
		for _, n := range got.VMs[0].Interfaces {
			out = append(append(out, n.Private...), n.Public...)
		}
		return fmt.Sprint(out)
	}
	fault := func(f sim.Fault) {
		t.Helper()
		if _, err := c.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	fault(sim.Fault{Kind: sim.FaultEmpty, Operation: "NetworkInterfaces_ListAll"})
	fault(sim.Fault{Kind: sim.FaultEmpty, Operation: "PublicIPAddresses_ListAll"})
	if got := addrs(); got != "[10.0.0.5 198.18.0.7 10.0.0.6]" {
		t.Errorf("with empty lists: %s", got)
	}
	fault(sim.Fault{Kind: sim.FaultError, Code: "ResourceNotFound", Operation: "NetworkInterfaces_Get", Resource: "nic2"})
	if got := addrs(); got != "[10.0.0.5 198.18.0.7]" {
		t.Errorf("without nic2: %s", got)
	}
	fault(sim.Fault{Kind: sim.FaultError, Code: "AuthorizationFailed", Operation: "NetworkInterfaces_Get", Resource: "nic1"})
	if got := a.VMs(context.Background(), "westeurope", []cloud.Match{{}})[0]; got.Err == nil {
		t.Errorf("with an interface that cannot be read: %+v", got)
	}
}

// Instances of a uniform scale set are VMs, with names of their own.
func TestScaleSet(t *testing.T) {
	e, sub := emptyEstate("westeurope")
	p := newGroup(sub, "rg", "westeurope")
	net := p.vnet("net", "10.0.0.0/16")
	own := p.add("Microsoft.Network/networkSecurityGroups", "own", object{}, nil)
	set := p.add("Microsoft.Compute/virtualMachineScaleSets", "Pool", object{"orchestrationMode": "Uniform", "virtualMachineProfile": object{"networkProfile": object{
		"networkInterfaceConfigurations": []any{object{"name": "nic0", "properties": object{"primary": true, "networkSecurityGroup": object{"id": own},
			"ipConfigurations": []any{object{"name": "ip0", "properties": object{"primary": true, "subnet": object{"id": net + "/subnets/main"}}}}}}}}}},
		object{"sku": object{"name": "Standard_B1s", "capacity": 2}, "tags": object{"Role": "pool"}})
	instance := set + "/virtualMachines/1"
	nic := instance + "/networkInterfaces/nic0"
	p.add("Microsoft.Compute/virtualMachineScaleSets", "flexible", object{"orchestrationMode": "Flexible"}, nil)
	c := serve(t, e, sim.Options{})
	a := c.account(t)
	if got := a.VMs(context.Background(), "westeurope", []cloud.Match{{}})[0]; got.Err != nil || len(got.VMs) != 2 {
		t.Fatalf("%+v; want two VMs", got)
	}
	got := a.VMs(context.Background(), "westeurope", []cloud.Match{{VMs: []cloud.VMMatch{{ID: instance}}}})[0]
	if got.Err != nil || len(got.VMs) != 1 {
		t.Fatalf("%+v", got)
	}
	vm := got.VMs[0]
	if vm.ID != lowerCase(instance) || vm.Name != "pool_1" || !strings.HasPrefix(vm.Object, "pool-1-") || vm.State != "running" || vm.NetworkID != lowerCase(net) || vm.NetworkUID == "" ||
		len(vm.Interfaces) != 1 || vm.Interfaces[0].ID != lowerCase(nic) || len(vm.Interfaces[0].Private) != 1 || fmt.Sprint(vm.Interfaces[0].Groups) != "["+lowerCase(own)+"]" {
		t.Errorf("%+v", vm)
	}

	// What applies to them is refused, and nothing is written.
	w := &policy.Workload{ID: "external/ns/pool", Kind: policy.KindExternal, Namespace: "ns", Name: "pool", Network: vm.NetworkID, Addrs: vm.Interfaces[0].Private,
		Interfaces: []policy.Interface{{ID: vm.Interfaces[0].ID, Addrs: vm.Interfaces[0].Private}}}
	report, err := a.Enforcer("westeurope", vm.NetworkID).Sync(context.Background(), policy.Ruleset{Target: "t", Workloads: []policy.Enforced{{Workload: w, DeniesIngress: true}}})
	if err != nil || len(report.Refusals) != 1 || report.Refusals[0].Reason != policy.RefusedIsolation || fmt.Sprint(report.Refusals[0].Workloads) != "[external/ns/pool]" || c.writes() > 0 {
		t.Errorf("sync: %+v, %v, %d writes; want one refusal", report, err, c.writes())
	}
}

// NSGs are told of for the VNets that they are attached to, with their rules in order.
func TestSecurityGroups(t *testing.T) {
	e, sub := emptyEstate("westeurope")
	p := newGroup(sub, "rg", "westeurope")
	rule := func(name, direction string, priority int, more object) object {
		r := object{"protocol": "Tcp", "access": "Allow", "direction": direction, "priority": priority, "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "*"}
		maps.Copy(r, more)
		return object{"name": name, "properties": r}
	}
	p.add("Microsoft.Network/networkSecurityGroups", "nowhere", object{}, nil)
	onSubnet := p.add("Microsoft.Network/networkSecurityGroups", "onSubnet", object{"securityRules": []any{
		rule("late", "Inbound", 300, object{"access": "Deny", "protocol": "*", "description": "why"}),
		rule("out", "Outbound", 100, object{"destinationPortRange": "443"}),
		rule("early", "Inbound", 200, object{"destinationPortRange": nil, "destinationPortRanges": []any{"80", "8000-9000"}, "sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"10.1.0.0/16", "10.0.0.0/16"}}),
	}}, nil)
	onNIC := p.add("Microsoft.Network/networkSecurityGroups", "onNIC", object{}, nil)
	net := p.vnet("net", "10.0.0.0/16")
	sub.Resources[len(sub.Resources)-1]["properties"].(object)["subnets"].([]any)[0].(object)["properties"].(object)["networkSecurityGroup"] = object{"id": onSubnet}
	other := p.vnet("other", "10.0.0.0/16")
	p.nic("nic", other+"/subnets/main", nil, "10.0.0.5")
	sub.Resources[len(sub.Resources)-1]["properties"].(object)["networkSecurityGroup"] = object{"id": onNIC}
	a := serve(t, e, sim.Options{}).account(t)

	got, err := a.SecurityGroups(context.Background(), "westeurope", []string{strings.ToUpper(net), other})
	if err != nil || len(got) != 2 || got[0].ID != lowerCase(onNIC) || got[0].NetworkID != lowerCase(other) || got[1].ID != lowerCase(onSubnet) || got[1].NetworkID != lowerCase(net) || !strings.HasPrefix(got[1].Object, "onsubnet-") {
		t.Fatalf("%+v, %v", got, err)
	}
	var lines []string
	for _, r := range got[1].Rules {
		lines = append(lines, fmt.Sprint(r.Ingress, " ", r.Name, " ", r.Action, " ", *r.Priority, " ", r.Protocol, " ", r.Port, " ", r.Source, " ", r.Destination, " ", r.Description))
	}
	want := []string{
		"true early Allow 200 tcp 80,8000-9000 [10.0.0.0/16 10.1.0.0/16] [*] ",
		"true late Deny 300 any all [*] [*] why",
		"false out Allow 100 tcp 443 [*] [*] ",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got, err := a.SecurityGroups(context.Background(), "westeurope", []string{net}); err != nil || len(got) != 1 {
		t.Errorf("of one network: %+v, %v", got, err)
	}
}

// Wrong credentials are told in words, and no secret with them.
func TestWrongCredentials(t *testing.T) {
	e, _ := emptyEstate("westeurope")
	c := serve(t, e, sim.Options{})
	for name, change := range map[string]func(*azure.Credentials){
		"key":          func(c *azure.Credentials) { c.ClientKey = "topsecretbutwrong" },
		"client":       func(c *azure.Credentials) { c.ClientID = "cccccccc-0000-4000-8000-00000000000f" },
		"tenant":       func(c *azure.Credentials) { c.TenantID = "11111111-2222-4333-8444-00000000000f" },
		"subscription": func(c *azure.Credentials) { c.SubscriptionID = "aaaaaaaa-0000-4000-8000-00000000000f" },
		"token":        func(c *azure.Credentials) { c.SessionToken = "topsecretbutwrong" },
	} {
		a := c.account(t, func(c *azure.Config) { change(&c.Credentials) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := a.Networks(ctx, "westeurope")
		cancel()
		if err == nil {
			t.Errorf("wrong %s: no error", name)
			continue
		}
		text := err.Error()
		if strings.Contains(text, "topsecret") || strings.Contains(text, clientKey) || strings.ContainsAny(text, "\n\r") || len(text) > 1000 || strings.Contains(text, "Trace") {
			t.Errorf("wrong %s: %q", name, text)
		}
		t.Logf("wrong %s: %s", name, text)
	}
}

func TestConfig(t *testing.T) {
	good := azure.Config{Credentials: azure.Credentials{SubscriptionID: subscriptionID, TenantID: tenantID, ClientID: clientID, ClientKey: "topsecret"}, Regions: []string{"West Europe"}, Cluster: "test"}
	for name, tt := range map[string]struct {
		change func(*azure.Config)
		ok     bool
	}{
		"good":            {func(*azure.Config) {}, true},
		"government":      {func(c *azure.Config) { c.Cloud = azure.Government }, true},
		"china":           {func(c *azure.Config) { c.Cloud = azure.China }, true},
		"mars":            {func(c *azure.Config) { c.Cloud = "AzureMars" }, false},
		"loopback":        {func(c *azure.Config) { c.Endpoint = "http://127.0.0.1:1" }, true},
		"http":            {func(c *azure.Config) { c.Endpoint = "http://example.com" }, false},
		"http authority":  {func(c *azure.Config) { c.AuthorityEndpoint = "http://127.0.0.1:1" }, false},
		"https authority": {func(c *azure.Config) { c.AuthorityEndpoint = "https://127.0.0.1:1" }, true},
		"userinfo":        {func(c *azure.Config) { c.Endpoint = "https://topsecret@example.com" }, false},
		"bad CA":          {func(c *azure.Config) { c.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}) }, false},
		"no region":       {func(c *azure.Config) { c.Regions = nil }, false},
		"no such word":    {func(c *azure.Config) { c.Regions = []string{"../x"} }, false},
		"cluster":         {func(c *azure.Config) { c.Cluster = "a/b" }, false},
		"subscription":    {func(c *azure.Config) { c.Credentials.SubscriptionID = "../../x" }, false},
		"managed": {func(c *azure.Config) {
			c.Credentials = azure.Credentials{SubscriptionID: subscriptionID, Identity: azure.ManagedIdentity}
		}, true},
	} {
		c := good
		tt.change(&c)
		_, err := azure.NewAccount(c, azure.Options{})
		if (err == nil) != tt.ok || err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v; want ok %t", name, err, tt.ok)
		}
	}
}
