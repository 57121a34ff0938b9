package plane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane/planetest"
)

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	c := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	cm := configMap("full")
	if _, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "end of the namespace", func(ctx context.Context) error {
		return wantGone(c.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
	})
	if err := wantGone(c.CoreV1().ConfigMaps(ns).Get(t.Context(), cm.Name, metav1.GetOptions{})); err != nil {
		t.Errorf("ConfigMap outlived its namespace: %v", err)
	}
}

// What is owned goes with its owner, of a kind that is built in and of one that came later.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "planetest/testdata/crd")
	c := kubernetes.NewForConfigOrDie(e.Config())
	d := dynamic.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	fronts := d.Resource(schema.GroupVersionResource{Group: "test.isobar.dev", Version: "v1", Resource: "fronts"}).Namespace(ns)

	front, err := fronts.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.isobar.dev/v1", "kind": "Front", "metadata": map[string]any{"name": "cold"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept, byFront, byMap := configMap("kept"), configMap("by-front"), configMap("by-map")
	byFront.OwnerReferences = []metav1.OwnerReference{{APIVersion: "test.isobar.dev/v1", Kind: "Front", Name: "cold", UID: front.GetUID()}}
	byMap.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
	for _, cm := range []*corev1.ConfigMap{kept, byFront, byMap} {
		if _, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fronts.Delete(t.Context(), "cold", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().ConfigMaps(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"by-map", "by-front"} {
		planetest.Eventually(t, "end of "+name, func(ctx context.Context) error {
			return wantGone(c.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{}))
		})
	}
	if _, err := c.CoreV1().ConfigMaps(ns).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("ConfigMap without owner: %v", err)
	}
}

func TestRootCAIsPublished(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	c := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	planetest.Eventually(t, "kube-root-ca.crt", func(ctx context.Context) error {
		cm, err := c.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && cm.Data["ca.crt"] != string(e.Config().CAData) {
			err = errors.New("is not the authority of the kubeconfig")
		}
		return err
	})
}

func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	c := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	labels := map[string]string{"app": "web"}
	if _, err := c.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The controller leaves out Pods of a Node that it does not know.
	if _, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := c.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: ns, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // there is no kubelet that would confirm its end
		if err := c.CoreV1().Pods(ns).Delete(context.Background(), "web", *metav1.NewDeleteOptions(0)); err != nil {
			t.Error(err)
		}
	})
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if _, err := c.CoreV1().Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "endpoint of the Service", func(ctx context.Context) error {
		list, err := c.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			for _, ep := range s.Endpoints {
				if len(ep.Addresses) == 1 && ep.Addresses[0] == "10.1.2.3" {
					return nil
				}
			}
		}
		return fmt.Errorf("none in %d slices", len(list.Items))
	})
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// wantGone is nil when err says that the object does not exist.
func wantGone(_ any, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return errors.New("still there")
}
