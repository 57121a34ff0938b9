package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"isobar.dev/control/plane/planetest"
)

const guard = `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: guard}
spec:
  priority: 9
  appliedTo: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: jobs}}}]
  egress:
  - {name: no-smtp, action: Drop, ports: [{protocol: TCP, port: 25}]}
  - {name: no-irc, action: Reject, ports: [{protocol: TCP, port: 6667}]}
  - {name: web, action: Allow, ports: [{protocol: TCP, port: 443}]}
`

// testTop has an agent of a cluster that is up tell what it has counted, which top shows.
func testTop(t *testing.T, u *up, look func(want int, args ...string) string) {
	if text := look(0, "top", "rules", "--never-hit"); !strings.HasPrefix(text, "No statistics: no agent has told that anything matched") || strings.Contains(text, "SESSIONS") {
		t.Errorf("before any agent has told anything: %s", text)
	}
	client, err := dynamic.NewForConfig(u.config)
	if err != nil {
		t.Fatal(err)
	}
	resource := func(group, version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
	}
	pods, err := client.Resource(resource("", "v1", "pods")).Namespace("jobs").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		t.Fatal(err)
	}
	node, _, _ := unstructured.NestedString(pods.Items[0].Object, "spec", "nodeName")
	policies := client.Resource(resource("crd.antrea.io", "v1beta1", "clusternetworkpolicies"))
	var object map[string]any
	if err := yaml.Unmarshal([]byte(guard), &object); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := policies.Delete(context.Background(), "guard", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	counts := func(n int64) map[string]any {
		return map[string]any{"sessions": n, "packets": 2 * n, "bytes": 200 * n}
	}
	report := func() error {
		rule := func(name string, n int64) map[string]any {
			return map[string]any{"name": name, "trafficStats": counts(n)}
		}
		_, err := client.Resource(resource("controlplane.antrea.io", "v1beta2", "nodestatssummaries")).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "controlplane.antrea.io/v1beta2", "kind": "NodeStatsSummary", "metadata": map[string]any{"name": node},
			"antreaClusterNetworkPolicies": []any{map[string]any{
				"networkPolicy": map[string]any{"type": "AntreaClusterNetworkPolicy", "name": "guard"}, "trafficStats": counts(12),
				"ruleTrafficStats": []any{rule("no-smtp", 5), rule("web", 7)},
			}},
		}}, metav1.CreateOptions{})
		return err
	}
	planetest.Eventually(t, "what the agent tells is counted", func(context.Context) error {
		if err := report(); err != nil {
			return err
		}
		if text := look(0, "top", "policies"); !strings.Contains(text, "acnp/guard") || strings.HasPrefix(text, "No statistics") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	var all top
	if err := json.Unmarshal([]byte(look(0, "top", "rules", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	n := all.Items[0].Sessions / 7 // how often it has told
	if n < 1 {
		t.Fatalf("%+v", all.Items[0])
	}
	for _, tt := range []struct{ args, want string }{
		{"rules --limit 2", "POLICY RULE ACTION SESSIONS PACKETS BYTES\nacnp/guard web Allow " + fmt.Sprint(7*n, 14*n, 1400*n) + "\nacnp/guard no-smtp Drop " + fmt.Sprint(5*n, 10*n, 1000*n)},
		{"rules --denied --sort bytes --limit 1", "POLICY RULE ACTION SESSIONS PACKETS BYTES\nacnp/guard no-smtp Drop " + fmt.Sprint(5*n, 10*n, 1000*n)},
		{"policies --limit 1", "POLICY SESSIONS PACKETS BYTES\nacnp/guard " + fmt.Sprint(12*n, 24*n, 2400*n)},
		{"policies --denied --limit 1", "POLICY SESSIONS PACKETS BYTES\nacnp/guard " + fmt.Sprint(5*n, 10*n, 1000*n)},
		{"rules -n jobs --denied", "No statistics: no agent has told"},
	} {
		text := strings.Join(strings.Fields(look(0, append([]string{"top"}, strings.Fields(tt.args)...)...)), " ")
		if want := strings.Join(strings.Fields(tt.want), " "); !strings.HasPrefix(text, want) || !strings.HasSuffix(tt.want, "told") && text != want {
			t.Errorf("top %s: %s, want %s", tt.args, text, want)
		}
	}
	if text := look(0, "top", "rules", "--never-hit"); !strings.Contains(text, "no-irc") || strings.Contains(text, "no-smtp") || strings.Contains(text, " web ") || !strings.Contains(text, "networkpolicy/jobs/") {
		t.Errorf("never hit: %s", text)
	}
	if text := look(0, "top", "rules", "-o", "wide", "--denied"); !strings.Contains(text, "egress") || !strings.Contains(text, "application") || strings.Contains(text, " -  9") {
		t.Errorf("wide: %s", text)
	}

	// A rate is that of what comes while it watches.
	f := topFlags{onlineFlags: onlineFlags{kubeconfig: u.plane.Kubeconfig()}, sort: "packets", watch: true, interval: time.Second, output: "json", what: "rules"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut output
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx, &out, &errOut) }()
	planetest.Eventually(t, "a rate", func(context.Context) error {
		if err := report(); err != nil {
			return err
		}
		for _, line := range bytes.Split([]byte(out.String()), []byte("\n")) {
			var now top
			if json.Unmarshal(line, &now) == nil && len(now.Items) > 0 && now.Items[0].Rule == "web" && now.Items[0].Rate != nil && now.Items[0].Rate.Packets > 0 {
				return nil
			}
		}
		return fmt.Errorf("%s", out.String())
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTopRates(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	item := func(rule, uid string, since metav1.Time, n int64) topItem {
		return topItem{Kind: "acnp", Policy: "p", Rule: rule, uid: uid, Since: since, Sessions: n, Packets: 10 * n, Bytes: 100 * n}
	}
	before := top{Items: []topItem{item("a", "1", at, 5), item("b", "1", at, 5), item("c", "1", at, 5), item("d", "1", at, 5)}}
	now := top{Items: []topItem{item("a", "1", at, 25), item("b", "2", at, 25), item("c", "1", metav1.NewTime(time.Unix(2000, 0)), 25), item("d", "1", at, 4), item("e", "1", at, 4)}}
	got := now.rates(before, 10*time.Second).Items
	if r := got[0].Rate; r == nil || *r != (topRate{2, 20, 200}) || got[0].Restarted {
		t.Errorf("a: %+v", got[0])
	}
	for _, i := range got[1:] {
		if i.Rate != nil || !i.Restarted {
			t.Errorf("%s: %+v, and it is counted anew", i.Rule, i)
		}
	}
	if r := now.rates(top{NoStatistics: "none"}, 2*time.Second).Items[0].Rate; r == nil || r.Packets != 125 {
		t.Errorf("after nothing: %+v", r)
	}
	if now.Items[0].Rate != nil {
		t.Error("what was read has changed")
	}
	f := topFlags{watch: true, sort: "packets", limit: 2}
	if c := f.choose(top{Items: got}); len(c.Items) != 2 || c.Items[0].Rule != "a" {
		t.Errorf("%+v", c)
	}
}

func TestTopFlags(t *testing.T) {
	for args, want := range map[string]string{
		"rules --sort much": "--sort much: want packets, bytes, sessions", "policies --limit -1": "--limit -1", "rules -n a -A": "want one of them", "rules --interval 5s": "--interval needs --watch",
		"rules --watch --interval 5ms": "want a second or more", "rules --watch --never-hit": "want one of them", "rules -o xml": "-o xml", "all": "top all: want rules or policies", "": "want rules or policies",
	} {
		var out, errOut bytes.Buffer
		if status := run(append([]string{"top"}, strings.Fields(args)...), nil, &out, &errOut); status != 1 || !strings.Contains(errOut.String(), want) || out.Len() > 0 {
			t.Errorf("top %s: %d, %q, %q", args, status, out.String(), errOut.String())
		}
	}
}

func TestTopRateTable(t *testing.T) {
	var out bytes.Buffer
	f := topFlags{what: "policies", watch: true, output: "table"}
	if err := f.print(&out, top{Items: []topItem{{Kind: "acnp", Policy: "p", Rate: &topRate{1.25, 2, 300}}, {Kind: "annp", Namespace: "a", Policy: "q", Restarted: true}}}); err != nil {
		t.Fatal(err)
	}
	if want := "POLICY    SESSIONS/S  PACKETS/S  BYTES/S\nacnp/p    1.2         2.0        300.0\nannp/a/q  -           -          -\n\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
