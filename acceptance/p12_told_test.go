package acceptance_test

import (
	"fmt"
	"maps"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	sim "isobar.dev/sim/aws"
)

// A change of which one call fails once, three times, or until somebody mends it: the policy
// is not realized, its VM does not say SUCCESS and the account does not say that it is enforced
// before the cloud does what is written; meanwhile what the VM had of other policies stays
// told as it is.
func TestP12_NothingIsToldTooSoon(t *testing.T) {
	const denied = "UnauthorizedOperation"
	drop := "{action: Drop, from: [" + byRole("web") + "], ports: [{protocol: TCP, port: 5432}]}"
	const before = `
		FROM \ TO  db:5432  db:22  app:443
		web        .        X      .
		app        X        .      .
	`
	for _, tt := range []struct {
		name, action string
		change       func(*world)
		policy       string            // whose phase is asked; empty when it goes
		failing      map[string]string // of VMs while it fails
		still, after string            // who reaches whom while it fails, and in the end
		done         map[string]string // of VMs in the end
	}{
		{
			name: "an Allow becomes a Drop", action: "RevokeSecurityGroupIngress", policy: "db",
			change:  func(w *world) { w.policy("db", onRole("db", "ingress", drop)) },
			failing: map[string]string{"i-db": "FAILED db keep=SUCCESS"}, done: map[string]string{"i-db": "SUCCESS db keep"},
			still: before, after: `
				FROM \ TO  db:5432  db:22  app:443
				web        X        X      .
				app        X        .      .
			`,
		},
		{
			name: "a policy goes", action: "RevokeSecurityGroupIngress",
			change:  func(w *world) { w.removeNamed(policies, "db") },
			failing: map[string]string{"i-db": "FAILED db keep=SUCCESS"}, done: map[string]string{"i-db": "SUCCESS keep"},
			still: before, after: `
				FROM \ TO  db:5432  db:22  app:443
				web        X        X      .
				app        X        .      .
			`,
		},
		{
			name: "a VM comes under it", action: "ModifyNetworkInterfaceAttribute", policy: "keep",
			change:  func(w *world) { w.retag(map[string]string{"i-app": "db"}) },
			failing: map[string]string{"i-app": "FAILED db keep", "i-db": "SUCCESS db keep"}, done: map[string]string{"i-app": "SUCCESS db keep", "i-db": "SUCCESS db keep"},
			still: `
				FROM \ TO  db:5432  app:443
				web        .        .
			`, after: `
				FROM \ TO  db:5432  db:22  app:443  app:5432
				web        .        X      X        .
			`,
		},
		{
			name: "one with appliedTo in its rules, on two roles", action: "AuthorizeSecurityGroupIngress", policy: "both",
			change: func(w *world) {
				on := func(role string, port int) string {
					return fmt.Sprintf("{action: Allow, appliedTo: [%s], from: [%s], ports: [{protocol: TCP, port: %d}]}", byRole(role), byRole("web"), port)
				}
				w.policy("both", "ingress: ["+on("db", 8080)+", "+on("app", 8081)+"]")
			},
			failing: map[string]string{"i-db": "FAILED both db=SUCCESS keep=SUCCESS", "i-app": "FAILED both"},
			done:    map[string]string{"i-db": "SUCCESS both db keep", "i-app": "SUCCESS both"},
			still:   before, after: `
				FROM \ TO  db:5432  db:22  app:443  db:8080  app:8081
				web        .        X      X        .        .
				app        X        .      .        X        .
			`,
		},
	} {
		for _, count := range []int{1, 3, 0} {
			t.Run(fmt.Sprint(tt.name, ", ", count), func(t *testing.T) {
				w := newWorld(t, estate(
					wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "db", role: "db"}}}),
					wide(network{id: "vpc-2", region: region2, vms: []vm{{name: "other", role: "other"}}}),
				))
				w.start()
				w.account()
				w.importAll()
				w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
				w.policy("keep", onRole("db", "ingress", allow("ingress", byRole("app"), 22)))
				w.policy("other", onRole("other", "ingress", allow("ingress", "", 443)))
				w.settle()
				w.realized("db", "keep", "other")
				w.eventually("the account says so", func() error { return w.accountSays("Enforced", "True", "Enforced") })
				on := func(vms map[string]string) error {
					all := maps.Clone(vms)
					all["i-other"] = "SUCCESS other"
					return w.vmPolicies(all)
				}

				w.fault(sim.Fault{Kind: sim.FaultError, Region: region1, Action: tt.action, Code: denied, Count: count})
				tt.change(w)
				if count != 1 { // which may be over before anybody has asked
					w.eventually("the account tells of it", func() error { return w.accountSays("Enforced", "False", "Failing", "us-east-1/vpc-1: ", denied) })
				}
				if count == 0 {
					w.eventually("its VMs tell of it, and of nothing else", func() error { return on(tt.failing) })
					if tt.policy != "" {
						w.failed(tt.policy, denied)
					}
					w.mustReach(tt.still)
					w.realized("other")
					w.sim.ClearFaults()
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
