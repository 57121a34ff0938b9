package acceptance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

// The resources that tests name.
var (
	accounts        = cloudv1alpha1.GroupVersion.WithResource("cloudprovideraccounts")
	selectors       = cloudv1alpha1.GroupVersion.WithResource("cloudentityselectors")
	entities        = antreav1alpha2.GroupVersion.WithResource("externalentities")
	policies        = antreav1beta1.GroupVersion.WithResource("networkpolicies")
	clusterPolicies = antreav1beta1.GroupVersion.WithResource("clusternetworkpolicies")
	groups          = antreav1beta1.GroupVersion.WithResource("groups")
	secrets         = corev1.SchemeGroupVersion.WithResource("secrets")
)

// namesOfObjects stand for what the objects of a VM or network are called.
var namesOfObjects = regexp.MustCompile(`\$\{[^}]+\}`)

// named returns a text with what objects are called: of web, where ${web} is.
func (w *world) named(text string) string {
	return namesOfObjects.ReplaceAllStringFunc(text, func(s string) string { return w.object(s[2 : len(s)-1]) })
}

// objects reads YAML documents, in which $NS is the world's namespace and ${web} what the
// objects of web are called.
func (w *world) objects(text string) []*unstructured.Unstructured {
	w.t.Helper()
	// Go's tests are indented with tabs, which YAML has not.
	text = strings.ReplaceAll(strings.ReplaceAll(w.named(text), "$NS", w.ns), "\t", "  ")
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			w.t.Fatalf("%v in:\n%s", err, text)
		}
		if len(o.Object) > 0 {
			out = append(out, &o)
		}
	}
}

// resource is where an object is written. One that is namespaced and does not say where gets
// the world's namespace.
func (w *world) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	w.t.Helper()
	gvk := o.GroupVersionKind()
	m, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		w.t.Fatal(err)
	}
	if m.Scope.Name() == "root" {
		return w.client.Resource(m.Resource)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(w.ns)
	}
	return w.client.Resource(m.Resource).Namespace(o.GetNamespace())
}

