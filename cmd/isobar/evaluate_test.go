package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

func TestMain(m *testing.M) {
	called := func() { os.Exit(call(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
	testscript.Main(m, map[string]func(){
		"isobar":       called,
		pluginName:     called, // which kubectl calls it as
		completionName: called,
		plugin.Name:    plugin.Main, // which isobar lab calls itself as
	})
}

// The command as a user types it; each script says what it is about.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(env *testscript.Env) error {
		server := httptest.NewServer(canned(env.WorkDir))
		env.Defer(server.Close)
		file := filepath.Join(env.WorkDir, "kubeconfig")
		env.Setenv("KUBECONFIG", file)
		config := clientcmdapi.NewConfig()
		config.Clusters["here"] = &clientcmdapi.Cluster{Server: server.URL}
		config.Contexts["here"] = &clientcmdapi.Context{Cluster: "here", Namespace: "shop"}
		config.CurrentContext = "here"
		return clientcmd.WriteToFile(*config, file)
	}})
}

// canned is an API server that answers with the files of a folder, which are named
// after the path, and keeps the last body that it was sent in asked.json.
type canned string

func (c canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
		_ = os.WriteFile(filepath.Join(string(c), "asked.json"), body, 0o600) // a script that reads it sees what is wrong
	}
	answer, err := os.ReadFile(filepath.Join(string(c), "api"+strings.ReplaceAll(r.URL.Path, "/", "_")+".json"))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		answer = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
	_, _ = w.Write(answer) // who asked is gone otherwise
}

// The part of a world that a flow is asked of answers as the world does.
func TestIndexAnswersAsTheWorld(t *testing.T) {
	for seed := range policytest.Seeds(t, 150) {
		rnd := policytest.Rand(seed)
		world := policytest.World(rnd, 12)
		x, rulesets := newIndex(world), compile.Rulesets(world)
		for _, f := range policytest.Flows(rnd, world, 60) {
			want, wantErr := policy.Evaluate(world, f)
			got, err := policy.Evaluate(x.around(f), f)
			if d := cmp.Diff(want, got); d != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("seed %d: %v: by meaning: -world +part\n%s\n%v, %v\n%s", seed, f, d, wantErr, err, policytest.Print(world))
			}
			want, wantErr = compile.Verdict(rulesets, world, f)
			got, err = compile.Verdict(rulesets, x.around(f), f)
			if d := cmp.Diff(want, got); d != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("seed %d: %v: compiled: -world +part\n%s\n%v, %v\n%s", seed, f, d, wantErr, err, policytest.Print(world))
			}
		}
	}
}

// manyPods returns the manifests of n Pods in n/50 namespaces, with policies of
// two dialects, and as many flows between them.
func manyPods(n, flows int) (manifests, lines []byte) {
	var m, l bytes.Buffer
	rnd := policytest.Rand(1)
	ns := func(i int) string { return fmt.Sprintf("ns-%d", i%max(1, n/50)) }
	for i := range max(1, n/50) {
		fmt.Fprintf(&m, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"team":"t%d"}}}`+"\n", ns(i), i%4)
		for _, app := range []string{"a", "b", "c", "d", "e"} {
			fmt.Fprintf(&m, `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":%q,"namespace":%q},"spec":{"podSelector":{"matchLabels":{"app":%q}},"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80}]},{"from":[{"namespaceSelector":{"matchLabels":{"team":"t1"}}}]}]}}`+"\n", app, ns(i), app)
		}
	}
	for i := range 20 {
		fmt.Fprintf(&m, `{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"p%d"},"spec":{"priority":%d,"tier":"platform","appliedTo":[{"podSelector":{"matchLabels":{"app":%q}}}],"ingress":[{"action":"Drop","from":[{"podSelector":{"matchLabels":{"app":"b"}}}],"ports":[{"port":%d}]}]}}`+"\n", i, i+1, string(rune('a'+i%5)), 8000+i)
	}
	for i := range n {
		fmt.Fprintf(&m, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","namespace":%q,"labels":{"app":%q}},"spec":{"nodeName":"node-%d"},"status":{"phase":"Running","podIP":"10.%d.%d.%d"}}`+"\n",
			i, ns(i), string(rune('a'+i%5)), i%20, i>>16&255, i>>8&255, i&255)
	}
	for range flows {
		a, b := rnd.IntN(n), rnd.IntN(n)
		fmt.Fprintf(&l, `{"from":"%s/p%d","to":"%s/p%d","protocol":"TCP","port":%d}`+"\n", ns(a), a, ns(b), b, []int{80, 443, 8003}[rnd.IntN(3)])
	}
	return m.Bytes(), l.Bytes()
}

// One flow costs the same in a large world as in a small one: the whole command,
// manifests included.
func BenchmarkEvaluate(b *testing.B) {
	for _, via := range []string{"meaning", "compiled"} {
		for _, size := range []struct{ pods, flows int }{{100, 10_000}, {1000, 100_000}} {
			b.Run(fmt.Sprintf("via=%s/pods=%d/flows=%d", via, size.pods, size.flows), func(b *testing.B) {
				manifests, flows := manyPods(size.pods, size.flows)
				file := b.TempDir() + "/world.json"
				if err := os.WriteFile(file, manifests, 0o600); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					var errOut strings.Builder
					if run([]string{"evaluate", "-f", file, "--flows", "-", "-o", "json", "--via", via}, bytes.NewReader(flows), io.Discard, &errOut) != 0 {
						b.Fatal(errOut.String())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(size.flows), "µs/flow")
			})
		}
	}
}

// A line that is echoed is the same value as the line that was read, and reading
// never fails otherwise than with an error that names the line.
func FuzzFlows(f *testing.F) {
	f.Add(`{"from":"x/a","to":"10.0.0.1","protocol":"TCP","port":80,"note":{"a":[1.50,"ü"]}}`)
	f.Add(`{"from":"vm:x/a","to":"node:n","protocol":"icmp","icmpType":8,"icmpCode":0,"port":null,"verdict":"?"}`)
	f.Add(`{"from":"ee:x/a","From":1}` + "\n\n[1]")
	f.Fuzz(func(t *testing.T, text string) {
		questions, err := readFlows("f", strings.NewReader(text))
		if err != nil && !strings.HasPrefix(err.Error(), "f: line ") {
			t.Errorf("%q: %v", text, err)
		}
		for _, q := range questions {
			line, err := q.line()
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			again, err := readFlows("f", bytes.NewReader(line))
			if err != nil || len(again) != 1 || !cmp.Equal(again[0].ask, q.ask) {
				t.Errorf("%q: %s is read as %+v, %v; want %+v", text, line, again, err, q.ask)
			}
		}
	})
}
