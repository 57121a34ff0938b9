package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	simaws "isobar.dev/sim/aws"
	simazure "isobar.dev/sim/azure"
)

//go:embed sample/*.yaml
var sample embed.FS

// runSample applies the sample estate, on the first start, waits until the cloud
// enforces it, and prints who reaches whom.
func (u *up) runSample(ctx context.Context) error {
	a, err := newApplier(u.config)
	if err != nil {
		return err
	}
	objects, err := u.accounts()
	if err != nil {
		return err
	}
	isNew, err := a.isNew(ctx)
	if err != nil {
		return err
	}
	if isNew && !u.hasMachines() {
		return fmt.Errorf("a simulated cloud in %s has no VM for the sample, as after --empty: choose another --data-dir", u.flags.dataDir)
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
	return decodeObjects(file, text)
}

// applier writes objects of any kind.
type applier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
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

func (u *up) printNext(ctx context.Context, a *applier) error {
	cleanup, err := a.address(ctx, "pod:jobs/cleanup")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(u.out, `
Try, in another terminal:
  export KUBECONFIG=%[1]s
  kubectl get annp,acnp,tiers,cpa,ces,ee,vm,vpc -A
  # let the cleanup Pod reach the databases in both clouds: one label
  kubectl label pod -n jobs cleanup access=db
  # make web-3 an app server: one tag
  kubectl patch vm -n shop i-0a100000000000003 --type=merge -p '{"spec":{"tags":{"Role":"app"}}}'
  # see what became of it, in the cloud's own words
  isobar sim reach --aws %[2]s %[5]s i-0a100000000000007 TCP/5432
  isobar sim reach --azure %[6]s --ca %[7]s %[5]s warehouse-1 TCP/5432
  export AWS_ACCESS_KEY_ID=%[3]s AWS_SECRET_ACCESS_KEY=%[4]s
  aws --endpoint-url %[2]s --region us-east-1 ec2 describe-security-groups --output table
  # see who reaches whom, and why, in a browser (or at %[8]s, with the token in %[9]s)
  isobar console
Ctrl-C ends it; the next start goes on from here.
`, u.plane.Kubeconfig(), u.awsURL, simaws.SampleKeyID, simaws.SampleKeySecret, cleanup, u.azureAt.HTTPS, u.azureCA(), u.consoleURL, u.consoleToken())
	return err
}

func (u *up) printEmpty(ctx context.Context) error {
	a, err := newApplier(u.config)
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
The console is at %[12]s; the token to log in with is in %[13]s.
The simulated AWS is at %[2]s (access key %[3]s, secret %[4]s), the simulated Azure at
%[6]s (certificate authority %[7]s, subscription %[8]s, tenant %[9]s,
client %[10]s, secret %[11]s).
Ctrl-C ends it; the next start goes on from here.
`, u.plane.Kubeconfig(), u.awsURL, simaws.SampleKeyID, simaws.SampleKeySecret, what,
		u.azureAt.HTTPS, u.azureCA(), simazure.SampleSubscription, simazure.SampleTenant, simazure.SampleClientID, simazure.SampleSecret, u.consoleURL, u.consoleToken())
	return err
}
