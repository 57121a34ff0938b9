package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/source/manifest"
)

// The tables of shared/conformance, which is data beside the repository and no
// part of it, asked through the command as a user would.

type conformanceCase struct {
	ID    string            `json:"id"`
	Steps []conformanceStep `json:"steps"`
}

type conformanceStep struct {
	Step       int               `json:"step"`
	Name       string            `json:"name"`
	SubTest    string            `json:"subTest"`
	Namespaces []conformanceMeta `json:"namespaces"`
	Nodes      []conformanceNode `json:"nodes"`
	Pods       []conformancePod  `json:"pods"`
	Services   []map[string]any  `json:"services"`
	Externals  []struct{ Name, IP string }
	Policies   []json.RawMessage  `json:"policies"`
	PodOrder   []string           `json:"podOrder"`
	Expected   []conformanceTable `json:"expected"`
	Flows      []conformanceFlow  `json:"flows"`
	Explain    []struct{ From, To, Policy, Action string }
}

type conformanceMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

type conformanceNode struct {
	conformanceMeta
	IPs []string `json:"ips"`
}

type conformancePod struct {
	conformanceMeta
	Namespace      string           `json:"namespace"`
	IP             string           `json:"ip"`
	Node           string           `json:"node"`
	HostNetwork    bool             `json:"hostNetwork"`
	ServiceAccount string           `json:"serviceAccount"`
	Phase          string           `json:"phase"`
	Ports          []map[string]any `json:"ports"`
}

type conformanceTable struct {
	Protocol string `json:"protocol"`
	Port     any    `json:"port"`
	Ingress  map[string]string
	Egress   map[string]string
	Combined map[string]string
}

