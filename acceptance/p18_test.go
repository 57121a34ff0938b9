package acceptance_test

import "testing"

func TestP18_AllowBecomesReject(t *testing.T)      { allowBecomesReject(t, onAWS) }
func TestP18_AzureAllowBecomesReject(t *testing.T) { allowBecomesReject(t, onAzure) }

// An Allow that becomes a Reject closes at once, though it is told that nothing is rejected
// there; one that becomes a Drop is realized, and one that is an Allow again, too.
func allowBecomesReject(t *testing.T, on provider) {
	w := on.world(t, features())
	w.start()
	w.account()
	w.importAll()
	rule := func(action string) string {
		return onRole("db", "ingress", "{action: "+action+", from: ["+byRole("web")+"], ports: [{protocol: TCP, port: 5432}]}", allow("ingress", byRole("app"), 5432))
	}
	const open = `
		FROM \ TO  db:5432  db:22
		web        .        X
		app        .        X
	`
	const closed = `
		FROM \ TO  db:5432  db:22
		web        X        X
		app        .        X
	`
	w.policy("db", rule("Allow"))
	w.settle()
	w.realized("db")
	w.mustReach(open)
	w.policy("db", rule("Reject"))
	w.failed("db", "RejectIsDrop")
	w.eventually("policies of VMs", func() error { return w.vmPolicies(map[string]string{w.object("db"): "FAILED db"}) })
	w.settle()
	w.mustReach(closed)
	w.policy("db", rule("Drop"))
	w.settle()
	w.realized("db")
	w.mustReach(closed)
	w.policy("db", rule("Allow"))
	w.settle()
	w.realized("db")
	w.mustReach(open)
}
