package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"isobar.dev/api/verdict"
	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
	"isobar.dev/source/kube"
)

// What explain says is what Evaluate says, and of hidden ends the verdict is the same.
func TestExplainIsEvaluates(t *testing.T) {
	asked := 0
	for seed := range policytest.Seeds(t, 40) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		all := console.Handler(console.Fixed{Snapshot: s}, console.All("admin"))
		some := somebody(seed)
		part := console.Handler(console.Fixed{Snapshot: s}, some)
		for _, w := range s.Workloads.All() {
			for _, x := range s.Workloads.All() {
				ask := verdict.Ask{From: verdict.EndOf(w), To: verdict.EndOf(x)}
				if err := ask.ParseTraffic("TCP/80"); err != nil {
					t.Fatal(err)
				}
				flow, err := ask.Flow()
				if err != nil {
					t.Fatal(err)
				}
				want, err := policy.Evaluate(s, flow)
				at := "/explain?" + url.Values{"from": {ask.From}, "to": {ask.To}, "port": {"TCP/80"}}.Encode()
				if err != nil {
					recorder := httptest.NewRecorder()
					all.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, at, nil))
					if recorder.Code != http.StatusBadRequest {
						t.Errorf("seed %d: %s: status %d, Evaluate says %v", seed, at, recorder.Code, err)
					}
					continue
				}
				asked++
				got := get[verdict.Explained](t, all, at)
				if got.Verdict != want.Action.String() || got.Egress.PolicyID() != want.Egress.Policy || got.Ingress.PolicyID() != want.Ingress.Policy {
					t.Errorf("seed %d: %s: %+v, want %+v", seed, at, got, want)
				}
				if _, by, err := policy.IfStaged(s, flow); err != nil || (got.Staged != nil) != (len(by) > 0) || got.Staged != nil && !slices.Equal(got.Staged.By, by) {
					t.Errorf("seed %d: %s: staged %+v, want %v, %v", seed, at, got.Staged, by, err)
				}
				if some.sees(w) && some.sees(x) {
					if got := get[verdict.Explained](t, part, at); got.Verdict != want.Action.String() {
						t.Errorf("seed %d: %s: %s is told to somebody, want %v", seed, at, got.Verdict, want.Action)
					}
				}
			}
		}
	}
	if asked < 1000 {
		t.Errorf("%d flows say nothing", asked)
	}
}

// The rules of a workload are those that Explain walks, in their order.
func TestEffectiveRulesAreThoseAsked(t *testing.T) {
	for seed := range policytest.Seeds(t, 40) {
		s := policytest.World(policytest.Rand(seed), 10)
		h := console.Handler(console.Fixed{Snapshot: s}, console.All("admin"))
		for id, w := range s.Workloads.All() {
			if !w.IsSubject() || len(w.Addrs) == 0 {
				continue
			}
			type rule struct{ Policy, Rule, Direction, Action string }
			got := get[struct{ Rules []rule }](t, h, "/workload?id="+url.QueryEscape(id)).Rules
			far := "203.0.113.9"
			if !w.Addrs[0].Is4() {
				far = "2001:db8:ffff::9"
			}
			var want []rule
			for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
				ask := verdict.Ask{From: far, To: verdict.EndOf(w)}
				if d == policy.Egress {
					ask.From, ask.To = ask.To, ask.From
				}
				if err := ask.ParseTraffic("SCTP/9"); err != nil {
					t.Fatal(err)
				}
				x, err := verdict.Explain(s, ask, false)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				walk := x.Ingress
				if d == policy.Egress {
					walk = x.Egress
				}
				for _, st := range walk.Steps {
					want = append(want, rule{st.Policy, st.Rule, st.Direction, st.Action})
				}
			}
			if len(want)+len(got) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %s: %v, want %v", seed, id, got, want)
			}
		}
	}
}

