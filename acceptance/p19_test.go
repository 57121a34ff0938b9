package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestP19_ManyPoliciesAtStart(t *testing.T)      { manyPoliciesAtStart(t, onAWS) }
func TestP19_AzureManyPoliciesAtStart(t *testing.T) { manyPoliciesAtStart(t, onAzure) }

// Many policies on one group that are there before the controller are realized by a handful
// of calls: what all of them say together is one group with as many rules as it takes.
func manyPoliciesAtStart(t *testing.T, on provider) {
	for _, n := range []int{60, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := on.world(t, features())
			w.account()
			w.importAll()
			var text []string
			for i := range n { // ports of ten policies in a row make one rule
				text = append(text, policyText(fmt.Sprintf("p%03d", i), onRole("db", "ingress", allow("ingress", byRole([]string{"web", "app"}[i/10%2]), 8000+i))))
			}
			w.apply(strings.Join(text, "---\n"))
			w.start()
			w.settle()
			w.mustReach(`
			FROM \ TO      db:8000  db:8009  db:8010  db:8019  db:8059  db:8600
			web            .        .        X        X        X        X
			app            X        X        .        .        .        X
			198.51.100.77  X        X        X        X        X        X
			`)
			writes := w.written()
			if len(writes) > 15 {
				t.Errorf("%d writes for one VM, want a handful; the last: %s", len(writes), writes[len(writes)-1])
			}
			reads := 0
			for call, n := range w.calls() {
				if isRead(call) {
					reads += n
				}
			}
			t.Logf("%d policies: %d writes, %d reads", n, len(writes), reads)
			w.eventually("all are realized", func() error {
				for _, name := range []string{"p000", fmt.Sprintf("p%03d", n/2), fmt.Sprintf("p%03d", n-1)} {
					if err := w.hasPhase(name, "Realized"); err != nil {
						return err
					}
				}
				return nil
			})
			w.cloud.ResetCalls()
			w.policy("p000", onRole("db", "ingress", allow("ingress", byRole("web"), 9999)))
			w.settle()
			w.mustReach(`
			FROM \ TO  db:8000  db:8001  db:9999
			web        X        .        .
			`)
			// Where one group does not hold all rules, another may have to be made.
			if writes := w.written(); len(writes) > 6 {
				t.Errorf("%d writes for one rule; the last: %s", len(writes), writes[len(writes)-1])
			}
		})
	}
}
