package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	simaws "isobar.dev/sim/aws"
)

//go:embed sample/*.yaml
var sample embed.FS

// trimScheme returns the host and port of a URL without a path.
func trimScheme(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return rest
}

// isFree says whether the loopback address can be listened on.
func isFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// emptyEstate is the sample's account without anything in it.
func emptyEstate() simaws.Estate {
	e := simaws.Sample()
	for i := range e.Accounts {
		for j := range e.Accounts[i].Regions {
			e.Accounts[i].Regions[j] = &simaws.Region{Name: e.Accounts[i].Regions[j].Name}
		}
	}
	e.Peerings = nil
	return e
}

func hasInstances(e simaws.Estate) bool {
	for _, a := range e.Accounts {
		for _, r := range a.Regions {
			if len(r.Instances) > 0 {
				return true
			}
		}
	}
	return false
}

// account is the CloudProviderAccount of the simulated AWS and its Secret. The
// endpoint may differ from start to start.
func (u *up) account() ([]*unstructured.Unstructured, error) {
	credentials, err := json.Marshal(map[string]string{"accessKeyId": simaws.SampleKeyID, "accessKeySecret": simaws.SampleKeySecret})
	if err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}},
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": "aws"},
			"stringData": map[string]any{"credentials": string(credentials)},
		}},
		{Object: map[string]any{
			"apiVersion": "crd.cloud.antrea.io/v1alpha1", "kind": "CloudProviderAccount",
			"metadata": map[string]any{"namespace": "shop", "name": "shop"},
			"spec": map[string]any{
				"pollIntervalInSeconds": int64(30),
				"awsConfig": map[string]any{
					"region":      []any{"us-east-1", "eu-west-1"},
					"endpoint":    u.awsURL,
					"stsEndpoint": u.awsURL,
					"rdsEndpoint": u.awsURL,
					"elbEndpoint": u.awsURL,
					"secretRef":   map[string]any{"namespace": "shop", "name": "aws", "key": "credentials"},
				},
			},
		}},
	}, nil
}

// runSample applies the sample estate, on the first start, waits until the cloud
// enforces it, and prints who reaches whom.
func (u *up) runSample(ctx context.Context) error {
	a, err := newApplier(u)
	if err != nil {
		return err
	}
	objects, err := u.account()
	if err != nil {
		return err
	}
	isNew, err := a.isNew(ctx)
	if err != nil {
		return err
	}
	if isNew && !hasInstances(u.aws.Estate()) {
		return fmt.Errorf("the simulated AWS in %s has no VM for the sample, as after --empty: choose another --data-dir", u.flags.dataDir)
	}
	if err := a.apply(ctx, objects); err != nil {
		return err
	}
	applied := map[string]bool{}
	if isNew {
		u.say("applying the sample estate")
		for _, file := range []string{"sample/estate.yaml", "sample/policies.yaml"} {
			list, err := readSample(file)
			if err != nil {
				return err
			}
			if err := a.apply(ctx, list); err != nil {
				return err
			}
			for _, o := range list {
				applied[nameOf(o)] = true
			}
		}
	}
	if err := a.markOld(ctx); err != nil {
		return err
	}
	u.say("waiting for the policies to be enforced")
	switch err := a.waitRealized(ctx, applied); {
	case err == nil:
		u.say("enforced")
	case isNew || ctx.Err() != nil:
		return err
	default: // what the user has made must not keep him from what would tell why
		u.say("going on, though %v", err)
	}
	if err := u.printReach(ctx, a); err != nil {
		return err
	}
	return u.printNext(ctx, a)
}

func readSample(file string) ([]*unstructured.Unstructured, error) {
	text, err := sample.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(o.Object) > 0 {
			out = append(out, &o)
		}
	}
}

// applier writes objects of any kind.
type applier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newApplier(u *up) (*applier, error) {
	client, err := dynamic.NewForConfig(u.config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(u.config)
	if err != nil {
		return nil, err
	}
	return &applier{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}, nil
}

func (a *applier) resource(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.client.Resource(m.Resource).Namespace(namespace), nil
	}
	return a.client.Resource(m.Resource), nil
}

// apply writes objects in order. What is refused for a moment, as Pods are until
// their namespace has its service account, is tried again.
func (a *applier) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		r, err := a.resource(o.GroupVersionKind(), o.GetNamespace())
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		err = retry(ctx, 20*time.Second, func() error {
			_, err := r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "isobar-up", Force: true})
			return err
		})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// retry calls f until it gives no error, for some time.
