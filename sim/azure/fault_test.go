package azure_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"isobar.dev/sim/azure"
)

func addFault(t *testing.T, c *azure.Cloud, f azure.Fault) {
	t.Helper()
	if _, err := c.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, azure.Sample(), azure.Options{Settle: time.Second, NoThrottle: true})
		put := func(name string) reply { return b.do("PUT", asgID(name), shopPlace.ApplicationGroup(name)) }
		there := func(name string) bool { return b.do("GET", asgID(name), nil).status == 200 }

		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultError, Operation: "ApplicationSecurityGroups_Create*", Skip: 1, Count: 1, Code: "RetryableErrorDueToAnotherOperation", RetryAfter: azure.Duration(3 * time.Second)})
		if r := put("a"); r.status != 201 {
			t.Errorf("before the fault: %v", r)
		}
		if r := put("b"); r.code != "RetryableErrorDueToAnotherOperation" || r.status != 429 || r.header.Get("Retry-After") != "3" || there("b") {
			t.Errorf("the second call: %v", r)
		}
		if r := put("b"); r.status != 201 {
			t.Errorf("after the fault: %v", r)
		}

		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultError, Resource: "c*", After: true, Status: 503, Count: 1})
		if r := put("c"); r.status != 503 || !there("c") {
			t.Errorf("refused after it took effect: %v", r)
		}

		// An operation that fails leaves the resource Failed and what was in force before in force.
		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultOperation, Operation: "NetworkSecurityGroups_CreateOrUpdate", Code: "InternalServerError", Count: 1})
		r := b.do("PUT", nsgID("shop-web"), shopPlace.SecurityGroup("shop-web"))
		time.Sleep(time.Second)
		async := b.do("GET", r.header.Get("Azure-AsyncOperation"), nil)
		if r.status != 200 || async.doc["status"] != "Failed" || async.code != "InternalServerError" {
			t.Errorf("an operation that fails: %v, then %v", r, async.doc)
		}
		got := b.get(nsgID("shop-web"))
		if v := b.cloud.Reach(azure.Flow{From: "203.0.113.9", To: "web-1", Protocol: "tcp", Port: 443}); v.Result != azure.Allowed || props(got)["provisioningState"] != "Failed" {
			t.Errorf("after it: %v, %v", v, props(got)["provisioningState"])
		}

		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultSlow, Operation: "*Groups_CreateOrUpdate", Latency: azure.Duration(time.Minute), Count: 1})
		r = b.do("PUT", nsgID("shop-web"), shopPlace.SecurityGroup("shop-web"))
		time.Sleep(time.Minute)
		if got := b.do("GET", r.header.Get("Azure-AsyncOperation"), nil); got.doc["status"] != "InProgress" {
			t.Errorf("a slow operation after a minute: %v", got.doc)
		}

		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultStale, Operation: "ApplicationSecurityGroups_*"})
		put("d")
		if there("d") || !there("a") {
			t.Error("stale reads show what came later, or not what was there")
		}
		b.cloud.ClearFaults()
		if !there("d") {
			t.Error("after the fault the reads are stale")
		}

		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultEmpty, Operation: "*_ListAll"})
		list := "/subscriptions/" + azure.SampleSubscription + "/providers/Microsoft.Network/networkInterfaces"
		if r := b.do("GET", list, nil); r.status != 200 || len(r.doc["value"].([]any)) != 0 {
			t.Errorf("an empty list: %v", r)
		}
		addFault(t, b.cloud, azure.Fault{Kind: azure.FaultLatency, Operation: "ApplicationSecurityGroups_Get", Latency: azure.Duration(5 * time.Second)})
		start := time.Now()
		there("a")
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("a late answer took %s", d)
		}
	})
}

