package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"isobar.dev/cloud"
)

// These tests are of the client's own promises, which its callers have no way to
// provoke; everything else is tested against the simulator.

const (
	testSubscription = "00000000-0000-0000-0000-000000000001"
	testNIC          = "/subscriptions/" + testSubscription + "/resourceGroups/rg/providers/Microsoft.Network/networkInterfaces/nic1"
)

type fixedToken struct{}

func (fixedToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "bearer-of-tests", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// serve returns a client of a server that answers so.
func serve(t *testing.T, l *limiter, answer http.HandlerFunc) (*client, string) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	if l == nil {
		l = &limiter{off: true}
	}
	if l.shared == nil {
		l.shared = newBuckets().in()
	}
	c, err := newClient(testSubscription, s.URL, fixedToken{}, l, policy.ClientOptions{
		Cloud: azcloud.Configuration{ActiveDirectoryAuthorityHost: "https://localhost/", Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{
			azcloud.ResourceManager: {Endpoint: s.URL, Audience: "https://management.core.windows.net/"}}},
		InsecureAllowCredentialWithHTTP: true,
		Transport:                       cloud.NewClient(nil, nil),
		Retry:                           policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond, MaxRetryDelay: 2 * time.Second},
	}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return c, s.URL
}

func id(t *testing.T, s string) resourceID {
	t.Helper()
	out, err := parseID(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What we know nothing of is put back as it was, under the ETag that it was read
// with, and the write is done when its operation is.
func TestEdit(t *testing.T) {
	var mu sync.Mutex
	now := `{"id":"` + strings.ToUpper(testNIC) + `","etag":"W/\"1\"","tags":{"owner":"them"},"zones":["1"],"future":{"x":[1,2.50,null]},"properties":{"newer":12345678901234567890,"macAddress":"AA"}}`
	polls := 0
	var put string
	c, _ := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.Contains(r.URL.Path, "/operations/"):
			if polls++; polls < 3 {
				fmt.Fprint(w, `{"status":"InProgress"}`)
				return
			}
			fmt.Fprint(w, `{"status":"Succeeded"}`)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, now)
		case r.Header.Get("If-Match") != `W/"1"`:
			w.WriteHeader(http.StatusPreconditionFailed)
			fmt.Fprint(w, `{"error":{"code":"PreconditionFailed","message":"no"}}`)
		default:
			var b strings.Builder
			var raw json.RawMessage
			if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
				t.Error(err)
			}
			b.Write(raw)
			put = b.String()
			now = strings.Replace(put, `W/\"1\"`, `W/\"2\"`, 1)
			w.Header().Set("Azure-AsyncOperation", "http://"+r.Host+"/subscriptions/"+testSubscription+"/providers/Microsoft.Network/locations/westus/operations/1?api-version=1")
			fmt.Fprint(w, `{"properties":{"provisioningState":"Updating"}}`)
		}
	})
	edit := func(d document) (bool, error) {
		d["tags"].(map[string]any)["ours"] = "x"
		return true, nil
	}
	doc, err := c.edit(context.Background(), id(t, testNIC), edit)
	if err != nil || doc.etag() != `W/"2"` {
		t.Fatalf("edit = %v, %v", doc, err)
	}
	for _, want := range []string{`"future":{"x":[1,2.50,null]}`, `"newer":12345678901234567890`, `"zones":["1"]`, `"owner":"them"`, `"ours":"x"`} {
		if !strings.Contains(put, want) {
			t.Errorf("what was put is %s; want %s in it", put, want)
		}
	}
	if polls != 3 {
		t.Errorf("%d polls, want 3", polls)
	}
	if _, err := c.edit(context.Background(), id(t, testNIC), edit); resultOf(err) != ResultConflict || !errors.Is(err, errChanged) {
		t.Errorf("edit of what has changed: %v (%s)", err, resultOf(err))
	}
	if _, err := c.edit(context.Background(), id(t, testNIC), func(document) (bool, error) { return false, nil }); err != nil {
		t.Errorf("edit without a change: %v", err)
	}
	foreign := id(t, strings.Replace(testNIC, testSubscription, "00000000-0000-0000-0000-000000000002", 1))
	if _, err := c.get(context.Background(), foreign); err == nil || !strings.Contains(err.Error(), "of another subscription") {
		t.Errorf("reading what is of another subscription: %v", err)
	}
}

