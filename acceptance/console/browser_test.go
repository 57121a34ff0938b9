package console

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the screenshots in docs/console")

// wait bounds what a page may take to show something, on a machine that does other work too.
const wait = 90 * time.Second

// chromium returns a browser of its own, which ends with the test.
func chromium(t testing.TB) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("missing: chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(wait),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"),
		// The map is drawn by WebGL, for which there is no GPU here.
		chromedp.Flag("use-angle", "swiftshader"), chromedp.Flag("enable-unsafe-swiftshader", true),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		stop()
		end()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// tab is a page of a browser, and what went wrong in it.
type tab struct {
	testing.TB
	ctx context.Context
	url string // of the console, without a path

	mu     sync.Mutex
	faults []string
}

// newTab returns a tab of a browser, in which cookies of others are not seen.
func newTab(t testing.TB, browser context.Context, url string) *tab {
	t.Helper()
	p := &tab{TB: t, url: strings.TrimSuffix(url, "/")}
	ctx, stop := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.heard))
	p.ctx = ctx
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil { // a tab ends with the context that has opened it
		t.Fatal(err)
	}
	p.size(1440, 900)
	call(p, log.Enable, cdp.Empty{})
	call(p, page.Enable, page.EnableParams{})
	t.Cleanup(func() {
		if t.Failed() {
			p.keep()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.faults {
			t.Errorf("the page has said: %s", f)
		}
	})
	return p
}

// passing is what a page is told that it takes well: nobody is logged in, or it asks again a moment later.
var passing = regexp.MustCompile(`status of (401|429)`)

// heard notes what goes wrong.
func (p *tab) heard(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.fault("exception: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			p.fault("console.%s: %s", e.Type, strings.Join(words, " "))
		}
	case *log.EventEntryAdded: // such as what the content security policy has blocked
		if e.Entry.Level == log.EntryLevelError && !passing.MatchString(e.Entry.Text) {
			p.fault("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		p.fault("a dialog has opened: %s", e.Message)
	}
}

func (p *tab) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// run runs an action, for as long as wait.
func run[T any](p *tab, a chromedp.Action[T]) T {
	p.Helper()
	ctx, stop := context.WithTimeout(p.ctx, wait)
	defer stop()
	out, err := chromedp.Run(ctx, a)
	if err != nil {
		p.Fatalf("%v\nthe page shows:\n%s", err, p.peek())
	}
	return out
}

// do runs actions.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	run(p, chromedp.Steps(steps...))
}

// call runs a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.Helper()
	return run(p, func(ctx context.Context, _ *chromedp.Target) (R, error) { return chromedp.Call(ctx, command, params) })
}

// peek is what the page shows, of one that may be broken.
func (p *tab) peek() string {
	ctx, stop := context.WithTimeout(p.ctx, 5*time.Second)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// size makes the page's part of the window that large.
func (p *tab) size(width, height int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// theme asks for light or dark.
func (p *tab) theme(name string) {
	p.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// open leads to a path of the console, as a new visit.
func (p *tab) open(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.url + path))
}

// eval returns what an expression says, having waited for a promise.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	return run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression is true of the page.
func (p *tab) await(what, expression string) {
	p.Helper()
	ctx, stop := context.WithTimeout(p.ctx, wait)
	defer stop()
	if _, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(wait))); err != nil {
		p.Fatalf("the page does not show %s: %v\nit shows:\n%s", what, err, p.peek())
	}
}

// awaitText waits until the page's main part has a text.
func (p *tab) awaitText(text string) {
	p.Helper()
	p.await(fmt.Sprintf("%q", text), fmt.Sprintf(`document.querySelector("main")?.innerText.includes(%s)`, quoted(text)))
}

// text is what the page's main part shows.
func (p *tab) text() string {
	p.Helper()
	return eval[string](p, `document.querySelector("main").innerText`)
}

// quoted is a string of JavaScript.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // of a string there is none
	}
	return string(b)
}

// picture takes one, for docs/console if -update is given.
func (p *tab) picture(name string) {
	p.Helper()
	if !*update {
		return
	}
	b := run(p, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join("../../docs/console", name+".png"), b, 0o644); err != nil {
		p.Fatal(err)
	}
}

// keep keeps a picture of a test that has failed, where the test is told to.
func (p *tab) keep() {
	dir := os.Getenv("ISOBAR_PICTURES")
	if dir == "" {
		return
	}
	ctx, stop := context.WithTimeout(p.ctx, 10*time.Second)
	defer stop()
	b, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Logf("no picture: %v", err)
		return
	}
	path := filepath.Join(dir, strings.ReplaceAll(p.Name(), "/", "-")+".png")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		p.Logf("no picture: %v", err)
	}
}

// pages are those of the console, and a text that each has when its view has come.
var pages = []struct{ path, name string }{
	{"/map", "map"}, {"/matrix", "matrix"}, {"/explain", "explain"}, {"/policies", "policies"},
	{"/workloads", "workloads"}, {"/preview", "preview"}, {"/accounts", "accounts"},
}

// violation is what axe finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		Target         []any
		FailureSummary string
	}
}

// axe fails the test for each serious fault of accessibility that the page has now.
func (p *tab) axe(where string) {
	p.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		p.Skip("missing: axe-core; `npm ci` in acceptance/console brings it")
	}
	eval[chromedp.Void](p, string(source)+"; undefined")
	found := eval[[]violation](p, `axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations.map(v => ({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map(n => ({Target: n.target, FailureSummary: n.failureSummary}))})))`)
	for _, v := range found {
		report := p.Logf
		if v.Impact == "serious" || v.Impact == "critical" {
			report = p.Errorf
		}
		for _, n := range v.Nodes[:min(3, len(v.Nodes))] {
			report("%s: axe: %s (%s): %s: %v: %s", where, v.ID, v.Impact, v.Help, n.Target, n.FailureSummary)
		}
	}
}
