package azure_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"isobar.dev/cloud/azure"
)

func TestParseSecret(t *testing.T) {
	const ids = `"subscriptionId":"` + subscriptionID + `","tenantId":"t","clientId":"c"`
	c := azure.Credentials{SubscriptionID: subscriptionID, TenantID: "t", ClientID: "c"}
	key, token := c, c
	key.ClientKey, token.SessionToken = "k", "s"
	for _, tt := range []struct {
		in   string
		want azure.Credentials
		ok   bool
	}{
		{`{` + ids + `,"clientKey":"k"}`, key, true},
		{`{` + ids + `,"clientKey":" k\n"}`, key, true},
		{`{` + ids + `,"sessionToken":"s"}`, token, true},
		{`{` + ids + `,"clientKey":"k","sessionToken":"s"}`, token, true}, // the token wins
		{`{` + ids + `}`, azure.Credentials{}, false},
		{`{"subscriptionId":"` + subscriptionID + `","identity":"ManagedIdentity"}`, azure.Credentials{SubscriptionID: subscriptionID, Identity: azure.ManagedIdentity}, true},
		{`{"subscriptionId":"` + subscriptionID + `","clientId":"c","tenantId":"t","identity":"WorkloadIdentity"}`, azure.Credentials{SubscriptionID: subscriptionID, ClientID: "c", TenantID: "t", Identity: azure.WorkloadIdentity}, true},
		{`{` + ids + `,"identity":"ManagedIdentity","clientKey":"k"}`, azure.Credentials{}, false},
		{`{` + ids + `,"identity":"managed"}`, azure.Credentials{}, false},
		{`{"subscriptionId":"../..","tenantId":"t","clientId":"c","clientKey":"k"}`, azure.Credentials{}, false},
		{`{"subscriptionId":"` + subscriptionID + `","clientId":"c","clientKey":"k"}`, azure.Credentials{}, false},
		{`{` + ids + `,"clientKey":1}`, azure.Credentials{}, false},
		{`{` + ids + `,"clientKey":"k"}{}`, azure.Credentials{}, false},
		{`{` + ids + `,"clientKey":"` + strings.Repeat("k", 64<<10) + `"}`, azure.Credentials{}, false},
		{`null`, azure.Credentials{}, false},
		{`[]`, azure.Credentials{}, false},
		{``, azure.Credentials{}, false},
	} {
		got, err := azure.ParseSecret([]byte(tt.in))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseSecret(%.120s) = %v, %v; want ok %t", tt.in, got, err, tt.ok)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add([]byte(`{"subscriptionId":"` + subscriptionID + `","tenantId":"t","clientId":"c","clientKey":"topsecret"}`))
	f.Add([]byte(`{"clientKey":topsecret}`))
	f.Add([]byte(`{"topsecret":"topsecret","identity":"topsecret"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := azure.ParseSecret(b)
		if err != nil {
			if strings.Contains(err.Error(), "topsecret") {
				t.Errorf("the error tells the secret: %v", err)
			}
			return
		}
		again, err := json.Marshal(map[string]string{"subscriptionId": c.SubscriptionID, "tenantId": c.TenantID, "clientId": c.ClientID,
			"clientKey": c.ClientKey, "sessionToken": c.SessionToken, "identity": string(c.Identity)})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := azure.ParseSecret(again); err != nil || d != c {
			t.Errorf("written and parsed again: %v", err)
		}
	})
}

// No way of printing tells a secret.
func TestCredentialsDoNotPrint(t *testing.T) {
	c := azure.Credentials{SubscriptionID: subscriptionID, ClientID: "c", ClientKey: "topsecret", SessionToken: "topsecret"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "c", c, "p", &c, "cfg", azure.Config{Credentials: c})
	js, err := json.Marshal(azure.Config{Credentials: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s %q %x %d", c, c, c, c, c, c, c), fmt.Sprintf("%v %+v %#v", &c, azure.Config{Credentials: c}, []azure.Credentials{c}),
		log.String(), string(js),
	} {
		if strings.Contains(s, "secret") || strings.Contains(s, fmt.Sprintf("%x", "topsecret")) {
			t.Errorf("it prints: %s", s)
		}
	}
}
