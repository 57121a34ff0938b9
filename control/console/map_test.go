package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

type mapGroup struct {
	ID, Name, Kind                                               string
	Workloads, Pods, VMs, Nodes, IsolatedIngress, IsolatedEgress int
}

type mapEdge struct {
	From, To                         string
	Pairs, Allowed, Partial, Depends int
	Traffic                          []string
	MoreTraffic                      int
	By                               string
}

type mapOf struct {
	By      string
	Groups  []mapGroup
	Edges   []mapEdge
	Omitted struct{ Groups, Edges int }
}

type matrixOf struct {
	By     string
	Ports  []string
	Groups []struct {
		ID, Name  string
		Workloads int
	}
	Counts  [][6]int
	Cells   [][]int
	Omitted struct{ Groups int }
}

// matrixCell is one that is told.
type matrixCell struct{ From, To, Pairs, Apart, Allowed, Denied, Partial, Depends int }

// cells are those that are told.
func (m matrixOf) cells(t *testing.T) (out []matrixCell) {
	t.Helper()
	if len(m.Cells) != len(m.Groups) {
		t.Fatalf("%d rows of %d groups", len(m.Cells), len(m.Groups))
	}
	for from, row := range m.Cells {
		if len(row) != len(m.Groups) {
			t.Fatalf("a row of %d cells, of %d groups", len(row), len(m.Groups))
		}
		for to, n := range row {
			if n != -1 {
				c := m.Counts[n]
				out = append(out, matrixCell{from, to, c[0], c[1], c[2], c[3], c[4], c[5]})
			}
		}
	}
	return out
}

type cellOf struct {
	From, To string
	Asked    []struct {
		Port                     string
		Allowed, Denied, Depends int
		By                       []struct {
			Pairs             int
			From, To, Verdict string
			Egress, Ingress   decision
		}
	}
}

type decision struct {
	Verdict, Policy, Rule, Kind, Namespace, Reason string
	Ties                                           []string
	Hidden                                         bool
}

// ends are the workloads of a world that can have flows.
func ends(s policy.Snapshot) (out []*policy.Workload) {
	for _, w := range s.Workloads.All() {
		if len(w.Addrs) > 0 && !w.Terminated {
			out = append(out, w)
		}
	}
	return out
}

// groupOf is the group of a workload for a viewer.
func groupOf(t *testing.T, v console.Viewer, by string, w *policy.Workload) string {
	right := console.Right{Verb: "list", Resource: map[policy.Kind]string{policy.KindPod: "pods", policy.KindNode: "nodes", policy.KindExternal: "externalentities"}[w.Kind], Namespace: w.Namespace}
	may, err := v.May(t.Context(), right)
	if err != nil {
		t.Fatal(err)
	}
	key, isLabel := strings.CutPrefix(by, "label:")
	switch value, has := w.Labels.Value(key); {
	case !may:
		return "hidden"
	case isLabel && has:
		return "label/" + key + "=" + value
	case isLabel:
		return "label/" + key
	case by == "network":
		return "net/" + w.Network
	case by == "workload":
		return w.ID
	case w.Kind == policy.KindNode:
		return "(nodes)"
	}
	return "ns/" + w.Namespace
}

// every is traffic of every kind that policytest's worlds tell apart.
func every(s policy.Snapshot) []policy.Flow {
	ports := map[uint16]bool{1: true, 65535: true}
	note := func(n ...uint16) {
		for _, n := range n {
			ports[n-1], ports[n], ports[n+1] = true, true, true
		}
	}
	types := map[uint8]bool{0: true, 255: true}
	for _, w := range s.Workloads.All() {
		for _, p := range w.Ports {
			note(p.Port)
		}
	}
	for _, svc := range s.Services.All() {
		for _, p := range svc.Ports {
			note(p.Port)
		}
	}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, x := range r.Traffic {
				note(x.Ports.First, x.Ports.Last)
				for _, v := range []*uint8{x.ICMPType, x.ICMPCode, x.IGMPType} {
					if v != nil {
						types[*v], types[*v+1] = true, true
					}
				}
			}
		}
	}
	delete(ports, 0)
	out := []policy.Flow{{Protocol: policy.OtherProtocol}}
	for n := range ports {
		for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			out = append(out, policy.Flow{Protocol: p, Port: n})
		}
	}
	for n := range types {
		out = append(out, policy.Flow{Protocol: policy.IGMP, ICMPType: n})
		for c := range types {
			out = append(out, policy.Flow{Protocol: policy.ICMP, ICMPType: n, ICMPCode: c})
		}
	}
	return out
}

