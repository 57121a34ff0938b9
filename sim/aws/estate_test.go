package aws_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEstateRoundTrip(t *testing.T) {
	for name, e := range map[string]aws.Estate{"sample": aws.Sample(), "world": world(), "wide": wide(10), "none": {}} {
		c, err := aws.New(e, aws.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		first := c.Estate()
		file := filepath.Join(t.TempDir(), "state.json")
		if err := first.Save(file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
		}
		loaded, err := aws.LoadEstate(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := aws.New(loaded, aws.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(text(t, first), text(t, again.Estate())); d != "" {
			t.Errorf("%s (-saved +restored):\n%s", name, d)
		}
	}
}

func TestParseEstateRefuses(t *testing.T) {
	const account = `{"accounts":[{"id":"111122223333","regions":[{"name":"us-east-1",%s}]}]}`
	const net = `"vpcs":[{"id":"vpc-1","cidrs":["10.0.0.0/16"]}],"subnets":[{"id":"subnet-1","vpc":"vpc-1","cidrs":["10.0.1.0/24"]}]`
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", "EOF"},
		{"two documents", "{} {}", "more than one"},
		{"unknown field", `{"acounts":[]}`, "unknown field"},
		{"account id", `{"accounts":[{"id":"12"}]}`, "twelve digits"},
		{"null account", `{"accounts":[null]}`, "twelve digits"},
		{"region twice", `{"accounts":[{"id":"111122223333","regions":[{"name":"us-east-1"},{"name":"us-east-1"}]}]}`, "given twice"},
		{"region name", `{"accounts":[{"id":"111122223333","regions":[{"name":"East US"}]}]}`, "proper name"},
		{"CIDR with host bits", strings.ReplaceAll(account, "%s", `"vpcs":[{"id":"vpc-1","cidrs":["10.0.0.1/16"]}]`), "canonical"},
		{"impossible CIDR", strings.ReplaceAll(account, "%s", `"vpcs":[{"id":"vpc-1","cidrs":["10.0.0.0/40"]}]`), "netip"},
		{"subnet outside", strings.ReplaceAll(account, "%s", `"vpcs":[{"id":"vpc-1","cidrs":["10.0.0.0/16"]}],"subnets":[{"id":"subnet-1","vpc":"vpc-1","cidrs":["10.1.1.0/24"]}]`), "not in vpc-1"},
		{"unknown vpc", strings.ReplaceAll(account, "%s", `"securityGroups":[{"id":"sg-1","vpc":"vpc-9","name":"x"}]`), "unknown vpc"},
		{"unknown group", strings.ReplaceAll(account, "%s", net+`,"instances":[{"id":"i-1","interfaces":[{"id":"eni-1","subnet":"subnet-1","groups":["sg-9"]}]}]`), "sg-9"},
		{"address twice", strings.ReplaceAll(account, "%s", net+`,"instances":[{"id":"i-1","interfaces":[{"id":"eni-1","subnet":"subnet-1","privateIps":["10.0.1.9"]},{"id":"eni-2","subnet":"subnet-1","privateIps":["10.0.1.9"]}]}]`), "used twice"},
		{"address outside", strings.ReplaceAll(account, "%s", net+`,"instances":[{"id":"i-1","interfaces":[{"id":"eni-1","subnet":"subnet-1","privateIps":["10.0.2.9"]}]}]`), "not in subnet-1"},
		{"null interface", strings.ReplaceAll(account, "%s", net+`,"instances":[{"id":"i-1","interfaces":[null]}]`), "null"},
		{"state", strings.ReplaceAll(account, "%s", net+`,"instances":[{"id":"i-1","state":"tired","interfaces":[{"id":"eni-1","subnet":"subnet-1"}]}]`), "tired"},
		{"rule without peer", strings.ReplaceAll(account, "%s", net+`,"securityGroups":[{"id":"sg-1","vpc":"vpc-1","name":"x","rules":[{"protocol":"tcp","fromPort":1,"toPort":1}]}]`), "MissingParameter"},
		{"rule port", strings.ReplaceAll(account, "%s", net+`,"securityGroups":[{"id":"sg-1","vpc":"vpc-1","name":"x","rules":[{"protocol":"tcp","fromPort":1,"toPort":65536,"cidr":"10.0.0.0/8"}]}]`), "out of range"},
		{"id prefix", strings.ReplaceAll(account, "%s", `"vpcs":[{"id":"sg-1","cidrs":["10.0.0.0/16"]}]`), "vpc-"},
		{"peering to nowhere", `{"accounts":[],"peerings":[{"id":"pcx-1","requester":{"account":"a","region":"b","vpc":"c"},"accepter":{"account":"a","region":"b","vpc":"c"}}]}`, "unknown vpc"},
	} {
		_, err := aws.ParseEstate(strings.NewReader(tt.in))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestAdmin(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	do := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	_, state := do("GET", "/_sim/state", "")
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/_sim/reach", `[{"from":"203.0.113.1","to":"i-0a100000000000001","protocol":"tcp","port":22}]`, 200, `"result":"allowed"`},
		{"POST", "/_sim/reach", `[{"from":"203.0.113.1","frob":1}]`, 400, "unknown field"},
		{"POST", "/_sim/reach", `{`, 400, "EOF"},
		{"POST", "/_sim/faults", `{"kind":"error","action":"RunInstances","count":3}`, 200, `["fault-1"]`},
		{"POST", "/_sim/faults", `[{"kind":"latency","latency":"5ms"},{"kind":"stale","id":"old"}]`, 200, `["fault-2","old"]`},
		{"POST", "/_sim/faults", `{"kind":"frob"}`, 400, "unknown kind"},
		{"GET", "/_sim/faults", "", 200, `"latency":"5ms"`},
		{"DELETE", "/_sim/faults?id=old", "", 204, ""},
		{"DELETE", "/_sim/faults", "", 204, ""},
		{"GET", "/_sim/faults", "", 200, `[]`},
		{"GET", "/_sim/calls", "", 200, `"counts":[]`},
		{"DELETE", "/_sim/calls", "", 204, ""},
		{"PUT", "/_sim/state", state, 204, ""},
		{"PUT", "/_sim/state", `{"accounts":[{}]}`, 400, "twelve digits"},
		{"GET", "/_sim/state", "", 200, strings.TrimSpace(state)},
		{"GET", "/_sim/other", "", 404, ""},
	} {
		status, body := do(tt.method, tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tt.method, tt.path, tt.body, status, body, tt.status, tt.want)
		}
	}
}

// TestAdminPeers wants the admin paths closed to everybody but loopback peers that use a loopback name.
func TestAdminPeers(t *testing.T) {
	c, err := aws.New(aws.Sample(), aws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		peer, host string
		want       int
	}{
		{"127.0.0.1:9", "127.0.0.1:4566", 200},
		{"[::1]:9", "localhost", 200},
		{"[::ffff:127.0.0.1]:9", "localhost:1", 200},
		{"10.0.0.1:9", "localhost", 403},
		{"", "localhost", 403},
		{"127.0.0.1:9", "rebound.example", 403},
	} {
		r := httptest.NewRequest("GET", "/_sim/calls", nil)
		r.RemoteAddr, r.Host = tt.peer, tt.host
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("peer %q, host %q: %d, want %d", tt.peer, tt.host, w.Code, tt.want)
		}
	}
}

func FuzzParseEstate(f *testing.F) {
	f.Add([]byte(`{"accounts":[]}`))
	b, err := json.Marshal(aws.Sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := aws.ParseEstate(bytes.NewReader(b))
		if err != nil {
			return
		}
		if _, err := aws.New(e, aws.Options{}); err != nil {
			t.Errorf("parsed, but: %v", err)
		}
	})
}
