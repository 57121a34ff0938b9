package azure

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzRequest runs any call with a proper token: no panic, an answer that is JSON with a code when it
// refuses, and a state that still makes an estate.
func FuzzRequest(f *testing.F) {
	const (
		group   = "/subscriptions/" + SampleSubscription + "/resourceGroups/shop"
		network = group + "/providers/Microsoft.Network/"
		compute = group + "/providers/Microsoft.Compute/"
		rule    = `{"name":"r","properties":{"priority":100,"direction":"Inbound","access":"Allow","protocol":"Tcp","sourceAddressPrefix":"10.0.0.0/8","sourcePortRange":"*","destinationAddressPrefix":"*","destinationPortRange":"443"}}`
	)
	for _, s := range []struct{ method, path, body string }{
		{"GET", network + "networkInterfaces?$skiptoken=YQ", ""},
		{"PUT", network + "networkSecurityGroups/n", `{"location":"westeurope","tags":{"a":"b"},"properties":{"securityRules":[` + rule + `]}}`},
		{"PUT", network + "networkSecurityGroups/shop-web/securityRules/r", rule},
		{"PATCH", network + "networkSecurityGroups/shop-web", `{"tags":{"a":"b"}}`},
		{"DELETE", network + "networkSecurityGroups/shop-web", ""},
		{"PUT", network + "networkInterfaces/web-1-nic", `{"location":"westeurope","properties":{"networkSecurityGroup":{"id":"/"},"ipConfigurations":[{"name":"a","properties":{"subnet":{"id":"` + network + `virtualNetworks/shop/subnets/public"},"applicationSecurityGroups":[{"id":""}]}}]}}`},
		{"PUT", network + "virtualNetworks/n", `{"location":"westeurope","properties":{"addressSpace":{"addressPrefixes":["10.9.0.0/16","::/0"]},"subnets":[{"name":"s","properties":{"addressPrefixes":["10.9.0.0/30"]}}],"virtualNetworkPeerings":[{"name":"p","properties":{"remoteVirtualNetwork":{"id":"` + network + `virtualNetworks/data"}}}]}}`},
		{"PUT", network + "publicIPAddresses/p", `{"location":"westeurope","sku":{"name":"Basic"},"properties":{"ipAddress":"::1"}}`},
		{"PUT", compute + "virtualMachines/v", `{"location":"westeurope","properties":{"networkProfile":{"networkInterfaces":[{"id":"` + network + `networkInterfaces/web-1-nic"}]}}}`},
		{"PUT", compute + "virtualMachineScaleSets/v", `{"location":"westeurope","sku":{"capacity":2},"properties":{"virtualMachineProfile":{"networkProfile":{"networkInterfaceConfigurations":[{"name":"n","properties":{"ipConfigurations":[{"name":"i","properties":{"subnet":{"id":"` + network + `virtualNetworks/shop/subnets/public"}}}]}}]}}}}`},
		{"POST", compute + "virtualMachines/web-1/deallocate", ""},
		{"PATCH", compute + "virtualMachines/web-1", `{"tags":null,"properties":{"networkProfile":{"networkInterfaces":[]}}}`},
		{"PATCH", network + "networkInterfaces/web-1-nic/providers/Microsoft.Resources/tags/default", `{"operation":"Merge","properties":{"tags":{"x":"y"}}}`},
		{"DELETE", group, ""},
		{"PUT", group, `{"location":"West Europe","tags":{}}`},
		{"GET", "/subscriptions/" + SampleSubscription + "/providers/Microsoft.Compute/virtualMachines?statusOnly=true&$filter='virtualMachineScaleSet/id' eq x", ""},
	} {
		f.Add(s.method, s.path, s.body)
	}
	sample := Sample() // New copies it
	f.Fuzz(func(t *testing.T, method, path, body string) {
		u, err := url.Parse(path)
		if err != nil || len(path)+len(body) > 1<<12 || !isManagement(u.Path) {
			return
		}
		now := time.Unix(1700000000, 0)
		c, err := New(sample, Options{Now: func() time.Time { return now }, NoThrottle: true, Settle: -1})
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("api-version", someVersion(fold(u.Path)))
		r := &http.Request{Method: method, URL: &url.URL{Path: u.Path, RawQuery: q.Encode()}, Header: http.Header{}, Body: readCloser{strings.NewReader(body)}, Host: "h"}
		tenant := c.w.tenant(SampleTenant)
		r.Header.Set("Authorization", "Bearer "+c.issue(principal{tenant, tenant.Applications[0]}, audience))
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, r)
		var doc struct{ Error *struct{ Code string } }
		if w.Body.Len() > 0 && json.Unmarshal(w.Body.Bytes(), &doc) != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code >= 400 && (doc.Error == nil || doc.Error.Code == "") || w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code >= 300 || method == http.MethodGet {
			return
		}
		if _, err := New(c.Estate(), Options{}); err != nil {
			t.Fatalf("%s %s %s: %d: the state is broken: %v", method, path, body, w.Code, err)
		}
	})
}

