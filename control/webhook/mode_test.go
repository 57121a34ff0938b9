package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/control/webhook"
)

// The API server refuses a mode that is none, of every kind of policy, when it is created
// and when it is set later. While nobody answers, NetworkPolicies without a mode are written.
func TestMode(t *testing.T) {
	s := newSite(t, webhook.Options{Dir: t.TempDir()})
	ns := s.env.Namespace(t)
	const pods = `"appliedTo":[{"podSelector":{}}]`
	for name, text := range map[string]string{
		"np":   fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"mode","namespace":%q},"spec":{"podSelector":{}}}`, ns),
		"annp": fmt.Sprintf(`{"apiVersion":"crd.antrea.io/v1beta1","kind":"NetworkPolicy","metadata":{"name":"mode","namespace":%q},"spec":{"priority":5,%s}}`, ns, pods),
		"acnp": `{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"mode"},"spec":{"priority":5,` + pods + `}}`,
		"cnp":  `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"mode"},"spec":{"tier":"Admin","priority":5,"subject":{"namespaces":{}}}}`,
		"anp":  `{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"AdminNetworkPolicy","metadata":{"name":"mode"},"spec":{"priority":5,"subject":{"namespaces":{}}}}`,
		"banp": `{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"BaselineAdminNetworkPolicy","metadata":{"name":"default"},"spec":{"subject":{"namespaces":{}}}}`,
	} {
		try := func(mode string) error {
			u := object(t, text)
			u.SetAnnotations(map[string]string{"isobar.dev/mode": mode})
			_, err := of(s.user, u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		for _, mode := range []string{"Stage", "Enforce"} {
			if err := try(mode); err != nil {
				t.Errorf("%s, mode %s: %v", name, mode, err)
			}
		}
		for _, mode := range []string{"stage", "", "Audit"} {
			if err := try(mode); !isDenied(err) || !strings.Contains(err.Error(), `metadata.annotations[isobar.dev/mode]: Unsupported value`) || !strings.Contains(err.Error(), `"Enforce", "Stage"`) {
				t.Errorf("%s, mode %q: %v, want it denied, with the values", name, mode, err)
			}
		}
		u := object(t, text)
		if _, err := write(t.Context(), s.user, "CREATE", u); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		annotate := func(mode string) error {
			_, err := of(s.user, u).Patch(t.Context(), u.GetName(), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"isobar.dev/mode":%s}}}`, mode), metav1.PatchOptions{})
			return err
		}
		for _, step := range []struct {
			mode   string
			denied bool
		}{{`"Stage"`, false}, {`"off"`, true}, {`"Enforce"`, false}, {`null`, false}, {`"Off"`, true}} {
			if err := annotate(step.mode); isDenied(err) != step.denied || !step.denied && err != nil {
				t.Errorf("%s, annotate %s: %v, want it denied: %t", name, step.mode, err, step.denied)
			}
		}
		if err := of(s.user, u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	s.stop()
	u := object(t, fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"away","namespace":%q},"spec":{"podSelector":{}}}`, ns))
	if _, err := of(s.user, u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a NetworkPolicy without a mode while nobody answers: %v", err)
	}
	u.SetAnnotations(map[string]string{"isobar.dev/mode": "Stage"})
	if _, err := of(s.user, u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
		t.Error("a NetworkPolicy with a mode was written while nobody could say what that is")
	}
}
