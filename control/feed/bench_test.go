package feed

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/compile"
	"isobar.dev/control/feed/feedtest"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// cpuSeconds returns the time that this process has had of all CPUs.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// peakHeap calls f and returns the most that the heap held meanwhile, in MB, what is garbage by then
// included, as samples of every 5 ms show it.
func peakHeap(f func()) float64 {
	done, out := make(chan struct{}), make(chan float64)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		most := 0.0
		for tick := time.Tick(5 * time.Millisecond); ; {
			select {
			case <-tick:
				metrics.Read(sample)
				most = max(most, float64(sample[0].Value.Uint64())/1e6)
			case <-done:
				out <- most
				return
			}
		}
	}()
	f()
	close(done)
	return <-out
}

func encoder() apiruntime.Encoder {
	scheme := apiruntime.NewScheme()
	if err := controlplanev1beta2.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return protobuf.NewSerializer(scheme, scheme)
}

// everyNode lists and encodes what each Node begins with, each object once, and counts
// objects and bytes as they are sent.
func everyNode(f *Feed, e apiruntime.Encoder) (sent, bytes int) {
	for _, target := range f.engine.Targets() {
		for r := range resources {
			list, _ := f.List(r, Span{target: target})
			sent += len(list)
			for _, o := range list {
				n := counter(0)
				if err := o.(*shared).CacheEncode("protobuf", func(o apiruntime.Object, w io.Writer) error { return e.Encode(o, w) }, &n); err != nil {
					panic(err)
				}
				bytes += int(n)
			}
		}
	}
	return sent, bytes
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// From objects in memory to what all Nodes are told, and from there to what they are
// sent at first, all encoded. Time and CPU are of both; the heap is what is retained once the objects are gone, after the first
// and after both.
func BenchmarkConverge(b *testing.B) {
	for _, shape := range feedtest.Shapes {
		for _, size := range []float64{0.5, 1} {
			b.Run(fmt.Sprintf("%s/%g", shape.Name, size), func(b *testing.B) {
				before := heap()
				in := shape.Make(size)
				start := heap()
				e := encoder()
				var s policy.Snapshot
				var f *Feed
				var sent, bytes int
				var peak float64
				cpu, first, firstCPU := cpuSeconds(), time.Duration(0), 0.0
				for b.Loop() {
					began, had := time.Now(), cpuSeconds()
					peak = max(peak, peakHeap(func() {
						s = in.Snapshot()
						f = New(compile.NewEngine())
						f.Update(s)
						first += time.Since(began)
						firstCPU += cpuSeconds() - had
						if b.N > 1 {
							sent, bytes = everyNode(f, e)
						}
					}))
				}
				b.StopTimer()
				n := float64(b.N)
				b.ReportMetric((cpuSeconds()-cpu)*1e3/n, "cpu-ms/op")
				b.ReportMetric(first.Seconds()*1e3/n, "compile-ms/op")
				b.ReportMetric(firstCPU*1e3/n, "compile-cpu-ms/op")
				in.Drop()
				b.ReportMetric(heap()-before, "retained-MB")
				sent, bytes = everyNode(f, e)
				b.ReportMetric(heap()-before, "served-MB")
				b.ReportMetric(peak-start, "peak-MB")
				b.ReportMetric(float64(sent), "sent")
				b.ReportMetric(float64(bytes)/1e6, "sent-MB")
				b.ReportMetric(float64(s.Workloads.Len()), "workloads")
				checkConverged(b, s, f)
				runtime.KeepAlive(in)
			})
		}
	}
}

// checkConverged asks some flows of what the Nodes would enforce.
func checkConverged(b *testing.B, s policy.Snapshot, f *Feed) {
	rnd := policytest.Rand(1)
	allowed := 0
	for _, flow := range policytest.Flows(rnd, s, 20) {
		from, to, err := s.Ends(flow)
		if err != nil || from.Subject == nil || to.Subject == nil {
			continue
		}
		var rulesets []policy.Ruleset
		for _, target := range slices.Compact(slices.Sorted(slices.Values([]string{from.Subject.Target, to.Subject.Target}))) {
			if rs, ok := f.engine.Ruleset(target); ok {
				rulesets = append(rulesets, rs)
			}
		}
		want, err := policy.Evaluate(s, flow)
		if err != nil {
			b.Fatal(err)
		}
		got, err := compile.Verdict(rulesets, s, flow)
		if err != nil || got.Action != want.Action {
			b.Fatalf("%+v: %v, %v; it means %v", flow, got, err, want)
		}
		allowed++
	}
}

// One Pod's label changes in a cluster of 100,000 with 10,100 policies, while three watchers of each of 1,000
// Nodes read. The delays are until the last watcher that it concerns has its event, from before Update.
func BenchmarkPodLabel(b *testing.B) {
	s := feedtest.Cluster(100, 1_000, 101, 10).Snapshot()
	f := New(compile.NewEngine())
	f.Update(s)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := heap()
	var mu sync.Mutex
	var last time.Time
	events := 0
	var ready sync.WaitGroup
	for _, target := range f.engine.Targets() {
		for r := range resources {
			w := f.Watch(ctx, r, WatchOptions{Span: Span{target: target}})
			ready.Add(1)
			go func() {
				for e := range w.ResultChan() {
					if e.Type == watch.Bookmark {
						ready.Done()
						continue
					}
					now := time.Now()
					mu.Lock()
					last, events = now, events+1
					mu.Unlock()
				}
			}()
		}
	}
	ready.Wait()
	b.ReportMetric((heap()-before)*1e3/3_000, "KB/watcher")
	var changed *policy.Workload
	for _, w := range s.Workloads.All() {
		changed = w
		break
	}
	other := *changed
	other.Labels = policy.Labels{{Key: "app", Value: "app-7"}}
	worlds := [2]policy.Snapshot{s, s}
	worlds[0].Workloads = s.Workloads.Put(other.ID, &other)
	var delays []time.Duration
	events = 0
	cpu := cpuSeconds()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		f.Update(worlds[i%2])
		for quiet := 0; quiet < 3; quiet++ { // until nothing more has come
			mu.Lock()
			n := events
			mu.Unlock()
			runtime.Gosched()
			time.Sleep(200 * time.Microsecond)
			mu.Lock()
			if events != n {
				quiet = 0
			}
			mu.Unlock()
		}
		mu.Lock()
		delays = append(delays, last.Sub(began))
		mu.Unlock()
	}
	b.StopTimer()
	slices.Sort(delays)
	b.ReportMetric((cpuSeconds()-cpu)*1e6/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(events)/float64(b.N), "events/op")
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
}

