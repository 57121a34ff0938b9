package azure_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"isobar.dev/sim/azure"
)

// bare drives a cloud without a server or an SDK, so that the clock can be that of synctest.
type bare struct {
	t     *testing.T
	cloud *azure.Cloud
	token string
}

func newBare(t *testing.T, e azure.Estate, o azure.Options) *bare {
	t.Helper()
	c := must[*azure.Cloud](t)(azure.New(e, o))
	return &bare{t, c, token(t, c, azure.SampleTenant, azure.SampleClientID, azure.SampleSecret)}
}

type reply struct {
	code   string // of an error
	status int
	header http.Header
	doc    azure.Document
}

func (b *bare) do(method, path string, body any, header ...string) reply {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	if !strings.Contains(path, "api-version=") {
		path += "?api-version=2024-05-01"
		if strings.Contains(path, "Microsoft.Compute") {
			path = strings.Replace(path, "2024-05-01", "2024-07-01", 1)
		}
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(text))
	r.Header.Set("Authorization", "Bearer "+b.token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.cloud.Handler().ServeHTTP(w, r)
	out := reply{status: w.Code, header: w.Header()}
	if w.Body.Len() > 0 {
		out.doc = decode[azure.Document](b.t, w.Body.Bytes())
	}
	if e, ok := out.doc["error"].(map[string]any); ok {
		out.code = e["code"].(string)
		if ds := e["details"].([]any); len(ds) > 0 {
			out.code += "/" + ds[0].(map[string]any)["code"].(string)
		}
	}
	return out
}

func (b *bare) get(id string) azure.Document {
	b.t.Helper()
	return b.do("GET", id, nil).doc
}

func props(d azure.Document) azure.Document { p, _ := d["properties"].(map[string]any); return p }

// A change is in force when its operation has ended, and not before.
func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, azure.Sample(), azure.Options{Settle: 10 * time.Second})
		flow := azure.Flow{From: "203.0.113.9", To: "web-1", Protocol: "tcp", Port: 443}
		closed := shopPlace.SecurityGroup("shop-web")
		before := b.get(nsgID("shop-web"))
		r := b.do("PUT", nsgID("shop-web"), closed)
		async := r.header.Get("Azure-AsyncOperation")
		if r.status != 200 || props(r.doc)["provisioningState"] != "Succeeded" || async == "" || r.header.Get("Retry-After") != "10" {
			t.Errorf("an update: %d %v %v", r.status, props(r.doc)["provisioningState"], r.header)
		}
		during := b.get(nsgID("shop-web"))
		if props(during)["provisioningState"] != "Updating" || during["etag"] == before["etag"] {
			t.Errorf("meanwhile: %v, etag %v then %v", props(during)["provisioningState"], before["etag"], during["etag"])
		}
		if v := b.cloud.Reach(flow); v.Result != azure.Allowed {
			t.Errorf("meanwhile the old rules are in force: %+v", v)
		}
		if got := b.do("GET", async, nil); got.doc["status"] != "InProgress" || got.header.Get("Retry-After") == "" {
			t.Errorf("the operation: %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := b.do("GET", async, nil); got.doc["status"] != "Succeeded" {
			t.Errorf("the operation at its end: %v", got)
		}
		after := b.get(nsgID("shop-web"))
		if props(after)["provisioningState"] != "Succeeded" || after["etag"] == during["etag"] {
			t.Errorf("after it: %v, etag %v then %v", props(after)["provisioningState"], during["etag"], after["etag"])
		}
		if v := b.cloud.Reach(flow); v.Result != azure.Denied {
			t.Errorf("after it the new rules are in force: %+v", v)
		}

		// The later write wins, and the earlier one's operation says so.
		first := b.do("PUT", nsgID("shop-web"), before)
		second := b.do("PUT", nsgID("shop-web"), closed)
		if first.status != 200 || second.status != 200 {
			t.Errorf("two writes: %v, %v", first, second)
		}
		got := b.do("GET", first.header.Get("Azure-AsyncOperation"), nil)
		if got.doc["status"] != "Canceled" || got.code != "CanceledAndSupersededDueToAnotherOperation" {
			t.Errorf("the first of two writes: %v", got.doc)
		}

		// Virtual networks take one at a time.
		net := b.get(vnetID("data"))
		if r := b.do("PUT", vnetID("data"), net); r.status != 200 {
			t.Errorf("a network: %v", r)
		}
		if r := b.do("PUT", vnetID("data"), net); r.code != "AnotherOperationInProgress" || r.status != 429 || r.header.Get("Retry-After") == "" {
			t.Errorf("the network again: %v", r)
		}

		// What is new cannot be referred to until it is there.
		if r := b.do("PUT", asgID("new"), shopPlace.ApplicationGroup("new")); r.status != 201 || props(r.doc)["provisioningState"] != "Updating" {
			t.Errorf("a new group: %v", r)
		}
		nic := b.get(nicID("app-1-nic"))
		props(props(nic)["ipConfigurations"].([]any)[0].(map[string]any))["applicationSecurityGroups"] = []any{azure.Document{"id": asgID("new")}}
		if r := b.do("PUT", nicID("app-1-nic"), nic); r.code != "RetryableError/ReferencedResourceNotProvisioned" {
			t.Errorf("a reference too early: %v", r)
		}
		time.Sleep(10 * time.Second)
		if r := b.do("PUT", nicID("app-1-nic"), nic); r.status != 200 {
			t.Errorf("a reference: %v", r)
		}
		r = b.do("DELETE", asgID("new"), nil)
		if r.code != "InUseApplicationSecurityGroupCannotBeDeleted" {
			t.Errorf("deleted in use: %v", r)
		}
	})
}

