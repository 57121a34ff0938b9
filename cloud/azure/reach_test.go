package azure_test

import (
	"net/http/httptest"
	"testing"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/azure"
)

// What is written of a world, over the real protocol and under quotas that Azure has too,
// lets pass by Azure's rules what Evaluate lets pass. What happens on the way there, and
// from one state to another, is TestSyncIsEvaluate's.
func TestWrittenReachIsEvaluate(t *testing.T) {
	estates := 500
	if testing.Short() {
		estates = 40
	}
	var ran, tight int
	var all cloudtest.Tally
	e := serve(t, estate(policy.Snapshot{}, sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	plain := httptest.NewServer(e.Handler()) // costs less than https, which tokens want
	t.Cleanup(plain.Close)
	for seed := range policytest.Seeds(t, estates) {
		rnd := policytest.Rand(seed)
		s := placed(policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		var quotas azure.Quotas
		if rnd.IntN(4) == 0 {
			tight++
			quotas = azure.Quotas{RulesPerNSG: 2 + rnd.IntN(12), AddressesPerNSG: 1 + rnd.IntN(30)}
		}
		if err := e.Restore(estate(s, sim.Quotas{RulesPerSecurityGroup: quotas.RulesPerNSG, AddressesPerGroup: quotas.AddressesPerNSG})); err != nil {
			t.Fatalf("seed %d: the simulator refuses the estate: %v\n%s", seed, err, policytest.Print(s))
		}
		a := e.account(t, func(c *azure.Config) { c.Endpoint, c.Quotas = plain.URL, quotas })
		for range 3 { // each time with other policies
			ran++
			n, err := cloudtest.Synced(s, compile.Rulesets(s), e.sync(t, a, s)).Check(policytest.Flows(rnd, s, 60), e.told)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
			}
			all.Add(n)
			s = otherPolicies(s, policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		}
		e.server.CloseClientConnections() // of an account that is not used again
		plain.CloseClientConnections()
	}
	t.Logf("%d worlds, %d estates under tight quotas: %d decisions exact, %d stricter by a Refusal", ran, tight, all.Exact, all.Stricter)
	if ran >= 100 && (all.Exact < 20*ran || all.Stricter*5 > all.Exact || all.Stricter == 0) {
		t.Error("the worlds are not telling")
	}
}