// viewers see all, one namespace, or nothing.
func viewers(s policy.Snapshot) map[string]console.Viewer {
	out := map[string]console.Viewer{"all": console.All("admin"), "nothing": tenant(nil)}
	if all := namespaces(s); len(all) > 0 {
		out["one namespace"] = tenant(all[:1])
	}
	return out
}

// The map has of any two groups what Evaluate says of each of their pairs, by all traffic and at all addresses; what a viewer may
// not see counts in one group alone, and nothing is told of what is inside it.
func TestMapIsEvaluates(t *testing.T) {
	edges, hidden := 0, 0
	for seed := range policytest.Seeds(t, 12) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 7)
		flows := every(s)
		type verdicts struct{ meets, all, some, may bool }
		known := map[[2]string]verdicts{}
		for _, a := range ends(s) {
			for _, b := range ends(s) {
				x := verdicts{all: true}
				for _, f := range flows {
					f.From, f.To = policy.Endpoint{Workload: a.ID}, policy.Endpoint{Workload: b.ID}
					v, err := policytest.Evaluate(s, f)
					if err != nil || a == b {
						continue
					}
					open := func(d policy.Decision) bool { return d.Action == policy.Allow || len(d.Needs) > 0 }
					x.meets = true
					switch {
					case v.Action == policy.Allow:
						x.some = true
						continue
					case open(v.Egress) && open(v.Ingress):
						x.may = true
					}
					x.all = false
				}
				known[[2]string{a.ID, b.ID}] = x
			}
		}
		for who, v := range viewers(s) {
			for _, by := range []string{"namespace", "network", "label:app", "workload"} {
				got := get[mapOf](t, console.Handler(console.Fixed{Snapshot: s}, v), "/map?open=true&by="+url.QueryEscape(by))
				want := map[[2]string]mapEdge{}
				size := map[string]int{"outside": 0}
				for _, a := range ends(s) {
					from := groupOf(t, v, by, a)
					size[from]++
					for _, b := range ends(s) {
						x, at := known[[2]string{a.ID, b.ID}], [2]string{from, groupOf(t, v, by, b)}
						e := want[at]
						if x.meets {
							e.Pairs++
							switch {
							case x.all:
								e.Allowed++
							case x.some:
								e.Partial++
							}
							if x.may {
								e.Depends++
							}
						}
						want[at] = e
					}
				}
				delete(want, [2]string{"hidden", "hidden"})
				for at, e := range want {
					if e.Allowed+e.Partial+e.Depends == 0 {
						delete(want, at)
					}
				}
				for _, e := range got.Edges {
					at := [2]string{e.From, e.To}
					if e.From == "outside" || e.To == "outside" {
						continue
					}
					x, ok := want[at]
					if !ok || e.Pairs != x.Pairs || e.Allowed != x.Allowed || e.Partial != x.Partial || e.Depends != x.Depends || len(e.Traffic) == 0 {
						t.Fatalf("seed %d: %s by %s: %+v, want %+v\n%s", seed, who, by, e, x, policytest.Print(s))
					}
					edges++
					if e.From == "hidden" || e.To == "hidden" {
						hidden++
					}
					delete(want, at)
				}
				if len(want) > 0 {
					t.Fatalf("seed %d: %s by %s: no edge %v", seed, who, by, want)
				}
				for _, g := range got.Groups {
					if g.Workloads != size[g.ID] || g.ID == "hidden" && g.Pods+g.VMs+g.Nodes+g.IsolatedEgress+g.IsolatedIngress > 0 {
						t.Fatalf("seed %d: %s by %s: %+v, want %d workloads", seed, who, by, g, size[g.ID])
					}
					delete(size, g.ID)
				}
				if len(size) > 0 || got.Omitted.Edges+got.Omitted.Groups > 0 {
					t.Fatalf("seed %d: %s by %s: no group %v, omitted %v", seed, who, by, size, got.Omitted)
				}
			}
		}
	}
	if edges < 500 || hidden < 50 {
		t.Errorf("only %d edges, %d of what is hidden", edges, hidden)
	}
}