// A policy applies to as many as its row says, and to those that are named.
func TestPoliciesKnowWhomTheyApplyTo(t *testing.T) {
	for seed := range policytest.Seeds(t, 30) {
		rnd := policytest.Rand(seed)
		source := &moving{}
		v := somebody(seed)
		viewers := map[string]console.Viewer{"all": console.All("admin"), "somebody": v}
		handlers := map[string]http.Handler{}
		for name, viewer := range viewers {
			handlers[name] = console.Handler(source, viewer)
		}
		for step, s := range policytest.Walk(rnd, policytest.World(rnd, 12), 4) {
			source.s = s
			for name, h := range handlers {
				sees := func(w *policy.Workload) bool { return name == "all" || v.sees(w) }
				list := get[struct {
					Total int
					Items []struct {
						ID, Mode   string
						AppliesTo  int
						TierNumber int32
						Priority   float64
					}
				}](t, h, "/policies?limit=1000")
				var last struct {
					tier     int32
					priority float64
				}
				for i, x := range list.Items {
					if i > 0 && (x.TierNumber < last.tier || x.TierNumber == last.tier && x.Priority < last.priority) {
						t.Fatalf("seed %d, step %d: %s comes after what is asked later", seed, step, x.ID)
					}
					last.tier, last.priority = x.TierNumber, x.Priority
					p, ok := s.Policies.Get(x.ID)
					if !ok {
						p, _ = s.Staged.Get(x.ID)
					}
					if ok != (x.Mode == "Enforce") {
						t.Errorf("seed %d: %s is of mode %s", seed, x.ID, x.Mode)
					}
					want := 0
					for _, w := range s.Workloads.All() {
						if w.IsSubject() && sees(w) && appliesTo(s, p, w) {
							want++
						}
					}
					if x.AppliesTo != want {
						t.Fatalf("seed %d, step %d: %s: %s applies to %d, want %d\n%s", seed, step, name, x.ID, x.AppliesTo, want, policytest.Print(s))
					}
					one := get[struct {
						AppliesTo struct {
							Count  int
							Sample []string
						}
					}](t, h, "/policy?id="+url.QueryEscape(x.ID)).AppliesTo
					if one.Count != want || len(one.Sample) != min(want, 20) {
						t.Errorf("seed %d: %s applies to %+v, want %d", seed, x.ID, one, want)
					}
				}
				if name == "all" && list.Total != s.Policies.Len()+s.Staged.Len() {
					t.Errorf("seed %d: %d policies of %d and %d", seed, list.Total, s.Policies.Len(), s.Staged.Len())
				}
			}
		}
	}
}

func appliesTo(s policy.Snapshot, p *policy.Policy, w *policy.Workload) bool {
	sets := []policy.Set{p.AppliedTo}
	for _, rules := range [][]policy.Rule{p.Ingress, p.Egress} {
		for i := range rules {
			sets = append(sets, p.Applied(&rules[i]))
		}
	}
	for _, set := range sets {
		for _, sel := range s.Subjects(set, p.Namespace) {
			if sel.Picks(w, s.NamespaceOf(w)) {
				return true
			}
		}
	}
	return false
}

