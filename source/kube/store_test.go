package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

func pod(name, label string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u-1", Labels: map[string]string{"l": label}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1"},
	}
}

// stored is a store with a reader of one kind.
func stored(t *testing.T, kindName string) (*Source, *reader) {
	s := &Source{store: newStore(), intern: intern.New(), synced: make(chan struct{}), status: make([]KindStatus, 1)}
	return s, &reader{source: s, kind: kindNamed(t, kindName)}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func took(s signal) bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

func TestStoreKeepsEqualValues(t *testing.T) {
	s, r := stored(t, "Pod")
	do(t, r.Replace([]any{pod("a", "1"), pod("b", "1")}, ""))
	first := s.Snapshot()
	if first.Workloads.Len() != 2 || !took(s.store.changed) {
		t.Fatalf("%d workloads, want 2 and a signal", first.Workloads.Len())
	}
	for what, f := range map[string]func() error{
		"add":     func() error { return r.Add(pod("a", "1")) },
		"update":  func() error { return r.Update(pod("a", "1")) },
		"replace": func() error { return r.Replace([]any{pod("b", "1"), pod("a", "1")}, "") },
		"resync":  r.Resync,
		"delete":  func() error { return r.Delete(pod("c", "1")) },
	} {
		do(t, f())
		if took(s.store.changed) || s.Snapshot() != first {
			t.Errorf("%s of what is there already changed the snapshot", what)
		}
	}

	do(t, r.Update(pod("a", "2")))
	if !took(s.store.changed) {
		t.Error("no signal for a change")
	}
	old, _ := first.Workloads.Get("pod/ns/a")
	if old.Labels.String() != "l=1" {
		t.Errorf("the old snapshot changed: %v", old.Labels)
	}
	do(t, r.Replace([]any{pod("b", "1")}, ""))
	if now := s.Snapshot(); now.Workloads.Len() != 1 {
		t.Errorf("%d workloads after replace, want 1", now.Workloads.Len())
	}
}

// Replacing one kind leaves the others that share its table.
func TestReplaceLeavesOtherKinds(t *testing.T) {
	s, pods := stored(t, "Pod")
	nodes := &reader{source: s, kind: kindNamed(t, "Node")}
	do(t, nodes.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, ""))
	do(t, pods.Replace([]any{pod("a", "1")}, ""))
	do(t, pods.Replace(nil, ""))
	if _, ok := s.Snapshot().Workloads.Get("node/n"); !ok || s.Snapshot().Workloads.Len() != 1 {
		t.Errorf("%d workloads are left, want the Node alone", s.Snapshot().Workloads.Len())
	}
}

func TestNotices(t *testing.T) {
	s, r := stored(t, "Pod")
	bad := pod("a", "1")
	bad.Status.PodIP = "not an address"
	do(t, r.Add(bad))
	n, ok := s.Notices().Get("Pod pod/ns/a")
	if !ok || n.UID != "u-1" || n.Unread || n.String() != "Pod ns/a" || !took(s.store.noticed) {
		t.Fatalf("notice: got %+v", n)
	}
	do(t, r.Add(bad))
	if took(s.store.noticed) {
		t.Error("a signal for the same notice")
	}
	do(t, r.Add(pod("a", "1")))
	if s.Notices().Len() != 0 || !took(s.store.noticed) {
		t.Error("the notice of what was repaired is left")
	}
	do(t, r.Add(bad))
	do(t, r.Delete(bad))
	if s.Notices().Len() != 0 {
		t.Error("the notice of what was deleted is left")
	}
}

// A converter that panics, or says too much, harms its own object alone.
func TestConverterAtFault(t *testing.T) {
	s, r := stored(t, "Pod")
	do(t, r.Add(pod("known", "1")))
	k := *r.kind
	r.kind = &k
	k.convert = func(runtime.Object) (any, []convert.Problem, error) { panic(strings.Repeat("x", 1<<20)) }
	do(t, r.Replace([]any{pod("known", "2"), pod("new", "1")}, ""))
	if w, ok := s.Snapshot().Workloads.Get("pod/ns/known"); !ok || w.Labels.String() != "l=1" {
		t.Errorf("the last known value: got %+v", w)
	}
	for _, name := range []string{"known", "new"} {
		n, ok := s.Notices().Get("Pod pod/ns/" + name)
		if !ok || !n.Unread || len(n.Problems) != 1 || len(n.Problems[0].Message) > maxMessage+len("…") {
			t.Errorf("notice of %s: got %+v", name, n)
		}
	}
	k.convert = func(runtime.Object) (any, []convert.Problem, error) {
		return &policy.Workload{}, make([]convert.Problem, 1<<20), nil
	}
	do(t, r.Add(pod("new", "1")))
	if n, _ := s.Notices().Get("Pod pod/ns/new"); len(n.Problems) != maxProblems+1 {
		t.Errorf("%d problems are kept", len(n.Problems))
	}
	do(t, r.Replace(nil, ""))
	if s.Notices().Len() != 0 || s.Snapshot().Workloads.Len() != 0 {
		t.Error("what was deleted is left")
	}
}

// FuzzRaw reads what an API server could send as a custom object.
func FuzzRaw(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"p"},"spec":{"priority":1,"ingress":[{"from":[{}]}]}}`))
	f.Add([]byte(`{"metadata":{"name":1}}`))
	f.Add([]byte(`[]`))
	in := intern.New()
	f.Fuzz(func(t *testing.T, text []byte) {
		var r raw
		if err := r.UnmarshalJSON(text); err != nil {
			return
		}
		for _, k := range customKinds() {
			it, err := k.read(&r, in)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(fmt.Sprint(it.problems), "fault of isobar") {
				t.Errorf("%v: %v", k, it.problems)
			}
			if it.value == nil && len(it.problems) == 0 {
				t.Errorf("%v: neither a value nor a problem", k)
			}
		}
	})
}

// What cannot be read of a group is not nothing: a rule that denies it must close.
func TestUnreadGroup(t *testing.T) {
	s, r := stored(t, "ClusterGroup")
	group := func(spec string) *raw {
		out := &raw{}
		do(t, out.UnmarshalJSON([]byte(`{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterGroup","metadata":{"name":"g"},"spec":`+spec+`}`)))
		return out
	}
	check := func(spec string, unread bool, blocks int) {
		t.Helper()
		do(t, r.Add(group(spec)))
		g, ok := s.Snapshot().Groups.Get(policy.GroupID("", "g"))
		if !ok || g.Unread != unread || len(g.Blocks) != blocks {
			t.Errorf("after %s: %+v, %t; want unread %t and %d blocks", spec, g, ok, unread, blocks)
		}
	}
	check(`{"ipBlocks":"all"}`, true, 0)
	check(`{"moreover":[{"a":"b"}]}`, true, 0)
	check(`{"ipBlocks":[{"cidr":"10.0.0.0/8"}]}`, false, 1)
	check(`{"ipBlocks":"all"}`, false, 1) // it stays what it was
	check(`{}`, false, 0)
	do(t, r.Add(group(`{"ipBlocks":"all"}`)))
	do(t, r.Delete(group(`{}`)))
	if s.Snapshot().Groups.Len() != 0 {
		t.Error("a deleted group is left")
	}
}