// someVersion is a version that what is at a path has.
func someVersion(path string) string {
	switch {
	case strings.HasSuffix(path, "/default"):
		return "2021-04-01"
	case strings.Contains(path, "virtualmachinescalesets") && strings.Contains(path, "networkinterfaces"):
		return "2018-10-01"
	case strings.Contains(path, "microsoft.compute"):
		return "2024-07-01"
	case strings.Contains(path, "microsoft.network"):
		return "2024-05-01"
	}
	return "2022-12-01"
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// FuzzEstate reads any estate: what is taken is taken again from what it became.
func FuzzEstate(f *testing.F) {
	f.Add(shop)
	f.Add([]byte(`{"tenants":[{"id":"` + SampleTenant + `"}],"subscriptions":[{"id":"` + SampleSubscription + `","tenant":"` + SampleTenant + `","locations":["x"],"resourceGroups":[{"name":"g","location":"x"}],"resources":[{"id":"/subscriptions/` + SampleSubscription + `/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/p","location":"x"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		e, err := ParseEstate(bytes.NewReader(b))
		if err != nil {
			return
		}
		c, err := New(e, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(c.Estate(), Options{}); err != nil {
			t.Errorf("what it became is not taken: %v", err)
		}
	})
}

// FuzzID compares an id with what it is written as.
func FuzzID(f *testing.F) {
	f.Add("/subscriptions/" + SampleSubscription + "/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s")
	f.Add("/SUBSCRIPTIONS/x//")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseID(s)
		if err != nil {
			return
		}
		again, err := parseID(id.String())
		if err != nil || again.key() != id.key() || id.key() != fold(s) {
			t.Errorf("%q became %q, %v", s, id, err)
		}
	})
}

// FuzzWildcard compares the matcher of actions with a plain recursive one.
func FuzzWildcard(f *testing.F) {
	f.Add("Microsoft.Network/*/write", "microsoft.network/networkInterfaces/write")
	f.Add("**a*", "aaba")
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 12 || len(s) > 24 {
			return
		}
		if got, want := wildcard(p, s), slowWildcard(fold(p), fold(s)); got != want {
			t.Errorf("wildcard(%q, %q) = %t, want %t", p, s, got, want)
		}
	})
}

func slowWildcard(p, s string) bool {
	switch {
	case p == "":
		return s == ""
	case p[0] == '*':
		return slowWildcard(p[1:], s) || s != "" && slowWildcard(p, s[1:])
	}
	return s != "" && p[0] == s[0] && slowWildcard(p[1:], s[1:])
}

// FuzzToken asks for a token with any form: no panic, no token without the secret, and a refusal that
// does not tell it.
func FuzzToken(f *testing.F) {
	f.Add(SampleTenant, "grant_type=client_credentials&client_id="+SampleClientID+"&client_secret=guess&scope=https://management.azure.com/.default")
	f.Add("shop.example", "grant_type=client_credentials&client_id="+SampleClientID+"&scope=openid https://management.azure.com/.default&client_assertion_type="+assertionType+"&client_assertion=eyJhbGciOiJub25lIn0.e30.")
	c, err := New(Sample(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tenant, form string) {
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/" + tenant + "/oauth2/v2.0/token"}, Header: http.Header{}, Body: readCloser{strings.NewReader(form)}, Host: "h"}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, r)
		if q, _ := url.ParseQuery(form); q.Get("client_secret") == SampleSecret || strings.Contains(form, SampleSecret) {
			return
		}
		if w.Code == http.StatusOK || strings.Contains(w.Body.String(), SampleSecret) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
