package controller_test

import (
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// The spine: a VM becomes an ExternalEntity, and a policy reaches its NIC.
func TestPolicyReachesTheNIC(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	took := e.eventually("db enforces the policy", e.has("vpca", 2, "TCP/5432"))
	t.Logf("from nothing to the NIC in %v", took)
	e.eventually("account", e.accountIs("", "Enforced", "True Enforced"))
	e.eventually("policy", e.phaseIs("db", antreav1beta1.PolicyRealized))
}
