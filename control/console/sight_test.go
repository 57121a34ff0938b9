package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/api/verdict"
	"isobar.dev/control/console"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// somebody has rights by lot, the same whenever they are asked for.
type somebody uint64

func (somebody) Name() string     { return "somebody" }
func (somebody) Groups() []string { return []string{"devs"} }
func (s somebody) May(_ context.Context, r console.Right) (bool, error) {
	h := fnv.New64()
	fmt.Fprint(h, uint64(s), r)
	if r.Namespace == "" && (r.Resource == "pods" || r.Resource == "externalentities" || r.Resource == "networkpolicies") {
		return h.Sum64()%16 == 0, nil
	}
	return h.Sum64()%3 == 0, nil
}

// may says whether somebody has a right, in the whole cluster or in a namespace.
func (s somebody) may(group, resource, namespace string) bool {
	wide, _ := s.May(context.Background(), console.Right{Verb: "list", Group: group, Resource: resource})
	narrow, _ := s.May(context.Background(), console.Right{Verb: "list", Group: group, Resource: resource, Namespace: namespace})
	return wide || narrow
}

func (s somebody) sees(w *policy.Workload) bool {
	switch w.Kind {
	case policy.KindPod:
		return s.may("", "pods", w.Namespace)
	case policy.KindNode:
		return s.may("", "nodes", "")
	}
	return s.may("crd.antrea.io", "externalentities", w.Namespace)
}

func (s somebody) seesPolicy(p *policy.Policy) bool {
	in := map[policy.Dialect][2]string{
		policy.KubernetesNetworkPolicy: {"networking.k8s.io", "networkpolicies"},
		policy.AntreaNetworkPolicy:     {"crd.antrea.io", "networkpolicies"}, policy.AntreaClusterNetworkPolicy: {"crd.antrea.io", "clusternetworkpolicies"},
		policy.ClusterNetworkPolicy:       {"policy.networking.k8s.io", "clusternetworkpolicies"},
		policy.AdminNetworkPolicy:         {"policy.networking.k8s.io", "adminnetworkpolicies"},
		policy.BaselineAdminNetworkPolicy: {"policy.networking.k8s.io", "baselineadminnetworkpolicies"},
	}[p.Dialect]
	return s.may(in[0], in[1], p.Namespace)
}

// kept returns a world in which all that somebody may not see has names and labels of its own, with the word
// secret in them.
func kept(s policy.Snapshot, v somebody) policy.Snapshot {
	out := s
	out.Workloads, out.Policies, out.Staged = policy.Table[*policy.Workload]{}, policy.Table[*policy.Policy]{}, policy.Table[*policy.Policy]{}
	nodes, n := map[string]string{}, 0
	for _, w := range s.Workloads.All() {
		if n++; w.Kind == policy.KindNode && !v.sees(w) {
			nodes[w.Name] = fmt.Sprintf("secret-node%d", n)
		}
	}
	for _, w := range s.Workloads.All() {
		c := *w
		n++
		if name, ok := nodes[w.Node]; ok {
			c.Node = name
		}
		if !v.sees(w) {
			if c.Name = fmt.Sprintf("secret-name%d", n); w.Kind == policy.KindNode {
				c.Name = nodes[w.Name]
			}
			c.ID = policy.WorkloadID(c.Kind, c.Namespace, c.Name)
			labels := map[string]string{fmt.Sprintf("secret-key%d", n): fmt.Sprintf("secret-value%d", n)}
			for _, l := range w.Labels {
				labels[l.Key] = l.Value
			}
			c.Labels = policy.LabelsOf(labels)
		}
		out.Workloads = out.Workloads.Put(c.ID, &c)
	}
	for mode, of := range map[policy.Mode]policy.Table[*policy.Policy]{policy.Enforce: s.Policies, policy.Stage: s.Staged} {
		for _, p := range of.All() {
			c := *p
			n++
			if !v.seesPolicy(p) {
				c.Name = fmt.Sprintf("secret-policy%d", n)
				c.ID = policy.PolicyID(c.Dialect, c.Namespace, c.Name)
				c.Ingress, c.Egress = slices.Clone(c.Ingress), slices.Clone(c.Egress)
				for _, rules := range [][]policy.Rule{c.Ingress, c.Egress} {
					for i := range rules {
						rules[i].Name = fmt.Sprintf("secret-rule%d-%d", n, i)
					}
				}
			}
			out = out.PutPolicy(&c, mode)
		}
	}
	return out
}

