package kube_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/source/kube"
)

// BenchmarkLatency is the time from a write of a label, its own answer included,
// to the Snapshot that has it.
func BenchmarkLatency(b *testing.B) {
	e := planetest.Start(b)
	s, err := kube.New(e.Config(), kube.Options{})
	if err != nil {
		b.Fatal(err)
	}
	go s.Run(b.Context())
	<-s.Synced()
	client := kubernetes.NewForConfigOrDie(e.Config()).CoreV1().Namespaces()
	ns := e.Namespace(b)
	i := 0
	for b.Loop() {
		i++
		want := fmt.Sprint("v", i)
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"l":%q}}}`, want)
		if _, err := client.Patch(b.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
		for has := false; !has; {
			if n, ok := s.Snapshot().Namespaces.Get(ns); ok {
				v, _ := n.Labels.Value("l")
				has = v == want
			}
			if !has {
				<-s.Changed()
			}
		}
	}
}
