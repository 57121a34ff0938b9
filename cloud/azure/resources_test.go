package azure

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
)

// What the SDK's types, which are made of Azure's own description, write, our fields read.
func TestFields(t *testing.T) {
	marshal := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := to.Ptr[string]
	const network = "/subscriptions/" + testSubscription + "/resourceGroups/rg/providers/Microsoft.Network/"
	n, err := parseResource[nic](marshal(armnetwork.Interface{
		ID: p(testNIC), Name: p("nic1"), Location: p("westus"), Tags: map[string]*string{"a": p("b")},
		Properties: &armnetwork.InterfacePropertiesFormat{
			MacAddress: p("00-0D"), Primary: to.Ptr(true), NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: p(network + "networkSecurityGroups/g")},
			VirtualMachine: &armnetwork.SubResource{ID: p("vm")}, PrivateEndpoint: &armnetwork.PrivateEndpoint{ID: p("pe")},
			IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: p("ip"), Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
				Primary: to.Ptr(true), PrivateIPAddress: p("10.0.0.5"), Subnet: &armnetwork.Subnet{ID: p(network + "virtualNetworks/v/subnets/s")},
				PublicIPAddress: &armnetwork.PublicIPAddress{ID: p("pip")}, ApplicationSecurityGroups: []*armnetwork.ApplicationSecurityGroup{{ID: p("Asg")}}}}},
		}}), typeNIC)
	if err != nil {
		t.Fatal(err)
	}
	c := n.Properties.Configs[0].Properties
	if n.Location != "westus" || n.Tags["a"] != "b" || n.Properties.MAC != "00-0D" || !n.Properties.Primary || n.Properties.NSG.idOf() != network+"networkSecurityGroups/g" ||
		n.Properties.VM.idOf() != "vm" || n.Properties.PrivateEndpoint.idOf() != "pe" || !c.Primary || c.Private != "10.0.0.5" || c.PublicIP.idOf() != "pip" || n.asgs()[0] != "asg" ||
		n.network() != strings.ToLower(network+"virtualNetworks/v") {
		t.Errorf("%+v", n)
	}
	g, err := parseResource[nsg](marshal(armnetwork.SecurityGroup{ID: p(network + "networkSecurityGroups/g"), Properties: &armnetwork.SecurityGroupPropertiesFormat{
		NetworkInterfaces: []*armnetwork.Interface{{ID: p("n")}}, Subnets: []*armnetwork.Subnet{{ID: p("s")}},
		SecurityRules: []*armnetwork.SecurityRule{{ID: p("R"), Name: p("r"), Properties: &armnetwork.SecurityRulePropertiesFormat{
			Access: to.Ptr(armnetwork.SecurityRuleAccessDeny), Direction: to.Ptr(armnetwork.SecurityRuleDirectionInbound), Priority: to.Ptr[int32](7), Protocol: to.Ptr(armnetwork.SecurityRuleProtocolTCP), Description: p("d"),
			SourcePortRange: p("*"), DestinationPortRanges: []*string{p("80"), p("90-91")}, SourceAddressPrefix: p("10.0.0.0/8"), DestinationAddressPrefixes: []*string{p("10.0.0.1"), p("10.0.0.2")},
			SourceApplicationSecurityGroups: []*armnetwork.ApplicationSecurityGroup{{ID: p("sa")}}, DestinationApplicationSecurityGroups: []*armnetwork.ApplicationSecurityGroup{{ID: p("da")}}}}},
	}}), typeNSG)
	if err != nil {
		t.Fatal(err)
	}
	if r := rulesOf(g)[0]; !r.Ingress || r.ID != "r" || r.Name != "r" || r.Action != "Deny" || *r.Priority != 7 || r.Protocol != "tcp" || r.Description != "d" || r.Port != "80,90-91" ||
		strings.Join(r.Source, " ") != "10.0.0.0/8 sa" || strings.Join(r.Destination, " ") != "10.0.0.1 10.0.0.2 da" || g.Properties.NICs[0].ID != "n" || g.Properties.Subnets[0].ID != "s" {
		t.Errorf("%+v", r)
	}
	v, err := parseResource[vnet](marshal(armnetwork.VirtualNetwork{ID: p(network + "virtualNetworks/v"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
		AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{p("10.0.0.0/8")}}, ResourceGUID: p("guid"),
		Subnets: []*armnetwork.Subnet{{ID: p("s"), Name: p("n"), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: p("10.1.0.0/16"), AddressPrefixes: []*string{p("10.2.0.0/16")}, NetworkSecurityGroup: &armnetwork.SecurityGroup{ID: p("g")}}}},
		VirtualNetworkPeerings: []*armnetwork.VirtualNetworkPeering{{Name: p("p"), Properties: &armnetwork.VirtualNetworkPeeringPropertiesFormat{PeeringState: to.Ptr(armnetwork.VirtualNetworkPeeringStateConnected),
			RemoteVirtualNetwork: &armnetwork.SubResource{ID: p("r")}, RemoteAddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{p("10.3.0.0/16")}}, AllowVirtualNetworkAccess: to.Ptr(true)}}},
	}}), typeVNet)
	if err != nil {
		t.Fatal(err)
	}
	s, q := v.Properties.Subnets[0], v.Properties.Peerings[0].Properties
	if v.Properties.GUID != "guid" || v.Properties.Space.Prefixes[0] != "10.0.0.0/8" || s.Properties.Prefix != "10.1.0.0/16" || s.Properties.Prefixes[0] != "10.2.0.0/16" || s.Properties.NSG.idOf() != "g" ||
		q.State != "Connected" || q.Remote.idOf() != "r" || q.RemoteSpace.Prefixes[0] != "10.3.0.0/16" || !q.AllowsAccess {
		t.Errorf("%+v", v)
	}
	a, err := parseResource[publicIP](marshal(armnetwork.PublicIPAddress{ID: p(network + "publicIPAddresses/a"), Properties: &armnetwork.PublicIPAddressPropertiesFormat{IPAddress: p("198.18.0.1")}}), typePublicIP)
	if err != nil || a.Properties.Address != "198.18.0.1" {
		t.Errorf("%+v, %v", a, err)
	}
	const compute = "/subscriptions/" + testSubscription + "/resourceGroups/rg/providers/"
	m, err := parseResource[machine](marshal(armcompute.VirtualMachine{ID: p(compute + typeVM + "/vm"), Properties: &armcompute.VirtualMachineProperties{
		VMID: p("uid"), ProvisioningState: p("Creating"), NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{{ID: p("n")}}},
		InstanceView: &armcompute.VirtualMachineInstanceView{Statuses: []*armcompute.InstanceViewStatus{{Code: p("ProvisioningState/succeeded")}, {Code: p("PowerState/deallocated")}}}}}), typeVM)
	if err != nil || m.Properties.VMID != "uid" || m.Properties.Network.Interfaces[0].ID != "n" || stateOf(m.Properties.View.Statuses) != "stopped" || !m.isStarting("stopped") {
		t.Errorf("%+v, %v", m, err)
	}
	set, err := parseResource[scaleSet](marshal(armcompute.VirtualMachineScaleSet{ID: p(compute + typeScaleSet + "/s"), Properties: &armcompute.VirtualMachineScaleSetProperties{
		OrchestrationMode: to.Ptr(armcompute.OrchestrationModeFlexible)}}), typeScaleSet)
	if err != nil || set.Properties.Mode != "Flexible" {
		t.Errorf("%+v, %v", set, err)
	}
}

