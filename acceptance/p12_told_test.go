package acceptance_test

import (
	"fmt"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	azuresim "isobar.dev/sim/azure"
)

func TestP12_NothingIsToldTooSoon(t *testing.T) {
	nothingIsToldTooSoon(t, twoRegions, [4]trouble{refusedByAWS("RevokeSecurityGroupIngress"), refusedByAWS("RevokeSecurityGroupIngress"), refusedByAWS("ModifyNetworkInterfaceAttribute"), refusedByAWS("AuthorizeSecurityGroupIngress")})
}

func TestP12_AzureNothingIsToldTooSoon(t *testing.T) {
	const groups, interfaces = "NetworkSecurityGroups_CreateOrUpdate", "NetworkInterfaces_CreateOrUpdate"
	nothingIsToldTooSoon(t, twoSubscriptions, [4]trouble{
		refusedByAzure(azuresim.FaultOperation, groups, "InternalServerError", 0), // taken, and not in force
		refusedByAzure(azuresim.FaultError, groups, "ScopeLocked", 409),
		refusedByAzure(azuresim.FaultOperation, interfaces, "InternalServerError", 0),
		refusedByAzure(azuresim.FaultError, groups, "AuthorizationFailed", 403),
	})
}

// A change of which one call fails once, three times, or until somebody mends it: the policy
// is not realized, its VM does not say SUCCESS and the account does not say that it is enforced
// before the cloud does what is written; meanwhile what the VM had of other policies stays
// told as it is.
func nothingIsToldTooSoon(t *testing.T, imported twoParts, troubles [4]trouble) {
	drop := "{action: Drop, from: [" + byRole("web") + "], ports: [{protocol: TCP, port: 5432}]}"
	const before = `
		FROM \ TO  db:5432  db:22  app:443
		web        .        X      .
		app        X        .      .
	`
	for _, tt := range []struct {
		name         string
		trouble      trouble
		change       func(*world)
		policy       string            // whose phase is asked; empty when it goes
		failing      map[string]string // of VMs while it fails
		still, after string            // who reaches whom while it fails, and in the end
		done         map[string]string // of VMs in the end
	}{
		{
			name: "an Allow becomes a Drop", trouble: troubles[0], policy: "db",
			change:  func(w *world) { w.policy("db", onRole("db", "ingress", drop)) },
			failing: map[string]string{"db": "FAILED db keep=SUCCESS"}, done: map[string]string{"db": "SUCCESS db keep"},
			still: before, after: `
				FROM \ TO  db:5432  db:22  app:443
				web        X        X      .
				app        X        .      .
			`,
		},
		{
			name: "a policy goes", trouble: troubles[1],
			change:  func(w *world) { w.removeNamed(policies, "db") },
			failing: map[string]string{"db": "FAILED db keep=SUCCESS"}, done: map[string]string{"db": "SUCCESS keep"},
			still: before, after: `
				FROM \ TO  db:5432  db:22  app:443
				web        X        X      .
				app        X        .      .
			`,
		},
		{
			name: "a VM comes under it", trouble: troubles[2], policy: "keep",
			change:  func(w *world) { w.edit("app", func(l *labels) { l.tags["Role"] = "db" }) },
			failing: map[string]string{"app": "FAILED db keep", "db": "SUCCESS db keep"}, done: map[string]string{"app": "SUCCESS db keep", "db": "SUCCESS db keep"},
			still: `
				FROM \ TO  db:5432  app:443
				web        .        .
			`, after: `
				FROM \ TO  db:5432  db:22  app:443  app:5432
				web        .        X      X        .
			`,
		},
		{
			name: "one with appliedTo in its rules, on two roles", trouble: troubles[3], policy: "both",
			change: func(w *world) {
				on := func(role string, port int) string {
					return fmt.Sprintf("{action: Allow, appliedTo: [%s], from: [%s], ports: [{protocol: TCP, port: %d}]}", byRole(role), byRole("web"), port)
				}
				w.policy("both", "ingress: ["+on("db", 8080)+", "+on("app", 8081)+"]")
			},
			failing: map[string]string{"db": "FAILED both db=SUCCESS keep=SUCCESS", "app": "FAILED both"},
			done:    map[string]string{"db": "SUCCESS both db keep", "app": "SUCCESS both"},
			still:   before, after: `
				FROM \ TO  db:5432  db:22  app:443  db:8080  app:8081
				web        .        X      X        .        .
				app        X        .      .        X        .
			`,
		},
	} {
		for _, count := range []int{1, 3, 0} {
			t.Run(fmt.Sprint(tt.name, ", ", count), func(t *testing.T) {
				w := imported(t, features(), elsewhere())
				w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
				w.policy("keep", onRole("db", "ingress", allow("ingress", byRole("app"), 22)))
				w.policy("other", onRole("other", "ingress", allow("ingress", "", 443)))
				w.settle()
				w.realized("db", "keep", "other")
				w.eventually("the account says so", func() error { return w.accountSays("Enforced", "True", "Enforced") })
				region, _ := w.cloud.regions()
				on := func(vms map[string]string) error {
					all := map[string]string{w.object("other"): "SUCCESS other"}
					for name, want := range vms {
						all[w.object(name)] = want
					}
					return w.vmPolicies(all)
				}

				if err := tt.trouble.begin(w, count); err != nil {
					t.Fatal(err)
				}
				tt.change(w)
				if count != 1 { // which may be over before anybody has asked
					w.eventually("the account tells of it", func() error {
						return w.accountSays("Enforced", "False", "Failing", region+"/", "vpc-1", tt.trouble.code)
					})
				}
				if count == 0 {
					w.eventually("its VMs tell of it, and of nothing else", func() error { return on(tt.failing) })
					if tt.policy != "" {
						w.failed(tt.policy, tt.trouble.code)
					}
					w.mustReach(tt.still)
					w.realized("other")
					w.cloud.ClearFaults()
				}
				if tt.policy == "both" || tt.policy == "db" { // of which there is a new generation
					w.eventually("it is realized", func() error {
						err := w.hasPhase(tt.policy, antreav1beta1.PolicyRealized)
						if err == nil {
							w.mustReach(tt.after) // not a moment later
						}
						return err
					})
				}
				w.settle()
				w.mustReach(tt.after)
				w.eventually("its VMs say that all is well", func() error { return on(tt.done) })
				w.eventually("the account does", func() error { return w.accountSays("Enforced", "True", "Enforced") })
				w.realized("keep", "other")
			})
		}
	}
}