// A matrix counts what Evaluate says of each pair, and a cell says by what.
func TestMatrixIsEvaluates(t *testing.T) {
	flows := []policy.Flow{{Protocol: policy.TCP, Port: 80}, {Protocol: policy.UDP, Port: 53}, {Protocol: policy.ICMP, ICMPType: 8}}
	const ports = "&port=TCP/80&port=udp/53&port=ICMP/8"
	for seed := range policytest.Seeds(t, 20) {
		s := policytest.World(policytest.Rand(seed), 10)
		for who, v := range viewers(s) {
			h := console.Handler(console.Fixed{Snapshot: s}, v)
			for _, by := range []string{"namespace", "label:app"} {
				got := get[matrixOf](t, h, "/matrix?by="+url.QueryEscape(by)+ports)
				if fmt.Sprint(got.Ports) != "[TCP/80 UDP/53 ICMP/8]" {
					t.Fatal(got.Ports)
				}
				type counts struct{ pairs, apart, allowed, denied, partial int }
				want := map[[2]string]counts{}
				byPort := map[[2]string][3]int{} // allowed
				for _, a := range ends(s) {
					for _, b := range ends(s) {
						if a == b {
							continue
						}
						at := [2]string{groupOf(t, v, by, a), groupOf(t, v, by, b)}
						c, p := want[at], byPort[at]
						passed, apart := 0, false
						for i, f := range flows {
							f.From, f.To = policy.Endpoint{Workload: a.ID}, policy.Endpoint{Workload: b.ID}
							verdict, err := policytest.Evaluate(s, f)
							apart = apart || err != nil
							if err == nil && verdict.Action == policy.Allow {
								passed++
								p[i]++
							}
						}
						switch {
						case apart:
							c.apart++
						case passed == len(flows):
							c.allowed++
						case passed == 0:
							c.denied++
						default:
							c.partial++
						}
						c.pairs = c.allowed + c.denied + c.partial
						want[at], byPort[at] = c, p
					}
				}
				if _, ok := want[[2]string{"hidden", "hidden"}]; ok {
					delete(want, [2]string{"hidden", "hidden"})
					ask(t, h, http.MethodGet, "/cell?from=hidden&to=hidden&by="+url.QueryEscape(by)+ports, "", http.StatusBadRequest)
				}
				for _, c := range got.cells(t) {
					at := [2]string{got.Groups[c.From].ID, got.Groups[c.To].ID}
					if is := (counts{c.Pairs, c.Apart, c.Allowed, c.Denied, c.Partial}); is != want[at] {
						t.Fatalf("seed %d: %s by %s: %v: %+v, want %+v", seed, who, by, at, is, want[at])
					}
					delete(want, at)
					if seed%4 != 0 || c.Pairs == 0 {
						continue
					}
					one := get[cellOf](t, h, "/cell?by="+url.QueryEscape(by)+"&from="+url.QueryEscape(at[0])+"&to="+url.QueryEscape(at[1])+ports)
					for i, a := range one.Asked {
						n := 0
						for _, x := range a.By {
							n += x.Pairs
						}
						if a.Allowed != byPort[at][i] || a.Allowed+a.Denied != c.Pairs || n != c.Pairs {
							t.Fatalf("seed %d: %s by %s: %v: %+v, want %d of %d allowed", seed, who, by, at, a, byPort[at][i], c.Pairs)
						}
						for _, x := range a.By {
							checkBy(t, s, v, flows[i], x.From, x.To, x.Verdict, x.Egress, x.Ingress)
						}
					}
				}
				if len(want) > 0 {
					t.Fatalf("seed %d: %s by %s: no cell %v", seed, who, by, want)
				}
			}
		}
	}
}

