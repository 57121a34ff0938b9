package console

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"isobar.dev/policy"
)

// large is a world of 20,000 Pods and VMs in 200 namespaces: ten applications in each, of ten replicas, which may
// speak to the next one, to that of another namespace, and to the cluster's DNS.
func large() policy.Snapshot {
	const namespaces, apps, replicas = 200, 10, 10
	var s policy.Snapshot
	app := func(space, name string) policy.Peers {
		return policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: space, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{name}}}}}}}
	}
	tcp := func(port uint16) []policy.Traffic {
		return []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: port, Last: port}}}
	}
	for i := range namespaces {
		space := fmt.Sprintf("team-%03d", i)
		s.Namespaces = s.Namespaces.Put(space, &policy.Namespace{Name: space, Labels: policy.LabelsOf(map[string]string{"kubernetes.io/metadata.name": space})})
		for j := range apps {
			for k := range replicas {
				w := &policy.Workload{
					Kind: policy.KindPod, Namespace: space, Name: fmt.Sprintf("app-%d-%d", j, k), Node: fmt.Sprintf("node-%d", (i*apps+j+k)%100),
					Labels: policy.LabelsOf(map[string]string{"app": fmt.Sprintf("app-%d", j), "tier": []string{"front", "back"}[j%2]}),
					Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i), byte(j), byte(k)})},
				}
				if j == apps-1 {
					w.Kind = policy.KindExternal
				}
				w.ID = policy.WorkloadID(w.Kind, space, w.Name)
				s.Workloads = s.Workloads.Put(w.ID, w)
			}
			p := &policy.Policy{
				Name: fmt.Sprintf("app-%d", j), Namespace: space, Dialect: policy.KubernetesNetworkPolicy, Tier: policy.TierKubernetes, AppliedTo: app(space, fmt.Sprintf("app-%d", j)).Set, IsolatesIngress: true,
				Ingress: []policy.Rule{
					{Action: policy.Allow, Peers: app(space, fmt.Sprintf("app-%d", (j+1)%apps)), Traffic: tcp(uint16(8000 + j))},
					{Action: policy.Allow, Peers: app(fmt.Sprintf("team-%03d", (i+j+1)%namespaces), "app-0"), Traffic: tcp(443)},
				},
			}
			p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	return s
}

// watching notes in a page when its view is there, which tasks kept it from answering, and how long frames took.
const watching = `
	window.isobarTasks = [];
	new PerformanceObserver(l => isobarTasks.push(...l.getEntries().map(e => e.duration))).observe({type: "longtask", buffered: true});
	(function f() { if (` + settled + `) window.isobarView = performance.now(); else requestAnimationFrame(f) })();
	window.isobarFrames = [];
	window.isobarMeasure = () => { isobarTasks.length = 0; (function f(t0) { requestAnimationFrame(t => { isobarFrames.push(t - t0); f(t) }) })(performance.now()) };
`

// BenchmarkLarge measures pages of a world of 20,000 workloads: from the request to the first paint, and to the
// view being there; then the tasks and frames while somebody turns the wheel.
func BenchmarkLarge(b *testing.B) {
	at, code := inside(b, large())
	p := newTab(b, chromium(b), at)
	p.logIn(code())
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watching})
	for _, one := range pages {
		b.Run(one.name, func(b *testing.B) {
			var paint, view, loading, longest, frame float64
			for range b.N {
				p.open(one.path)
				p.await(one.path, `window.isobarView > 0 && performance.getEntriesByName("first-contentful-paint").length > 0`)
				paint += eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
				view += eval[float64](p, `isobarView`)
				loading = max(loading, eval[float64](p, `Math.max(0, ...isobarTasks)`))
				eval[chromedp.Void](p, `isobarMeasure()`)
				for i := range 40 {
					call(p, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: 700, Y: 500, DeltaX: 1, DeltaY: float64(161 - 8*i)})
				}
				longest = max(longest, eval[float64](p, `Math.max(0, ...isobarTasks)`))
				frame = max(frame, eval[float64](p, `isobarFrames.sort((a, b) => a - b)[Math.floor(isobarFrames.length * 0.95)]`))
			}
			n := float64(b.N)
			b.ReportMetric(paint/n, "paint-ms")
			b.ReportMetric(view/n, "view-ms")
			b.ReportMetric(loading, "longest-task-loading-ms")
			b.ReportMetric(longest, "longest-task-ms")
			b.ReportMetric(frame, "frame-p95-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
