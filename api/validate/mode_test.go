package validate_test

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	"isobar.dev/api/validate"
)

// A mode that is not known is refused of every kind of policy, and of no other kind.
func TestMode(t *testing.T) {
	named := func(mode string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"isobar.dev/mode": mode}}
	}
	const at = "metadata.annotations[isobar.dev/mode]"
	for kind, object := range map[string]func(metav1.ObjectMeta) runtime.Object{
		"NetworkPolicy":              func(m metav1.ObjectMeta) runtime.Object { return &networkingv1.NetworkPolicy{ObjectMeta: m} },
		"AntreaNetworkPolicy":        func(m metav1.ObjectMeta) runtime.Object { return &antreav1beta1.NetworkPolicy{ObjectMeta: m} },
		"AntreaClusterNetworkPolicy": func(m metav1.ObjectMeta) runtime.Object { return &antreav1beta1.ClusterNetworkPolicy{ObjectMeta: m} },
		"ClusterNetworkPolicy":       func(m metav1.ObjectMeta) runtime.Object { return &netpolv1alpha2.ClusterNetworkPolicy{ObjectMeta: m} },
		"AdminNetworkPolicy":         func(m metav1.ObjectMeta) runtime.Object { return &netpolv1alpha1.AdminNetworkPolicy{ObjectMeta: m} },
		"BaselineAdminNetworkPolicy": func(m metav1.ObjectMeta) runtime.Object {
			return &netpolv1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: m}
		},
	} {
		refuses := func(r validate.Request) string {
			errs, _ := validate.Validate(r, nil)
			for _, e := range errs {
				if e.Field == at {
					return e.Error()
				}
			}
			return ""
		}
		bare := object(metav1.ObjectMeta{Name: "p"})
		for _, tt := range []struct {
			mode   string
			before runtime.Object
			want   bool
		}{
			{"Stage", nil, false}, {"Enforce", nil, false}, {"Stage", bare, false},
			{"stage", nil, true}, {"", nil, true}, {"Off", bare, true}, {"off", object(named("Stage")), true},
			{"off", object(named("off")), false}, // as it was
			{"off", object(named("of")), true},
		} {
			r := validate.Request{Operation: validate.Create, Object: object(named(tt.mode))}
			if tt.before != nil {
				r.Operation, r.Old = validate.Update, tt.before
			}
			got := refuses(r)
			if (got != "") != tt.want || tt.want && !strings.Contains(got, `supported values: "Enforce", "Stage"`) {
				t.Errorf("%s, mode %q after %v: %q, want it refused: %t", kind, tt.mode, tt.before, got, tt.want)
			}
		}
		now := metav1.Now()
		leaving := named("off")
		leaving.DeletionTimestamp = &now
		if got := refuses(validate.Request{Operation: validate.Update, Object: object(leaving), Old: bare}); got != "" {
			t.Errorf("%s: of what is being deleted: %s", kind, got)
		}
	}
	changed := &antreav1beta1.NetworkPolicy{ObjectMeta: named("off")}
	changed.Spec.Priority = 7
	errs, _ := validate.Validate(validate.Request{Operation: validate.Update, Object: changed, Old: &antreav1beta1.NetworkPolicy{ObjectMeta: named("off")}}, nil)
	if len(errs) == 0 || errs[0].Field != at {
		t.Errorf("another spec with a mode that was wrong before: %v, want %s first", errs, at)
	}
	errs, _ = validate.Validate(validate.Request{Operation: validate.Create, Object: &antreav1beta1.Group{ObjectMeta: named("off"), Spec: antreav1beta1.GroupSpec{PodSelector: &metav1.LabelSelector{}}}}, nil)
	check(t, "a Group", errs, "")
}