// A listing that is not one is no empty listing, and a token goes to no other host.
func TestListing(t *testing.T) {
	var other int
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other++ }))
	defer elsewhere.Close()
	for name, answer := range map[string]string{
		"empty body": "", "not JSON": "<html>", "array": "[]", "no list": "{}", "null list": `{"value":null}`, "cut short": `{"value":[`, "two": `{"value":[]}{}`,
		"other host":     `{"value":[],"nextLink":"` + elsewhere.URL + `/x"}`,
		"other scheme":   `{"value":[],"nextLink":"https://HOST/x"}`,
		"itself":         `{"value":[],"nextLink":"SELF"}`,
		"no URL":         `{"value":[],"nextLink":"::"}`,
		"another type":   `{"value":[{"id":"` + strings.Replace(testNIC, "networkInterfaces", "loadBalancers", 1) + `"}]}`,
		"no ID":          `{"value":[{"name":"x"}]}`,
		"wrong type":     `{"value":[{"id":"` + testNIC + `","properties":{"primary":"yes"}}]}`,
		"an error in it": `{"error":{"code":"x","message":"y"}}`,
	} {
		c, _ := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, strings.NewReplacer("SELF", "http://"+r.Host+r.URL.String(), "HOST", r.Host).Replace(answer))
		})
		got, err := c.networkInterfaces(context.Background(), "")
		if err == nil {
			t.Errorf("%s: listed %v", name, got)
		} else if strings.HasPrefix(name, "other") && !strings.Contains(err.Error(), "which is not called") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if other != 0 {
		t.Errorf("another host was called %d times", other)
	}
	c, _ := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("$skiptoken") == "" {
			fmt.Fprintf(w, `{"value":[{"id":%q,"location":"West US"}],"nextLink":"http://%s%s&$skiptoken=2"}`, testNIC+"b", r.Host, r.URL)
			return
		}
		fmt.Fprintf(w, `{"value":[{"id":%q,"location":"westus"},{"id":%q,"location":"eastus"},{"id":%q,"location":"westus"}]}`, testNIC+"a", testNIC+"c", strings.ToUpper(testNIC+"b"))
	})
	got, err := c.networkInterfaces(context.Background(), "westus")
	if err != nil || len(got) != 2 || got[0].id.name() != "nic1a" || got[1].id.name() != "nic1b" {
		t.Errorf("listed %v, %v; want nic1a and nic1b", got, err)
	}
}

