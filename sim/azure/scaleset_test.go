package azure_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"isobar.dev/sim/azure"
)

var shopPlace = azure.Place{Subscription: azure.SampleSubscription, Group: azure.SampleGroup, Location: azure.SampleLocation}

func shopID(kind, name string) string {
	return azure.ID(azure.SampleSubscription, azure.SampleGroup, kind, name)
}

func scaleSet(mode armcompute.UpgradeMode, capacity int64, nsg string) armcompute.VirtualMachineScaleSet {
	return armcompute.VirtualMachineScaleSet{
		Location: ptr(azure.SampleLocation), SKU: &armcompute.SKU{Name: ptr("Standard_B2s"), Capacity: &capacity},
		Properties: &armcompute.VirtualMachineScaleSetProperties{
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: &mode},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{NetworkProfile: &armcompute.VirtualMachineScaleSetNetworkProfile{
				NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{
					Name: ptr("nic"), Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{
						Primary: ptr(true), NetworkSecurityGroup: &armcompute.SubResource{ID: ptr(shopID("Microsoft.Network/networkSecurityGroups", nsg))},
						IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{
							Name: ptr("ip"), Properties: &armcompute.VirtualMachineScaleSetIPConfigurationProperties{
								Subnet: &armcompute.APIEntityReference{ID: ptr(shopID("Microsoft.Network/virtualNetworks", "shop") + "/subnets/private")},
							},
						}},
					},
				}},
			}},
		},
	}
}

func TestScaleSet(t *testing.T) {
	s := newSim(t, azure.Sample(), atOnce)
	sets, vms, nics := s.compute.NewVirtualMachineScaleSetsClient(), s.compute.NewVirtualMachineScaleSetVMsClient(), s.network.NewInterfacesClient()
	put := func(set armcompute.VirtualMachineScaleSet) {
		t.Helper()
		p, err := sets.BeginCreateOrUpdate(t.Context(), "shop", "pool", set, nil)
		must[armcompute.VirtualMachineScaleSetsClientCreateOrUpdateResponse](t)(wait(t, p, err))
	}
	groups := func() (out []string) {
		t.Helper()
		list, _ := all(t, nics.NewListVirtualMachineScaleSetNetworkInterfacesPager("shop", "pool", nil), func(p armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesResponse) []*armnetwork.Interface {
			return p.Value
		})
		for _, n := range list {
			out = append(out, last(*n.Properties.NetworkSecurityGroup.ID))
		}
		return out
	}
	put(scaleSet(armcompute.UpgradeModeManual, 3, "shop-default"))
	if got := groups(); len(got) != 3 || got[0] != "shop-default" {
		t.Errorf("interfaces with %v, want three", got)
	}
	list, _ := all(t, vms.NewListPager("shop", "pool", nil), func(p armcompute.VirtualMachineScaleSetVMsClientListResponse) []*armcompute.VirtualMachineScaleSetVM {
		return p.Value
	})
	if len(list) != 3 || *list[2].InstanceID != "2" || !*list[2].Properties.LatestModelApplied {
		t.Errorf("machines: %v", list)
	}
	if v := s.cloud.Reach(azure.Flow{From: "pool_0", To: "app-1", Protocol: "tcp", Port: 80}); v.Result != azure.Allowed {
		t.Errorf("a machine of the set reaches another: %+v", v)
	}

	// Machines follow another model when they are told to.
	put(scaleSet(armcompute.UpgradeModeManual, 2, "shop-web"))
	if got := groups(); len(got) != 2 || got[0] != "shop-default" {
		t.Errorf("after another model and a smaller capacity: %v", got)
	}
	if m := must[armcompute.VirtualMachineScaleSetVMsClientGetResponse](t)(vms.Get(t.Context(), "shop", "pool", "0", nil)); *m.Properties.LatestModelApplied {
		t.Error("the machine has the latest model, untold")
	}
	u, err := sets.BeginUpdateInstances(t.Context(), "shop", "pool", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("0")}}, nil)
	must[armcompute.VirtualMachineScaleSetsClientUpdateInstancesResponse](t)(wait(t, u, err))
	if got := groups(); got[0] != "shop-web" || got[1] != "shop-default" {
		t.Errorf("after an upgrade of the first: %v", got)
	}

	// One machine may differ from the model.
	m := must[armcompute.VirtualMachineScaleSetVMsClientGetResponse](t)(vms.Get(t.Context(), "shop", "pool", "0", nil))
	m.Properties.NetworkProfileConfiguration.NetworkInterfaceConfigurations[0].Properties.NetworkSecurityGroup.ID = ptr(shopID("Microsoft.Network/networkSecurityGroups", "shop-default"))
	p, err := vms.BeginUpdate(t.Context(), "shop", "pool", "0", m.VirtualMachineScaleSetVM, nil)
	must[armcompute.VirtualMachineScaleSetVMsClientUpdateResponse](t)(wait(t, p, err))
	if got := groups(); got[0] != "shop-default" {
		t.Errorf("after an update of one machine: %v", got)
	}

	again := must[*azure.Cloud](t)(azure.New(s.cloud.Estate(), azure.Options{}))
	if v := again.Reach(azure.Flow{From: "pool_1", To: "app-1", Protocol: "tcp", Port: 80}); v.Result != azure.Allowed {
		t.Errorf("after a restart: %+v", v)
	}

	put(scaleSet(armcompute.UpgradeModeAutomatic, 2, "shop-web"))
	if got := groups(); got[0] != "shop-web" || got[1] != "shop-web" {
		t.Errorf("with automatic upgrades: %v", got)
	}
	d, err := s.network.NewSecurityGroupsClient().BeginDelete(t.Context(), "shop", "shop-web", nil)
	if _, err := wait(t, d, err); code(err) != "InUseNetworkSecurityGroupCannotBeDeleted" {
		t.Errorf("the set's group deleted: %v", err)
	}
	g, err := sets.BeginDelete(t.Context(), "shop", "pool", nil)
	must[armcompute.VirtualMachineScaleSetsClientDeleteResponse](t)(wait(t, g, err))
	if v := s.cloud.Reach(azure.Flow{From: "pool_0", To: "app-1", Protocol: "tcp", Port: 80}); v.Result != azure.Invalid {
		t.Errorf("after the set's end: %+v", v)
	}
}
