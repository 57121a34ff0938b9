package manifest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/policy/policytest"
	"isobar.dev/source/manifest"
)

// readText reads text as the standard input.
func readText(text string, o manifest.Options) (manifest.World, error) {
	o.Stdin = strings.NewReader(text)
	return manifest.Read([]string{"-"}, o)
}

const (
	ns  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"
	pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\nspec: {nodeName: n1}\nstatus: {phase: Running, podIP: 10.0.0.1}\n"
	np  = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec:\n  podSelector: {}\n"
)

// Streams that hold the same world, written as people and machines write them.
func TestReadForms(t *testing.T) {
	asJSON := []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x"},"spec":{"nodeName":"n1"},"status":{"phase":"Running","podIP":"10.0.0.1"}}`,
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{"podSelector":{}}}`,
	}
	typed := func(s string) string { // as the items of a typed list, which do not say what they are
		_, rest, _ := strings.Cut(s, `,"metadata"`)
		return `{"metadata"` + rest
	}
	stream := ns + "---\n" + pod + "---\n" + np
	want := ""
	for _, tt := range []struct{ name, text string }{
		{"documents", stream},
		{"leading separator, empty documents, comments", "---\n---\n# a comment\n---\n" + ns + "--- # the pod\n" + pod + "\n---\n\n---\n" + np + "---\n"},
		{"ends of documents", ns + "...\n---\n" + pod + "...\n" + np + "...\n"},
		{"content on the line of the separator", ns + "--- " + strings.ReplaceAll(asJSON[1], `"`, `"`) + "\n---\n" + np},
		{"byte order mark", "\xef\xbb\xbf" + stream},
		{"CRLF", strings.ReplaceAll(stream, "\n", "\r\n")},
		{"JSON lines", strings.Join(asJSON, "\n")},
		{"JSON without space", strings.Join(asJSON, "")},
		{"JSON between separators", strings.Join(asJSON, "\n---\n")},
		{"flow style", `{apiVersion: v1, kind: Namespace, metadata: {name: x}}` + "\n---\n" + pod + "---\n" + np},
		{"quoted flow style", `{"apiVersion": v1, "kind": Namespace, "metadata": {"name": x}}` + "\n---\n" + pod + "---\n" + np},
		{"List", `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + strings.Join(asJSON, ",") + `]}`},
		{"typed lists", `{"apiVersion":"v1","kind":"NamespaceList","items":[` + typed(asJSON[0]) + `]}` +
			`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7","remainingItemCount":0},"items":[` + typed(asJSON[1]) + `]}` +
			`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicyList","items":[` + asJSON[2] + `]}`},
		{"anchors", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: &n x}\n" +
			"- apiVersion: v1\n  kind: Pod\n  metadata: {name: a, namespace: *n}\n  spec: {nodeName: n1}\n  status: {phase: Running, podIP: 10.0.0.1}\n" +
			"- apiVersion: networking.k8s.io/v1\n  kind: NetworkPolicy\n  metadata: {name: p, namespace: *n}\n  spec: {podSelector: {}}\n"},
	} {
		w, err := readText(tt.text, manifest.Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := policytest.Print(w.Snapshot)
		if want == "" {
			want = got
		}
		if got != want || len(w.Warnings) > 0 {
			t.Errorf("%s:\ngot  %s\nwant %s\nwarnings %q", tt.name, got, want, w.Warnings)
		}
	}
	if strings.Count(want, "\n") != 3 {
		t.Errorf("the world is not three things:\n%s", want)
	}
}