// secretive is a Source that says secrets of all that there is.
type secretive struct {
	console.Fixed
	v somebody
}

func (s secretive) PolicyState(p *policy.Policy) console.PolicyState {
	if s.v.may("isobar.dev", "targets", "") {
		return console.PolicyState{}
	}
	return console.PolicyState{
		Phase: console.Failed, Targets: []console.TargetState{{Name: "secret-target", Phase: console.Failed, Message: "secret-message"}},
		Refusals: []policy.Refusal{{Target: "secret-target", Policy: p.ID, Reason: policy.RefusedQuota, Message: "secret-message", Workloads: []string{"pod/ns-a/secret-name", "ee/ns-b/secret-name"}}},
	}
}

func (s secretive) WorkloadState(*policy.Workload) console.WorkloadState {
	if s.v.may("isobar.dev", "targets", "") {
		return console.WorkloadState{}
	}
	return console.WorkloadState{Phase: console.Failed, Targets: []console.TargetState{{Name: "secret-target", Message: "secret-message"}}}
}

func (s secretive) CloudObjects(w *policy.Workload) []console.CloudObject {
	if s.v.may("runtime.cloud.antrea.io", "virtualmachine", w.Namespace) {
		return nil
	}
	return []console.CloudObject{{ID: "secret-object"}}
}

func (s secretive) Accounts() (out []console.Account) {
	for _, ns := range []string{"ns-a", "ns-b", "ns-c", "ns-d"} {
		a := console.Account{Namespace: ns, Name: "account", Targets: []console.Target{{Name: "secret-target", Err: "secret-error", Usage: []plan.Usage{{Quota: "secret-quota"}}}}}
		if s.v.may("isobar.dev", "targets", "") {
			a.Targets = nil
		}
		if !s.v.may("crd.cloud.antrea.io", "cloudprovideraccounts", ns) {
			a.Name, a.Problem = "secret-account", "secret-problem"
		}
		out = append(out, a)
	}
	return out
}

func (s secretive) Loops() []console.Loop {
	if s.v.may("isobar.dev", "targets", "") {
		return nil
	}
	return []console.Loop{{Name: "secret-loop"}}
}

func (s secretive) Plan(context.Context, isobarv1alpha1.PlanSpec) (isobarv1alpha1.PlanStatus, error) {
	may, _ := s.v.May(context.Background(), console.Right{Verb: "create", Group: "isobar.dev", Resource: "plans"})
	if may {
		return isobarv1alpha1.PlanStatus{}, nil
	}
	return isobarv1alpha1.PlanStatus{Targets: []isobarv1alpha1.TargetPlan{{Name: "secret-target"}}}, nil
}

// A viewer is told nothing of what it may not list, whatever it asks and whatever the answer is.
func TestNothingHiddenIsTold(t *testing.T) {
	answers, errors, hidden := 0, 0, 0
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		v := somebody(seed)
		s := kept(policytest.World(rnd, 12), v)
		h := console.Handler(secretive{console.Fixed{Snapshot: s}, v}, v)
		addrs := hiddenAddrs(s, v)
		for _, q := range questions(rnd, s, v) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(q.method, q.url, strings.NewReader(q.body)))
			text := w.Body.String()
			if answers++; w.Code != http.StatusOK {
				errors++
			}
			if w.Code >= 500 {
				t.Fatalf("seed %d: %s %s %s: %d %s", seed, q.method, q.url, q.body, w.Code, text)
			}
			hidden += strings.Count(text, `"hidden":true`)
			if at := strings.Index(text, "secret"); at >= 0 {
				t.Fatalf("seed %d: %s %s %s tells of what is hidden: ...%s", seed, q.method, q.url, q.body, text[max(0, at-300):min(len(text), at+100)])
			}
			for _, a := range addrs {
				if q.method == http.MethodGet && !strings.Contains(q.url, url.QueryEscape(a)) && regexp.MustCompile(`"`+regexp.QuoteMeta(a)+`"`).MatchString(text) {
					t.Fatalf("seed %d: %s tells of the address %s: %s", seed, q.url, a, text)
				}
			}
		}
	}
	if answers-errors < 500 || errors < 100 || hidden < 100 {
		t.Errorf("%d answers, of which %d are errors, with %d hidden parts: not enough to say anything", answers, errors, hidden)
	}
}

