package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	_ "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif" // which sarifSchema reads
	"github.com/xeipuuv/gojsonschema"

	"isobar.dev/policy/lint"
)

// sarifSchema returns the schema of SARIF 2.1.0 that OASIS publishes. A package for writers of SARIF has it
// word for word, in a constant that is not exported.
func sarifSchema(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "schema.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range ast.Preorder(file) {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "schema" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text, `"id": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"`) {
				t.Fatalf("the schema is another: %.500s", text)
			}
			schema, err := gojsonschema.NewSchema(gojsonschema.NewStringLoader(text))
			if err != nil {
				t.Fatal(err)
			}
			return schema
		}
	}
	t.Fatal("no constant is called schema")
	return nil
}

// checkSarif holds a log against the schema.
func checkSarif(t *testing.T, schema *gojsonschema.Schema, log []byte) {
	t.Helper()
	result, err := schema.Validate(gojsonschema.NewBytesLoader(log))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range result.Errors() {
		t.Errorf("the schema refuses it: %v", e)
	}
}

const lintedWorld = `apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c, image: x}]}
status: {phase: Running, podIP: 10.0.0.2}
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: p}
spec:
  priority: 1
  appliedTo: [{podSelector: {}}]
  ingress:
  - {name: "a\u202eb\nc", action: Drop}
  - {action: Allow, ports: [{protocol: TCP, port: 22}]}
  - {action: Allow, from: [{podSelector: {matchLabels: {app: none}}}]}
`

func TestLintSarif(t *testing.T) {
	schema := sarifSchema(t)
	for _, wrong := range []string{`{"version":"2.1.0"}`, `{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"x","rule":[]}}}]}`} {
		if r, err := schema.Validate(gojsonschema.NewStringLoader(wrong)); err != nil || r.Valid() {
			t.Errorf("the schema takes %s: %v", wrong, err)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a world #1.yaml")
	if err := os.WriteFile(file, []byte(lintedWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, in := range []string{file, filepath.Base(file), "-"} {
		var out, errOut bytes.Buffer
		if status := run([]string{"lint", "-f", in, "-o", "sarif"}, strings.NewReader(lintedWorld), &out, &errOut); status != 0 {
			t.Fatal(status, errOut.String())
		}
		var log sarifLog
		if err := json.Unmarshal(out.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		checkSarif(t, schema, out.Bytes())
		if log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Results) != 3 || len(log.Runs[0].Tool.Driver.Rules) != len(lint.Checks) {
			t.Fatalf("%+v", log)
		}
		prints := map[string]bool{}
		for _, r := range log.Runs[0].Results {
			prints[fmt.Sprint(r.Fingerprints)] = true
			if log.Runs[0].Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
				t.Errorf("%+v: rule %d is another", r, r.RuleIndex)
			}
			at := r.Locations[0].Physical
			if in == "-" {
				if at != nil {
					t.Errorf("the standard input is at %+v", at)
				}
				continue
			}
			u, err := url.Parse(at.Artifact.URI)
			if err != nil || u.Path != in || (u.Scheme == "file") != filepath.IsAbs(in) {
				t.Errorf("%s is at %s: %v", in, at.Artifact.URI, err)
			}
			if want := map[int]int{1: 15, 2: 16}[r.Properties.Rule.Index]; at.Region.StartLine != want {
				t.Errorf("%s is on line %d, want %d", r.RuleID, at.Region.StartLine, want)
			}
		}
		if len(prints) != 3 {
			t.Errorf("%d fingerprints of three findings", len(prints))
		}
		if strings.Contains(log.Runs[0].Results[1].Message.Text, "\u202e") {
			t.Errorf("%q", log.Runs[0].Results[1].Message.Text)
		}
	}
	// Names stay names.
	for _, format := range []string{"table", "markdown"} {
		var out, errOut bytes.Buffer
		run([]string{"lint", "-f", file, "-o", format}, nil, &out, &errOut)
		if strings.ContainsAny(out.String(), "\u202e\r\x1b") || strings.Contains(out.String(), "b\nc") || out.Len() == 0 {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}
