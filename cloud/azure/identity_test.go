package azure_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"isobar.dev/cloud/azure"
	sim "isobar.dev/sim/azure"
)

// Each kind of credentials opens the subscription, those that the place gives with no
// secret of ours. Not parallel: they are found in the environment.
func TestIdentities(t *testing.T) {
	const subject, managed = "system:serviceaccount:isobar:controller", "cccccccc-0000-4000-8000-000000000009"
	issuer, err := sim.NewIssuer("https://oidc.example")
	if err != nil {
		t.Fatal(err)
	}
	e, _ := emptyEstate("westeurope")
	e.Tenants[0].Applications[0].Federated = []sim.Federated{issuer.Federated(subject)}
	e.Tenants[0].Applications = append(e.Tenants[0].Applications, &sim.Application{ClientID: managed, Managed: true})
	c := serve(t, e, sim.Options{})
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // tells a machine of itself
		r.Host = "localhost" // the simulator answers this machine alone
		c.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(machine.Close)
	at, err := url.Parse(machine.URL)
	if err != nil {
		t.Fatal(err)
	}
	token := issuer.Token(subject, time.Now(), time.Hour)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AZURE_FEDERATED_TOKEN_FILE": file, "AZURE_CLIENT_ID": clientID, "AZURE_TENANT_ID": tenantID, "AZURE_AUTHORITY_HOST": "",
		"IDENTITY_ENDPOINT": "", "IDENTITY_HEADER": "", "MSI_ENDPOINT": "", "IMDS_ENDPOINT": "",
	} {
		t.Setenv(name, value)
	}
	const sub = `{"subscriptionId":"` + subscriptionID + `"`
	const app = sub + `,"tenantId":"` + tenantID + `","clientId":"` + clientID + `"`
	for _, tt := range []struct {
		secret string
		ok     bool
	}{
		{app + `,"clientKey":"` + clientKey + `"}`, true},
		{app + `,"sessionToken":"` + token + `"}`, true},
		{app + `,"sessionToken":"` + token + `","clientKey":"wrong"}`, true},
		{sub + `,"identity":"WorkloadIdentity"}`, true},
		{app + `,"identity":"WorkloadIdentity"}`, true},
		{sub + `,"identity":"ManagedIdentity"}`, true},
		{sub + `,"identity":"ManagedIdentity","clientId":"` + managed + `"}`, true},
		{sub + `,"identity":"ManagedIdentity","clientId":"cccccccc-0000-4000-8000-00000000000f"}`, false},
	} {
		credentials, err := azure.ParseSecret([]byte(tt.secret))
		if err != nil {
			t.Fatal(err)
		}
		a, err := azure.NewAccount(azure.Config{
			Credentials: credentials, Regions: []string{location}, Cluster: "test", Endpoint: c.server.URL, AuthorityEndpoint: c.server.URL,
			CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}),
		}, azure.Options{Unlimited: true, Attempts: 2, MaxBackoff: time.Millisecond, Proxy: func(r *http.Request) (*url.URL, error) {
			if r.URL.Hostname() == "169.254.169.254" {
				return at, nil
			}
			return nil, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err = a.Networks(ctx, location)
		cancel()
		if (err == nil) != tt.ok {
			t.Errorf("%v: %v; want ok %t", credentials, err, tt.ok)
		}
	}
}