// A call that is refused waits as long as Azure says, and so do others of its kind.
func TestThrottled(t *testing.T) {
	calls := 0
	var results []Result
	l := &limiter{region: "westus", observe: func(a Attempt) { results = append(results, a.Result) }}
	c, _ := serve(t, l, func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"code":"TooManyRequests","message":"slow"}}`)
			return
		}
		fmt.Fprint(w, `{"value":[]}`)
	})
	begin := time.Now()
	if _, err := c.networks(context.Background(), "westus"); err != nil || calls != 2 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("it waited %v; want the second that Azure asked for", took)
	}
	if want := fmt.Sprint([]Result{ResultThrottled, ResultOK}); fmt.Sprint(results) != want {
		t.Errorf("observed %v, want %v", results, want)
	}
	if l.shared.until[reading].Before(begin.Add(time.Second)) {
		t.Error("others of its kind do not wait")
	}
	l.shared.hold(writing, time.Hour)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.shared.wait(ctx, writing); err == nil || ctx.Err() != nil {
		t.Errorf("a write while Azure takes none: %v", err)
	}
	if err := l.shared.wait(ctx, reading); err != nil {
		t.Errorf("a read while Azure takes no writes: %v", err)
	}
}

// Accounts of one subscription and region share buckets, its regions those of Resource
// Manager, and other subscriptions none.
func TestLimits(t *testing.T) {
	var l Limits
	a, same := l.buckets("A", "westus", "x"), l.buckets("a", "westus", "x")
	region, other := l.buckets("a", "eastus", "x"), l.buckets("b", "westus", "x")
	if a != same {
		t.Error("one subscription and region has two buckets")
	}
	if a.writes != region.writes || a.reads != region.reads || a.deletes != region.deletes || a.changes == region.changes {
		t.Error("of two regions of a subscription, Resource Manager's buckets are one, and the network's two")
	}
	if a.writes == other.writes || a.changes == other.changes {
		t.Error("two subscriptions share a bucket")
	}
	// A thousand changes in five minutes, and never more.
	changes, begin := 0, time.Now()
	for at := begin; at.Before(begin.Add(5 * time.Minute)); at = at.Add(time.Second / 10) {
		for a.changes.AllowN(at, 1) {
			changes++
		}
	}
	if changes < 900 || changes > 1000 {
		t.Errorf("%d changes in five minutes", changes)
	}
}

// Who does not lead writes nothing, and reads on.
func TestMayWrite(t *testing.T) {
	no := errors.New("not the leader")
	c, _ := serve(t, &limiter{off: true, mayWrite: func() error { return no }}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s reached Azure", r.Method)
		}
		fmt.Fprintf(w, `{"id":%q,"etag":"1"}`, testNIC)
	})
	ctx := context.Background()
	if _, err := c.get(ctx, id(t, testNIC)); err != nil {
		t.Error(err)
	}
	if _, err := c.edit(ctx, id(t, testNIC), func(document) (bool, error) { return true, nil }); !errors.Is(err, no) {
		t.Errorf("edit: %v", err)
	}
	if err := c.delete(ctx, id(t, testNIC), ""); !errors.Is(err, no) {
		t.Errorf("delete: %v", err)
	}
}

// Errors of Azure are told apart by what is to be done about them.
func TestResultOf(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   Result
	}{
		{429, "TooManyRequests", ResultThrottled},
		{429, "SubscriptionRequestsThrottled", ResultThrottled},
		{429, "RetryableErrorDueToAnotherOperation", ResultConflict},
		{409, "AnotherOperationInProgress", ResultConflict},
		{409, "CanceledAndSupersededDueToAnotherOperation", ResultConflict},
		{412, "PreconditionFailed", ResultConflict},
		{409, "ReferencedResourceNotProvisioned", ResultConflict},
		{409, "ScopeLocked", ResultDenied},
		{403, "AuthorizationFailed", ResultDenied},
		{403, "LinkedAuthorizationFailed", ResultDenied},
		{403, "RequestDisallowedByPolicy", ResultDenied},
		{401, "ExpiredAuthenticationToken", ResultDenied},
		{400, "InUseNetworkSecurityGroupCannotBeDeleted", ResultInUse},
		{400, "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached", ResultQuota},
		{400, "SecurityRuleConflict", ResultRefused},
		{404, "ResourceNotFound", ResultGone},
		{404, "ResourceGroupNotFound", ResultGone},
		{503, "ServiceUnavailable", ResultServer},
		{500, "", ResultServer},
	} {
		if got := resultOf(fmt.Errorf("x: %w", &armError{tt.status, tt.code, "m"})); got != tt.want {
			t.Errorf("resultOf(%d %s) = %s, want %s", tt.status, tt.code, got, tt.want)
		}
	}
	if got := resultOf(errors.New("connection reset")); got != ResultNoAnswer {
		t.Errorf("resultOf(no answer) = %s", got)
	}
	if got := resultOf(context.Canceled); got != ResultCanceled {
		t.Errorf("resultOf(canceled) = %s", got)
	}
}

// A call is known by the right that it needs, and by no other words.
func TestAPIOf(t *testing.T) {
	for _, tt := range []struct{ method, path, want string }{
		{"GET", testNIC, typeNIC + "/read"},
		{"PUT", strings.ToLower(testNIC), typeNIC + "/write"},
		{"DELETE", "/subscriptions/x/resourceGroups/y/providers/Microsoft.Network/networkSecurityGroups/z", typeNSG + "/delete"},
		{"DELETE", testNIC, "other/delete"}, // we never do
		{"GET", "/subscriptions/x/providers/Microsoft.Network/virtualNetworks", typeVNet + "/read"},
		{"GET", "/subscriptions/x/providers/Microsoft.Network/locations/westus/operations/1234", "Microsoft.Network/locations/operations/read"},
		{"GET", "/subscriptions/x/resourceGroups/y/providers/Microsoft.Compute/virtualMachineScaleSets/s/networkInterfaces", typeScaleSet + "/networkInterfaces/read"},
		{"GET", "/whatever/its/name", "other/read"},
		{"POST", "/subscriptions/x/providers/Microsoft.Network/secrets", "other/write"},
		{"POST", "/subscriptions/x/resourceGroups/y/providers/Microsoft.Network/virtualNetworks/z/" + listAdminRules, typeVNet + "/" + listAdminRules + "/action"},
	} {
		if got := apiOf(tt.method, tt.path); got != tt.want {
			t.Errorf("apiOf(%s %s) = %s, want %s", tt.method, tt.path, got, tt.want)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(testNIC)
	f.Add(testNIC + "/ipConfigurations/a")
	f.Add("/subscriptions/" + testSubscription + "/resourceGroups/../providers/Microsoft.Network/x/y")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseID(s)
		if err != nil {
			return
		}
		if !strings.EqualFold(id.String(), s) {
			t.Errorf("%q became %q", s, id)
		}
		again, err := parseID(id.key())
		if err != nil || again.key() != id.key() {
			t.Errorf("%q: its key %q became %v, %v", s, id.key(), again, err)
		}
		if p := id.path(); strings.Contains(p+"/", "/../") || strings.Contains(p+"/", "/./") || strings.ContainsAny(p, "?#% ") && !strings.Contains(p, "%") || strings.Count(p, "/") != strings.Count(s, "/") {
			t.Errorf("%q: its path is %q", s, p)
		}
	})
}
