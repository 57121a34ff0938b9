package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	sim "isobar.dev/sim/aws"
)

// manyPeers are n addresses of a network that do not join into larger prefixes.
func manyPeers(network string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("{ipBlock: {cidr: %s.%d.%d/32}}", network, i/100, 2*(i%100)+1))
	}
	return strings.Join(out, ", ")
}

// Policies that need more rules than a security group holds are packed into the groups that
// an interface may have. What does not fit is said with the limit, the need and the rules
// that cost most; what fits stays, and nothing opens that no policy allows.
func TestP21_Quotas(t *testing.T) {
	e := estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}, {name: "db2", role: "db"}}}))
	// The account has 5 groups of 60 rules for an interface until it is told that it has more.
	e.Accounts[0].Regions[0].Quotas = sim.Quotas{RulesPerGroup: 120}
	w := newWorld(t, e)
	w.start()
	w.account()
	w.importAll()
	w.policy("closed", "appliedTo: ["+byRole("db")+"]\ningress: [{action: Drop, from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]\npriority: 1")
	w.policy("large", onRole("db", "ingress", allow("ingress", manyPeers("20.1", 200), 5432)))
	w.settle()
	w.realized("large")
	packed, fullest := 0, 0
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/kind"] == "enforcement" {
			packed, fullest = packed+1, max(fullest, len(g.Rules))
		}
	}
	if packed != 4 || fullest > 62 { // with two rules for what is not isolated
		t.Errorf("%d groups, the fullest with %d rules; want 200 rules packed in 4, so that one more has a place while they move", packed, fullest)
	}
	first := `
		FROM \ TO   db:5432  db:22  db2:5432
		20.1.0.1    .        X      .
		20.1.1.199  .        X      .
		20.1.1.200  X        X      X
		192.0.2.1   X        X      X
		web         X        X      X
	`
	w.mustReach(first)

	// 150 more do not fit. They are left out whole, and what was allowed stays so.
	p := w.watch(w.flowsFrom([]string{"20.1.0.1", "20.1.1.199", "20.2.0.1", "192.0.2.1", outside, "web"}, []string{"db", "db2"}, 5432, 22, 80))
	p.change("more rules than fit", func() {
		w.policy("more", onRole("db", "ingress", allow("ingress", manyPeers("20.2", 150), 80)))
		w.failed("more", "needs 350 of 300")
	})
	w.failed("more", "most is needed by annp/"+w.ns+"/large/ingress/0 (200), annp/"+w.ns+"/more/ingress/0 (150)")
	w.realized("large")
	w.mustReach(first)
	w.mustReach(`
		FROM \ TO  db:80
		20.2.0.1   X
	`)

	w.eventually("the account says that there is no room", func() error {
		return w.accountSays("WithinQuotas", "False", "Exceeded", "us-east-1/vpc-1: QuotaExceeded: ingress needs 350 rules and 300 fit", "(needs 350 of 300), for annp/"+w.ns+"/more")
	})
	w.eventually("policies of VMs", func() error {
		return w.vmPolicies(map[string]string{"i-db": "FAILED closed=SUCCESS large=SUCCESS more", "i-db2": "FAILED closed=SUCCESS large=SUCCESS more"})
	})

	// With the quota that the account really has, all fits.
	w.patch(accounts, "aws", `{"spec":{"awsConfig":{"quotas":{"rulesPerSecurityGroup":120}}}}`)
	w.realized("large", "more")
	w.settle()
	w.mustReach(first)
	w.eventually("the account says that there is room", func() error {
		return w.accountSays("WithinQuotas", "True", "Ample")
	})
	w.eventually("policies of VMs", func() error {
		return w.vmPolicies(map[string]string{"i-db": "SUCCESS closed large more", "i-db2": "SUCCESS closed large more"})
	})
	w.mustReach(`
		FROM \ TO   db:80  db:22
		20.2.0.1    .      X
		20.2.1.99   .      X
		20.2.1.100  X      X
	`)
	if err := w.tryApply(strings.ReplaceAll(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudProviderAccount
metadata: {name: wrong}
spec:
  awsConfig:
    region: [us-east-1]
    quotas: {rulesPerSecurityGroup: 201}
    secretRef: {namespace: $NS, name: aws, key: credentials}
`, "$NS", w.ns)); err == nil || !strings.Contains(err.Error(), "must not exceed 1000") {
		t.Errorf("quotas that EC2 does not give are taken: %v", err)
	}
}

// flowsFrom are those of TCP from and to each of what is named, at each port.
func (w *world) flowsFrom(from, to []string, ports ...int) []sim.Flow {
	var out []sim.Flow
	for _, a := range from {
		for _, b := range to {
			for _, port := range ports {
				out = append(out, w.flow(a, fmt.Sprintf("%s:%d", b, port)))
			}
		}
	}
	return out
}
