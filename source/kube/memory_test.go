package kube

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

// podOnTheWire returns a Pod as an API server sends it: of a Deployment of ten
// replicas, with labels, ports, conditions and a status that nobody here needs.
func podOnTheWire(t testing.TB, i int) []byte {
	app := fmt.Sprintf("app-%d", i/10)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-7c5ddbdf54-x%04x", app, i), Namespace: fmt.Sprintf("team-%d", i/500), UID: "0f0e0d0c-0b0a-4908-8706-050403020100",
			ResourceVersion: fmt.Sprint(i), Labels: map[string]string{"app": app, "pod-template-hash": "7c5ddbdf54", "tier": "backend", "env": "prod"},
			Annotations: map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i%1000), ServiceAccountName: "default",
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/app:1.2.3", Args: []string{"--listen=:8080"},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
			}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address(i), PodIPs: []corev1.PodIP{{IP: address(i)}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	wire, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

func decodePod(t testing.TB, wire []byte) *corev1.Pod {
	p := new(corev1.Pod)
	if err := p.Unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	return p
}

func kindNamed(t testing.TB, name string) *kind {
	for _, k := range kinds(Networks{}) {
		if k.name == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

// podStrings is the length of the strings that a Pod's value cannot share.
func podStrings(s policy.Snapshot) (total int) {
	for key := range s.Workloads.All() {
		total += len(key)
	}
	return total
}

// fill reads n Pods into a store, as a first read does.
func fill(t testing.TB, n int) (*store, *intern.Interner) {
	k, st, in := kindNamed(t, "Pod"), newStore(), intern.New()
	items := make([]*item, n)
	for i := range items {
		it, err := k.read(decodePod(t, podOnTheWire(t, i)), in)
		if err != nil {
			t.Fatal(err)
		}
		items[i] = it
	}
	st.edit(func(e *edit) { e.replace(k, items) })
	return st, in
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first freed of caches
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// bytesPerPod returns what n Pods cost beyond their own strings.
func bytesPerPod(t testing.TB, n int) float64 {
	before := heap()
	st, in := fill(t, n)
	after := heap()
	own := float64(after-before) - float64(podStrings(*st.snapshot.Load()))
	runtime.KeepAlive(in)
	runtime.KeepAlive(st)
	return own / float64(n)
}

func TestMemoryOfAPod(t *testing.T) {
	const limit = 1024
	got := bytesPerPod(t, 20_000)
	t.Logf("a Pod costs %.0f bytes beyond its name", got)
	if got > limit {
		t.Errorf("a Pod costs %.0f bytes beyond its name, want at most %d", got, limit)
	}
}

func BenchmarkFirstRead(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.ReportMetric(bytesPerPod(b, n), "B/pod")
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/pod")
}

// BenchmarkEvent is what one event costs among 100,000 Pods, after its decoding.
func BenchmarkEvent(b *testing.B) {
	const n = 100_000
	st, in := fill(b, n)
	k := kindNamed(b, "Pod")
	for _, bb := range []struct {
		name   string
		change func(*corev1.Pod, int)
	}{
		{"noise", func(p *corev1.Pod, i int) { p.Status.Conditions = nil }},
		{"change", func(p *corev1.Pod, i int) { p.Labels["round"] = fmt.Sprint(i) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			pods := make([]*corev1.Pod, 1000)
			for i := range pods {
				pods[i] = decodePod(b, podOnTheWire(b, i*97))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p := pods[i%len(pods)]
				bb.change(p, i)
				it, err := k.read(p, in)
				if err != nil {
					b.Fatal(err)
				}
				st.edit(func(e *edit) { e.put(k, it) })
				i++
			}
		})
	}
	b.Run("decode", func(b *testing.B) {
		wire := podOnTheWire(b, 1)
		b.ReportAllocs()
		for b.Loop() {
			decodePod(b, wire)
		}
	})
}
