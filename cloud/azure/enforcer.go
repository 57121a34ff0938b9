package azure

import (
	"context"
	"errors"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Enforcer returns what enforces on the VMs of a VNet. A region that the account
// does not have gives one whose calls fail.
func (a *Account) Enforcer(regionName, vnetID string) cloud.Enforcer {
	return notYet{}
}

// notYet stands where enforcement will be, and never says that it is there.
type notYet struct{}

var errNotYet = errors.New("nothing is enforced in Azure yet")

func (notYet) Preview(context.Context, policy.Ruleset) (plan.Report, error) {
	return plan.Report{}, errNotYet
}

func (notYet) Sync(context.Context, policy.Ruleset) (plan.Report, error) {
	return plan.Report{}, errNotYet
}

func (notYet) Forget() {}