func TestFaultyConnections(t *testing.T) {
	s := newSim(t, azure.Sample(), azure.Options{Settle: -1, PageSize: 4})
	asgs := s.network.NewApplicationSecurityGroupsClient()
	for _, tt := range []struct {
		kind  azure.FaultKind
		there bool
	}{{azure.FaultCutBefore, false}, {azure.FaultCutAfter, true}} {
		name := string(tt.kind)
		addFault(t, s.cloud, azure.Fault{Kind: tt.kind, Operation: "*_CreateOrUpdate", Count: 1})
		if _, err := asgs.BeginCreateOrUpdate(t.Context(), "shop", name, armnetwork.ApplicationSecurityGroup{Location: ptr("westeurope")}, nil); err == nil || code(err) != err.Error() {
			t.Errorf("%s: %v, want a broken connection", tt.kind, err)
		}
		if _, err := asgs.Get(t.Context(), "shop", name, nil); (err == nil) != tt.there {
			t.Errorf("%s: there is %v", tt.kind, err)
		}
	}
	l := s.cloud.Calls()
	if w := l.Writes[len(l.Writes)-1]; !w.Cut || w.Error != "" {
		t.Errorf("the log of a lost answer: %+v", w)
	}
	names := func() (out []string) {
		list, _ := all(t, s.network.NewInterfacesClient().NewListAllPager(nil), func(p armnetwork.InterfacesClientListAllResponse) []*armnetwork.Interface { return p.Value })
		for _, n := range list {
			out = append(out, *n.Name)
		}
		return out
	}
	whole := names()
	for skip := range 2 {
		addFault(t, s.cloud, azure.Fault{Kind: azure.FaultRepeatPage, Operation: "NetworkInterfaces_ListAll", Skip: skip, Count: 1})
		if got := names(); len(got) != len(whole)+4 {
			t.Errorf("page %d twice: %d of %d", skip, len(got), len(whole))
		}
	}
	addFault(t, s.cloud, azure.Fault{Kind: azure.FaultMissPage, Operation: "NetworkInterfaces_ListAll", Count: 1})
	if got := names(); len(got) != len(whole)-4 {
		t.Errorf("a page too few: %d of %d", len(got), len(whole))
	}
}

// The simulator's own interface answers loopback peers by loopback names, and nobody else.
func TestOwnInterface(t *testing.T) {
	c := must[*azure.Cloud](t)(azure.New(azure.Sample(), azure.Options{}))
	do := func(method, path, host, peer, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host, r.RemoteAddr = host, peer
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct {
		host, peer string
		want       int
	}{{"localhost:1", "127.0.0.1:2", 200}, {"[::1]:1", "[::1]:2", 200}, {"azure.example", "127.0.0.1:2", 403}, {"localhost", "192.0.2.1:2", 403}} {
		for _, path := range []string{"/_sim/state", "/_sim/calls", "/_sim/faults"} {
			if w := do("GET", path, tt.host, tt.peer, ""); w.Code != tt.want {
				t.Errorf("%s of %s by %s: %d, want %d", path, tt.host, tt.peer, w.Code, tt.want)
			}
		}
	}
	here := func(method, path, body string) *httptest.ResponseRecorder {
		return do(method, path, "localhost", "127.0.0.1:2", body)
	}
	if w := here("POST", "/_sim/reach", `[{"from":"web-1","to":"app-1","protocol":"tcp","port":1}]`); !bytes.Contains(w.Body.Bytes(), []byte(`"allowed"`)) {
		t.Errorf("reach: %d %s", w.Code, w.Body)
	}
	if w := here("POST", "/_sim/faults", `{"kind":"error","operation":"*_Get"}`); w.Body.String() != "[\"fault-1\"]\n" {
		t.Errorf("a fault: %d %s", w.Code, w.Body)
	}
	for _, bad := range []string{`{"kind":"magic"}`, `{"kind":"error","operation":"["}`, `{"kind":"latency","latency":"2h"}`, `{"kind":"error","count":-1}`, `{"what":1}`} {
		if w := here("POST", "/_sim/faults", bad); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	if w := here("DELETE", "/_sim/faults", ""); w.Code != http.StatusNoContent || len(c.Faults()) != 0 {
		t.Errorf("no more faults: %d, %v", w.Code, c.Faults())
	}
	state := here("GET", "/_sim/state", "").Body.String()
	if w := here("PUT", "/_sim/state", state); w.Code != http.StatusNoContent {
		t.Errorf("the state put back: %d %s", w.Code, w.Body)
	}
	if again := here("GET", "/_sim/state", "").Body.String(); again != state {
		t.Errorf("the state has changed by being put back")
	}
	if w := here("PUT", "/_sim/state", `{"tenants":[{"id":"x"}]}`); w.Code != http.StatusBadRequest {
		t.Errorf("a bad state: %d", w.Code)
	}
}