// checkBy checks that the example of a cell has what is told, and that nothing is told of what is not seen.
func checkBy(t *testing.T, s policy.Snapshot, v console.Viewer, f policy.Flow, from, to, verdict string, egress, ingress decision) {
	t.Helper()
	for _, d := range []decision{egress, ingress} {
		seen := d.Policy == ""
		for _, p := range s.Policies.All() {
			if p.Name != d.Policy || p.Dialect.String() != d.Kind || p.Namespace != d.Namespace {
				continue
			}
			may, _ := v.May(t.Context(), console.Right{Verb: "list", Namespace: p.Namespace})
			seen = seen || may
		}
		if !seen || d.Hidden && (d.Rule != "" || d.Kind != "" || d.Namespace != "" || d.Policy != "") {
			t.Fatalf("told of a policy that is not seen: %+v", d)
		}
	}
	for _, id := range []string{from, to} {
		if w, ok := s.Workloads.Get(id); ok && groupOf(t, v, "workload", w) == "hidden" || !ok && id != "hidden" {
			t.Fatalf("%s is not seen", id)
		}
	}
	if from == "hidden" || to == "hidden" {
		return
	}
	f.From, f.To = policy.Endpoint{Workload: from}, policy.Endpoint{Workload: to}
	want, err := policytest.Evaluate(s, f)
	if err != nil {
		t.Fatal(err)
	}
	if verdict != want.Action.String() || egress.Reason != want.Egress.Reason.String() || ingress.Reason != want.Ingress.Reason.String() ||
		(egress.Policy != "" || egress.Hidden) != (want.Egress.Policy != "") || (ingress.Policy != "" || ingress.Hidden) != (want.Ingress.Policy != "") {
		t.Fatalf("%s to %s: %s by %+v and %+v, want %+v", from, to, verdict, egress, ingress, want)
	}
}

// shop is a world of two namespaces, of which one lets the other in.
func shop() policy.Snapshot {
	var s policy.Snapshot
	for i, id := range []string{"shop/web-1", "shop/web-2", "shop/db", "jobs/report", "jobs/mail"} {
		ns, name, _ := strings.Cut(id, "/")
		app, _, _ := strings.Cut(name, "-")
		w := &policy.Workload{ID: "pod/" + id, Kind: policy.KindPod, Namespace: ns, Name: name, Node: "n", Labels: policy.LabelsOf(map[string]string{"app": app}),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})}}
		s.Workloads = s.Workloads.Put(w.ID, w)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
	}
	pods := func(ns, app string) policy.Set {
		sel := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns}
		if app != "" {
			sel.Labels = policy.Selector{{Key: "app", Op: policy.In, Values: []string{app}}}
		}
		return policy.Set{Selections: []policy.Selection{sel}}
	}
	p := &policy.Policy{ID: "networkpolicy/shop/db", Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "db", Tier: policy.TierKubernetes, IsolatesIngress: true, AppliedTo: pods("shop", "db"),
		Ingress: []policy.Rule{{Action: policy.Allow, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 5432, Last: 5432}}}, Peers: policy.Peers{Set: pods("shop", "web")}}}}
	s.Policies = s.Policies.Put(p.ID, p)
	return s
}