// A PUT replaces the whole: what is left out is gone, and what is not known here is kept.
func TestPutReplaces(t *testing.T) {
	b := newBare(t, azure.Sample(), atOnce)
	doc := shopPlace.SecurityGroup("new")
	doc["tags"] = azure.Document{"a": "b"}
	doc["extendedLocation"] = azure.Document{"name": "edge"}
	props(doc)["flushConnection"] = true
	props(doc)["somethingNew"] = azure.Document{"deep": []any{"x"}}
	b.do("PUT", nsgID("new"), doc)
	got := b.get(strings.ToUpper(nsgID("new")))
	if got["id"] != nsgID("new") || props(got)["somethingNew"].(map[string]any)["deep"].([]any)[0] != "x" || got["extendedLocation"] == nil || got["tags"].(map[string]any)["a"] != "b" {
		t.Errorf("kept: %v", got)
	}
	again := b.do("PUT", nsgID("new"), got)
	if again.status != 200 {
		t.Errorf("what was read can be written: %v", again)
	}
	b.do("PUT", nsgID("new"), shopPlace.SecurityGroup("new"))
	if got := b.get(nsgID("new")); got["tags"] != nil || got["extendedLocation"] != nil || props(got)["somethingNew"] != nil || props(got)["flushConnection"] != nil {
		t.Errorf("left out: %v", got)
	}
	r := b.do("PATCH", nsgID("new"), azure.Document{"tags": azure.Document{"c": "d"}})
	if tags := r.doc["tags"].(map[string]any); tags["c"] != "d" || len(tags) != 1 {
		t.Errorf("tags: %v", r.doc)
	}
	if r := b.do("PATCH", nsgID("new"), azure.Document{"properties": azure.Document{}}); r.code != "InvalidRequestContent" {
		t.Errorf("a patch of properties: %v", r)
	}
	scope := nsgID("new") + "/providers/Microsoft.Resources/tags/default?api-version=2021-04-01"
	for _, tt := range []struct {
		operation string
		tags      azure.Document
		want      int
	}{{"Merge", azure.Document{"e": "f"}, 2}, {"Delete", azure.Document{"c": "d"}, 1}, {"Replace", azure.Document{"x": "1", "y": "2", "z": "3"}, 3}} {
		r := b.do("PATCH", scope, azure.Document{"operation": tt.operation, "properties": azure.Document{"tags": tt.tags}})
		if got := b.get(nsgID("new"))["tags"].(map[string]any); r.status != 200 || len(got) != tt.want {
			t.Errorf("%s: %v, %v", tt.operation, r, got)
		}
	}
}
