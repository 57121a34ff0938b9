package webhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/control/webhook"
)

// prepared is a decision as it can be asked of an API server: its circumstances
// are made first, without anybody deciding about them.
type prepared struct {
	decision
	object   *unstructured.Unstructured // of the operation
	before   []*unstructured.Unstructured
	noLayer7 bool
	byUs     bool
}

// prepare adds what the record leaves out: who asked, which features were on, and
// objects that upstream's tests put straight into the controller.
func prepare(t *testing.T, d decision) prepared {
	p := prepared{decision: d, object: asWritable(t, d.Object)}
	old := asWritable(t, d.OldObject)
	switch d.Operation {
	case "DELETE":
		p.object = old
		p.before = append(p.before, old)
	case "UPDATE":
		if old == nil { // any object that becomes this one
			old = p.object.DeepCopy()
			spec := map[string]any{"podSelector": map[string]any{}}
			if old.GetKind() != "ClusterGroup" {
				spec = map[string]any{"priority": int64(5), "appliedTo": []any{map[string]any{"podSelector": map[string]any{}}}}
			}
			old.Object["spec"] = spec
		}
		// The record has an old object of another kind and name once.
		old.SetGroupVersionKind(p.object.GroupVersionKind())
		old.SetNamespace(p.object.GetNamespace())
		old.SetName(p.object.GetName())
		p.before = append(p.before, old)
	}
	var one map[string]any
	if err := json.Unmarshal(d.Existing, &one); err != nil {
		t.Fatal(err)
	}
	if u := asWritable(t, one); u != nil {
		if u.GetKind() == "ClusterNetworkPolicy" {
			if err := unstructured.SetNestedSlice(u.Object, []any{map[string]any{"podSelector": map[string]any{}}}, "spec", "appliedTo"); err != nil {
				t.Fatal(err)
			}
		}
		p.before = append(p.before, u)
	}
	tier := func(name string, n int) {
		p.before = append(p.before, object(t, head+fmt.Sprintf(`"kind":"Tier","metadata":{"name":%q},"spec":{"priority":%d}}`, name, n)))
	}
	switch d.ID {
	case "antrea-validate-L7NetworkPolicy-disabled":
		p.noLayer7 = true
	case "antrea-validate-update-tier-allowed":
		p.byUs = true
	case "antrea-validate-over-max-tier":
		for i := range 14 {
			tier(fmt.Sprint("tier-priority-", i), i)
		}
	case "antrea-validate-overlap-tier":
		tier("other", 1)
	case "antrea-validate-delete-annp-ref-tier":
		p.before = append(p.before, object(t, head+`"kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{"priority":5,"tier":"tier-annp-ref","appliedTo":[{"podSelector":{}}]}}`))
	}
	return p
}

// TestUpstreamDecisions asks an API server for every decision that upstream's
// webhook took.
func TestUpstreamDecisions(t *testing.T) {
	decisions := record(t)
	s := newSite(t, webhook.Options{})
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil {
		t.Fatal(err)
	}
	plain, err := webhook.New(s.self, webhook.Options{Controller: controller, NoLayer7: true})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{full: s.server.Handler(), noLayer7: plain.Handler()}
	front := httptest.NewTLSServer(g)
	t.Cleanup(front.Close)
	s.target = webhook.Target{URL: front.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})}
	s.install()
	planetest.Eventually(t, "the gate is asked", func(ctx context.Context) error {
		if g.asked.Load() == 0 {
			s.install()
			return errors.New("not yet")
		}
		return nil
	})

	ns := object(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`)
	if _, err := write(t.Context(), s.user, "CREATE", ns); err != nil {
		t.Fatal(err)
	}
	byWebhook, bySchema := 0, 0
	for _, d := range decisions {
		p := prepare(t, d)
		var made []*unstructured.Unstructured
		g.mode.Store(open)
		for _, u := range p.before {
			switch _, err := write(t.Context(), s.user, "CREATE", u); {
			case err == nil:
				made = append(made, u)
			case !apierrors.IsAlreadyExists(err): // as the built-in tiers do
				t.Errorf("%s: circumstances: %v", d.ID, err)
			}
		}
		g.mode.Store(full)
		if p.noLayer7 {
			g.mode.Store(noLayer7)
		}
		client := s.user
		if p.byUs {
			client = s.self
		}
		_, err := write(t.Context(), client, d.Operation, p.object)
		switch {
		case (err == nil) != d.Allowed:
			t.Errorf("%s: %s of %v: %v, want allowed %t (upstream: %s)", d.ID, d.Operation, p.object.Object, err, d.Allowed, d.Reason)
		case isDenied(err):
			byWebhook++
		case apierrors.IsInvalid(err):
			bySchema++
		case err != nil:
			t.Errorf("%s: refused for another reason: %v", d.ID, err)
		}
		if testing.Verbose() {
			t.Logf("%s\n  upstream: %s\n  ours:     %v", d.ID, d.Reason, err)
		}
		g.mode.Store(open)
		for _, u := range append(made, p.object) {
			if _, err := write(context.Background(), s.self, "DELETE", u); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: clean up: %v", d.ID, err)
			}
		}
	}
	t.Logf("%d decisions, %d refused by the webhook and %d by the schema", len(decisions), byWebhook, bySchema)
	if byWebhook+bySchema != 73 {
		t.Errorf("%d are refused, want 73", byWebhook+bySchema)
	}
}
