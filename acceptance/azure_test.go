package acceptance_test

import (
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/cloud/azure"
	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

// A world of Azure is like one of AWS, but for what its cloud consists of. Who reaches
// whom is asked in the words of AWS's simulator.

// azureOptions are those of the adapter: the simulator's buckets have no bottom.
var azureOptions = azure.Options{Unlimited: true, Attempts: 2, MaxBackoff: time.Second, PollEvery: 5 * time.Millisecond}

// azureCloud is a simulated Azure behind a socket.
type azureCloud struct {
	*azuresim.Cloud
	url, ca string // ca is base64 of PEM
}

// vnet is a VNet with one subnet that is all of it, and its VMs, in a resource group of
// its own.
type vnet struct {
	name, group  string // an empty group is called rg-<name>
	location     string // empty is westeurope
	subscription string // empty is the sample's
	vms          []azureVM
	private      bool // without public addresses
	number       int  // of its addresses; 0 is its place in the estate
}

// azureVM is a machine of a VNet, with an NSG of users that lets all in and out.
type azureVM struct {
	name, role string
	tags       map[string]string
	power      string // empty is running
	created    string
	nics       int  // 0 is one
	bare       bool // no NSG of users
}

const (
	location1, location2 = "westeurope", "northeurope"
	otherSubscription    = "aaaaaaaa-0000-4000-8000-000000000002"
)

type azureFields map[string]any

func (n vnet) id(kind, name string) string {
	return "/subscriptions/" + cmp.Or(n.subscription, azuresim.SampleSubscription) + "/resourceGroups/" + cmp.Or(n.group, "rg-"+n.name) + "/providers/" + kind + "/" + name
}

func (n vnet) vm(name string) string { return n.id("Microsoft.Compute/virtualMachines", name) }
func (n vnet) nic(name string, i int) string {
	return n.id("Microsoft.Network/networkInterfaces", fmt.Sprint(name, "-", i))
}
func (n vnet) self() string { return n.id("Microsoft.Network/virtualNetworks", n.name) }

// object is what the objects of a resource are called: its name and the sum of the
// characters of its ID.
func object(id string) string {
	sum := 0
	for _, b := range []byte(strings.ToLower(id)) {
		sum += int(b)
	}
	return fmt.Sprint(strings.ToLower(id[strings.LastIndex(id, "/")+1:]), "-", sum)
}

// azureEstate is the sample's tenant with VNets, whose addresses are 10.<number>.0.0/16.
func azureEstate(networks ...vnet) azuresim.Estate {
	app := &azuresim.Application{ClientID: azuresim.SampleClientID, Secrets: []azuresim.ClientSecret{{Value: azuresim.SampleSecret}}}
	e := azuresim.Estate{Tenants: []*azuresim.Tenant{{ID: azuresim.SampleTenant, Applications: []*azuresim.Application{app}}}}
	subs := map[string]*azuresim.Subscription{}
	for i, n := range networks {
		id := cmp.Or(n.subscription, azuresim.SampleSubscription)
		if subs[id] == nil {
			subs[id] = &azuresim.Subscription{ID: id, Tenant: azuresim.SampleTenant, Locations: []string{location1, location2}}
			e.Subscriptions = append(e.Subscriptions, subs[id])
		}
		n.addTo(subs[id], cmp.Or(n.number, i))
	}
	return e
}

func (n vnet) addTo(s *azuresim.Subscription, number int) {
	location := cmp.Or(n.location, location1)
	add := func(kind, name string, properties azureFields, tags map[string]string) string {
		id, t := n.id(kind, name), azureFields{}
		for k, v := range tags {
			t[k] = v
		}
		s.Resources = append(s.Resources, azuresim.Document{"id": id, "type": kind, "location": location, "tags": map[string]any(t), "properties": plainJSON(properties)})
		return id
	}
	s.Groups = append(s.Groups, &azuresim.ResourceGroup{Name: cmp.Or(n.group, "rg-"+n.name), Location: location})
	prefix := fmt.Sprintf("10.%d.0.0/16", number)
	add("Microsoft.Network/virtualNetworks", n.name, azureFields{
		"addressSpace": azureFields{"addressPrefixes": []any{prefix}}, "subnets": []any{azureFields{"name": "main", "properties": azureFields{"addressPrefix": prefix}}},
	}, nil)
	rule := func(direction string) any {
		return azureFields{"name": "all-" + direction, "properties": azureFields{"protocol": "*", "access": "Allow", "direction": direction, "priority": 4000,
			"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "*"}}
	}
	wide := add("Microsoft.Network/networkSecurityGroups", "wide", azureFields{"securityRules": []any{rule("Inbound"), rule("Outbound")}}, nil)
	next := netip.MustParsePrefix(prefix).Addr().Next().Next().Next().Next()
	for k, m := range n.vms {
		var nics []any
		for i := range max(m.nics, 1) {
			config := azureFields{"primary": true, "privateIPAddress": next.String(), "privateIPAllocationMethod": "Static", "subnet": azureFields{"id": n.self() + "/subnets/main"}}
			next = next.Next()
			if i == 0 && !n.private {
				config["publicIPAddress"] = azureFields{"id": add("Microsoft.Network/publicIPAddresses", "ip-"+m.name, azureFields{"ipAddress": netip.AddrFrom4([4]byte{198, 18, byte(number + (10+k)/256), byte(10 + k)}).String()}, nil)}
			}
			properties := azureFields{"ipConfigurations": []any{azureFields{"name": "ip", "properties": config}}}
			if !m.bare {
				properties["networkSecurityGroup"] = azureFields{"id": wide}
			}
			nics = append(nics, azureFields{"id": add("Microsoft.Network/networkInterfaces", fmt.Sprint(m.name, "-", i), properties, nil), "properties": azureFields{"primary": i == 0}})
		}
		tags := maps.Clone(m.tags)
		if m.role != "" {
			if tags == nil {
				tags = map[string]string{}
			}
			tags["Role"] = m.role
		}
		properties := azureFields{"networkProfile": azureFields{"networkInterfaces": nics}, "instanceView": azureFields{"statuses": []any{azureFields{"code": "PowerState/" + cmp.Or(m.power, "running")}}}}
		if m.created != "" {
			properties["timeCreated"] = m.created
		}
		add("Microsoft.Compute/virtualMachines", m.name, properties, tags)
	}
}

// plainJSON returns azureFields as JSON's own types, which the simulator takes alone.
func plainJSON(v any) any {
	switch v := v.(type) {
	case azureFields:
		out := map[string]any{}
		for k, x := range v {
			out[k] = plainJSON(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plainJSON(x)
		}
		return out
	}
	return v
}

// newAzureWorld is newWorld with a cloud of Azure.
func newAzureWorld(t *testing.T, networks ...vnet) *world {
	t.Helper()
	t.Parallel()
	return azureWorld(t, azureEstate(networks...), azuresim.Options{Settle: -1, NoThrottle: true}, networks...)
}

func azureWorld(t *testing.T, e azuresim.Estate, o azuresim.Options, networks ...vnet) *world {
	t.Helper()
	h := enter(t)
	w := &world{t: t, env: h.env, cluster: h.cluster, names: map[string]string{}}
	w.connect(h.env.Config(), h.env.Namespace(t))
	for _, n := range networks {
		for _, m := range n.vms {
			w.names[m.name] = n.vm(m.name)
			for i := 1; i < m.nics; i++ {
				w.names[fmt.Sprint(m.name, "#", i)] = n.nic(m.name, i)
			}
		}
	}
	c, err := azuresim.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	c.OnChange(func() {
		if p := w.probe.Load(); p != nil {
			p.sample()
		}
	})
	server := httptest.NewUnstartedServer(c.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // what a killed controller hangs up on
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.azure = &azureCloud{c, server.URL, base64.StdEncoding.EncodeToString(ca)}
	return w
}

func (c *azureCloud) verdicts(flows []sim.Flow) []sim.Result {
	var ask []azuresim.Flow
	for _, f := range flows {
		ask = append(ask, azuresim.Flow{From: f.From, To: f.To, Protocol: f.Protocol, Port: f.Port, ICMPType: f.ICMPType, ICMPCode: f.ICMPCode})
	}
	results := map[azuresim.Result]sim.Result{azuresim.Allowed: sim.Allowed, azuresim.Denied: sim.Denied, azuresim.Unreachable: sim.Unreachable, azuresim.Invalid: sim.Invalid}
	var out []sim.Result
	for _, v := range c.ReachAll(ask) {
		out = append(out, results[v.Result])
	}
	return out
}

func (c *azureCloud) written() []string {
	var out []string
	for _, x := range c.Calls().Writes {
		out = append(out, x.Operation+" "+x.Resource+" "+x.Error)
	}
	return out
}

// fault sets a fault, which lasts until the faults are cleared.
func (c *azureCloud) fault(w *world, f azuresim.Fault) {
	w.t.Helper()
	if _, err := c.AddFault(f); err != nil {
		w.t.Fatal(err)
	}
}

// change alters what is in the cloud, as others do who have it.
func (c *azureCloud) change(w *world, f func(id string, d azuresim.Document)) {
	w.t.Helper()
	e := c.Estate()
	for _, s := range e.Subscriptions {
		for _, d := range s.Resources {
			f(d["id"].(string), d)
		}
	}
	if err := c.Restore(e); err != nil {
		w.t.Fatal(err)
	}
}

// interfaces returns what is attached to every interface, with its tags: what has to be
// as before in the end.
func (c *azureCloud) interfaces() map[string]string {
	out := map[string]string{}
	for _, s := range c.Estate().Subscriptions {
		for _, d := range s.Resources {
			if d["type"] == "Microsoft.Network/networkInterfaces" {
				out[d["id"].(string)] = fmt.Sprint(d["properties"].(map[string]any)["networkSecurityGroup"], d["tags"])
			}
		}
	}
	return out
}

// groups returns the IDs of all NSGs.
func (c *azureCloud) groups() []string {
	var out []string
	for _, s := range c.Estate().Subscriptions {
		for _, d := range s.Resources {
			if d["type"] == "Microsoft.Network/networkSecurityGroups" {
				out = append(out, strings.ToLower(d["id"].(string)))
			}
		}
	}
	slices.Sort(out)
	return out
}

// azureSecret is the document that opens a subscription of the sample's tenant.
func azureSecret(subscription, key string) string {
	return fmt.Sprintf(`{"subscriptionId": "%s", "tenantId": "%s", "clientId": "%s", "clientKey": "%s"}`, subscription, azuresim.SampleTenant, azuresim.SampleClientID, key)
}

// azureAccount writes a Secret and a CloudProviderAccount of a subscription, both of that name.
func (w *world) azureAccount(name, subscription string, regions ...string) {
	w.t.Helper()
	w.azureKeys(name, azureSecret(subscription, azuresim.SampleSecret))
	if len(regions) == 0 {
		regions = []string{location1, location2}
	}
	w.apply(fmt.Sprintf(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudProviderAccount
metadata: {name: %[1]s}
spec:
  azureConfig:
    region: [%[2]s]
    endpoint: %[3]s
    authorityEndpoint: %[3]s
    caBundle: %[4]s
    secretRef: {namespace: $NS, name: %[1]s, key: credentials}
`, name, strings.Join(regions, ", "), w.azure.url, w.azure.ca))
}

func (w *world) azureKeys(name, document string) {
	w.t.Helper()
	w.apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {credentials: '%s'}}", name, document))
}

// azureShop is the account "azure" of the sample's subscription, and a selector of all its VMs.
func (w *world) azureShop() {
	w.t.Helper()
	w.azureAccount("azure", azuresim.SampleSubscription)
	w.importOf("all", "azure", "- vpcMatch: {}")
}
