package kube_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"isobar.dev/control/plane"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/deploy/crd"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// install applies the definitions whose files have that prefix.
func install(t *testing.T, e *planetest.Env, prefixes ...string) {
	t.Helper()
	files := fstest.MapFS{}
	for _, prefix := range prefixes {
		names, err := fs.Glob(crd.FS, prefix+"*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("no definitions %s: %v", prefix, err)
		}
		for _, name := range names {
			text, err := crd.FS.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = &fstest.MapFile{Data: text}
		}
	}
	if err := plane.ApplyCRDs(t.Context(), e.Config(), files); err != nil {
		t.Fatal(err)
	}
}

// create makes the object of a manifest and returns a function that deletes it.
func create(t *testing.T, e *planetest.Env, namespace, resource, manifest string) (remove func()) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil {
		t.Fatal(err)
	}
	var client dynamic.ResourceInterface = dynamic.NewForConfigOrDie(e.Config()).Resource(gv.WithResource(resource))
	if namespace != "" {
		client = client.(dynamic.NamespaceableResourceInterface).Namespace(namespace)
	}
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := u.GetName()
	return func() {
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func hasPolicy(s *kube.Source, id string) func(context.Context) error {
	return func(context.Context) error {
		if _, ok := s.Snapshot().Policies.Get(id); !ok {
			return fmt.Errorf("there is none; %+v", s.Status())
		}
		return nil
	}
}

func hasNoPolicy(s *kube.Source, id string) func(context.Context) error {
	return func(context.Context) error {
		if p, ok := s.Snapshot().Policies.Get(id); ok {
			return fmt.Errorf("got %+v", p)
		}
		return nil
	}
}

func statusOf(t *testing.T, s *kube.Source, resource string) kube.KindStatus {
	t.Helper()
	for _, k := range s.Status() {
		if k.Resource.GroupResource().String() == resource {
			return k
		}
	}
	t.Fatalf("no status of %s", resource)
	return kube.KindStatus{}
}

// Each custom kind arrives, with what it says.
func TestCustomKinds(t *testing.T) {
	e := planetest.Start(t)
	ns := e.Namespace(t)
	install(t, e, "crd.antrea.io_", "policy.networking.k8s.io_clusternetworkpolicies")
	s := start(t, e.Config(), kube.Options{})

	removeTier := create(t, e, "", "tiers", "{apiVersion: crd.antrea.io/v1beta1, kind: Tier, metadata: {name: early}, spec: {priority: 10}}")
	create(t, e, ns, "groups", "{apiVersion: crd.antrea.io/v1beta1, kind: Group, metadata: {name: web}, spec: {podSelector: {}}}")
	defer create(t, e, "", "clustergroups", "{apiVersion: crd.antrea.io/v1beta1, kind: ClusterGroup, metadata: {name: web}, spec: {ipBlocks: [{cidr: 10.0.0.0/8}]}}")()
	create(t, e, ns, "networkpolicies", "{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: p}, spec: {priority: 5, appliedTo: [{externalEntitySelector: {}}], ingress: [{action: Drop}]}}")
	defer create(t, e, "", "clusternetworkpolicies", "{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {priority: 5, tier: early, appliedTo: [{podSelector: {}}], egress: [{action: Reject}]}}")()
	defer create(t, e, "", "clusternetworkpolicies", "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: p}, spec: {tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}")()
	create(t, e, ns, "externalentities", "{apiVersion: crd.antrea.io/v1alpha2, kind: ExternalEntity, metadata: {name: vm, labels: {role: db}}, spec: {endpoints: [{ip: 10.9.0.1}], externalNode: somewhere}}")

	planetest.Eventually(t, "all kinds", func(context.Context) error {
		world := s.Snapshot()
		tier, _ := world.Tiers.Get("early")
		group, _ := world.Groups.Get(policy.GroupID(ns, "web"))
		clusterGroup, _ := world.Groups.Get(policy.GroupID("", "web"))
		annp, _ := world.Policies.Get(policy.PolicyID(policy.AntreaNetworkPolicy, ns, "p"))
		acnp, _ := world.Policies.Get(policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "p"))
		cnp, _ := world.Policies.Get(policy.PolicyID(policy.ClusterNetworkPolicy, "", "p"))
		vm, _ := world.Workloads.Get(policy.WorkloadID(policy.KindExternal, ns, "vm"))
		for what, ok := range map[string]bool{
			"tier":         tier != nil && tier.Number == 10,
			"group":        group != nil && len(group.Selections) == 1,
			"clustergroup": clusterGroup != nil && len(clusterGroup.Blocks) == 1,
			"annp":         annp != nil && len(annp.Ingress) == 1 && annp.Ingress[0].Action == policy.Drop,
			"acnp":         acnp != nil && len(acnp.Egress) == 1 && acnp.Egress[0].Action == policy.Reject && acnp.Tier == "early",
			"cnp":          cnp != nil && len(cnp.Ingress) == 1 && cnp.Ingress[0].Action == policy.Drop,
			"vm":           vm != nil && len(vm.Addrs) == 1 && vm.Labels.String() == "role=db",
		} {
			if !ok {
				return fmt.Errorf("%s is missing or wrong", what)
			}
		}
		return nil
	})
	removeTier()
	planetest.Eventually(t, "the tier is gone", func(context.Context) error {
		if _, ok := s.Snapshot().Tiers.Get("early"); ok {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// A kind that is not installed is no error, and is picked up when it is. When
// its definition goes, its objects go as the API server deletes them.
func TestDefinitionComesAndGoes(t *testing.T) {
	const resource = "adminnetworkpolicies.policy.networking.k8s.io"
	e := planetest.Start(t)
	s := start(t, e.Config(), kube.Options{})
	if got := statusOf(t, s, resource); !got.Missing || got.Synced || got.Err != nil {
		t.Errorf("before its definition: %+v, want it missing", got)
	}

	install(t, e, "policy.networking.k8s.io_adminnetworkpolicies")
	const manifest = "{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: p}, spec: {priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}"
	create(t, e, "", "adminnetworkpolicies", manifest)
	planetest.Eventually(t, "the policy", hasPolicy(s, "anp/p"))
	planetest.Eventually(t, "the status says that it is synced", func(context.Context) error {
		if got := statusOf(t, s, resource); got.Missing || !got.Synced {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})

	definitions := dynamic.NewForConfigOrDie(e.Config()).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), resource, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "the policy is gone", hasNoPolicy(s, "anp/p"))
	planetest.Eventually(t, "the status says so", func(context.Context) error {
		if got := statusOf(t, s, resource); !got.Missing {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})

	install(t, e, "policy.networking.k8s.io_adminnetworkpolicies")
	create(t, e, "", "adminnetworkpolicies", manifest)
	planetest.Eventually(t, "the policy is back", hasPolicy(s, "anp/p"))
}

// When a definition goes while we cannot see it, its objects went with it.
func TestDefinitionGoesUnseen(t *testing.T) {
	const resource = "baselineadminnetworkpolicies.policy.networking.k8s.io"
	e := planetest.Start(t)
	install(t, e, "policy.networking.k8s.io_baselineadminnetworkpolicies")
	create(t, e, "", "baselineadminnetworkpolicies", "{apiVersion: policy.networking.k8s.io/v1alpha1, kind: BaselineAdminNetworkPolicy, metadata: {name: default}, spec: {subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}")
	network, config := cut(t, e.Config())
	s := start(t, config, kube.Options{})
	if err := hasPolicy(s, "banp/default")(t.Context()); err != nil {
		t.Fatal(err)
	}
	network.set(true)
	definitions := dynamic.NewForConfigOrDie(e.Config()).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(t.Context(), resource, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "the definition is gone", func(ctx context.Context) error {
		if _, err := definitions.Get(ctx, resource, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	network.set(false)
	planetest.Eventually(t, "the status says so", func(context.Context) error {
		if got := statusOf(t, s, resource); !got.Missing || !got.Synced {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	planetest.Eventually(t, "the policy is gone", hasNoPolicy(s, "banp/default"))
}

// One object that cannot be decoded harms no other, and keeps what it was.
func TestUndecodable(t *testing.T) {
	e := planetest.Start(t)
	text, err := crd.FS.ReadFile("policy.networking.k8s.io_adminnetworkpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	for _, v := range definition["spec"].(map[string]any)["versions"].([]any) {
		v := v.(map[string]any)
		delete(v, "additionalPrinterColumns")
		v["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	}
	if text, err = yaml.Marshal(definition); err != nil {
		t.Fatal(err)
	}
	if err := plane.ApplyCRDs(t.Context(), e.Config(), fstest.MapFS{"loose.yaml": {Data: text}}); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\n"
	client := dynamic.NewForConfigOrDie(e.Config()).Resource(schema.GroupVersionResource{Group: "policy.networking.k8s.io", Version: "v1alpha1", Resource: "adminnetworkpolicies"})
	planetest.Eventually(t, "the loose schema counts", func(ctx context.Context) error { // which takes the place of another
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(head+"metadata: {name: try}\nspec: {priority: [not, a, number]}"), &u.Object); err != nil {
			return err
		}
		_, err := client.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	defer create(t, e, "", "adminnetworkpolicies", head+"metadata: {name: good}\nspec: {priority: 1, subject: {namespaces: {}}}")()
	defer create(t, e, "", "adminnetworkpolicies", head+"metadata: {name: bad}\nspec: {priority: [not, a, number]}")()
	defer create(t, e, "", "adminnetworkpolicies", head+"metadata: {name: newer}\nspec: {priority: 2, subject: {namespaces: {}}, moreover: 1}")()

	s := start(t, e.Config(), kube.Options{})
	planetest.Eventually(t, "the good one", hasPolicy(s, "anp/good"))
	for name, want := range map[string]string{"bad": "cannot be read", "newer": "unknown field"} {
		n, ok := s.Notices().Get("AdminNetworkPolicy anp/" + name)
		if !ok || n.UID == "" || n.Name != name || !strings.Contains(n.Problems[0].Message, want) {
			t.Errorf("notice of %s: got %+v", name, n)
		}
	}
	// A good one becomes bad: it stays what it was.
	if _, err := client.Patch(t.Context(), "good", "application/merge-patch+json", []byte(`{"spec":{"priority":"high"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "a notice", func(context.Context) error {
		if n, ok := s.Notices().Get("AdminNetworkPolicy anp/good"); !ok || !n.Unread {
			return fmt.Errorf("got %+v", n)
		}
		return nil
	})
	if p, ok := s.Snapshot().Policies.Get("anp/good"); !ok || p.Priority != 1 {
		t.Errorf("after it became unreadable: got %+v, want what it was", p)
	}
}
