package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	sim "isobar.dev/sim/aws"
)

// A Secret becomes that of another AWS account: what was done in the first is undone with
// the credentials of before as long as those are taken; what is left is told.
func TestSecretOfAnotherAccount(t *testing.T) {
	const other = "222233334444"
	e := estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}),
		wide(network{id: "vpc-2", account: other, vms: []vm{{name: "web2", role: "web"}, {name: "db2", role: "db"}}}))
	w := newWorld(t, e)
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	serveDB(w)
	w.settle()
	point := func(account string) {
		t.Helper()
		key := keyOf(account)
		w.apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: aws}, stringData: {credentials: '{"accessKeyId": "%s", "accessKeySecret": "%s"}'}}`, key.ID, key.Secret))
	}
	point(other)
	w.mustImport(w.ns, "i-db2", "i-web2")
	w.settle()
	w.is(accounts, "aws", "Enforced", "True Enforced", "")
	now := w.attached()
	for _, n := range []string{"eni-web0", "eni-db0"} {
		if now[n] != before[n] {
			t.Errorf("%s of the first account has %s; before it had %s", n, now[n], before[n])
		}
	}
	if now["eni-db20"] == before["eni-db20"] {
		t.Error("nothing is enforced in the second account")
	}

	// And back, while the credentials of before are not taken any more.
	if err := w.sim.Edit(func(cloud *sim.Estate) {
		for _, a := range cloud.Accounts {
			if a.ID == other {
				a.Keys = []*sim.AccessKey{{ID: "AKIANEW", Secret: "new"}}
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	point(sim.SampleAccount)
	w.mustImport(w.ns, "i-db", "i-web")
	w.eventuallyReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
	`)
	w.is(accounts, "aws", "Enforced", "False LeftBehind", "")
	w.eventually("it is told what is left", func() error {
		return unless(strings.Contains(strings.Join(w.events("aws"), "\n"), region1+"/vpc-2 of the account before: "), fmt.Sprint(w.events("aws")))
	})

	// Who comes after knows it too, and undoes it when the Secret is that of before again.
	w.restart()
	w.settle()
	w.is(accounts, "aws", "Enforced", "False LeftBehind", "")
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()
	w.removeNamed(accounts, "aws")
	w.eventually("it waits for what is left behind", func() error {
		return w.hasCondition(accounts, "aws", "Restored", "False Restoring", "vpc-2")
	})
	w.apply(`{apiVersion: v1, kind: Secret, metadata: {name: aws}, stringData: {credentials: '{"accessKeyId": "AKIANEW", "accessKeySecret": "new"}'}}`)
	w.mustList(accounts, w.ns)
	for n, have := range w.attached() {
		if have != before[n] {
			t.Errorf("%s has %s; before it had %s", n, have, before[n])
		}
	}
}
