package kube

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/policy/intern"
)

// podAt is a Pod that last changed at a version.
func podAt(name, label string, version int) *corev1.Pod {
	p := pod(name, label)
	p.ResourceVersion = fmt.Sprint(version)
	return p
}

// Where the Snapshot stands, after each of what a Reflector may tell.
func TestPosition(t *testing.T) {
	s, r := stored(t, "Pod")
	node := &reader{source: s, kind: kindNamed(t, "Node")}
	space := &reader{source: s, kind: kindNamed(t, "Namespace")}
	step := func(what, want string, err error) {
		t.Helper()
		do(t, err)
		if _, at := s.World(); at.String() != want {
			t.Errorf("%s: at %q, want %q", what, at, want)
		}
	}
	step("before the cluster is known", "", r.Replace([]any{podAt("a", "1", 5), podAt("b", "1", 7)}, "20"))
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u", ResourceVersion: "2"}}
	step("the cluster", "u namespace:l.0.1.j pod:k.0.2.d", space.Replace([]any{system}, "21"))
	do(t, space.Replace([]any{system}, "1")) // so that it is short
	step("another kind of the table", "u namespace:1.0.1 node:3.0.1 pod:k.0.2.d", node.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "3"}}}, "3"))
	do(t, node.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "4"}}))
	const rest = "u namespace:1.0.1 node:4.0.0 "
	step("no news", rest+"pod:l.1.2.d", r.Update(podAt("a", "1", 21)))
	step("a bookmark", rest+"pod:m.2.2.d", r.Bookmark("22"))
	step("a change", rest+"pod:n.0.2", r.Update(podAt("a", "2", 23)))
	step("one more", rest+"pod:o.0.3", r.Add(podAt("c", "1", 24)))
	step("one less", rest+"pod:p.0.2", r.Delete(podAt("c", "1", 25)))
	step("one that is not there", rest+"pod:q.1.2", r.Delete(podAt("c", "1", 26)))
	step("an event again", rest+"pod:q.1.2", r.Update(podAt("a", "2", 23)))
	step("a list that is equal", rest+"pod:u.5.2", r.Replace([]any{podAt("a", "2", 23), podAt("b", "1", 7)}, "30"))
	step("a list with less", rest+"pod:v.0.1.8", r.Replace([]any{podAt("a", "2", 23)}, "31"))
	step("an API server that has forgotten", rest+"pod:a.0.1.5", r.Replace([]any{podAt("a", "2", 5)}, "10"))
	step("what is no number", "u namespace:1.0.1 node:4.0.0", r.Bookmark("x"))
	step("and then numbers", "u namespace:1.0.1 node:4.0.0", r.Update(podAt("a", "3", 12)))
	step("and then a list", rest+"pod:e.0.1.1", r.Replace([]any{podAt("a", "3", 13)}, "14"))
	step("an empty list at first", rest+"pod:e.0.1.1 service:5.0.0", (&reader{source: s, kind: kindNamed(t, "Service")}).Replace(nil, "5"))
}

// A kind whose definition is gone has been read, too.
func TestPositionOfMissing(t *testing.T) {
	s, r := readerOf(t, answers{definitionPath: {404, definitionNotFound}})
	_, err := r.ListWithContext(t.Context(), metav1.ListOptions{})
	if err == nil {
		t.Fatal("no error")
	}
	do(t, (&reader{source: s, kind: kindNamed(t, "Namespace")}).Replace([]any{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u"}}}, "1"))
	if _, at := s.World(); at.String() != "u namespace:1.0.1.1 tier:9.0.0" {
		t.Errorf("at %q", at)
	}
}

func BenchmarkPosition(b *testing.B) {
	s := &Source{store: newStore(), intern: intern.New()}
	for _, k := range kinds(Networks{}) {
		r := &reader{source: s, kind: k, index: 0}
		s.status = append(s.status[:0], KindStatus{})
		s.synced = make(chan struct{})
		s.isSynced = true
		if err := r.Replace(nil, "123456789"); err != nil {
			b.Fatal(err)
		}
	}
	s.store.position.cluster = "0b5ec0a8-6f4f-4a5e-9a53-6a2fe1d0a001"
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		_, at := s.World()
		n = len(at.String())
	}
	b.ReportMetric(float64(n), "bytes")
}