// tryApply makes each object of a YAML text be as written, as kubectl apply --server-side
// does, and returns the first refusal. What is cluster-scoped goes with the test.
func (w *world) tryApply(text string) error {
	w.t.Helper()
	for _, o := range w.objects(text) {
		r := w.resource(o)
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		force := true
		err = patiently(func() error {
			_, err := r.Patch(w.t.Context(), o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "acceptance", Force: &force})
			return err
		})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if o.GetNamespace() == "" {
			w.t.Cleanup(func() { _ = r.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
		}
	}
	return nil
}

func (w *world) apply(text string) {
	w.t.Helper()
	if err := w.tryApply(text); err != nil {
		w.t.Fatal(err)
	}
}

// remove deletes each object of a YAML text, of which only kind and name count.
func (w *world) remove(text string) {
	w.t.Helper()
	for _, o := range w.objects(text) {
		err := patiently(func() error { return w.resource(o).Delete(w.t.Context(), o.GetName(), metav1.DeleteOptions{}) })
		if err != nil {
			w.t.Fatalf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// removeNamed deletes an object of the world's namespace.
func (w *world) removeNamed(r schema.GroupVersionResource, name string) {
	w.t.Helper()
	if err := w.client.Resource(r).Namespace(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatalf("delete %s %s: %v", r.Resource, name, err)
	}
}

// patch merges a JSON document into an object of the world's namespace.
func (w *world) patch(r schema.GroupVersionResource, name, document string) {
	w.t.Helper()
	w.eventually("patch "+name, func() error { // it may be made a moment later, as ExternalEntities are
		_, err := w.client.Resource(r).Namespace(w.ns).Patch(w.t.Context(), name, types.MergePatchType, []byte(document), metav1.PatchOptions{FieldManager: "acceptance-patch"})
		if err != nil && !apierrors.IsNotFound(err) && !isOverworked(err) {
			w.t.Fatal(err)
		}
		return err
	})
}

// patiently calls f again while the API server has no time for its webhooks, as kubectl's
// user would: tests share a machine.
func patiently(f func() error) error {
	for start := time.Now(); ; {
		if err := f(); !isOverworked(err) || time.Since(start) > patience {
			return err
		}
	}
}

// isOverworked says whether a write was refused for no other reason than that a webhook
// took too long.
func isOverworked(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook") && strings.Contains(err.Error(), "deadline exceeded")
}

// read reads an object of the world's namespace as T.
func read[T any](w *world, r schema.GroupVersionResource, name string) (*T, error) {
	o, err := w.client.Resource(r).Namespace(w.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// readCluster reads a cluster-scoped object as T.
func readCluster[T any](w *world, r schema.GroupVersionResource, name string) (*T, error) {
	o, err := w.client.Resource(r).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// list returns the names of the objects of the world's namespace, sorted.
func (w *world) list(r schema.GroupVersionResource) []string {
	w.t.Helper()
	l, err := w.client.Resource(r).Namespace(w.ns).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for i := range l.Items {
		out = append(out, l.Items[i].GetName())
	}
	slices.Sort(out)
	return out
}

// account writes the Secret and the CloudProviderAccount of the sample's account or
// subscription, named for the provider, with the regions that the estate has.
func (w *world) account() { w.t.Helper(); w.accountNamed(w.cloud.provider()) }

// accountNamed is account with another name.
func (w *world) accountNamed(name string) {
	w.t.Helper()
	if w.azure != nil {
		w.azureAccount(name, azuresim.SampleSubscription)
		return
	}
	w.accountOf(name, sim.SampleAccount)
}

// accountOf writes a Secret and a CloudProviderAccount of that name, of an account of the estate.
func (w *world) accountOf(name, account string) {
	w.t.Helper()
	regions := []string{}
	for _, a := range w.sim.Estate().Accounts {
		for _, r := range a.Regions {
			if a.ID == account {
				regions = append(regions, r.Name)
			}
		}
	}
	w.accountIn(name, account, regions...)
}

// accountIn is accountOf with these regions.
func (w *world) accountIn(name, account string, regions ...string) {
	w.t.Helper()
	key := keyOf(account)
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %[1]s}
stringData:
  credentials: '{"accessKeyId": "%[2]s", "accessKeySecret": "%[3]s"}'
---
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudProviderAccount
metadata: {name: %[1]s}
spec:
  awsConfig:
    region: [%[4]s]
    endpoint: %[5]s
    stsEndpoint: %[5]s
    secretRef: {namespace: $NS, name: %[1]s, key: credentials}
`, name, key.ID, key.Secret, strings.Join(regions, ", "), w.url))
}

// importAll writes a CloudEntitySelector, named "all", of every VM of account's.
func (w *world) importAll() { w.t.Helper(); w.importOf("all", w.cloud.provider(), "- vpcMatch: {}") }

// importOf writes a CloudEntitySelector with the entries, a YAML list.
func (w *world) importOf(name, account, entries string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudEntitySelector
metadata: {name: %s}
spec:
  accountName: %s
  accountNamespace: $NS
  vmSelector:
  %s
`, name, account, strings.ReplaceAll(strings.TrimSpace(entries), "\n", "\n  ")))
}

// policy writes an Antrea NetworkPolicy of priority 5 with the spec's other fields.
func (w *world) policy(name, spec string) {
	w.t.Helper()
	w.apply(policyText(name, spec))
}

func policyText(name, spec string) string {
	return fmt.Sprintf("apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {name: %s}\nspec:\n  priority: 5\n  %s\n",
		name, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

// pod makes a running Pod with an address, which nobody runs.
func (w *world) pod(namespace, name, ip string, labels map[string]string) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pods := w.core.CoreV1().Pods(namespace)
	pod, err := pods.Create(w.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	zero := int64(0)
	w.t.Cleanup(func() {
		_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	if _, err := pods.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// hasPhase is nil when a policy says that of its present generation.
func (w *world) hasPhase(name string, want antreav1beta1.PolicyPhase) error {
	p, err := read[antreav1beta1.NetworkPolicy](w, policies, name)
	if err != nil {
		return err
	}
	if p.Status.Phase != want || p.Status.ObservedGeneration != p.Generation {
		return fmt.Errorf("status of %s at generation %d: %+v; want %s", name, p.Generation, p.Status, want)
	}
	return nil
}

// realized waits until policies say that they are.
func (w *world) realized(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.eventually(name+" is realized", func() error { return w.hasPhase(name, antreav1beta1.PolicyRealized) })
	}
}

// failed waits until a policy says that it is not enforced as written, and why: text is in
// one of its conditions.
func (w *world) failed(name, text string) {
	w.t.Helper()
	w.eventually(name+" has failed", func() error {
		if err := w.hasPhase(name, antreav1beta1.PolicyFailed); err != nil {
			return err
		}
		p, err := read[antreav1beta1.NetworkPolicy](w, policies, name)
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if strings.Contains(c.Reason+": "+c.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("conditions of %s: %+v; want one with %q", name, p.Status.Conditions, text)
	})
}

// accountSays is nil when a condition of the account is that, and its message has the texts.
func (w *world) accountSays(condition, status, reason string, texts ...string) error {
	a, err := read[cloudv1alpha1.CloudProviderAccount](w, accounts, w.cloud.provider())
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(a.Status.Conditions, condition)
	if c == nil || string(c.Status) != status || c.Reason != reason || slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(c.Message, s) }) {
		return fmt.Errorf("%s is %+v; want %s %s with %q", condition, c, status, reason, texts)
	}
	return nil
}

// events returns what was told of an object, each as "Reason message".
func (w *world) events(object string) []string {
	w.t.Helper()
	l, err := w.core.CoreV1().Events(w.ns).List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, e := range l.Items {
		out[e.Reason+" "+e.Message] = true
	}
	return slices.Sorted(maps.Keys(out))
}

// byRole and byLabel select VMs, as an item of appliedTo, from or to.
func byRole(role string) string { return byLabel("tag-Role", role) }

func byLabel(label, value string) string {
	return fmt.Sprintf("{externalEntitySelector: {matchLabels: {nephe.antrea.io/%s: %s}}}", label, value)
}

// allow is a rule that allows TCP ports, or all without any; from and to may be empty.
func allow(direction, peers string, ports ...int) string {
	key := map[string]string{"ingress": "from", "egress": "to"}[direction]
	text := "{action: Allow"
	if peers != "" {
		text += ", " + key + ": [" + peers + "]"
	}
	for i, p := range ports {
		if i == 0 {
			text += ", ports: ["
		}
		text += fmt.Sprintf("{protocol: TCP, port: %d}, ", p)
	}
	if len(ports) > 0 {
		text += "]"
	}
	return text + "}"
}

// onRole is the spec of a policy for VMs of a role with rules of one direction.
func onRole(role, direction string, rules ...string) string {
	return fmt.Sprintf("appliedTo: [%s]\n%s: [%s]", byRole(role), direction, strings.Join(rules, ", "))
}
