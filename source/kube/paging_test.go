package kube

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"isobar.dev/control/plane/planetest"
)

// An API server that cannot stream is read in pages, each converted at once.
func TestPaging(t *testing.T) {
	e := planetest.Start(t)
	ns := e.Namespace(t)
	client := kubernetes.NewForConfigOrDie(e.Config())
	for i := range 5 {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := client.CoreV1().Services(ns).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(e.Config(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.readers {
		if r.kind.name != "Service" {
			continue
		}
		pages := 0
		p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			pages++
			return r.ListWithContext(ctx, o)
		})
		p.PageSize = 2
		var items []any
		err := p.EachListItem(t.Context(), metav1.ListOptions{ResourceVersion: "0"}, func(obj runtime.Object) error {
			items = append(items, obj)
			return nil
		})
		if err != nil || pages < 3 {
			t.Fatalf("%d pages: %v", pages, err)
		}
		do(t, r.Replace(items, ""))
	}
	for i := range 5 {
		if _, ok := s.Snapshot().Services.Get(fmt.Sprint(ns, "/s", i)); !ok {
			t.Errorf("service s%d is missing", i)
		}
	}
}