func (m mapOf) String() string {
	var b strings.Builder
	for _, g := range m.Groups {
		fmt.Fprintf(&b, "%s %q %s %d isolated %d %d\n", g.ID, g.Name, g.Kind, g.Workloads, g.IsolatedIngress, g.IsolatedEgress)
	}
	for _, e := range m.Edges {
		fmt.Fprintf(&b, "%s > %s %d of %d and %d %s by %s\n", e.From, e.To, e.Allowed, e.Pairs, e.Partial, strings.Join(e.Traffic, ","), e.By)
	}
	return b.String()
}

func TestMapOf(t *testing.T) {
	h := console.Handler(console.Fixed{Snapshot: shop()}, console.All("admin"))
	for url, want := range map[string]string{
		"/map": `ns/jobs "jobs" namespace 2 isolated 0 0
ns/shop "shop" namespace 3 isolated 1 0
outside "(outside)" outside 0 isolated 0 0
ns/shop > ns/shop 4 of 6 and 2 all traffic by rule
`,
		"/map?within=ns/shop": `ns/jobs "jobs" namespace 2 isolated 0 0
outside "(outside)" outside 0 isolated 0 0
pod/shop/db "shop/db" workload 1 isolated 1 0
pod/shop/web-1 "shop/web-1" workload 1 isolated 0 0
pod/shop/web-2 "shop/web-2" workload 1 isolated 0 0
pod/shop/web-1 > pod/shop/db 0 of 1 and 1 TCP/5432 by rule
pod/shop/web-2 > pod/shop/db 0 of 1 and 1 TCP/5432 by rule
`,
		"/map?by=label:app&search=MAIL": `label/app=mail "app=mail" label 1 isolated 0 0
`,
		"/map?by=workload&search=db": `pod/shop/db "shop/db" workload 1 isolated 1 0
pod/shop/web-1 "shop/web-1" workload 1 isolated 0 0
pod/shop/web-2 "shop/web-2" workload 1 isolated 0 0
pod/shop/web-1 > pod/shop/db 0 of 1 and 1 TCP/5432 by rule
pod/shop/web-2 > pod/shop/db 0 of 1 and 1 TCP/5432 by rule
`,
		"/map?search=jobs&open=true": `ns/jobs "jobs" namespace 2 isolated 0 0
ns/shop "shop" namespace 3 isolated 1 0
outside "(outside)" outside 0 isolated 0 0
ns/jobs > ns/jobs 2 of 2 and 0 all traffic by default
ns/jobs > ns/shop 4 of 6 and 0 all traffic by default
ns/jobs > outside 2 of 2 and 0 all traffic by default
ns/shop > ns/jobs 6 of 6 and 0 all traffic by default
outside > ns/jobs 2 of 2 and 0 all traffic by default
`,
		"/map?by=network": `net/ "(cluster)" network 5 isolated 1 0
outside "(outside)" outside 0 isolated 0 0
net/ > net/ 16 of 20 and 2 all traffic by rule
`,
	} {
		if got := get[mapOf](t, h, url).String(); got != want {
			t.Errorf("%s:\n%swant\n%s", url, got, want)
		}
	}
}

