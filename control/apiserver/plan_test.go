package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/control/plane/planetest"
)

// planner answers with the manifests that it was given, as the keys of changes.
type planner struct{}

func (planner) Plan(_ context.Context, spec isobarv1alpha1.PlanSpec) (out isobarv1alpha1.PlanStatus, err error) {
	t := isobarv1alpha1.TargetPlan{Name: "there"}
	for _, m := range spec.Manifests {
		if strings.Contains(string(m.Raw), "later") {
			return out, errors.New("not yet")
		}
		t.Changes = append(t.Changes, isobarv1alpha1.PlanChange{Key: string(m.Raw), Op: "create"})
	}
	for _, d := range spec.Delete {
		t.Changes = append(t.Changes, isobarv1alpha1.PlanChange{Key: d.Kind + " " + d.Name, Op: "delete"})
	}
	out.Targets = append(out.Targets, t)
	return out, nil
}

func (planner) TargetStatuses() []isobarv1alpha1.TargetStatus {
	now := metav1.Now()
	return []isobarv1alpha1.TargetStatus{
		{Target: "aws/ns/acct/us-east-1/vpc-2", State: isobarv1alpha1.TargetFailed, Error: "no"},
		{Target: "aws/ns/acct/us-east-1/vpc-1", State: isobarv1alpha1.TargetSynced, LastSync: &now, Objects: 3},
	}
}

// A Plan is answered to who may create one, and to nobody else.
func TestPlans(t *testing.T) {
	s := newSite(t, newInventory())
	ask := func(config *rest.Config, spec isobarv1alpha1.PlanSpec) (*isobarv1alpha1.Plan, error) {
		body, err := json.Marshal(isobarv1alpha1.Plan{TypeMeta: metav1.TypeMeta{APIVersion: "isobar.dev/v1alpha1", Kind: "Plan"}, Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		out := &isobarv1alpha1.Plan{}
		config = rest.CopyConfig(config)
		config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &isobarv1alpha1.GroupVersion, scheme.Codecs.WithoutConversion()
		client, err := rest.RESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		result := client.Post().Resource("plans").SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(t.Context())
		if err := result.Error(); err != nil { // which reads the answer's Status, as Raw does not
			return nil, err
		}
		answer, err := result.Raw()
		if err != nil {
			return nil, err
		}
		return out, json.Unmarshal(answer, out)
	}
	one := isobarv1alpha1.PlanSpec{
		Manifests: []runtime.RawExtension{{Raw: []byte(`{"kind":"Tier","n":12345678901234567}`)}},
		Delete:    []isobarv1alpha1.PlanObject{{Kind: "Tier", Name: "x"}},
	}
	got, err := ask(s.env.Config(), one)
	if err != nil || len(got.Status.Targets) != 1 || len(got.Status.Targets[0].Changes) != 2 ||
		got.Status.Targets[0].Changes[0].Key != `{"kind":"Tier","n":12345678901234567}` || got.Status.Targets[0].Changes[1].Key != "Tier x" {
		t.Errorf("a Plan of two objects gives %+v, %v", got.Status, err)
	}
	if _, err := ask(s.env.Config(), isobarv1alpha1.PlanSpec{Manifests: []runtime.RawExtension{{Raw: []byte(`{"kind":"later"}`)}}}); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("a Planner that cannot say gives %v, want that it is unavailable, and why", err)
	}
	if _, err := ask(s.env.Config(), isobarv1alpha1.PlanSpec{Delete: make([]isobarv1alpha1.PlanObject, isobarv1alpha1.MaxPlanObjects+1)}); !apierrors.IsBadRequest(err) {
		t.Errorf("too many objects give %v, want a bad request", err)
	}

	targets := s.client.Resource(isobarv1alpha1.GroupVersion.WithResource("targets"))
	if got, want := names(t, targets, metav1.ListOptions{}), "aws.ns.acct.us-east-1.vpc-1 aws.ns.acct.us-east-1.vpc-2"; got != want {
		t.Errorf("targets are %s, want %s", got, want)
	}
	if _, err := targets.List(t.Context(), metav1.ListOptions{LabelSelector: "a=b"}); !apierrors.IsBadRequest(err) {
		t.Errorf("targets by label: %v, want a bad request", err)
	}
	if o, err := targets.Get(t.Context(), "aws.ns.acct.us-east-1.vpc-2", metav1.GetOptions{}); err != nil || !strings.Contains(fmt.Sprint(o.Object), "Failed") {
		t.Errorf("a target is %v, %v", o, err)
	}
	if _, err := targets.Get(t.Context(), "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("another target: %v, want not found", err)
	}
	if got := table(t, s.env.Config(), "/apis/isobar.dev/v1alpha1/targets"); !strings.Contains(got, "LAST-SYNC") || !strings.Contains(got, "vpc-1") {
		t.Errorf("the table is %s", got)
	}

	user := rest.CopyConfig(s.env.Config())
	user.Impersonate = rest.ImpersonationConfig{UserName: "planner-" + s.ns, Groups: []string{"system:authenticated"}}
	if _, err := ask(user, one); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights gets %v, want forbidden", err)
	}
	meta := metav1.ObjectMeta{Name: "planner-" + s.ns}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"isobar.dev"}, Resources: []string{"plans"}, Verbs: []string{"create"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: meta.Name}}}
	if _, err := s.core.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.core.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.core.RbacV1().ClusterRoleBindings().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		_ = s.core.RbacV1().ClusterRoles().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
	planetest.Eventually(t, "the right counts", func(context.Context) error {
		_, err := ask(user, one)
		return err
	})
}
