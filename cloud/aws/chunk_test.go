package aws_test

import (
	"context"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// When rules of a class go from one of its groups to another, they stay in the one for
// as long as an interface could not be given the other.
func TestRulesWaitForTheOtherGroup(t *testing.T) {
	web := func(ports ...uint16) policy.Snapshot {
		return with(shop(), &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(ports...))}})
	}
	e := serve(t, estate(shop(), sim.Quotas{RulesPerGroup: 10}), sim.Options{NoThrottle: true, Settle: -1})
	e.quotas = aws.Quotas{RulesPerGroup: 10}
	e.until(t, e.account(t, aws.Options{}), web(80, 82, 84, 86))
	f := sim.Fault{Kind: sim.FaultError, Action: "ModifyNetworkInterfaceAttribute"}
	e.fault(t, f)
	a := e.account(t, aws.Options{Attempts: 1})
	for range 3 {
		if _, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, web(20, 22, 24, 26, 28, 80, 82, 84, 86, 90, 92))); err == nil {
			t.Fatal("nothing has failed")
		}
		for _, port := range []int{80, 82, 84, 86} {
			if !e.allows("eni-50", "eni-00", port) {
				t.Errorf("port %d, which both states allow, is refused", port)
			}
		}
	}
	e.ClearFaults()
	e.until(t, a, web(20, 22, 24, 26, 28, 80, 82, 84, 86, 90, 92))
	for _, port := range []int{20, 28, 80, 82, 84, 86, 90, 92} {
		if !e.allows("eni-50", "eni-00", port) {
			t.Errorf("port %d is refused", port)
		}
	}
	if e.allows("eni-50", "eni-00", 81) {
		t.Error("port 81 is allowed")
	}
}

// What stays for them is no more than what they are to have.
func TestWiderRulesDoNotWait(t *testing.T) {
	web := func(wide bool, ports ...uint16) policy.Snapshot {
		rules := []policy.Rule{allow(policy.Peers{All: true}, tcp(ports...))}
		if wide {
			rules = append(rules, allow(policy.Peers{All: true}, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 85, Last: 95}}}))
		}
		return with(shop(), &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: rules})
	}
	e := serve(t, estate(shop(), sim.Quotas{RulesPerGroup: 10}), sim.Options{NoThrottle: true, Settle: -1})
	e.quotas = aws.Quotas{RulesPerGroup: 10}
	e.until(t, e.account(t, aws.Options{}), web(true, 80, 82))
	e.fault(t, sim.Fault{Kind: sim.FaultError, Action: "ModifyNetworkInterfaceAttribute"})
	a := e.account(t, aws.Options{Attempts: 1})
	if _, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, web(false, 20, 22, 24, 26, 28, 30, 80, 82, 86, 90, 92))); err == nil {
		t.Fatal("nothing has failed")
	}
	if e.allows("eni-50", "eni-00", 88) {
		t.Error("port 88, which the policy no longer allows, is allowed")
	}
}