func TestReadErrors(t *testing.T) {
	acnp := func(spec string) string {
		return "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec: " + spec + "\n"
	}
	for _, tt := range []struct {
		name, text string
		want       []string // what the lines of the error begin with
	}{
		{"broken YAML does not hide the rest", ns + "---\nkind: [\n---\n" + strings.Replace(np, "podSelector", "podSelectr", 1),
			[]string{"-: document 2: line 2: did not find expected node content", `-: document 3: NetworkPolicy x/p: spec.podSelectr: unknown field`}},
		{"broken JSON", `{"apiVersion":"v1" "kind":"Pod"}`, []string{"-: document 1: invalid character '\"' after object key:value pair"}},
		{"duplicate key in YAML", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, name: y}\n", []string{`-: document 1: line 3: key "name" already set in map`}},
		{"duplicate key in JSON", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","name":"y"}}`, []string{"-: document 1: Namespace y: metadata.name: duplicate field"}},
		{"unknown field at depth", acnp(`{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, from: [{podSelector: {matchLabel: {a: b}}}]}]}`),
			[]string{"-: document 1: ClusterNetworkPolicy p: spec.ingress[0].from[0].podSelector.matchLabel: unknown field"}},
		{"fields in another case", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\nSpec: {}\n", []string{"-: document 1: Namespace x: Spec: unknown field"}},
		{"two at once", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\na: 1\nb: 2\n", []string{"-: document 1: Namespace x: a: unknown field", "-: document 1: Namespace x: b: unknown field"}},
		{"another type", strings.Replace(np, "podSelector: {}", "podSelector: [a]", 1), []string{"-: document 1: NetworkPolicy x/p: spec.podSelector: want an object, not array"}},
		{"no object", "- a\n", []string{"-: document 1: not a Kubernetes object: "}},
		{"a word", "hello\n", []string{"-: document 1: not a Kubernetes object: "}},
		{"no kind", "apiVersion: v1\n", []string{"-: document 1: not a Kubernetes object: apiVersion and kind must be set"}},
		{"unknown kind", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: x}\n", []string{"-: document 1: Deployment x/d: kind: Deployment of apps/v1 is not known"}},
		{"wrong version", strings.Replace(np, "k8s.io/v1", "k8s.io/v1beta1", 1), []string{"-: document 1: NetworkPolicy x/p: kind: NetworkPolicy of networking.k8s.io/v1beta1 is not known"}},
		{"no name", "apiVersion: v1\nkind: Namespace\n", []string{"-: document 1: Namespace: metadata.name: must be set"}},
		{"no name in a list", `{"apiVersion":"v1","kind":"PodList","items":[{}]}`, []string{"-: document 1: Pod default/items[0]: metadata.name: must be set"}},
		{"a name that would be another's ID", strings.Replace(pod, "name: a", "name: a/b", 1), []string{`-: document 1: Pod x/a/b: metadata.name: "a/b": `}},
		{"a bad namespace", strings.Replace(pod, "namespace: x", "namespace: x/y", 1), []string{`-: document 1: Pod x/y/a: metadata.namespace: "x/y": `}},
		{"a namespace too many", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: x}\n", []string{"-: document 1: Node x/n1: metadata.namespace: a Node of v1 belongs to no namespace"}},
		{"twice", np + "---\n" + np, []string{"-: document 2: NetworkPolicy x/p: metadata.name: the same object stands in -, document 1"}},
		{"a list in a list", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List"}]}`, []string{"-: document 1: items[0]: kind: a list in a list"}},
		{"an item of another kind", `{"apiVersion":"v1","kind":"PodList","items":[{"kind":"Deployment","apiVersion":"apps/v1"}]}`, []string{"-: document 1: Deployment: kind: "}},
		{"impossible CIDR", np + "  ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]\n", []string{"-: document 1: NetworkPolicy x/p: spec.ingress[0].from[0].ipBlock.cidr: "}},
		{"port out of range", np + "  ingress: [{ports: [{port: 65536}]}]\n", []string{"-: document 1: NetworkPolicy x/p: spec.ingress[0].ports[0].port: 65536"}},
		{"empty selector value", np + "  ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: In}]}}]}]\n", []string{"-: document 1: NetworkPolicy x/p: spec.ingress[0].from[0].podSelector.matchExpressions[0].values: "}},
		{"an empty peer", np + "  ingress: [{from: [{}]}]\n", []string{"-: document 1: NetworkPolicy x/p: spec.ingress[0].from[0]: "}},
		{"admission: Pass in the baseline", acnp(`{tier: baseline, priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Pass}]}`), []string{"-: document 1: ClusterNetworkPolicy p: spec.ingress[0].action: "}},
		{"admission: no appliedTo", acnp(`{priority: 1, ingress: [{action: Drop}]}`), []string{"-: document 1: ClusterNetworkPolicy p: spec"}},
		{"no priority", acnp(`{appliedTo: [{podSelector: {}}], ingress: [{action: Drop}]}`), []string{"-: document 1: ClusterNetworkPolicy p: spec.priority: "}},
		{"tiers of one number", "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: a}\nspec: {priority: 7}\n---\napiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: b}\nspec: {priority: 7}\n",
			[]string{"-: document 2: Tier b: spec.priority: 7: the tier a has it"}},
		{"a mode that is none", strings.Replace(np, "name: p", `annotations: {isobar.dev/mode: stage}, name: p`, 1),
			[]string{`-: document 1: NetworkPolicy x/p: metadata.annotations[isobar.dev/mode]: Unsupported value: "stage": supported values: "Enforce", "Stage"`}},
		{"reserved tier", "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: a}\nspec: {priority: 252}\n", []string{"-: document 1: Tier a: spec.priority: "}},
	} {
		w, err := readText(tt.text, manifest.Options{})
		if err == nil {
			t.Errorf("%s: read %s", tt.name, policytest.Print(w.Snapshot))
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for i, want := range tt.want {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: error %q, want line %d to begin with %q", tt.name, err, i+1, want)
				break
			}
		}
		if w.Snapshot.Workloads.Len()+w.Snapshot.Policies.Len() > 0 {
			t.Errorf("%s: a part of the world was returned", tt.name)
		}
	}
}

func TestWarnings(t *testing.T) {
	acnp := "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec: {%s priority: 1, appliedTo: [{%s}], egress: [{action: Drop, %s}]}\n"
	for _, tt := range []struct{ name, text, want, lacking string }{
		// Who looks for what is missing can tell these warnings from the others.
		{"missing tier", fmt.Sprintf(acnp, "tier: gold,", "podSelector: {}", ""), `acnp/p: spec.tier: "gold" does not exist`, "acnp/p"},
		{"missing group", fmt.Sprintf(acnp, "", "group: g", ""), "acnp/p: clustergroup/g does not exist", "acnp/p"},
		{"missing service", fmt.Sprintf(acnp, "", "podSelector: {}", "toServices: [{name: s, namespace: x}]"), "acnp/p: Service x/s does not exist", "acnp/p"},
		{"missing child", "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterGroup\nmetadata: {name: g}\nspec: {childGroups: [c]}\n", "clustergroup/g: spec.childGroups: clustergroup/c does not exist", "clustergroup/g"},
		{"missing namespace", np, "no manifest has the Namespace x", ""},
		{"bare pod", ns + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\n", "pod/x/a has no status: it is taken to run with the addresses 198.18.0.1 and 2001:2::1", ""},
	} {
		w, err := readText(tt.text, manifest.Options{})
		if err != nil || len(w.Warnings) != 1 || !strings.HasPrefix(w.Warnings[0].Text, tt.want) || w.Warnings[0].Lacking != tt.lacking {
			t.Errorf("%s: warnings %+q, %v; want %q of %q", tt.name, w.Warnings, err, tt.want, tt.lacking)
		}
	}
	w, err := readText("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n"+ns, manifest.Options{IgnoreUnknown: true})
	if want := []manifest.Warning{{Text: "-: document 1: Deployment d: kind Deployment of apps/v1 is not known: ignored"}}; err != nil || !slices.Equal(w.Warnings, want) {
		t.Errorf("ignoring unknown kinds: %q, %v; want %q", w.Warnings, err, want)
	}
}

// A policy of any kind is where its mode says; its namespace is needed all the same.
func TestStaged(t *testing.T) {
	staged := strings.Replace(np, "name: p", "annotations: {isobar.dev/mode: Stage}, name: p", 1)
	for _, tt := range []struct {
		text             string
		enforced, staged int
	}{
		{np, 1, 0},
		{staged, 0, 1},
		{strings.Replace(staged, "Stage", "Enforce", 1), 1, 0},
		{staged + "---\n" + strings.Replace(np, "name: p", "name: q", 1), 1, 1},
	} {
		w, err := readText(tt.text, manifest.Options{})
		if err != nil || w.Snapshot.Policies.Len() != tt.enforced || w.Snapshot.Staged.Len() != tt.staged || w.Snapshot.Namespaces.Len() != 1 {
			t.Errorf("%s: %v\n%s\nwant %d policies and %d staged", tt.text, err, policytest.Print(w.Snapshot), tt.enforced, tt.staged)
		}
	}
}

// A Pod as it is written runs as the account that admission would give it.
func TestServiceAccount(t *testing.T) {
	for spec, want := range map[string]string{
		"{nodeName: n1}": "default", "{serviceAccount: old}": "old", "{serviceAccountName: robot, serviceAccount: robot}": "robot",
	} {
		w, err := readText(ns+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\nspec: "+spec+"\n", manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if a, _ := w.Snapshot.Workloads.Get("pod/x/a"); a.ServiceAccount != want {
			t.Errorf("spec %s runs as %q, want %q", spec, a.ServiceAccount, want)
		}
	}
}

// Addresses that are given to Pods without a status are nobody else's.
func TestBarePodsBesideOthers(t *testing.T) {
	bare := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: x}\n"
	w, err := readText(ns+"---\n"+strings.Replace(pod, "10.0.0.1", "198.18.0.2", 1)+fmt.Sprintf(bare, "b")+fmt.Sprintf(bare, "c"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := w.Snapshot.Workloads.Get("pod/x/b")
	c, _ := w.Snapshot.Workloads.Get("pod/x/c")
	if got := fmt.Sprint(b.Addrs, c.Addrs); got != "[198.18.0.1 2001:2::1] [198.18.0.3 2001:2::2]" {
		t.Errorf("addresses %v", got)
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": ns, "sub/a.YML": pod, "sub/deep/p.json": `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{"podSelector":{}}}`,
		"notes.txt": "no manifest", ".hidden/x.yaml": "kind: [",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link, dir + "/"} {
		w, err := manifest.Read([]string{path}, manifest.Options{})
		if err != nil || w.Snapshot.Workloads.Len() != 1 || w.Snapshot.Policies.Len() != 1 {
			t.Errorf("Read(%s) = %s, %v", path, policytest.Print(w.Snapshot), err)
		}
	}
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "none.yaml"), "no such file"},
		{filepath.Join(dir, ".hidden", "x.yaml"), "x.yaml: document 1: "},
		{t.TempDir(), "no .yaml, .yml or .json file in it"},
	} {
		if _, err := manifest.Read([]string{tt.path}, manifest.Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Read(%s): %v, want %q", tt.path, err, tt.want)
		}
	}
}

// What kubectl get -o yaml prints is taken as it is.
func TestLiveObjects(t *testing.T) {
	text, err := os.ReadFile("testdata/kubectl-get.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := readText(string(text), manifest.Options{})
	if err != nil || w.Snapshot.Workloads.Len() != 3 || w.Snapshot.Policies.Len() != 2 {
		t.Errorf("%s %v %q", policytest.Print(w.Snapshot), err, w.Warnings)
	}
}

// Input made to cost much is refused, or read in time that its size explains.
func TestBombs(t *testing.T) {
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 30; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	for _, tt := range []struct{ name, text string }{
		{"laughs", laughs},
		{"a long word, many times", "a: &a " + strings.Repeat("x", 1<<20) + "\nb:\n" + strings.Repeat("- *a\n", 100_000)},
		{"an anchor in itself", "a: &a [*a]\n"},
		{"deep flow", strings.Repeat("[", 1<<20)},
		{"deep JSON", strings.Repeat(`{"a":`, 1<<20)},
		{"deep blocks", strings.Repeat("- ", 1<<20)},
		{"lists in lists", strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 5000) + strings.Repeat("]}", 5000)},
		{"many keys", "a: {" + strings.Repeat("? ", 1<<16) + "}"},
		{"many separators", strings.Repeat("---\n", 1<<20) + "x"},
	} {
		start := time.Now()
		if _, err := readText(tt.text, manifest.Options{}); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: took %v", tt.name, d)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(ns + "---\n" + pod + "---\n" + np))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}{"apiVersion":"v1","kind":"List"}`))
	f.Add([]byte("--- {apiVersion: v1, kind: Node, metadata: {name: &a n}}\n...\n--- # x\na: *a\n"))
	f.Add([]byte("apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec: {priority: 1, appliedTo: [{group: g}], egress: [{action: Drop, toServices: [{name: s, namespace: x}]}]}\n"))
	f.Add([]byte("apiVersion: runtime.cloud.antrea.io/v1alpha1\nkind: VirtualMachine\nmetadata: {name: v}\nstatus: {cloudVpcId: vpc, networkInterfaces: [{name: e, ips: [{address: 10.0.0.1}]}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := readText(string(text), manifest.Options{IgnoreUnknown: true})
		again, errAgain := readText(string(text), manifest.Options{IgnoreUnknown: true})
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || policytest.Print(w.Snapshot) != policytest.Print(again.Snapshot) || !slices.Equal(w.Warnings, again.Warnings) {
			t.Errorf("%q: two readings differ", text)
		}
	})
}
