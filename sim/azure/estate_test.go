package azure_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isobar.dev/sim/azure"
)

func TestParseEstate(t *testing.T) {
	const tenant = `"tenants":[{"id":"` + azure.SampleTenant + `"}]`
	sub := func(more string) string {
		return `{` + tenant + `,"subscriptions":[{"id":"` + azure.SampleSubscription + `","tenant":"` + azure.SampleTenant + `","locations":["West Europe"],"resourceGroups":[{"name":"shop","location":"westeurope"}]` + more + `}]}`
	}
	resource := func(kind, more string) string {
		return sub(`,"resources":[{"id":"` + shopID(kind, "x") + `","location":"westeurope"` + more + `}]`)
	}
	for _, tt := range []struct{ in, want string }{
		{sub(""), ""},
		{resource("Microsoft.Network/applicationSecurityGroups", ""), ""},
		{resource("microsoft.network/APPLICATIONSECURITYGROUPS", `,"unknown":1`), ""},
		{resource("Microsoft.Network/loadBalancers", ""), "not simulated"},
		{resource("Microsoft.Network/virtualNetworks", ""), "no address space"},
		{resource("Microsoft.Network/networkInterfaces", `,"properties":{"ipConfigurations":[{"name":"a","properties":{"subnet":{"id":"`+vnetID("x")+`/subnets/s"}}}]}`), "was not found"},
		{sub(`,"resources":[{"id":"/x"}]`), "not the id of a resource"},
		{sub(`,"uplinks":[{"virtualNetwork":"` + vnetID("x") + `"}]`), "unknown virtual network"},
		{sub(`,"locks":[{"name":"l","scope":"/subscriptions/x","level":"Never"}]`), "CanNotDelete or ReadOnly"},
		{sub(`,"state":"Odd"`), "unknown state"},
		{`{"tenants":[{"id":"x"}]}`, "no GUID"},
		{`{"tenants":[],"more":1}`, "unknown field"},
		{`{"tenants":[]} {}`, "more than one document"},
		{`{` + tenant + `,"serviceTags":{"Storage":["10.0.0.1/8"]}}`, "not a canonical prefix"},
	} {
		_, err := azure.ParseEstate(strings.NewReader(tt.in))
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.in, err, tt.want)
		}
	}
}

func TestGenerate(t *testing.T) {
	e := must[azure.Estate](t)(azure.Generate(azure.Load{Networks: 3, Machines: 1000, Peered: true, Groups: 2, Subnets: 3}))
	c := must[*azure.Cloud](t)(azure.New(e, azure.Options{}))
	for _, tt := range []struct {
		from, to string
		want     string
	}{{"m-0", "m-999", "vnet"}, {"m-0", "m-1", "peering"}, {"m-0", "m-2", "peering"}} {
		if v := c.Reach(azure.Flow{From: tt.from, To: tt.to, Protocol: "tcp", Port: 1}); v.Path != tt.want || v.Result != azure.Allowed {
			t.Errorf("%s to %s: %+v, want %s", tt.from, tt.to, v, tt.want)
		}
	}
	if _, err := azure.Generate(azure.Load{Machines: 1}); err == nil {
		t.Error("machines without a network are made")
	}
}

// Peerings go through their states as their halves come and go.
func TestPeerings(t *testing.T) {
	b := newBare(t, town(), atOnce)
	state := func(network, name string) any {
		return props(b.get(vnetID(network) + "/virtualNetworkPeerings/" + name))["peeringState"]
	}
	half := azure.Document{"properties": azure.Document{"remoteVirtualNetwork": azure.Document{"id": vnetID("a")}, "allowVirtualNetworkAccess": true}}
	flow := azure.Flow{From: "plain", To: "b1", Protocol: "tcp", Port: 80}
	if a, c := state("a", "to-b"), state("c", "to-a"); a != "Connected" || c != "Initiated" {
		t.Errorf("at first: %v and %v", a, c)
	}
	b.do("DELETE", vnetID("b")+"/virtualNetworkPeerings/to-a", nil)
	if v := b.cloud.Reach(flow); state("a", "to-b") != "Disconnected" || v.Result != azure.Unreachable {
		t.Errorf("without the other half: %v, %+v", state("a", "to-b"), v)
	}
	b.do("PUT", vnetID("b")+"/virtualNetworkPeerings/to-a", half)
	if s := state("b", "to-a"); s != "Initiated" {
		t.Errorf("the other half again: %v", s)
	}
	back := azure.Document{"properties": azure.Document{"remoteVirtualNetwork": azure.Document{"id": vnetID("b")}, "allowVirtualNetworkAccess": false}}
	if r := b.do("PUT", vnetID("a")+"/virtualNetworkPeerings/to-b", back); r.code != "RemotePeeringIsDisconnected" {
		t.Errorf("a write of a disconnected half: %v", r)
	}
	again := must[*azure.Cloud](t)(azure.New(b.cloud.Estate(), azure.Options{}))
	if v := again.Reach(flow); v.Result != azure.Unreachable {
		t.Errorf("after a restart: %+v", v)
	}
	b.do("DELETE", vnetID("a")+"/virtualNetworkPeerings/to-b", nil)
	b.do("PUT", vnetID("a")+"/virtualNetworkPeerings/to-b", back)
	// a does not count b as VirtualNetwork now, so a security group there lets nothing of b in.
	if v := b.cloud.Reach(azure.Flow{From: "b1", To: "web", Protocol: "tcp", Port: 80}); v.Path != "peering" || v.Result != azure.Denied || v.Ingress.Rule != "DenyAllInBound" {
		t.Errorf("without access: %+v", v)
	}
	if v := b.cloud.Reach(flow); v.Result != azure.Allowed {
		t.Errorf("b counts a as VirtualNetwork: %+v", v)
	}
}

