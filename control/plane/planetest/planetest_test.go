package planetest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane/planetest"
)

func TestMain(m *testing.M) { planetest.Main(m) }

func TestNamespaceTakesPodsAtOnce(t *testing.T) {
	e := planetest.Start(t)
	client := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	if other := e.Namespace(t); other == ns {
		t.Errorf("Namespace() = %q twice", ns)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("create Pod: %v", err)
	}
}

func TestApplyCRDsServesThem(t *testing.T) {
	e := planetest.Start(t)
	e.ApplyCRDs(t, "testdata/crd")
	e.ApplyCRDs(t, "testdata/crd") // the second call does nothing
	client := dynamic.NewForConfigOrDie(e.Config())
	for _, version := range []string{"v1", "v1beta1"} {
		gvr := schema.GroupVersionResource{Group: "test.isobar.dev", Version: version, Resource: "fronts"}
		if _, err := client.Resource(gvr).Namespace(e.Namespace(t)).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("list %s: %v", gvr, err)
		}
	}
}
