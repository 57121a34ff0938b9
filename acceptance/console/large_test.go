package console

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"isobar.dev/policy/policytest"
)

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
	at, code := inside(b, policytest.Town(20_000))
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
