package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// tenant may list whatever is in some namespaces, and nothing of the cluster.
type tenant []string

func (tenant) Name() string     { return "tenant" }
func (tenant) Groups() []string { return []string{"system:authenticated"} }
func (t tenant) May(_ context.Context, r console.Right) (bool, error) {
	return r.Verb == "list" && r.Namespace != "" && slices.Contains(t, r.Namespace), nil
}

// ask asks for a view, which must answer with that status.
func ask(t *testing.T, h http.Handler, method, url, body string, status int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, url, strings.NewReader(body)))
	if w.Code != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, url, w.Code, status, w.Body)
	}
	return w.Body.String()
}

func get[T any](t *testing.T, h http.Handler, url string) (out T) {
	t.Helper()
	text := ask(t, h, http.MethodGet, url, "", http.StatusOK)
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v: %s", url, err, text)
	}
	return out
}

type row struct {
	ID, Kind, Namespace             string
	Policies                        int
	IsolatedIngress, IsolatedEgress bool
}

type list struct {
	Revision string
	Total    int
	Items    []row
	Continue string
}

// All pages together have each workload that is seen once, by ID.
func TestWorkloadsArePaged(t *testing.T) {
	for seed := range policytest.Seeds(t, 20) {
		s := policytest.World(policytest.Rand(seed), 12)
		for name, v := range map[string]console.Viewer{"all": console.All("admin"), "tenant": tenant(namespaces(s)[:1])} {
			h := console.Handler(console.Fixed{Snapshot: s}, v)
			var want, got []string
			for id, w := range s.Workloads.All() {
				if may, _ := v.May(t.Context(), console.Right{Verb: "list", Namespace: w.Namespace}); may {
					want = append(want, id)
				}
			}
			for next := ""; ; {
				page := get[list](t, h, "/workloads?limit=2&continue="+next)
				if page.Total != len(want) || len(page.Items) > 2 || page.Revision == "" {
					t.Fatalf("seed %d: %s: %+v: want %d in all", seed, name, page, len(want))
				}
				for _, x := range page.Items {
					got = append(got, x.ID)
				}
				if next = page.Continue; next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: %s: %v, want %v", seed, name, got, want)
			}
		}
	}
}

// namespaces returns those that have workloads.
func namespaces(s policy.Snapshot) (out []string) {
	for _, w := range s.Workloads.All() {
		if w.Namespace != "" {
			out = append(out, w.Namespace)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// What a list says of policies at a workload is what decides there.
func TestWorkloadsKnowTheirPolicies(t *testing.T) {
	for seed := range policytest.Seeds(t, 40) {
		rnd := policytest.Rand(seed)
		walk := policytest.Walk(rnd, policytest.World(rnd, 12), 4)
		source := &moving{}
		h := console.Handler(source, console.All("admin"))
		for n, s := range walk {
			source.s = s
			for _, x := range get[list](t, h, "/workloads?limit=1000").Items {
				w, _ := s.Workloads.Get(x.ID)
				applying := map[string]bool{}
				isolated := map[policy.Direction]bool{}
				for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
					if !w.IsSubject() {
						continue
					}
					for id, p := range s.Policies.All() {
						one := s // nothing but what is asked about
						one.Policies = policy.Table[*policy.Policy]{}.Put(id, whole(p))
						if s2 := one.Judge(w, d).Key(); s2 != empty(one).Judge(w, d).Key() {
							applying[id] = true
						}
					}
					isolated[d] = strings.Contains(s.Judge(w, d).Key(), " isolation") || deniesRest(s, w, d)
				}
				if x.Policies != len(applying) || x.IsolatedIngress != isolated[policy.Ingress] || x.IsolatedEgress != isolated[policy.Egress] {
					t.Fatalf("seed %d, step %d: %+v: want %v, isolated %v\n%s", seed, n, x, applying, isolated, policytest.Print(s))
				}
			}
		}
	}
}

// whole returns a policy which says by isolation that it applies, where it says nothing else.
func whole(p *policy.Policy) *policy.Policy {
	c := *p
	c.IsolatesIngress, c.IsolatesEgress = true, true
	c.Tier = policy.DefaultTier // one that is missing hides its allows
	return &c
}

func empty(s policy.Snapshot) policy.Snapshot {
	s.Policies = policy.Table[*policy.Policy]{}
	return s
}

// deniesRest says whether a VM denies what no rule decides: of a protocol that no rule names, from nobody.
func deniesRest(s policy.Snapshot, w *policy.Workload, d policy.Direction) bool {
	hasRule := func(d policy.Direction) bool {
		for _, p := range s.Policies.All() {
			for i := range p.Rules(d) {
				for _, sel := range s.Subjects(p.Applied(&p.Rules(d)[i]), p.Namespace) {
					if sel.Picks(w, s.NamespaceOf(w)) {
						return true
					}
				}
			}
		}
		return false
	}
	return w.Isolates(d, hasRule(policy.Ingress), hasRule(policy.Egress))
}

// moving is a Source whose world changes.
type moving struct {
	console.Fixed
	s policy.Snapshot
}

func (m *moving) KnownWorld() (policy.Snapshot, bool)       { return m.s, true }
func (m *moving) Revision() (now string, _ <-chan struct{}) { return "1", nil }

func TestQueries(t *testing.T) {
	h := console.Handler(console.Fixed{}, console.All("admin"))
	for _, tt := range []struct {
		method, url string
		status      int
		says        string
	}{
		{"GET", "/me", 200, `"revision":"fixed"`},
		{"GET", "/workloads", 200, `"items":[]`},
		{"GET", "/workloads?limit=1000", 200, ``},
		{"GET", "/nothing", 404, `"reason":"NotFound"`},
		{"POST", "/me", 405, `"reason":"MethodNotAllowed"`},
		{"GET", "/me?search=x", 400, `no parameter \"search\" is known here`},
		{"GET", "/workloads?serach=x", 400, `no parameter \"serach\" is known here`},
		{"GET", "/workloads?search=x&search=y", 400, `stands more than once`},
		{"GET", "/workloads?limit=0", 400, `want a number from 1 to 1000`},
		{"GET", "/workloads?limit=1001", 400, ``},
		{"GET", "/workloads?kind=Pod", 400, `want pod, vm`},
		{"GET", "/workloads?continue=!", 400, `want what an earlier answer had`},
		{"GET", "/workloads?search=%ff", 400, `UTF-8`},
		{"GET", "/workloads?search=a;b", 400, `cannot be read`},
		{"GET", "/workloads?search=" + strings.Repeat("x", 1025), 400, `at most 1024 bytes`},
		{"GET", "/workloads?search=" + strings.Repeat("x", 17<<10), 400, `16384 bytes`},
	} {
		if text := ask(t, h, tt.method, tt.url, "", tt.status); !strings.Contains(text, tt.says) {
			t.Errorf("%s %.80s: %s, want %s", tt.method, tt.url, text, tt.says)
		}
	}
}
