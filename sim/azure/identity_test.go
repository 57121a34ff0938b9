package azure_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"isobar.dev/sim/azure"
)

// lists says whether a credential opens the sample's subscription.
func lists(s *sim, cred azcore.TokenCredential) error {
	s.t.Helper()
	s.use(azure.SampleSubscription, cred)
	_, err := s.network.NewSecurityGroupsClient().Get(s.t.Context(), "shop", "shop-web", nil)
	return err
}

func TestSecrets(t *testing.T) {
	e := azure.Sample()
	app := e.Tenants[0].Applications[0]
	app.Secrets = append(app.Secrets, azure.ClientSecret{Value: "old", Expires: time.Unix(1, 0)})
	s := newSim(t, e, azure.Options{})
	for _, tt := range []struct{ name, tenant, client, secret, want string }{
		{"right", azure.SampleTenant, azure.SampleClientID, azure.SampleSecret, ""},
		{"by the tenant's name", "shop.example", azure.SampleClientID, azure.SampleSecret, ""},
		{"wrong secret", azure.SampleTenant, azure.SampleClientID, "guess", "AADSTS7000215"},
		{"expired secret", azure.SampleTenant, azure.SampleClientID, "old", "AADSTS7000222"},
		{"unknown application", azure.SampleTenant, azure.SampleTenant, azure.SampleSecret, "AADSTS700016"},
		{"a managed identity has no secret", azure.SampleTenant, azure.SampleIdentity, azure.SampleSecret, "AADSTS700016"},
		{"unknown tenant", azure.SampleClientID, azure.SampleClientID, azure.SampleSecret, "AADSTS90002"},
	} {
		cred, err := azidentity.NewClientSecretCredential(tt.tenant, tt.client, tt.secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: s.options(), DisableInstanceDiscovery: true})
		if err == nil {
			err = lists(s, cred)
		}
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), azure.SampleSecret) {
			t.Errorf("%s: the error has the secret", tt.name)
		}
	}
}

func TestTokenRequests(t *testing.T) {
	s := newSim(t, azure.Sample(), azure.Options{})
	good := url.Values{"grant_type": {"client_credentials"}, "client_id": {azure.SampleClientID}, "client_secret": {azure.SampleSecret}, "scope": {"https://management.azure.com/.default"}}
	for _, tt := range []struct{ name, key, value, want string }{
		{"right", "", "", "access_token"},
		{"no grant", "grant_type", "", "AADSTS900144"},
		{"password grant", "grant_type", "password", "AADSTS70003"},
		{"no scope", "scope", "", "AADSTS900144"},
		{"no default", "scope", "https://management.azure.com/user_impersonation", "AADSTS1002012"},
		{"another resource", "scope", "https://vault.azure.net/.default", "AADSTS500011"},
		{"no secret", "client_secret", "", "AADSTS7000216"},
		{"a broken assertion", "client_assertion", "x.y.z", "AADSTS700021"},
	} {
		f := url.Values{}
		for k, v := range good {
			f[k] = v
		}
		if tt.key != "" {
			f.Set(tt.key, tt.value)
		}
		r, err := s.srv.Client().PostForm(s.srv.URL+"/"+azure.SampleTenant+"/oauth2/v2.0/token", f)
		if err != nil {
			t.Fatal(err)
		}
		if body := read(t, r); !strings.Contains(body, tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, body, tt.want)
		}
	}
}

func TestFederated(t *testing.T) {
	const subject = "system:serviceaccount:isobar:controller"
	issuer := must[*azure.Issuer](t)(azure.NewIssuer("https://oidc.example"))
	other := must[*azure.Issuer](t)(azure.NewIssuer("https://oidc.example")) // the same name, another key
	stranger := must[*azure.Issuer](t)(azure.NewIssuer("https://elsewhere.example"))
	e := azure.Sample()
	e.Tenants[0].Applications[0].Federated = []azure.Federated{issuer.Federated(subject)}
	s := newSim(t, e, azure.Options{})
	now := time.Now()
	for _, tt := range []struct{ name, token, want string }{
		{"right", issuer.Token(subject, now, time.Hour), ""},
		{"another key", other.Token(subject, now, time.Hour), "AADSTS700027"},
		{"another issuer", stranger.Token(subject, now, time.Hour), "AADSTS700211"},
		{"another subject", issuer.Token("system:serviceaccount:default:default", now, time.Hour), "AADSTS700213"},
		{"expired", issuer.Token(subject, now.Add(-2*time.Hour), time.Hour), "AADSTS700024"},
		{"no token", "none", "AADSTS50027"},
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(tt.token), 0o600); err != nil {
			t.Fatal(err)
		}
		cred, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: s.options(), ClientID: azure.SampleClientID, TenantID: azure.SampleTenant, TokenFilePath: file, DisableInstanceDiscovery: true,
		})
		if err == nil {
			err = lists(s, cred)
		}
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// metadataAt sends what is for the link-local address of the metadata service to another host.
type metadataAt string

