package clouds

import (
	"encoding/json"
	"testing"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud/azure"
)

func document(t *testing.T, c cloudv1alpha1.AzureCredentials) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the adapter takes as credentials passes admission, which in turn takes nothing
// that the adapter does not, but for IDs of subscriptions that are none.
func FuzzAzureSecret(f *testing.F) {
	const id = "00000000-0000-0000-0000-000000000001"
	for _, s := range []string{
		`{"subscriptionId":"` + id + `","tenantId":"t","clientId":"c","clientKey":"k"}`,
		`{"subscriptionId":"` + id + `","tenantId":"t","clientId":"c","sessionToken":"k"}`,
		`{"subscriptionId":"` + id + `","identity":"WorkloadIdentity"}`,
		`{"subscriptionId":"` + id + `","identity":"ManagedIdentity","clientKey":"x"}`,
		`{"subscriptionId":"` + id + `","tenantId":"t","clientId":" ","clientKey":"k"}`,
		`{"subscriptionId":"x","tenantId":"t","clientId":"c","clientKey":"k"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, secret []byte) {
		_, adapter := azure.ParseSecret(secret)
		read, admission := cloudv1alpha1.ParseAzureCredentials(secret)
		if adapter == nil && admission != nil {
			t.Errorf("%q: the adapter takes it, admission does not: %v", secret, admission)
		}
		if admission == nil && adapter != nil {
			read.SubscriptionID = id
			if _, err := azure.ParseSecret(document(t, read)); err != nil {
				t.Errorf("%q: admission takes it, the adapter does not: %v", secret, err)
			}
		}
	})
}