func retry(ctx context.Context, patience time.Duration, f func() error) error {
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// The ConfigMap that says that this API server has had its sample.
var sampleMark = &unstructured.Unstructured{Object: map[string]any{
	"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "isobar-sample"},
}}

// isNew says whether the sample was never applied here. Later starts leave the
// estate as the user has changed it.
func (a *applier) isNew(ctx context.Context) (bool, error) {
	r, err := a.resource(sampleMark.GroupVersionKind(), sampleMark.GetNamespace())
	if err != nil {
		return false, err
	}
	_, err = r.Get(ctx, sampleMark.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

func (a *applier) markOld(ctx context.Context) error {
	return a.apply(ctx, []*unstructured.Unstructured{sampleMark})
}

// nameOf names an object as messages do.
func nameOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// unrealized says what a policy waits for, or nil. One that no cloud has to do
// with never has a phase, and is not waited for unless it was applied just now.
func unrealized(p *unstructured.Unstructured, applied map[string]bool) error {
	phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
	seen, _, _ := unstructured.NestedInt64(p.Object, "status", "observedGeneration")
	switch {
	case phase == "" && !applied[nameOf(p)]:
		return nil
	case seen == p.GetGeneration() && (phase == string(antreav1beta1.PolicyRealized) || phase == string(antreav1beta1.PolicyFailed)):
		return nil
	}
	return fmt.Errorf("%s is %q after two minutes; see the log", nameOf(p), phase)
}

// waitRealized waits until every Antrea policy says of its present generation
// that it is enforced, or that it cannot be.
func (a *applier) waitRealized(ctx context.Context, applied map[string]bool) error {
	return retry(ctx, 2*time.Minute, func() error {
		for _, kind := range []string{"NetworkPolicy", "ClusterNetworkPolicy"} {
			r, err := a.resource(antreav1beta1.GroupVersion.WithKind(kind), "")
			if err != nil {
				return err
			}
			list, err := r.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if err := unrealized(&list.Items[i], applied); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// reachFrom and reachTo are the rows and columns of the table that up prints.
var (
	reachFrom = []struct{ name, end string }{
		{"VM web-1", "i-0a100000000000001"},
		{"VM app-1", "i-0a100000000000004"},
		{"VM db-1", "i-0a100000000000007"},
		{"VM bastion", "i-0a100000000000009"},
		{"VM reports-1 (eu-west-1)", "i-0a100000000000010"},
		{"Pod jobs/report", "pod:jobs/report"},
		{"Pod jobs/cleanup", "pod:jobs/cleanup"},
		{"Internet 192.0.2.10", "192.0.2.10"},
		{"Internet 203.0.113.7", "203.0.113.7"},
	}
	reachTo = []struct {
		name, end string
		port      int
	}{
		{"web-1:443", "i-0a100000000000001", 443},
		{"web-1:22", "i-0a100000000000001", 22},
		{"app-1:8080", "i-0a100000000000004", 8080},
		{"app-1:22", "i-0a100000000000004", 22},
		{"db-1:5432", "i-0a100000000000007", 5432},
		{"db-1:22", "i-0a100000000000007", 22},
	}
)

// printReach asks the simulated cloud who reaches whom.
func (u *up) printReach(ctx context.Context, a *applier) error {
	fmt.Fprintln(u.out, "\nWho reaches whom, asked of the simulated cloud (TCP; . allowed, X denied, - no route):")
	w := tabwriter.NewWriter(u.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "FROM \\ TO")
	for _, to := range reachTo {
		fmt.Fprint(w, "\t", to.name)
	}
	fmt.Fprintln(w)
	for _, from := range reachFrom {
		end, err := a.address(ctx, from.end)
		if err != nil {
			return err
		}
		fmt.Fprint(w, from.name)
		for _, to := range reachTo {
			cell := "-"
			if end == to.end {
				cell = "."
			} else if end != "" {
				v := u.aws.Reach(simaws.Flow{From: end, To: to.end, Protocol: "tcp", Port: to.port})
				cell = map[simaws.Result]string{simaws.Allowed: ".", simaws.Denied: "X"}[v.Result]
				if cell == "" {
					cell = "-"
				}
			}
			fmt.Fprint(w, "\t", cell)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// address returns the address of a Pod, "" when it has none; other ends stand
// for themselves.
func (a *applier) address(ctx context.Context, end string) (string, error) {
	name, isPod := strings.CutPrefix(end, "pod:")
	if !isPod {
		return end, nil
	}
	namespace, name, _ := strings.Cut(name, "/")
	r, err := a.resource(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, namespace)
	if err != nil {
		return "", err
	}
	pod, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ip, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	return ip, nil
}

func (u *up) printNext(ctx context.Context, a *applier) error {
	cleanup, err := a.address(ctx, "pod:jobs/cleanup")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(u.out, `
Try, in another terminal:
  export KUBECONFIG=%[1]s
  kubectl get annp,acnp,tiers,cpa,ces,ee,vm,vpc -A
  # let the cleanup Pod reach the databases: one label
  kubectl label pod -n jobs cleanup access=db
  # make web-3 an app server: one tag
  kubectl patch vm -n shop i-0a100000000000003 --type=merge -p '{"spec":{"tags":{"Role":"app"}}}'
  # see what became of it, in the cloud's own words
  isobar sim reach --aws %[2]s %[5]s i-0a100000000000007 TCP/5432
  export AWS_ACCESS_KEY_ID=%[3]s AWS_SECRET_ACCESS_KEY=%[4]s
  aws --endpoint-url %[2]s --region us-east-1 ec2 describe-security-groups --output table
Ctrl-C ends it; the next start goes on from here.
`, u.plane.Kubeconfig(), u.awsURL, simaws.SampleKeyID, simaws.SampleKeySecret, cleanup)
	return err
}

func (u *up) printEmpty(ctx context.Context) error {
	a, err := newApplier(u)
	if err != nil {
		return err
	}
	isNew, err := a.isNew(ctx)
	if err != nil {
		return err
	}
	what := "Nothing is in it yet but what you have made."
	if !isNew {
		what = "The sample of an earlier start is still in it."
	}
	_, err = fmt.Fprintf(u.out, `
%[5]s In another terminal:
  export KUBECONFIG=%[1]s
  kubectl api-resources --api-group=crd.antrea.io
The simulated AWS is at %[2]s (access key %[3]s, secret %[4]s).
Ctrl-C ends it; the next start goes on from here.
`, u.plane.Kubeconfig(), u.awsURL, simaws.SampleKeyID, simaws.SampleKeySecret, what)
	return err
}