func (m metadataAt) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = string(m), string(m)
	return http.DefaultClient.Do(r)
}

func TestManagedIdentity(t *testing.T) {
	s := newSim(t, azure.Sample(), azure.Options{})
	plain := httptest.NewServer(s.cloud.Handler())
	t.Cleanup(plain.Close)
	for _, name := range []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "IMDS_ENDPOINT"} {
		t.Setenv(name, "") // else the client takes another service for that of the machine
	}
	toSim := metadataAt(strings.TrimPrefix(plain.URL, "http://"))
	for _, tt := range []struct {
		name string
		id   azidentity.ManagedIDKind
		ok   bool
	}{{"the first", nil, true}, {"by client id", azidentity.ClientID(azure.SampleIdentity), true}, {"unknown", azidentity.ClientID(azure.SampleTenant), false}} {
		cred := must[*azidentity.ManagedIdentityCredential](t)(azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: policy.ClientOptions{Transport: toSim, Retry: policy.RetryOptions{MaxRetries: -1}}, ID: tt.id}))
		if err := lists(s, cred); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	r := must[*http.Response](t)(http.Get(plain.URL + "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://management.azure.com"))
	if body := read(t, r); r.StatusCode != http.StatusBadRequest {
		t.Errorf("without the header Metadata: %s %s", r.Status, body)
	}
}

// A token is of one tenant, ends, and is no good when it was changed.
func TestTokens(t *testing.T) {
	e := azure.Sample()
	const otherTenant, otherApp = "99999999-2222-4333-8444-555555555555", "99999999-0000-4000-8000-000000000001"
	e.Tenants = append(e.Tenants, &azure.Tenant{ID: otherTenant, Applications: []*azure.Application{{ClientID: otherApp, Secrets: []azure.ClientSecret{{Value: "x"}}}}})
	synctest.Test(t, func(t *testing.T) {
		c := must[*azure.Cloud](t)(azure.New(e, azure.Options{TokenLife: time.Minute}))
		get := func(token string) string {
			r := httptest.NewRequest("GET", "/subscriptions/"+azure.SampleSubscription+"?api-version=2022-12-01", nil)
			r.Header.Set("Authorization", token)
			w := httptest.NewRecorder()
			c.Handler().ServeHTTP(w, r)
			if w.Code == http.StatusUnauthorized && !strings.Contains(w.Header().Get("WWW-Authenticate"), "authorization_uri") {
				t.Errorf("no challenge: %v", w.Header())
			}
			return w.Result().Status + w.Body.String()
		}
		mine, theirs := token(t, c, azure.SampleTenant, azure.SampleClientID, azure.SampleSecret), token(t, c, otherTenant, otherApp, "x")
		for _, tt := range []struct{ name, token, want string }{
			{"right", "Bearer " + mine, "200"},
			{"none", "", "AuthenticationFailed"},
			{"basic", "Basic eDp5", "AuthenticationFailed"},
			{"changed", "Bearer " + mine[:len(mine)-4] + "AAAA", "InvalidAuthenticationToken"},
			{"of another tenant", "Bearer " + theirs, "InvalidAuthenticationTokenTenant"},
		} {
			if got := get(tt.token); !strings.Contains(got, tt.want) {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		}
		time.Sleep(time.Minute)
		if got := get("Bearer " + mine); !strings.Contains(got, "ExpiredAuthenticationToken") {
			t.Errorf("a minute later: %s", got)
		}
	})
}

// token gets an access token without a server.
func token(t *testing.T, c *azure.Cloud, tenant, client, secret string) string {
	t.Helper()
	f := url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "client_secret": {secret}, "scope": {"https://management.azure.com/.default"}}
	r := httptest.NewRequest("POST", "/"+tenant+"/oauth2/v2.0/token", strings.NewReader(f.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return decode[struct {
		Token string `json:"access_token"`
	}](t, w.Body.Bytes()).Token
}
