package controller_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/control/plane"
	"isobar.dev/control/plane/planetest"
)

// startPlane starts a control plane of the test's own on dir.
func startPlane(t *testing.T, dir string) *plane.Plane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := plane.Start(ctx, plane.Options{DataDir: dir, Throwaway: true, Search: plane.Search{CheckoutOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopPlane(t, p) })
	return p
}

func stopPlane(t *testing.T, p *plane.Plane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// While the API server is away the clouds are kept as they were, also against
// others; when it is back all goes on, without a restart.
func TestAPIServerGoesAway(t *testing.T) {
	planetest.Start(t) // builds the binary, and skips with -short
	dir, err := os.MkdirTemp("", "isobar-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := startPlane(t, dir)
	config, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.ApplyCRDs(t.Context(), config, os.DirFS("../../deploy/crd")); err != nil {
		t.Fatal(err)
	}
	e := newEnvOn(t, config, "outage")
	if err := e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	enforced := e.has("vpca", 2, "5432")
	e.eventually("before", all(enforced, e.phaseIs("db", antreav1beta1.PolicyRealized)))

	stopPlane(t, p)
	writes := e.cloudWrites()
	e.quietly("nothing is undone", enforced)
	if n := e.cloudWrites() - writes; n != 0 {
		t.Errorf("%d writes in the cloud when the API server went away; want none", n)
	}
	e.cloud.with(func(f *fakeCloud) { f.nics["vpca"][nic("vpca", 2)] = "opened by hand" })
	e.eventually("drift is repaired meanwhile", enforced)
	e.cloud.with(func(f *fakeCloud) {
		f.vms["us-east-1"] = append(f.vms["us-east-1"], vm("us-east-1", "vpca", 3, map[string]string{"Role": "db"}))
	})
	time.Sleep(time.Second) // a poll or more, whose ExternalEntity cannot be written

	p = startPlane(t, dir)
	back := time.Now()
	e.eventually("the new VM is imported", e.entityHas("vpca", 3, cloudv1alpha1.LabelKind, "virtualmachine"))
	e.eventually("and enforces", e.has("vpca", 3, "5432"))
	e.setPort("db", 5433)
	e.eventually("policies change again", all(e.has("vpca", 2, "5433"), e.has("vpca", 3, "5433"), e.phaseIs("db", antreav1beta1.PolicyRealized)))
	t.Logf("caught up %v after the API server was ready", time.Since(back))
}