// A preview says to who sees all what Diff says of both worlds.
func TestPreviewIsDiffs(t *testing.T) {
	changed := 0
	for seed := range policytest.Seeds(t, 30) {
		s := policytest.World(policytest.Rand(seed), 10)
		source := console.Fixed{Snapshot: s}
		h := console.Handler(source, console.All("admin"))
		for id, p := range s.Policies.All() {
			before, after, notices, err := source.Lay([]kube.Write{{Delete: true, Manifest: fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q}}`,
				versions[p.Dialect], kinds[p.Dialect], p.Namespace, p.Name)}})
			if err != nil || notices[0] != nil {
				t.Fatalf("%v, %v", notices, err)
			}
			changes, err := reach.Diff(before, after)
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(verdict.DiffOf(changes))
			if err != nil {
				t.Fatal(err)
			}
			text := ask(t, h, http.MethodPost, "/preview", `{"delete":["`+id+`"]}`, http.StatusOK)
			var got verdict.Diff
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if again, err := json.Marshal(got); err != nil || string(again) != string(want) {
				t.Errorf("seed %d: without %s: %s, %v, want %s", seed, id, again, err, want)
			}
			changed += len(got.Changes)
			if !strings.Contains(text, console.ErrNothingEnforces.Error()) {
				t.Errorf("targets: %s", text)
			}
		}
	}
	if changed == 0 {
		t.Error("nothing has changed")
	}
}

var (
	versions = map[policy.Dialect]string{
		policy.KubernetesNetworkPolicy: "networking.k8s.io/v1", policy.AntreaNetworkPolicy: "crd.antrea.io/v1beta1", policy.AntreaClusterNetworkPolicy: "crd.antrea.io/v1beta1",
		policy.ClusterNetworkPolicy: "policy.networking.k8s.io/v1alpha2", policy.AdminNetworkPolicy: "policy.networking.k8s.io/v1alpha1", policy.BaselineAdminNetworkPolicy: "policy.networking.k8s.io/v1alpha1",
	}
	kinds = map[policy.Dialect]string{
		policy.KubernetesNetworkPolicy: "NetworkPolicy", policy.AntreaNetworkPolicy: "NetworkPolicy", policy.AntreaClusterNetworkPolicy: "ClusterNetworkPolicy",
		policy.ClusterNetworkPolicy: "ClusterNetworkPolicy", policy.AdminNetworkPolicy: "AdminNetworkPolicy", policy.BaselineAdminNetworkPolicy: "BaselineAdminNetworkPolicy",
	}
)

// What of a preview cannot be taken is told, and nothing else is said.
func TestPreviewTellsProblems(t *testing.T) {
	h := console.Handler(console.Fixed{Snapshot: policytest.World(policytest.Rand(1), 10)}, console.All("admin"))
	for _, tt := range []struct {
		body   string
		status int
		says   string
	}{
		{`{}`, 200, `"changes":[]`},
		{`{"manifests":"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x, namespace: ns-a}\nspec: {podSelector: {matchLabels: {a: 'b c'}}}"}`, 200, `"object":"NetworkPolicy ns-a/x"`},
		{`{"manifests":"apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: ns-a}"}`, 200, `is not known`},
		{`{"delete":["annp/ns-a/none"]}`, 200, `it is not there`},
		{`{"delete":["nonsense"]}`, 400, `is no ID of a policy`},
		{`{"delete":[{"kind":"Pod","other":1}]}`, 400, `want {manifests, delete}`},
		{`{"manifest":""}`, 400, `unknown field`},
		{`{} {}`, 400, `want one object`},
		{`[]`, 400, `want {manifests, delete}`},
		{`{"manifests":"a: ["}`, 200, `"object":"document 1"`},
		{`{"manifests":"` + strings.Repeat("x", 1<<20) + `"}`, 413, `limit`},
	} {
		if text := ask(t, h, http.MethodPost, "/preview", tt.body, tt.status); !strings.Contains(text, tt.says) {
			t.Errorf("%.200s: %s, want %s", tt.body, text, tt.says)
		}
	}
}

// No query makes a view fail, or answer with what is no JSON.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"workloads?search=a&limit=3&continue=cG9k", "policies?tier=x&kind=annp", "explain?from=a/b&to=10.0.0.1&port=TCP/80&all=true", "workload?id=pod/a/b", "policy?id=%zz",
		"map?by=label:app&within=ns/a&open=true", "matrix?by=network&port=TCP/1&port=ICMP", "cell?by=namespace&from=hidden&to=outside&port=TCP/1", "me?a=b", "me?;", "?", "preview?x",
	} {
		f.Add(q)
	}
	s := policytest.World(policytest.Rand(3), 8)
	handlers := []http.Handler{console.Handler(console.Fixed{Snapshot: s}, console.All("admin")), console.Handler(console.Fixed{Snapshot: s}, somebody(3))}
	f.Fuzz(func(t *testing.T, q string) {
		name, raw, _ := strings.Cut(q, "?")
		for _, h := range handlers {
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.URL = &url.URL{Path: "/views/" + name, RawQuery: raw}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%q: %d %s", q, w.Code, w.Body)
			}
		}
	})
}
