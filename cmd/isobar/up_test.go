package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// output collects what a run prints, while it prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startUp runs `isobar up` until it has printed what to try next, and returns a
// function that interrupts it and returns its error.
func startUp(t *testing.T, flags upFlags) (*up, *output, func() error) {
	t.Helper()
	out, progress := &output{}, &output{}
	u := &up{flags: flags, out: out, progress: progress}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	deadline := time.After(10 * time.Minute)
	for !strings.Contains(out.String(), "Ctrl-C ends it") {
		select {
		case err := <-ended:
			t.Fatalf("up ended: %v\n%s", err, progress)
		case <-deadline:
			t.Fatalf("up is not up:\n%s", progress)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return u, out, stop
}

// A policy that concerns no VM has no status, and keeps no start waiting.
func TestUnrealized(t *testing.T) {
	const name = "NetworkPolicy shop/p"
	for _, tt := range []struct {
		phase   string
		seen    int64
		applied bool
		waits   bool
	}{
		{"", 0, false, false},
		{"", 0, true, true},
		{"Realizing", 2, false, true},
		{"Realized", 1, false, true},
		{"Realized", 2, true, false},
		{"Failed", 2, false, false},
	} {
		p := &unstructured.Unstructured{Object: map[string]any{
			"kind": "NetworkPolicy", "metadata": map[string]any{"namespace": "shop", "name": "p", "generation": int64(2)},
			"status": map[string]any{"phase": tt.phase, "observedGeneration": tt.seen},
		}}
		if err := unrealized(p, map[string]bool{name: tt.applied}); (err != nil) != tt.waits {
			t.Errorf("unrealized(%+v) = %v", tt, err)
		}
	}
}

const wantReach = `
FROM \ TO                 web-1:443  web-1:22  app-1:8080  app-1:22  db-1:5432  db-1:22  bi-1:443  bi-1:22  warehouse-1:5432
VM web-1                  .          .         .           X         X          X        .         X        X
VM app-1                  .          X         .           .         .          X        .         X        .
VM db-1                   .          X         X           X         .          .        .         X        X
VM bastion                .          .         X           .         X          X        .         .        X
VM reports-1 (eu-west-1)  .          X         -           -         -          -        .         X        -
VM bi-1 (Azure)           .          X         X           X         .          X        .         .        .
VM warehouse-1 (Azure)    .          X         X           X         X          X        .         X        .
Pod jobs/report           .          X         X           X         .          X        .         X        .
Pod jobs/cleanup          .          X         X           X         X          X        .         X        X
Internet 192.0.2.10       .          X         -           -         -          -        .         X        -
Internet 203.0.113.7      X          X         -           -         -          -        X         X        -
`

// The README's first command, as a newcomer uses it: the table, then changes
// with the API that must show in the cloud, then another start that changes nothing.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	dir := t.TempDir()
	u, out, stop := startUp(t, upFlags{dataDir: dir})
	if !strings.Contains(out.String(), wantReach) {
		t.Errorf("up printed:\n%s\nwant in it:%s", out, wantReach)
	}
	testPlanAndWarning(t, u)
	a, err := newApplier(u.config)
	if err != nil {
		t.Fatal(err)
	}
	db, web3, app1 := upEnd{inAWS, "i-0a100000000000007"}, upEnd{inAWS, "i-0a100000000000003"}, upEnd{inAWS, "i-0a100000000000004"}
	warehouse, bi2 := upEnd{inAzure, "warehouse-1"}, upEnd{inAzure, "bi-2"}
	pod1, err := a.address(t.Context(), "pod:jobs/cleanup")
	if err != nil || pod1 == "" {
		t.Fatalf("the Pod jobs/cleanup has the address %q, %v", pod1, err)
	}
	cleanup := upEnd{"", pod1}
	bi2Machine := objectOf(t, a, "bi-2")
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	entity := schema.GroupVersionKind{Group: "crd.antrea.io", Version: "v1alpha2", Kind: "ExternalEntity"}
	machine := schema.GroupVersionKind{Group: "runtime.cloud.antrea.io", Version: "v1alpha1", Kind: "VirtualMachine"}
	policyKind := schema.GroupVersionKind{Group: "crd.antrea.io", Version: "v1beta1", Kind: "NetworkPolicy"}
	for _, step := range []struct {
		what            string
		kind            schema.GroupVersionKind
		namespace, name string
		patch           string
		from, to        upEnd
		port            int
		want            string
	}{
		{"a Pod's label", pod, "jobs", "cleanup", `{"metadata":{"labels":{"access":"db"}}}`, cleanup, db, 5432, "allowed"},
		{"it, in the other cloud", pod, "jobs", "cleanup", `{}`, cleanup, warehouse, 5432, "allowed"},
		{"the label taken away", pod, "jobs", "cleanup", `{"metadata":{"labels":{"access":null}}}`, cleanup, db, 5432, "denied"},
		{"it, in the other cloud", pod, "jobs", "cleanup", `{}`, cleanup, warehouse, 5432, "denied"},
		{"an Azure VM's tag", machine, "shop", bi2Machine, `{"spec":{"tags":{"Role":"app"}}}`, upEnd{inAWS, "i-0a100000000000001"}, bi2, 8080, "allowed"},
		{"and taken away", machine, "shop", bi2Machine, `{"spec":{"tags":null}}`, upEnd{inAWS, "i-0a100000000000001"}, bi2, 8080, "denied"},
		{"a VM's tag", entity, "shop", "virtualmachine-" + web3.name, `{"metadata":{"labels":{"nephe.antrea.io/tag-Role":"app"}}}`, web3, db, 5432, "allowed"},
		{"the cloud's own tag again", entity, "shop", "virtualmachine-" + web3.name, `{"metadata":{"labels":{"nephe.antrea.io/tag-Role":null}}}`, web3, db, 5432, "denied"},
		{"a VM's tag by the runtime API", machine, "shop", web3.name, `{"spec":{"tags":{"Role":"app"}}}`, web3, db, 5432, "allowed"},
		{"and taken away", machine, "shop", web3.name, `{"spec":{"tags":null}}`, web3, db, 5432, "denied"},
		{"a policy", policyKind, "shop", "db", `{"spec":{"ingress":[{"action":"Allow","enableLogging":false,"name":"other","ports":[{"protocol":"TCP","port":5433}]}]}}`, app1, db, 5433, "allowed"},
		{"what was taken away, in the other cloud", pod, "jobs", "cleanup", `{}`, web3, warehouse, 5432, "denied"},
	} {
		r, err := a.resource(step.kind, step.namespace)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = retry(t.Context(), 2*time.Minute, func() error { // a VM is enforced before its entity is written
			_, err := r.Patch(t.Context(), step.name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{FieldManager: "kubectl-test"})
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		err = retry(t.Context(), 2*time.Minute, func() error {
			if got := u.reach(step.from, step.to, step.port); got != step.want {
				return fmt.Errorf("%s: %v to %v is %s, want %s", step.what, step.from, step.to, got, step.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: in the cloud after %v", step.what, time.Since(began).Round(time.Millisecond))
	}
	settle(t, u)
	if err := stop(); err != nil {
		t.Fatalf("interrupted, up ended with %v", err)
	}

	u, _, stop = startUp(t, upFlags{dataDir: dir})
	settle(t, u)
	if calls := u.aws.Calls(); len(calls.Writes) != 0 {
		t.Errorf("a start that changes nothing made %d writes in AWS, the first %s", len(calls.Writes), calls.Writes[0].Action)
	}
	if calls := u.azure.Calls(); len(calls.Writes) != 0 {
		t.Errorf("a start that changes nothing made %d writes in Azure, the first %s of %s", len(calls.Writes), calls.Writes[0].Operation, calls.Writes[0].Resource)
	}
	if got := u.reach(app1, db, 5433); got != "allowed" {
		t.Errorf("after another start the changed policy is not enforced: %s", got)
	}
	if err := stop(); err != nil {
		t.Fatalf("interrupted, up ended with %v", err)
	}
}

// testPlanAndWarning makes a change that does not fit, by plan and by a dry run.
func testPlanAndWarning(t *testing.T, u *up) {
	t.Helper()
	var ports []string
	for i := range 310 {
		ports = append(ports, fmt.Sprintf("{protocol: TCP, port: %d}", 1000+2*i))
	}
	text := `{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: many, namespace: shop}, spec: {priority: 9,
		appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}],
		ingress: [{name: all, enableLogging: false, action: Allow, from: [{ipBlock: {cidr: 198.51.100.0/24}}], ports: [` + strings.Join(ports, ", ") + `]}]}}`
	text = strings.ReplaceAll(text, "\t", " ")
	var out, errOut strings.Builder
	status := run([]string{"plan", "--kubeconfig", u.plane.Kubeconfig(), "--exit-code", "-f", "-"}, strings.NewReader(text), &out, &errOut)
	if status != int(statusRefused) || !strings.Contains(out.String(), "annp/shop/many/ingress/0 needs 310") {
		t.Errorf("plan: status %d, want %d, and the rule that costs most\n%s%s", status, statusRefused, &out, &errOut)
	}
	warned := &warnings{}
	config := rest.CopyConfig(u.config)
	config.WarningHandler = warned
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	r := client.Resource(antreav1beta1.GroupVersion.WithResource("networkpolicies")).Namespace("shop")
	if _, err := r.Create(t.Context(), &o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if text := warned.String(); !strings.Contains(text, "annp/shop/many/ingress/0: QuotaExceeded") {
		t.Errorf("a dry run of what does not fit was warned of %q", text)
	}
}

// warnings are what an API server warned of.
type warnings struct{ output }

// HandleWarningHeader takes one.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { fmt.Fprintln(w, text) }

// objectOf is what the VirtualMachine of a VM of Azure is called.
func objectOf(t *testing.T, a *applier, vm string) string {
	t.Helper()
	r, err := a.resource(schema.GroupVersionKind{Group: "runtime.cloud.antrea.io", Version: "v1alpha1", Kind: "VirtualMachine"}, "shop")
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if strings.HasPrefix(o.GetName(), vm+"-") {
			return o.GetName()
		}
	}
	t.Fatalf("none of %d VMs is %s", len(list.Items), vm)
	return ""
}

// settle waits until networks of both clouds have been read and no call has been made for a second.
func settle(t *testing.T, u *up) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	last, since := -1, time.Now()
	for time.Now().Before(deadline) {
		all, aws, azure := 0, 0, 0
		for _, c := range u.aws.Calls().Counts {
			all += c.Calls
			if c.Action == "DescribeNetworkInterfaces" {
				aws += c.Calls
			}
		}
		for _, c := range u.azure.Calls().Counts {
			all += c.Calls
			if strings.HasPrefix(c.Operation, "NetworkSecurityGroups_List") {
				azure += c.Calls
			}
		}
		if all != last || aws == 0 || azure == 0 {
			last, since = all, time.Now()
		}
		if time.Since(since) > time.Second {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the clouds are still asked after a minute")
}

func TestUpEmpty(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	dir := t.TempDir()
	u, out, stop := startUp(t, upFlags{dataDir: dir, empty: true})
	if !strings.Contains(out.String(), "Nothing is in it yet") {
		t.Errorf("up --empty printed:\n%s", out)
	}
	if n := len(u.aws.Estate().Accounts[0].Regions[0].VPCs); n != 0 {
		t.Errorf("an empty estate has %d VPCs", n)
	}
	if n := len(u.azure.Estate().Subscriptions[0].Resources); n != 0 {
		t.Errorf("an empty estate has %d resources of Azure", n)
	}
	testSimNodes(t, u)
	testTokens(t, u)
	if err := stop(); err != nil {
		t.Fatalf("interrupted, up ended with %v", err)
	}
	// The sample's policies have no VM there, and would be waited for in vain.
	again := up{flags: upFlags{dataDir: dir}, out: &output{}, progress: &output{}}
	if err := again.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("the sample on an empty estate ended with %v", err)
	}
}

func TestUpRefusesASecondInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	dir := t.TempDir()
	startUp(t, upFlags{dataDir: dir, empty: true})
	second := up{flags: upFlags{dataDir: dir, empty: true}, out: &output{}, progress: &output{}}
	if err := second.run(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second up on the same directory ended with %v, want an error that names it", err)
	}
}