// The bookmark of a moment, which is made and encoded for each watch that has had an event, without and with the position of
// a world of 14 kinds; and what it takes to know of one more.
func BenchmarkBookmark(b *testing.B) {
	at := controlplanev1beta2.Position{Cluster: "0b5ec0a8-6f4f-4a5e-9a53-6a2fe1d0a001"}
	for i, kind := range []string{"acnp", "annp", "anp", "banp", "cgroup", "cnp", "ee", "group", "namespace", "node", "np", "pod", "service", "tier"} {
		n := uint64(123_456_789 + 1000*i)
		at.Kinds = append(at.Kinds, controlplanev1beta2.KindPosition{Kind: kind, Read: n, Changed: n - 500, Newest: n - 500, Count: uint64(7 * i * i * i)})
	}
	for name, at := range map[string]controlplanev1beta2.Position{"moment": {}, "position": at} {
		b.Run(name, func(b *testing.B) {
			f, e := New(compile.NewEngine()), encoder()
			f.UpdateAt(policy.Snapshot{}, at)
			w := f.watcher(NetworkPolicies, WatchOptions{Marks: true})
			n := counter(0)
			b.ReportAllocs()
			for b.Loop() {
				n = 0
				if err := e.Encode(w.bookmark(f.moment([resources]uint64{}), false).Object, &n); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n), "bytes")
		})
	}
	b.Run("advance", func(b *testing.B) {
		f := New(compile.NewEngine())
		b.ReportAllocs()
		for b.Loop() {
			f.Advance(at)
		}
	})
}
