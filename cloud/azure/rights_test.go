package azure_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud"
	"isobar.dev/cloud/cloudtest"
	sim "isobar.dev/sim/azure"
)

// The custom role is enough to list everything, and to enter every state and leave it.
// Without any one of the rights to read that it gives, something fails.
func TestRoleIsEnough(t *testing.T) {
	text, err := os.ReadFile("../../deploy/iam/isobar-azure.json")
	if err != nil {
		t.Fatal(err)
	}
	var role struct{ Actions []string }
	if err := json.Unmarshal(text, &role); err != nil {
		t.Fatal(err)
	}
	e := estate(shop.Shop(), sim.Quotas{})
	app := e.Tenants[0].Applications[0]
	app.Roles = []sim.Role{{Scope: "/subscriptions/" + subscriptionID, Actions: role.Actions}}
	c := serve(t, e, sim.Options{NoThrottle: true, Settle: -1})
	a := c.account(t)
	ctx := context.Background()
	list := func() error {
		if _, err := a.Networks(ctx, location); err != nil {
			return err
		}
		if _, err := a.SecurityGroups(ctx, location, []string{shop.ID}); err != nil {
			return err
		}
		return a.VMs(ctx, location, []cloud.Match{{}})[0].Err
	}
	if err := list(); err != nil {
		t.Fatal(err)
	}
	states := shop.States()
	for _, name := range cloudtest.Names {
		c.sync(t, a, states[name])
	}
	for api := range a.Calls(location) {
		if !slices.Contains(role.Actions, api) {
			t.Errorf("a call needs %s, which the role does not give", api)
		}
	}
	for _, action := range role.Actions {
		// The rights of uniform scale sets are needed where there is one; without that to
		// read ASGs there are none.
		if !strings.HasSuffix(action, "/read") || strings.Contains(action, "applicationSecurityGroups") || strings.Contains(action, "ScaleSets/") || strings.Contains(action, "/locations") {
			continue
		}
		limited := c.Estate()
		limited.Tenants[0].Applications[0].Deny = []string{action}
		if err := c.Restore(limited); err != nil {
			t.Fatal(err)
		}
		if err := list(); err == nil {
			t.Errorf("nothing fails without %s", action)
		}
	}
}
