package console

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"isobar.dev/policy"
)

// bad are names that an API server would not take, and labels, tags and descriptions that clouds do.
var bad = []string{
	`<img src=x onerror=alert(1)>`, `"><script>alert(2)</script>`, `{{7*7}}${7*7}`, `javascript:alert(3)`,
	"\u202egnp.exe", "שלום-עולם", "مرحبا", "a\nb\tc", "zero\u200bwidth\ufeff", strings.Repeat("long-", 100), "&lt;b&gt;", "'; DROP TABLE--", "\u2066isolate", "e\u0301\u0301\u0301\u0301\u0301\u0301",
}

// space is the namespace of the i-th of them.
func space(i int) string { return fmt.Sprintf("ns-%d %s", i%3, bad[i%3]) }

// hostile is a world of such names.
func hostile() policy.Snapshot {
	var s policy.Snapshot
	for i, name := range bad {
		space := space(i)
		s.Namespaces = s.Namespaces.Put(space, &policy.Namespace{Name: space, Labels: policy.LabelsOf(map[string]string{name: name})})
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindPod, space, name), Kind: policy.KindPod, Namespace: space, Name: name,
			Labels: policy.LabelsOf(map[string]string{"app": name, name: "x"}), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
		p := &policy.Policy{
			Name: name, Namespace: space, Dialect: policy.AntreaNetworkPolicy, Tier: "application", Priority: float64(i),
			AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{name}}}}}},
			Ingress: []policy.Rule{{Name: name, Action: policy.Drop, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{bad[(i+1)%len(bad)]}}}}}}},
				Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}}}},
		}
		p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// Names are shown as text: whatever they say, nothing is run, loaded, or moved about by them.
func TestHostileNames(t *testing.T) {
	at, code := inside(t, hostile())
	p := newTab(t, chromium(t), at)
	p.logIn(code())
	var paths []string
	for _, page := range pages {
		paths = append(paths, page.path)
	}
	for _, id := range hostile().Workloads.All() {
		paths = append(paths, "/workloads?"+url.Values{"search": {id.Name}}.Encode())
	}
	paths = append(paths, "/map?by=label%3Aapp", "/map?by=workload", "/matrix?"+url.Values{"by": {"label:app"}, "port": {"TCP/80"}}.Encode(),
		"/explain?"+url.Values{"from": {space(0) + "/" + bad[0]}, "to": {space(2) + "/" + bad[2]}, "port": {"TCP/80"}}.Encode())
	for _, path := range paths {
		p.open(path)
		p.await(path, settled)
		if n := eval[int](p, `document.querySelectorAll('img, script:not([src]), iframe, object, [onerror], a[href^="javascript:" i]').length`); n > 0 {
			t.Errorf("%s: %d elements that names have made", path, n)
		}
		if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			t.Errorf("%s: the page is %d pixels wider than the window", path, wide)
		}
		if text := p.text(); strings.ContainsAny(text, "\u202e\u2066\u200b\ufeff") {
			t.Errorf("%s shows what turns or hides text", path)
		}
	}
}

// settled is true of a page whose views have come.
const settled = `document.readyState === "complete" && document.querySelector("main h1") !== null && document.querySelector('main [aria-busy="true"], main .loading') === null`
