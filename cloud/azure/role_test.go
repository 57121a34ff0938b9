package azure

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The custom role has the rights that calls need, which are those that apiOf knows, and
// those that Azure asks for besides: who writes an interface joins it anew to all that
// it refers to, and who writes an NSG joins what its rules name, be they of others.
func TestRole(t *testing.T) {
	text, err := os.ReadFile("../../deploy/iam/isobar-azure.json")
	if err != nil {
		t.Fatal(err)
	}
	var role struct {
		Name, Description                                string
		IsCustom                                         bool
		Actions, NotActions, DataActions, NotDataActions []string
		AssignableScopes                                 []string
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&role); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(actions)
	for _, joined := range []string{
		typeNSG + "/join/action", typeSubnet + "/join/action", typePublicIP + "/join/action",
		"Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action", "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action",
		"Microsoft.Network/loadBalancers/backendAddressPools/join/action", "Microsoft.Network/loadBalancers/inboundNatRules/join/action",
		"Microsoft.Network/applicationGateways/backendAddressPools/join/action",
	} {
		want[joined] = true
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(want)), role.Actions); d != "" {
		t.Errorf("-needed +in the role:\n%s", d)
	}
	if strings.Contains(strings.Join(role.Actions, " "), "*") || len(role.DataActions) > 0 {
		t.Error("the role has more than single actions")
	}
}
