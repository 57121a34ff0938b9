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

	"k8s.io/client-go/rest"

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
	private      bool     // without public addresses
	ipv6         string   // a prefix of 64 bits; empty is none
	pods         string   // a prefix that routes lead to with addresses unchanged; empty is none
	peers        []string // the names of VNets of its subscription that it is peered with
	number       int      // of its addresses; 0 is its place in the estate
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
	if n.pods != "" {
		s.Uplinks = append(s.Uplinks, azuresim.Uplink{VirtualNetwork: n.self(), OnPremises: []netip.Prefix{netip.MustParsePrefix(n.pods)}})
	}
	s.Groups = append(s.Groups, &azuresim.ResourceGroup{Name: cmp.Or(n.group, "rg-"+n.name), Location: location})
	prefix := fmt.Sprintf("10.%d.0.0/16", number)
	prefixes := []any{prefix}
	if n.ipv6 != "" {
		prefixes = append(prefixes, n.ipv6)
	}
	var peerings []any
	for _, p := range n.peers {
		peerings = append(peerings, azureFields{"name": p, "properties": azureFields{"remoteVirtualNetwork": azureFields{"id": vnet{name: p, subscription: n.subscription}.self()}, "allowVirtualNetworkAccess": true}})
	}
	add("Microsoft.Network/virtualNetworks", n.name, azureFields{
		"addressSpace": azureFields{"addressPrefixes": prefixes}, "subnets": []any{azureFields{"name": "main", "properties": azureFields{"addressPrefixes": prefixes}}},
		"virtualNetworkPeerings": peerings,
	}, nil)
	rule := func(direction string) any {
		return azureFields{"name": "all-" + direction, "properties": azureFields{"protocol": "*", "access": "Allow", "direction": direction, "priority": 4000,
			"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "*"}}
	}
	wide := add("Microsoft.Network/networkSecurityGroups", "wide", azureFields{"securityRules": []any{rule("Inbound"), rule("Outbound")}}, nil)
	next := netip.MustParsePrefix(prefix).Addr().Next().Next().Next().Next()
	count := 0
	for k, m := range n.vms {
		var nics []any
		for i := range max(m.nics, 1) {
			config := azureFields{"primary": true, "privateIPAddress": next.String(), "privateIPAllocationMethod": "Static", "subnet": azureFields{"id": n.self() + "/subnets/main"}}
			next = next.Next()
			if i == 0 && !n.private {
				config["publicIPAddress"] = azureFields{"id": add("Microsoft.Network/publicIPAddresses", "ip-"+m.name, azureFields{"ipAddress": netip.AddrFrom4([4]byte{198, 18, byte(number + (10+k)/256), byte(10 + k)}).String()}, nil)}
			}
			configs := []any{azureFields{"name": "ip", "properties": config}}
			if n.ipv6 != "" {
				a := netip.MustParsePrefix(n.ipv6).Addr().As16()
				a[15] = byte(10 + count)
				six := azureFields{"privateIPAddress": netip.AddrFrom16(a).String(), "privateIPAddressVersion": "IPv6", "privateIPAllocationMethod": "Static", "subnet": config["subnet"]}
				if i == 0 && !n.private {
					six["publicIPAddress"] = azureFields{"id": add("Microsoft.Network/publicIPAddresses", "ip6-"+m.name, azureFields{
						"ipAddress": fmt.Sprintf("2001:db8:18:%x::%x", number, 10+k), "publicIPAddressVersion": "IPv6"}, nil)}
				}
				configs = append(configs, azureFields{"name": "ip6", "properties": six})
			}
			count++
			properties := azureFields{"ipConfigurations": configs}
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
	w := azureWorldOn(t, h.env.Config(), h.env.Namespace(t), h.cluster, e, o, networks...)
	w.env = h.env
	return w
}

// azureWorldOn is worldOn with a cloud of Azure.
func azureWorldOn(t *testing.T, config *rest.Config, ns, cluster string, e azuresim.Estate, o azuresim.Options, networks ...vnet) *world {
	t.Helper()
	w := &world{t: t, cluster: cluster, names: map[string]string{}, nets: map[string]string{}}
	w.connect(config, ns)
	for _, n := range networks {
		w.nets[n.name] = n.self()
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
	w.cloud = w.azure
	return w
}

func (c *azureCloud) provider() string           { return "azure" }
func (c *azureCloud) regions() (one, two string) { return location1, location2 }
func (c *azureCloud) object(id string) string    { return object(id) }
func (c *azureCloud) state() any                 { return c.Estate() }

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

func (c *azureCloud) calls() map[string]int {
	out := map[string]int{}
	for _, x := range c.Calls().Counts {
		out[x.Operation] += x.Calls
	}
	return out
}

func (c *azureCloud) slow() error {
	_, err := c.AddFault(azuresim.Fault{Kind: azuresim.FaultSlow, Latency: azuresim.Duration(50 * time.Millisecond)})
	return err
}

func (c *azureCloud) refuse(call string, count int) error {
	_, err := c.AddFault(azuresim.Fault{Kind: azuresim.FaultError, Operation: call, Count: count})
	return err
}

// fault sets a fault, which lasts until the faults are cleared.
func (c *azureCloud) fault(w *world, f azuresim.Fault) {
	w.t.Helper()
	if _, err := c.AddFault(f); err != nil {
		w.t.Fatal(err)
	}
}

// change alters what is in the cloud, as others do who have it.
func (c *azureCloud) change(f func(id string, d azuresim.Document)) error {
	return c.Edit(func(e *azuresim.Estate) {
		for _, s := range e.Subscriptions {
			for _, d := range s.Resources {
				f(d["id"].(string), d)
			}
		}
	})
}

// of returns the documents of a type of resources.
func (c *azureCloud) of(kind string) []azuresim.Document {
	var out []azuresim.Document
	for _, s := range c.Estate().Subscriptions {
		for _, d := range s.Resources {
			if d["type"] == "Microsoft.Network/"+kind {
				out = append(out, d)
			}
		}
	}
	return out
}

func (c *azureCloud) attached() map[string]string {
	out := map[string]string{}
	for _, d := range c.of("networkInterfaces") {
		out[d["id"].(string)] = fmt.Sprint(d["properties"].(map[string]any)["networkSecurityGroup"], d["tags"])
	}
	return out
}

// groups returns the IDs of all NSGs.
func (c *azureCloud) groups() []string {
	var out []string
	for _, d := range c.of("networkSecurityGroups") {
		out = append(out, strings.ToLower(d["id"].(string)))
	}
	slices.Sort(out)
	return out
}

// marked returns our NSGs.
func (c *azureCloud) marked() []azuresim.Document {
	return slices.DeleteFunc(c.of("networkSecurityGroups"), func(d azuresim.Document) bool {
		tags, _ := d["tags"].(map[string]any)
		return tags["isobar.dev-cluster"] == nil
	})
}

func (c *azureCloud) ours() []string {
	var out []string
	for _, d := range c.marked() {
		out = append(out, d["name"].(string))
	}
	return out
}

func (c *azureCloud) owners() []string {
	var out []string
	for _, d := range c.marked() {
		out = append(out, d["tags"].(map[string]any)["isobar.dev-cluster"].(string))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *azureCloud) ports() []string {
	var out []string
	for _, d := range c.marked() {
		list, _ := d["properties"].(map[string]any)["securityRules"].([]any)
		for _, x := range list {
			p := x.(map[string]any)["properties"].(map[string]any)
			if one, ok := p["destinationPortRange"].(string); ok {
				out = append(out, one)
			}
			more, _ := p["destinationPortRanges"].([]any)
			for _, one := range more {
				out = append(out, fmt.Sprint(one))
			}
		}
	}
	return out
}

func (c *azureCloud) edit(vm string, f func(*labels)) error {
	return c.change(func(id string, d azuresim.Document) {
		if !strings.EqualFold(id, vm) {
			return
		}
		l := labels{tags: map[string]string{}}
		old, _ := d["tags"].(map[string]any)
		for k, v := range old {
			l.tags[k] = fmt.Sprint(v)
		}
		f(&l)
		tags := map[string]any{}
		for k, v := range l.tags {
			tags[k] = v
		}
		d["tags"] = tags
		if l.state != "" {
			d["properties"].(map[string]any)["instanceView"] = map[string]any{"statuses": []any{map[string]any{"code": "PowerState/" + l.state}}}
		}
	})
}

// azureSecret is the document that opens a subscription of the sample's tenant.
func azureSecret(subscription, key string) string {
	return fmt.Sprintf(`{"subscriptionId": "%s", "tenantId": "%s", "clientId": "%s", "clientKey": "%s"}`, subscription, azuresim.SampleTenant, azuresim.SampleClientID, key)
}

// locations are those of a subscription that have VNets.
func (c *azureCloud) locations(subscription string) []string {
	var out []string
	for _, d := range c.of("virtualNetworks") {
		if strings.HasPrefix(d["id"].(string), "/subscriptions/"+subscription+"/") {
			out = append(out, d["location"].(string))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// azureAccount writes a Secret and a CloudProviderAccount of a subscription, both of that name,
// with the regions that have VNets unless others are given.
func (w *world) azureAccount(name, subscription string, regions ...string) {
	w.t.Helper()
	w.azureKeys(name, azureSecret(subscription, azuresim.SampleSecret))
	if len(regions) == 0 {
		regions = w.azure.locations(subscription)
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
	w.account()
	w.importAll()
}
