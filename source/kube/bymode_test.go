package kube

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/policy"
)

// where says in which tables the policy p of namespace ns is.
func where(s policy.Snapshot, d policy.Dialect) string {
	namespace := "ns"
	if d != policy.KubernetesNetworkPolicy && d != policy.AntreaNetworkPolicy {
		namespace = ""
	}
	id := policy.PolicyID(d, namespace, "p")
	_, enforced := s.Policies.Get(id)
	_, staged := s.Staged.Get(id)
	return fmt.Sprintf("enforced %t staged %t", enforced, staged)
}

const (
	isEnforced = "enforced true staged false"
	isStaged   = "enforced false staged true"
	isNowhere  = "enforced false staged false"
)

// Policies of every kind go from one table to the other and back, one object at a time and
// with all others of their kind. A mode that is not known enforces, and is told.
func TestModes(t *testing.T) {
	for _, k := range kinds(Networks{}) {
		if _, ok := k.table.(byMode); !ok {
			continue
		}
		dialect := map[string]policy.Dialect{
			"np": policy.KubernetesNetworkPolicy, "annp": policy.AntreaNetworkPolicy, "acnp": policy.AntreaClusterNetworkPolicy,
			"cnp": policy.ClusterNetworkPolicy, "anp": policy.AdminNetworkPolicy, "banp": policy.BaselineAdminNetworkPolicy,
		}[k.at]
		if dialect == 0 {
			t.Fatalf("%v: which policies are these?", k)
		}
		object := func(mode string) runtime.Object {
			namespace := "ns"
			if dialect != policy.KubernetesNetworkPolicy && dialect != policy.AntreaNetworkPolicy {
				namespace = ""
			}
			m := metav1.ObjectMeta{Namespace: namespace, Name: "p", Annotations: map[string]string{isobarv1alpha1.AnnotationMode: mode}}
			if mode == "" {
				m.Annotations = nil
			}
			if !k.custom {
				return &networkingv1.NetworkPolicy{ObjectMeta: m}
			}
			out := &raw{}
			do(t, out.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":"p","annotations":{%q:%q}},"spec":{"priority":5}}`,
				k.gvr.GroupVersion(), k.name, namespace, isobarv1alpha1.AnnotationMode, mode)))
			if mode == "" {
				out.Annotations = nil
			}
			return out
		}
		for how, put := range map[string]func(r *reader, o runtime.Object) error{
			"one":  func(r *reader, o runtime.Object) error { return r.Add(o) },
			"list": func(r *reader, o runtime.Object) error { return r.Replace([]any{o}, "") },
		} {
			s, r := stored(t, "Pod")
			r.kind = k
			for i, step := range []struct{ mode, want string }{
				{"", isEnforced}, {"Stage", isStaged}, {"Stage", isStaged}, {"Enforce", isEnforced}, {"Stage", isStaged}, {"", isEnforced},
				{"Stage", isStaged}, {"stage", isEnforced}, {"Stage", isStaged},
			} {
				before := s.Snapshot()
				took(s.store.changed)
				do(t, put(r, object(step.mode)))
				if got := where(s.Snapshot(), dialect); got != step.want {
					t.Errorf("%v, %s, step %d, mode %q: %s, want %s", k, how, i, step.mode, got, step.want)
				}
				if isSame := where(before, dialect) == step.want; took(s.store.changed) == isSame || (s.Snapshot() == before) != isSame {
					t.Errorf("%v, %s, step %d, mode %q: whether the world changed is told wrong", k, how, i, step.mode)
				}
				n, told := s.Notices().Get(noticeKey(k, k.key(map[bool]string{true: "ns"}[k.name == "NetworkPolicy"], "p")))
				isTold := false
				for j := 0; told && j < len(n.Problems); j++ {
					isTold = isTold || n.Problems[j].Field == "metadata.annotations[isobar.dev/mode]"
				}
				if isTold != (step.mode == "stage") {
					t.Errorf("%v, %s, step %d, mode %q: notice %+v", k, how, i, step.mode, n)
				}
				if told && n.Staged != (step.mode == "Stage") {
					t.Errorf("%v, %s, step %d, mode %q: the notice says staged: %t", k, how, i, step.mode, n.Staged)
				}
			}
			if k.table.len(new(s.Snapshot())) != 1 || !k.table.has(new(s.Snapshot()), k.key(map[bool]string{true: "ns"}[k.name == "NetworkPolicy"], "p")) {
				t.Errorf("%v, %s: what is staged does not count", k, how)
			}
			do(t, put(r, object("Stage")))
			if how == "one" {
				do(t, r.Delete(object("")))
			} else {
				do(t, r.Replace(nil, ""))
			}
			if got := where(s.Snapshot(), dialect); got != isNowhere {
				t.Errorf("%v, %s: %s after it was deleted", k, how, got)
			}
		}
	}
}

// What a policy says may be unreadable; its mode is not. The last value goes with it.
func TestModeOfUnreadable(t *testing.T) {
	s, r := stored(t, "Pod")
	for _, k := range kinds(Networks{}) {
		if k.at == "acnp" {
			r.kind = k
		}
	}
	object := func(mode, priority string) *raw {
		out := &raw{}
		do(t, out.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"p","annotations":{"isobar.dev/mode":%q}},"spec":{"priority":%s}}`, mode, priority)))
		return out
	}
	for i, step := range []struct {
		mode, priority, want string
		unread               bool
	}{
		{"Stage", `"high"`, isNowhere, true},
		{"Stage", `5`, isStaged, false},
		{"Stage", `"high"`, isStaged, true},
		{"Enforce", `"high"`, isEnforced, true},
		{"Stage", `"high"`, isStaged, true},
		{"neither", `"high"`, isEnforced, true},
		{"Enforce", `6`, isEnforced, false},
	} {
		for _, put := range []func() error{
			func() error { return r.Add(object(step.mode, step.priority)) },
			func() error { return r.Replace([]any{object(step.mode, step.priority)}, "") },
		} {
			do(t, put())
			if got := where(s.Snapshot(), policy.AntreaClusterNetworkPolicy); got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
			n, told := s.Notices().Get("ClusterNetworkPolicy acnp/p")
			if told != step.unread || told && (!n.Unread || n.Staged != (step.mode == "Stage")) {
				t.Errorf("step %d: notice %+v", i, n)
			}
		}
	}
}
