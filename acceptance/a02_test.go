package acceptance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "isobar.dev/sim/aws"
)

// Wrong keys are told, with what the cloud says of them; whatever they become, the
// controller follows, in whatever namespace the Secret is.
func TestA02_SecretIsMended(t *testing.T) {
	e := estate(network{id: "vpc-1", vms: []vm{{name: "web"}}})
	e.Accounts[0].Roles = []*sim.Role{{Name: "isobar", ExternalID: "shop-7"}}
	w := newWorld(t, e)
	elsewhere := w.env.Namespace(t) // of which the controller sees no account
	secret := func(document string) {
		t.Helper()
		w.apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: %s}, stringData: {c: '%s'}}", elsewhere, document))
	}
	secret(`{"accessKeyId": "AKIAWRONG", "accessKeySecret": "wrongAndSecret"}`)
	w.start()
	w.apply(fmt.Sprintf(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudProviderAccount
metadata: {name: aws}
spec: {awsConfig: {region: [us-east-1], endpoint: %[1]s, stsEndpoint: %[1]s, secretRef: {namespace: %[2]s, name: keys, key: c}}}`, w.url, elsewhere))
	w.importAll()
	refused := func(text string) {
		t.Helper()
		w.is(accounts, "aws", "Connected", "False CredentialsRefused", text)
	}
	connected := func() {
		t.Helper()
		w.is(accounts, "aws", "Connected", "True Connected", "")
		w.is(accounts, "aws", "Inventory", "True Listed", "")
		w.mustImport(w.ns, "i-web")
	}
	refused("AuthFailure")
	w.is(selectors, "all", "Imported", "False ReadFailed", "AuthFailure")
	key := keyOf(sim.SampleAccount)
	static := fmt.Sprintf(`{"accessKeyId": "%s", "accessKeySecret": "%s"`, key.ID, key.Secret)
	secret(static + "}")
	connected()

	secret(static + `, "roleArn": "arn:aws:iam::` + sim.SampleAccount + `:role/isobar"}`)
	refused("AccessDenied")
	w.mustImport(w.ns, "i-web") // what was known is kept
	secret(static + `, "roleArn": "arn:aws:iam::` + sim.SampleAccount + `:role/isobar", "externalId": "shop-7"}`)
	connected()

	// A session ends, and its successor is taken at once.
	session := func(key string, life time.Duration) {
		t.Helper()
		if err := w.sim.Edit(func(e *sim.Estate) {
			e.Sessions = []*sim.Session{{KeyID: key, Secret: "secretOf" + key, Token: "tokenOf" + key, Account: sim.SampleAccount, Role: "isobar", Name: "s", Expires: time.Now().Add(life)}}
		}); err != nil {
			t.Fatal(err)
		}
		secret(fmt.Sprintf(`{"accessKeyId": "%[1]s", "accessKeySecret": "secretOf%[1]s", "sessionToken": "tokenOf%[1]s"}`, key))
	}
	session("ASIAFIRST", time.Hour)
	connected()
	session("ASIAFIRST", -time.Minute)
	refused("RequestExpired")
	session("ASIASECOND", time.Hour)
	connected()

	if err := w.core.CoreV1().Secrets(elsewhere).Delete(context.Background(), "keys", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.is(accounts, "aws", "Connected", "False SecretMissing", "is missing")
	w.mustImport(w.ns, "i-web")
	secret(static + "}")
	connected()

	for _, text := range w.events("aws") {
		if strings.Contains(text, "wrongAndSecret") || strings.Contains(text, key.Secret) || strings.Contains(text, "shop-7") {
			t.Errorf("an Event tells a secret: %s", text)
		}
	}
}