// What is in use cannot be deleted, and a resource group goes with all that is in it, or not at all.
func TestDeleteInUse(t *testing.T) {
	b := newBare(t, town(), atOnce)
	for _, tt := range []struct{ id, want string }{
		{nsgID("subnet"), "InUseNetworkSecurityGroupCannotBeDeleted"},
		{asgID("web"), "InUseApplicationSecurityGroupCannotBeDeleted"},
		{pipID("pip"), "PublicIPAddressCannotBeDeleted"},
		{vnetID("a"), "InUseSubnetCannotBeDeleted"},
		{vnetID("a") + "/subnets/guarded", "InUseSubnetCannotBeDeleted"},
		{nicID("app-nic"), "NicInUse"},
	} {
		if r := b.do("DELETE", tt.id, nil); r.code != tt.want {
			t.Errorf("%s: %d %q, want %q", tt.id, r.status, r.code, tt.want)
		}
	}
	if r := b.do("DELETE", shopID("Microsoft.Compute/virtualMachines", "app"), nil); r.status != 202 {
		t.Errorf("a machine: %v", r)
	}
	if r := b.do("GET", nicID("app-nic"), nil); r.code != "ResourceNotFound" {
		t.Errorf("its interface goes with it: %v", r)
	}
	group := "/subscriptions/" + azure.SampleSubscription + "/resourceGroups/shop?api-version=2022-12-01"
	if r := b.do("DELETE", group, nil); r.status != 200 {
		t.Errorf("the resource group: %v", r)
	}
	if n := len(b.cloud.Estate().Subscriptions[0].Resources); n != 0 {
		t.Errorf("%d resources are left", n)
	}
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	state, ca := filepath.Join(dir, "state.json"), filepath.Join(dir, "ca.pem")
	run := func(use func(at azure.Endpoints, c *azure.Cloud)) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		err := azure.Serve(ctx, azure.ServeOptions{StateFile: state, CAFile: ca, ListenHTTP: "127.0.0.1:0", Cloud: atOnce, Ready: func(at azure.Endpoints, c *azure.Cloud) {
			defer cancel()
			use(at, c)
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	run(func(at azure.Endpoints, c *azure.Cloud) {
		text, err := os.ReadFile(ca)
		pool := x509.NewCertPool()
		if err != nil || string(text) != string(at.CA) || !pool.AppendCertsFromPEM(text) {
			t.Errorf("the authority's certificate: %v", err)
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		defer client.CloseIdleConnections()
		for _, base := range []string{at.HTTPS, at.HTTP} {
			r, err := client.Get(base + "/" + azure.SampleTenant + "/v2.0/.well-known/openid-configuration")
			if err != nil {
				t.Errorf("%s: %v", base, err)
				continue
			}
			if body := read(t, r); !strings.Contains(body, base+"/"+azure.SampleTenant+"/oauth2/v2.0/token") {
				t.Errorf("%s: %s", base, body)
			}
		}
		b := &bare{t, c, token(t, c, azure.SampleTenant, azure.SampleClientID, azure.SampleSecret)}
		b.do("PUT", asgID("kept"), shopPlace.ApplicationGroup("kept"))
		hooked(t, c, b.token)
	})
	run(func(_ azure.Endpoints, c *azure.Cloud) {
		b := &bare{t, c, token(t, c, azure.SampleTenant, azure.SampleClientID, azure.SampleSecret)}
		if r := b.do("GET", asgID("kept"), nil); r.status != 200 {
			t.Errorf("after a restart: %v", r)
		}
	})
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state's file: %v, %v", info, err)
	}
	if err := azure.Serve(t.Context(), azure.ServeOptions{Listen: "0.0.0.0:0"}); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("on all addresses: %v", err)
	}
}

// hooked shows that the hook of a change sees the state after it.
func hooked(t *testing.T, c *azure.Cloud, token string) {
	t.Helper()
	seen := 0
	c.OnChange(func() { seen = len(c.Estate().Subscriptions[0].Resources) })
	r := httptest.NewRequest("PUT", asgID("hook")+"?api-version=2024-05-01", strings.NewReader(`{"location":"westeurope"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	c.Handler().ServeHTTP(httptest.NewRecorder(), r)
	if want := len(c.Estate().Subscriptions[0].Resources); seen != want {
		t.Errorf("the hook saw %d resources, want %d", seen, want)
	}
}

func ExampleCloud_Reach() {
	cloud, err := azure.New(azure.Sample(), azure.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewTLSServer(cloud.Handler()) // give srv.URL to any client of Azure as authority and as endpoint
	defer srv.Close()
	for _, port := range []int{443, 5432} {
		v := cloud.Reach(azure.Flow{From: "203.0.113.7", To: "web-1", Protocol: "tcp", Port: port})
		fmt.Println(port, v.Result, v.Path, v.Ingress.Rule)
	}
	// Output:
	// 443 allowed internet https
	// 5432 denied internet DenyAllInBound
}

func ExampleCloud_AddFault() {
	cloud, err := azure.New(azure.Sample(), azure.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := cloud.AddFault(azure.Fault{Operation: "*_ListAll", Kind: azure.FaultError, Code: "InternalServerError", Count: 3})
	fmt.Println(id, err)
	// Output: fault-1 <nil>
}

func ExampleServe() {
	ctx, cancel := context.WithCancel(context.Background())
	err := azure.Serve(ctx, azure.ServeOptions{
		Ready: func(at azure.Endpoints, _ *azure.Cloud) { cancel() }, // a program would go on until a signal comes
	})
	fmt.Println(err)
	// Output: <nil>
}