// Nobody finds out by a search, or by a group's name, what is not seen.
func TestHiddenIsNotFound(t *testing.T) {
	h := console.Handler(console.Fixed{Snapshot: shop()}, tenant{"jobs"})
	if got := get[mapOf](t, h, "/map?open=true").String(); strings.Contains(got, "shop") || !strings.Contains(got, "hidden \"(not visible to you)\" hidden 3") {
		t.Errorf("the map has\n%s", got)
	}
	for _, url := range []string{"/map?search=web", "/map?search=shop", "/matrix?port=TCP/1&search=db", "/map?search=nothing-of-the-kind", "/map?search=hidden"} {
		if got := ask(t, h, http.MethodGet, url, "", http.StatusOK); !strings.Contains(got, `"groups":[]`) {
			t.Errorf("%s: %s", url, got)
		}
	}
	for _, url := range []string{"/map?within=ns/shop", "/cell?port=TCP/1&from=ns/shop&to=ns/jobs", "/cell?port=TCP/1&from=ns/jobs&to=pod/shop/db"} {
		text := ask(t, h, http.MethodGet, url, "", http.StatusNotFound)
		other := ask(t, h, http.MethodGet, strings.ReplaceAll(url, "shop", "none"), "", http.StatusNotFound)
		if strings.ReplaceAll(text, "shop", "none") != other {
			t.Errorf("%s: %s tells more than %s", url, text, other)
		}
	}
	c := get[cellOf](t, h, "/cell?port=TCP/5432&from=ns/jobs&to=hidden")
	if got, want := fmt.Sprint(c.Asked), "[{TCP/5432 4 2 0 [{4 pod/jobs/mail hidden Allow {Allow     default [] false} {Allow     not visible to you [] true}} "+
		"{2 pod/jobs/mail hidden Drop {Allow     default [] false} {Drop     not visible to you [] true}}]}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMapQueries(t *testing.T) {
	h := console.Handler(console.Fixed{Snapshot: shop()}, console.All("admin"))
	for _, tt := range []struct {
		url    string
		status int
		says   string
	}{
		{"/map?by=app", 400, `want namespace, network, label:KEY or workload`},
		{"/map?by=label:", 400, `want namespace`},
		{"/map?by=label:a=b", 400, `want namespace`},
		{"/map?open=yes", 400, `want true or false`},
		{"/map?within=ns/none", 404, `there is no group`},
		{"/map?within=outside", 404, `there is no group`},
		{"/map?within=hidden", 404, `there is no group`},
		{"/map?by=workload&within=pod/shop/db", 400, `no groups to open`},
		{"/map?port=TCP/1", 400, `no parameter`},
		{"/matrix", 400, `want from 1 to 16 of them`},
		{"/matrix?" + strings.Repeat("port=TCP/1&", 17), 400, `want from 1 to 16 of them`},
		{"/matrix?port=TCP", 400, `TCP needs a port`},
		{"/matrix?port=TCP/0", 400, `TCP needs a port`},
		{"/matrix?port=TCP/65536", 400, `not from 0 to 65535`},
		{"/matrix?port=TCP/80/81", 400, `want PROTO/PORT`},
		{"/matrix?port=TCP/-1", 400, `not from 0 to 65535`},
		{"/matrix?port=ANY", 400, `want TCP, UDP`},
		{"/matrix?port=ICMP/1/2/3", 400, `ICMP/TYPE/CODE`},
		{"/matrix?port=ICMP/256", 400, `not from 0 to 255`},
		{"/matrix?port=icmp/8/0&port=ICMP", 200, `"ports":["ICMP/8/0","ICMP"]`},
		{"/cell?port=TCP/80&from=ns/shop", 404, `to: there is no group`},
		{"/cell?port=TCP/80&from=outside&to=ns/shop", 400, `explain`},
		{"/cell?port=TCP/80&from=pod/shop/db&to=ns/shop", 200, `"pairs":2`},
	} {
		if text := ask(t, h, http.MethodGet, tt.url, "", tt.status); !strings.Contains(text, tt.says) {
			t.Errorf("%.80s: %s, want %s", tt.url, text, tt.says)
		}
	}
}

// patient asks again what was given up because it took too long, as it may on a busy machine.
func patient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got *httptest.ResponseRecorder
		for range 5 {
			got = httptest.NewRecorder()
			if h.ServeHTTP(got, r.Clone(r.Context())); got.Code != http.StatusGatewayTimeout {
				break
			}
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	})
}