// hiddenAddrs are the addresses that only workloads have which are not seen, and no rule names.
func hiddenAddrs(s policy.Snapshot, v somebody) (out []string) {
	has := map[netip.Addr]bool{} // whether somebody has it who is seen
	for _, w := range s.Workloads.All() {
		for _, a := range w.Addrs {
			has[a] = has[a] || v.sees(w)
		}
	}
	for a, isSeen := range has {
		if !isSeen {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return out
}

type asking struct{ method, url, body string }

// questions are all kinds of them, of which none names what is hidden but by an address.
func questions(rnd *rand.Rand, s policy.Snapshot, v somebody) (out []asking) {
	get := func(view string, params ...string) {
		q := url.Values{}
		for i := 0; i < len(params); i += 2 {
			q.Add(params[i], params[i+1])
		}
		out = append(out, asking{method: http.MethodGet, url: "/" + view + "?" + q.Encode()})
	}
	get("me")
	get("accounts")
	get("workloads", "limit", "1000")
	get("workloads", "limit", "1")
	get("policies", "limit", "1000")
	get("policies", "limit", "1")
	get("nothing")
	for _, by := range []string{"namespace", "network", "label:app", "workload"} {
		get("map", "by", by, "open", "true")
		get("map", "by", by, "within", "ns/ns-a")
		get("matrix", "by", by, "port", "TCP/80", "port", "UDP/53")
		get("cell", "by", by, "from", "hidden", "to", "ns/ns-a", "port", "TCP/80")
		get("cell", "by", by, "from", "ns/ns-b", "to", "hidden", "port", "TCP/80")
		get("cell", "by", by, "from", "ns/ns-a", "to", "ns/ns-a", "port", "TCP/80")
	}
	ends := []string{"203.0.113.9", "x/y", ""}
	for _, w := range s.Workloads.All() {
		for _, a := range w.Addrs {
			ends = append(ends, a.String())
		}
		if v.sees(w) {
			ends = append(ends, verdict.EndOf(w))
			get("workload", "id", w.ID)
		}
	}
	for _, of := range []policy.Table[*policy.Policy]{s.Policies, s.Staged} {
		for id, p := range of.All() {
			if v.seesPolicy(p) {
				get("policy", "id", id)
			}
		}
	}
	for range 30 {
		port := []string{"TCP/80", "UDP/53", "ICMP", "TCP"}[rnd.IntN(4)]
		get("explain", "from", ends[rnd.IntN(len(ends))], "to", ends[rnd.IntN(len(ends))], "port", port, "all", []string{"true", "false"}[rnd.IntN(2)])
	}
	post := func(body any) {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		out = append(out, asking{http.MethodPost, "/preview", string(text)})
	}
	var visible []string
	for id, p := range s.Policies.All() {
		if v.seesPolicy(p) {
			visible = append(visible, id)
		}
	}
	for _, ns := range []string{"ns-a", "ns-b", "ns-c", "ns-d"} {
		for _, m := range manifests(ns) {
			post(map[string]any{"manifests": m})
		}
		if len(visible) > 0 {
			post(map[string]any{"manifests": manifests(ns)[0], "delete": []string{visible[rnd.IntN(len(visible))]}})
		}
	}
	for _, id := range visible {
		post(map[string]any{"delete": []string{id}})
	}
	post(map[string]any{"delete": []any{map[string]string{"apiVersion": "v1", "kind": "Node", "name": "n1"}}})
	post(map[string]any{"manifests": "a: ["})
	return out
}

// manifests are changes that concern whoever is there.
func manifests(ns string) []string {
	return []string{
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: new, namespace: " + ns + "}\nspec: {podSelector: {}, policyTypes: [Ingress, Egress]}",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: new, namespace: " + ns + "}\nspec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}",
		"apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {name: new, namespace: " + ns + "}\nspec: {priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, from: [{namespaceSelector: {}}]}], egress: [{action: Drop}]}",
		"apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: new}\nspec: {priority: 1, appliedTo: [{namespaceSelector: {}}], ingress: [{action: Drop}]}",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + ", labels: {new: label}}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: new, namespace: " + ns + "}\nspec: {nodeName: n1}\nstatus: {podIPs: [{ip: 10.99.0.1}]}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: new, namespace: " + ns + "}",
	}
}

// What is not seen is answered for as if it were not there.
func TestHiddenIsAsIfNotThere(t *testing.T) {
	for seed := range policytest.Seeds(t, 30) {
		v := somebody(seed)
		s := policytest.World(policytest.Rand(seed), 12)
		h := console.Handler(console.Fixed{Snapshot: s}, v)
		same := func(url, name string) {
			t.Helper()
			there := ask(t, h, http.MethodGet, fmt.Sprintf(url, name), "", http.StatusNotFound)
			gone := ask(t, h, http.MethodGet, fmt.Sprintf(url, name+"x"), "", http.StatusNotFound)
			last := name[strings.LastIndexAny(name, "/:")+1:]
			if strings.ReplaceAll(gone, last+"x", last) != there {
				t.Fatalf("seed %d: %s is not there as %s, which is hidden: %s %s", seed, name+"x", name, gone, there)
			}
		}
		for id, w := range s.Workloads.All() {
			if !v.sees(w) {
				same("/workload?id=%s", id)
				same("/explain?from=203.0.113.9&to=%s&port=TCP/80", verdict.EndOf(w))
			}
		}
		for id, p := range s.Policies.All() {
			if !v.seesPolicy(p) {
				same("/policy?id=%s", id)
				if text := ask(t, h, http.MethodPost, "/preview", `{"delete":["`+id+`"]}`, http.StatusForbidden); !strings.Contains(text, "may list") {
					t.Errorf("a preview of %s: %s", id, text)
				}
			}
		}
	}
}

// A right that cannot be said is an error, and not an empty list.
func TestUnknownRightsAreAnError(t *testing.T) {
	s := policytest.World(policytest.Rand(1), 10)
	h := console.Handler(console.Fixed{Snapshot: s}, undecided{})
	for _, view := range []string{"me", "workloads", "policies"} {
		if text := ask(t, h, http.MethodGet, "/"+view, "", http.StatusServiceUnavailable); strings.Contains(text, "broken") {
			t.Errorf("%s tells the cause: %s", view, text)
		}
	}
}

type undecided struct{ somebody }

func (undecided) May(context.Context, console.Right) (bool, error) {
	return false, fmt.Errorf("broken pipe")
}

// What a preview says of access is the same wherever workloads are that its viewer does not see.
func TestPreviewTellsNoHiddenAddress(t *testing.T) {
	changes := 0
	for seed := range policytest.Seeds(t, 30) {
		s := policytest.World(policytest.Rand(seed), 10)
		v := tenant{"ns-a"}
		with := console.Handler(console.Fixed{Snapshot: s}, v)
		shared := map[netip.Addr]bool{}
		for _, w := range s.Workloads.All() {
			for _, a := range w.Addrs {
				shared[a] = shared[a] || w.Namespace == "ns-a"
			}
		}
		less := s
		for id, w := range s.Workloads.All() {
			if w.Namespace != "ns-a" && !slices.ContainsFunc(w.Addrs, func(a netip.Addr) bool { return shared[a] }) {
				less.Workloads = less.Workloads.Delete(id)
			}
		}
		without := console.Handler(console.Fixed{Snapshot: less}, v)
		for _, m := range manifests("ns-a")[:3] {
			body, err := json.Marshal(map[string]string{"manifests": m})
			if err != nil {
				t.Fatal(err)
			}
			a, b := ask(t, with, http.MethodPost, "/preview", string(body), http.StatusOK), ask(t, without, http.MethodPost, "/preview", string(body), http.StatusOK)
			if a != b {
				t.Fatalf("seed %d: %s: %s, and without those who are hidden %s", seed, m, a, b)
			}
			changes += strings.Count(a, "prefixes")
		}
	}
	if changes == 0 {
		t.Error("nothing is said of addresses")
	}
}