type conformanceFlow struct {
	From     string `json:"from"`
	To       string `json:"to"`
	ToIP     string `json:"toIP"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	Allow    bool   `json:"allow"`
}

// conformanceDir finds shared/conformance beside the repository.
func conformanceDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("ISOBAR_SHARED"); dir != "" {
		return filepath.Join(dir, "conformance")
	}
	dir := filepath.Join("..", "..", "..", "shared", "conformance")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("shared/conformance is not beside the repository (ISOBAR_SHARED names another place)")
	}
	return dir
}

func TestConformance(t *testing.T) {
	dir := conformanceDir(t)
	for _, name := range []string{
		"networkpolicy-v4", "networkpolicy-v6", "clusternetworkpolicy-v4", "clusternetworkpolicy-v6", "antrea-v4", "antrea-v6",
	} {
		for _, via := range []string{"meaning", "compiled", "agents", "nft"} {
			t.Run(name+"/"+via, func(t *testing.T) {
				t.Parallel()
				if vias[via] == nil {
					t.Fatalf("--via %s does not exist", via)
				}
				checkConformanceFile(t, filepath.Join(dir, name+".jsonl"), via)
			})
		}
	}
}

// The same tables, with every Pod on a Node's network of its own in a cloud's network
// instead: what its groups let pass is what the tables say, a Reject being a drop there.
func TestConformanceOnClouds(t *testing.T) {
	dir := conformanceDir(t)
	for _, name := range []string{
		"networkpolicy-v4", "networkpolicy-v6", "clusternetworkpolicy-v4", "clusternetworkpolicy-v6", "antrea-v4", "antrea-v6",
	} {
		for _, cloud := range []string{"azure"} {
			t.Run(name+"/"+cloud, func(t *testing.T) {
				t.Parallel()
				steps, cells := 0, 0
				eachConformanceStep(t, filepath.Join(dir, name+".jsonl"), func(id string, s *conformanceStep) {
					cells += checkConformanceOnCloud(t, id, s, cloud)
					steps++
				})
				t.Logf("%d steps, %d verdicts", steps, cells)
				if cells == 0 {
					t.Fatal("no verdict was checked")
				}
			})
		}
	}
}

// checkConformanceOnCloud asks the groups of a cloud that has all of a step's Pods.
func checkConformanceOnCloud(t *testing.T, id string, s *conformanceStep, cloud string) int {
	t.Helper()
	world, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: bytes.NewReader(s.manifests(t))})
	if err != nil {
		t.Fatal(err)
	}
	inCloud := world.Snapshot
	for key, w := range world.Snapshot.Workloads.All() {
		if w.Kind == policy.KindPod && !w.HostNetwork && w.Target != "" {
			w := *w
			w.Target, w.Interfaces = cloud+"/a/b/region/net", []policy.Interface{{ID: "nic-" + w.Name + "-" + w.Namespace, Addrs: w.Addrs}}
			inCloud.Workloads = inCloud.Workloads.Put(key, &w)
		}
	}
	answer := vias[cloud](inCloud)
	flows, want := s.questions()
	questions, err := readFlows("flows", bytes.NewReader(flows))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i, q := range questions {
		v, err := answer(q.flow)
		if err != nil {
			t.Fatalf("%s step %d: %s to %s: %v", id, s.Step, q.ask.From, q.ask.To, err)
		}
		for _, x := range []struct {
			kind string
			want byte
			got  policy.Action
		}{{"ingress", want[i].ingress, v.Ingress.Action}, {"egress", want[i].egress, v.Egress.Action}, {"combined", want[i].combined, v.Action}} {
			if x.want == 0 || x.want == '-' {
				continue
			}
			checked++
			passes := x.got == policy.Allow
			if !passes && q.flow.Protocol == policy.SCTP { // closed where SCTP cannot be told from other protocols
				continue
			}
			if passes != (x.want == '.') {
				t.Errorf("%s step %d: %s: %s to %s: %s passes: %t, want %c (%+v)", id, s.Step, want[i].where, q.ask.From, q.ask.To, x.kind, passes, x.want, v)
			}
		}
	}
	return checked
}

func checkConformanceFile(t *testing.T, file, via string) {
	steps, cells := 0, 0
	eachConformanceStep(t, file, func(id string, s *conformanceStep) {
		cells += checkConformanceStep(t, id, s, via)
		steps++
	})
	t.Logf("%d steps, %d verdicts", steps, cells)
	if cells == 0 {
		t.Fatal("no verdict was checked")
	}
}

// eachConformanceStep calls f for every step of a file, with the ID of its case.
func eachConformanceStep(t *testing.T, file string, f func(id string, s *conformanceStep)) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c conformanceCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Steps {
			f(c.ID, &c.Steps[i])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// expectation is what must hold of one flow.
type expectation struct {
	where                     string
	ingress, egress, combined byte // '-' when nothing is asserted
	policy, action            string
}

func checkConformanceStep(t *testing.T, id string, s *conformanceStep, via string) int {
	t.Helper()
	name := fmt.Sprintf("%s step %d %s%s", id, s.Step, s.Name, s.SubTest)
	flows, want := s.questions()
	manifests := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(manifests, s.manifests(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"evaluate", "-f", manifests, "--flows", "-", "-o", "json", "--via", via}, bytes.NewReader(flows), &out, &errOut); code != 0 {
		t.Errorf("%s: exit %d: %s", name, code, errOut.String())
		return 0
	}
	checked := 0
	d := json.NewDecoder(&out)
	for _, w := range want {
		var got answerLine
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		where := fmt.Sprintf("%s: %s: %s -> %s", name, w.where, got.From, got.To)
		for _, x := range []struct {
			kind string
			want byte
			got  string
		}{{"ingress", w.ingress, got.Ingress.Verdict}, {"egress", w.egress, got.Egress.Verdict}, {"combined", w.combined, got.Verdict}} {
			if x.want == 0 || x.want == '-' {
				continue
			}
			checked++
			if cell := map[string]byte{"Allow": '.', "Drop": 'X', "Reject": 'R'}[x.got]; cell != x.want {
				t.Errorf("%s: %s is %c, want %c (%+v %+v)", where, x.kind, cell, x.want, got.Ingress, got.Egress)
			}
		}
		if w.policy != "" {
			checked++
			if !explains(got, w) {
				t.Errorf("%s: decided by %+v, %+v; want %s by %s", where, got.Ingress, got.Egress, w.action, w.policy)
			}
		}
	}
	return checked
}

// explains says whether one end of the answer is decided as wanted.
func explains(got answerLine, w expectation) bool {
	if w.policy == "<NONE>" {
		return got.Ingress.Policy == "" && got.Egress.Policy == ""
	}
	for _, d := range []verdict.Decision{got.Ingress, got.Egress} {
		action := d.Verdict
		if d.Reason == "isolation" {
			action = "Isolate"
		}
		if d.Policy == w.policy && action == w.action {
			return true
		}
	}
	return false
}

// questions returns the flows of a step and what must hold of each.
func (s *conformanceStep) questions() ([]byte, []expectation) {
	var flows bytes.Buffer
	var want []expectation
	ask := func(from, to, protocol string, port any, e expectation) {
		line := map[string]any{"from": s.endpoint(from), "to": s.endpoint(to), "protocol": protocol, "port": port}
		if strings.EqualFold(protocol, "ICMP") {
			delete(line, "port")
		}
		b, _ := json.Marshal(line)
		flows.Write(append(b, '\n'))
		want = append(want, e)
	}
	cell := func(rows map[string]string, from string, i int) byte {
		if row := rows[from]; i < len(row) {
			return row[i]
		}
		return '-'
	}
	for _, table := range s.Expected {
		for _, from := range s.PodOrder {
			for i, to := range s.PodOrder {
				if from == to {
					continue // the kernel delivers it locally
				}
				ask(from, to, table.Protocol, table.Port, expectation{
					where:   fmt.Sprintf("%s/%v", table.Protocol, table.Port),
					ingress: cell(table.Ingress, from, i), egress: cell(table.Egress, from, i), combined: cell(table.Combined, from, i),
				})
			}
		}
	}
	for _, f := range s.Flows {
		e := expectation{where: fmt.Sprintf("flow %s/%d", f.Protocol, f.Port), combined: 'X'}
		if f.Allow {
			e.combined = '.'
		}
		ask(f.From, f.To, f.Protocol, f.Port, e)
	}
	for _, x := range s.Explain {
		ask(x.From, x.To, "TCP", 80, expectation{where: "explain", policy: x.Policy, action: x.Action})
	}
	return flows.Bytes(), want
}

// endpoint is how the command names a pod or an external of the step.
func (s *conformanceStep) endpoint(name string) string {
	for _, e := range s.Externals {
		if e.Name == name {
			return e.IP
		}
	}
	return name
}

// manifests returns the step's world as kubectl would print it.
func (s *conformanceStep) manifests(t *testing.T) []byte {
	t.Helper()
	var items []any
	meta := func(m conformanceMeta, ns string) map[string]any {
		out := map[string]any{"name": m.Name, "labels": m.Labels}
		if ns != "" {
			out["namespace"] = ns
		}
		return out
	}
	for _, n := range s.Namespaces {
		items = append(items, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": meta(n, "")})
	}
	for _, n := range s.Nodes {
		var addrs []any
		for _, ip := range n.IPs {
			addrs = append(addrs, map[string]any{"type": "InternalIP", "address": ip})
		}
		items = append(items, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": meta(n.conformanceMeta, ""), "status": map[string]any{"addresses": addrs}})
	}
	for _, p := range s.Pods {
		phase := p.Phase
		if phase == "" {
			phase = "Running"
		}
		items = append(items, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta(p.conformanceMeta, p.Namespace),
			"spec": map[string]any{"nodeName": p.Node, "hostNetwork": p.HostNetwork, "serviceAccountName": p.ServiceAccount,
				"containers": []any{map[string]any{"name": "c", "ports": p.Ports}}},
			"status": map[string]any{"phase": phase, "podIP": p.IP, "podIPs": []any{map[string]any{"ip": p.IP}}}})
	}
	for _, svc := range s.Services {
		svc["apiVersion"], svc["kind"] = "v1", "Service"
		items = append(items, svc)
	}
	for _, p := range s.Policies {
		items = append(items, p)
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