// What is left out is the least, and counted.
func TestMapIsBounded(t *testing.T) {
	var s policy.Snapshot
	for i := range 2100 {
		ns := fmt.Sprintf("ns-%04d", i)
		for k := range 1 + i%2 {
			w := &policy.Workload{Kind: policy.KindPod, Namespace: ns, Name: fmt.Sprint("p", k), Node: "n", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)})}}
			w.ID = policy.WorkloadID(w.Kind, ns, w.Name)
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
	}
	h := patient(console.Handler(console.Fixed{Snapshot: s}, console.All("admin")))
	m := get[mapOf](t, h, "/map?open=true")
	if len(m.Groups) != 2001 || m.Omitted.Groups != 100 || len(m.Edges) != 5000 {
		t.Fatalf("%d groups, %d omitted, %d edges, %d omitted", len(m.Groups), m.Omitted.Groups, len(m.Edges), m.Omitted.Edges)
	}
	// To each other, to itself where it is two, and both ways outside.
	if want := 2000*1999 + 1050 + 2*2000 - 5000; m.Omitted.Edges != want {
		t.Errorf("%d edges omitted, want %d", m.Omitted.Edges, want)
	}
	for _, g := range m.Groups {
		if n := strings.TrimPrefix(g.ID, "ns-"); g.Workloads == 1 && n >= "ns/ns-1900" {
			t.Errorf("%s is there, and others are not", g.ID)
		}
	}
	x := get[matrixOf](t, h, "/matrix?port=TCP/80")
	if len(x.Groups) != 300 || x.Omitted.Groups != 1800 || len(x.cells(t)) != 90000 || x.Groups[0].Workloads != 2 {
		t.Errorf("%d groups, %d omitted, %d cells", len(x.Groups), x.Omitted.Groups, len(x.cells(t)))
	}
	x = get[matrixOf](t, h, "/matrix?port=TCP/80&search=ns-0000")
	if len(x.Groups) != 1 || x.Omitted.Groups != 0 || x.cells(t)[0].Pairs != 0 {
		t.Errorf("%+v", x)
	}
	m = get[mapOf](t, h, "/map?open=true&search=ns-0002")
	if len(m.Groups) != 2001 || m.Omitted.Groups != 100 || len(m.Edges) != 2*1999+2 {
		t.Errorf("%d groups, %d omitted, %d edges", len(m.Groups), m.Omitted.Groups, len(m.Edges))
	}
}

// What is computed of a world is computed once, whoever asks, and ends with whoever asks.
func TestReachIsShared(t *testing.T) {
	h := console.Handler(console.Fixed{Snapshot: shop()}, console.All("admin"))
	want := get[mapOf](t, h, "/map").String()
	s := console.New(console.Fixed{Snapshot: shop()})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if got := get[mapOf](t, s.Handler(console.All(fmt.Sprint("user-", i))), "/map").String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, url := range []string{"/map", "/matrix?port=TCP/1", "/cell?port=TCP/1&from=ns/shop&to=ns/jobs"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		s.Handler(console.All("admin")).ServeHTTP(w, req)
		if w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d: %s", url, w.Code, w.Body)
		}
	}
}

// Each view of a world of so many workloads that was asked about before, and after it has changed.
func BenchmarkReachViews(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		s := policytest.Town(n)
		for name, url := range map[string]string{
			"map": "/map", "map by workload": "/map?by=workload", "map within": "/map?within=ns/ns-3", "map search": "/map?search=app-3-7", "matrix": "/matrix?port=TCP/8080&port=TCP/443",
			"cell": "/cell?port=TCP/8080&from=ns/ns-3&to=ns/ns-3",
		} {
			ask := func(b *testing.B, h http.Handler) {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil)); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
				b.ReportMetric(float64(w.Body.Len()), "bytes")
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				h := console.Handler(console.Fixed{Snapshot: s}, console.All("admin"))
				ask(b, h)
				b.ReportAllocs()
				for b.Loop() {
					ask(b, h)
				}
			})
			b.Run(fmt.Sprintf("%s, first/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ask(b, console.Handler(console.Fixed{Snapshot: s}, console.All("admin")))
				}
			})
		}
	}
}
