package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"isobar.dev/control/webhook"
)

// server returns a Server whose API server fails every request.
func server(t testing.TB) http.Handler { return serverWith(t, webhook.Options{}) }

func serverWith(t testing.TB, o webhook.Options) http.Handler {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	s, err := webhook.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// ask posts a body and returns what came back.
func ask(t testing.TB, h http.Handler, path, contentType, body string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return w.Code, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("%s: answer %s: %v", path, w.Body, err)
	}
	return w.Code, review.Response
}

// review is an AdmissionReview of one operation.
func review(kind, operation, object, old string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"crd.antrea.io","version":"v1beta1","kind":"` +
		kind + `"},"operation":"` + operation + `","object":` + object + `,"oldObject":` + old + `}}`
}

func TestReview(t *testing.T) {
	const acnp, tier = "/validate/acnp", "/validate/tier"
	const good = `{"metadata":{"name":"p"},"spec":{"priority":5,"appliedTo":[{"podSelector":{}}]}}`
	const newer = `{"metadata":{"name":"p"},"spec":{"priority":5,"moreover":1,"appliedTo":[{"podSelector":{}}]}}`
	for _, tt := range []struct {
		name, path, body string
		code             int
		allowed          bool
		message          string
	}{
		{"good", acnp, review("ClusterNetworkPolicy", "CREATE", good, "null"), 200, true, ""},
		{"bad", acnp, review("ClusterNetworkPolicy", "CREATE", `{"spec":{"priority":5}}`, "null"), 200, false, "appliedTo"},
		{"undecodable", acnp, review("ClusterNetworkPolicy", "CREATE", `{"spec":{"priority":"high"}}`, "null"), 200, false, "cannot be read"},
		{"missing object", acnp, review("ClusterNetworkPolicy", "CREATE", "null", "null"), 200, false, "cannot be read"},
		{"unknown field", acnp, review("ClusterNetworkPolicy", "CREATE", newer, "null"), 200, false, "moreover"},
		{"unknown field that was there", acnp, review("ClusterNetworkPolicy", "UPDATE", newer, newer), 200, true, ""},
		{"repair of what cannot be read", acnp, review("ClusterNetworkPolicy", "UPDATE", good, `{"spec":1}`), 200, true, ""},
		{"wrong kind", acnp, review("Tier", "CREATE", good, "null"), 200, false, "kind"},
		{"cannot look up", tier, review("Tier", "CREATE", `{"metadata":{"name":"t"},"spec":{"priority":5}}`, "null"), 200, false, "try again"},
		{"cannot look up for deletion", tier, review("Tier", "DELETE", "null", `{"metadata":{"name":"t"},"spec":{"priority":5}}`), 200, false, "try again"},
		{"connect", acnp, review("ClusterNetworkPolicy", "CONNECT", good, "null"), 400, false, ""},
		{"no request", acnp, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, false, ""},
		{"old version", acnp, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}`, 400, false, ""},
		{"twice", acnp, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"},"request":{"uid":"v"}}`, 400, false, ""},
		{"not JSON", acnp, "kind: AdmissionReview", 400, false, ""},
		{"too large", acnp, strings.Repeat(" ", 9<<20), 413, false, ""},
		{"unknown path", "/validate/other", "{}", 404, false, ""},
		{"selector mutation", "/mutate-crd-cloud-antrea-io-v1alpha1-cloudentityselector",
			strings.NewReplacer("crd.antrea.io", "crd.cloud.antrea.io", "v1beta1", "v1alpha1").Replace(review("CloudEntitySelector", "CREATE", "{}", "null")), 200, true, ""},
	} {
		code, got := ask(t, server(t), tt.path, "application/json; charset=utf-8", tt.body)
		if code != tt.code {
			t.Errorf("%s: status %d, want %d", tt.name, code, tt.code)
			continue
		}
		if got == nil {
			continue
		}
		if got.UID != "u" || got.Allowed != tt.allowed {
			t.Errorf("%s: got %+v, want allowed %t", tt.name, got, tt.allowed)
		}
		if !tt.allowed && !strings.Contains(got.Result.Message, tt.message) {
			t.Errorf("%s: message %q, want one about %q", tt.name, got.Result.Message, tt.message)
		}
	}
	if code, _ := ask(t, server(t), acnp, "text/plain", review("ClusterNetworkPolicy", "CREATE", good, "null")); code != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: status %d", code)
	}
}

// FuzzReview sends what a client could send: nothing panics, and nothing but an
// AdmissionReview of version 1 is allowed.
func FuzzReview(f *testing.F) {
	const good = `{"metadata":{"name":"p"},"spec":{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Drop"}]}}`
	f.Add("/validate/acnp", []byte(review("ClusterNetworkPolicy", "CREATE", good, "null")))
	f.Add("/mutate/acnp", []byte(review("ClusterNetworkPolicy", "UPDATE", good, good)))
	f.Add("/validate/tier", []byte(review("Tier", "DELETE", "null", `{"metadata":{"name":"emergency"}}`)))
	f.Add("/validate/group", []byte(review("Group", "CREATE", `{"spec":{"childGroups":["../x",""]}}`, "null")))
	h := server(f)
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n\t%?#\x00") {
			return
		}
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return
		}
		var out admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
			t.Fatalf("answer %q: %v", w.Body, err)
		}
		if strings.Contains(w.Body.String(), "fault of isobar") {
			t.Errorf("panicked: %s", w.Body)
		}
		if out.Response.Allowed && !bytes.Contains(body, []byte("admission.k8s.io")) {
			t.Errorf("allowed %q", body)
		}
	})
}
