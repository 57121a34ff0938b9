package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

func TestStagedPick(t *testing.T) {
	all := []string{"acnp/a", "annp/x/a", "annp/x/b", "networkpolicy/x/b"}
	for _, tt := range []struct {
		names, want []string
		wrong       string
	}{
		{[]string{everyStaged}, all, ""},
		{[]string{"acnp/a"}, []string{"acnp/a"}, ""},
		{[]string{"x/a", "annp/x/a"}, []string{"annp/x/a"}, ""},
		{[]string{"a"}, nil, "it may be acnp/a or annp/x/a"},
		{[]string{"x/b"}, nil, "it may be annp/x/b or networkpolicy/x/b"},
		{[]string{"annp/x/a", "c"}, nil, "it is not staged; those that are: acnp/a, "},
		{[]string{""}, nil, "it is not staged"},
	} {
		got, err := (&stagedFlag{tt.names}).pick(all)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("--staged=%q of %q: %q, %v; want %q, %q", tt.names, all, got, err, tt.want, tt.wrong)
		}
	}
}

// What is staged writes nothing to the clouds and opens and closes nothing there; what it would do
// is told, and is what comes when it is enforced. Staged again, it is gone.
func TestStagedLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	u, _, _ := startUp(t, upFlags{dataDir: t.TempDir()})
	isobar := func(want int, args ...string) string {
		t.Helper()
		var out, errOut strings.Builder
		if got := run(append(args, "--kubeconfig", u.plane.Kubeconfig()), strings.NewReader(""), &out, &errOut); got != want {
			t.Fatalf("isobar %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &errOut)
		}
		return out.String()
	}
	client := dynamic.NewForConfigOrDie(u.config)
	policies := client.Resource(antreav1beta1.GroupVersion.WithResource("networkpolicies")).Namespace("shop")
	// until waits until the condition Staged of the policy is want, "" for none, and its phase.
	until := func(phase antreav1beta1.PolicyPhase, want string) {
		t.Helper()
		err := retry(t.Context(), 2*time.Minute, func() error {
			o, err := policies.Get(t.Context(), "closed", metav1.GetOptions{})
			if err != nil {
				return err
			}
			var p antreav1beta1.NetworkPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
				return err
			}
			got := ""
			for _, c := range p.Status.Conditions {
				if c.Type == antreav1beta1.ConditionStaged {
					got = string(c.Status) + " " + c.Reason
				}
			}
			if p.Status.Phase != phase || got != want {
				return fmt.Errorf("%+v: want %s and Staged %q", p.Status, phase, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	app, web := upEnd{inAWS, "i-0a100000000000004"}, upEnd{inAWS, "i-0a100000000000001"}
	reaches := func(want string) {
		t.Helper()
		err := retry(t.Context(), 2*time.Minute, func() error {
			if got := u.reach(web, app, 8080); got != want {
				return fmt.Errorf("web reaches app: %s, want %s", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	told := func() (named int) { // VMs of which it is said that the policy is enforced
		t.Helper()
		list, err := client.Resource(runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachinePolicy)).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"closed"`) {
				named++
			}
		}
		return named
	}
	writes := func() int { return len(u.aws.Calls().Writes) + len(u.azure.Calls().Writes) }

	settle(t, u)
	reaches("allowed")
	before := writes()
	var closed unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(`{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: closed, namespace: shop, annotations: {isobar.dev/mode: Stage}},
  spec: {priority: 1, tier: securityops, appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: app}}}], ingress: [{action: Drop, name: all, enableLogging: false}]}}`), &closed.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Create(t.Context(), &closed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(antreav1beta1.PolicyPending, "True NotEnforced")
	from, to := "vm:shop/"+web.name, "vm:shop/"+app.name
	if text := isobar(2, "diff", "--staged=closed", "--fail-on", "lost"); !strings.Contains(text, app.name) || !strings.Contains(text, "TCP/8080 (allow → drop)") || strings.Contains(text, "+ ") {
		t.Errorf("diff --staged:\n%s\nwant what is lost of %s", text, app.name)
	}
	if text := isobar(int(statusChanges), "plan", "--staged", "--exit-code"); !strings.Contains(text, "Plan: ") {
		t.Errorf("plan --staged:\n%s", text)
	}
	if text := isobar(0, "status"); !strings.Contains(text, "annp/shop/closed  Staged  nothing enforces it; it would apply to ") {
		t.Errorf("status:\n%s", text)
	}
	settle(t, u)
	if n := writes() - before; n != 0 || told() != 0 {
		t.Errorf("what is staged made %d writes in the clouds, and is told of %d VMs", n, told())
	}
	reaches("allowed")

	annotate := func(mode string) {
		t.Helper()
		if _, err := policies.Patch(t.Context(), "closed", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"isobar.dev/mode":%s}}}`, mode), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate(`null`)
	reaches("denied")
	until(antreav1beta1.PolicyRealized, "")
	if told() == 0 {
		t.Error("no VM is told of what is enforced")
	}
	if text := isobar(0, "explain", from, to, "TCP/8080"); !strings.Contains(text, "Drop by annp/shop/closed all") {
		t.Errorf("explain:\n%s", text)
	}

	annotate(`"Stage"`)
	reaches("allowed")
	until(antreav1beta1.PolicyPending, "True NotEnforced")
	settle(t, u)
	if n := told(); n != 0 {
		t.Errorf("what is staged again is told of %d VMs", n)
	}
	before = writes()
	if err := policies.Delete(t.Context(), "closed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	settle(t, u)
	if n := writes() - before; n != 0 {
		t.Errorf("deleting what is staged made %d writes in the clouds", n)
	}
}