// Whatever Azure answers, reading it ends, and what is read can be used.
func FuzzResource(f *testing.F) {
	f.Add([]byte(`{"id":"` + testNIC + `","properties":{"networkSecurityGroup":{"id":"x"},"ipConfigurations":[{"properties":{"privateIPAddress":"10.0.0.1","subnet":{"id":"y"},"publicIPAddress":{}}}]}}`))
	f.Add([]byte(`{"id":"` + strings.Replace(testNIC, "networkInterfaces", "networkSecurityGroups", 1) + `","properties":{"securityRules":[{"properties":{"priority":100,"destinationPortRanges":["1"]}},{}]}}`))
	f.Add([]byte(`{"id":"` + strings.Replace(testNIC, "networkInterfaces", "virtualNetworks", 1) + `","properties":{"addressSpace":{"addressPrefixes":["::/0","x"]},"subnets":[{}],"virtualNetworkPeerings":[null]}}`))
	f.Add([]byte(`{"id":null,"properties":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n, err := parseResource[nic](raw, typeNIC); err == nil {
			n.network()
			n.asgs()
			if id, err := parseID(n.key()); err != nil || id.key() != n.key() {
				t.Errorf("%q has the key %q", raw, n.key())
			}
			for _, c := range n.Properties.Configs {
				_, _ = appendAddr(nil, c.Properties.Private)
			}
			objectName(n.id)
		}
		if g, err := parseResource[nsg](raw, typeNSG); err == nil {
			rulesOf(g)
		}
		if v, err := parseResource[vnet](raw, typeVNet); err == nil {
			prefixesOf(v.Properties.Space.Prefixes)
		}
		if m, err := parseResource[machine](raw, typeVM); err == nil {
			stateOf(m.Properties.View.Statuses)
			m.created()
		}
		doc, err := parseDocument(raw)
		if err == nil { // what is put back says the same
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := parseDocument(b); err != nil || again.etag() != doc.etag() {
				t.Errorf("%q became %q: %v", raw, b, err)
			}
		}
		resp := httptest.NewRecorder()
		resp.Code = http.StatusConflict
		resp.Body.Write(raw)
		if text := errorOf(resp.Result()).Error(); strings.ContainsAny(text, "\n\r\x00") || len(text) > 3*maxMessage {
			t.Errorf("the error is %q", text)
		}
	})
}
