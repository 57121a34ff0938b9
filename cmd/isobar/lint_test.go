package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"isobar.dev/policy/lint"
)

// sarifShape is what the schema of SARIF 2.1.0 says of the objects that lint writes: the
// properties that each may have, those that it must have first, up to the bar. No other is
// allowed.
var sarifShape = map[string]string{
	"":                                  "version runs | $schema",
	"runs":                              "tool | invocations results",
	"runs.tool":                         "driver",
	"runs.tool.driver":                  "name | rules version informationUri",
	"runs.tool.driver.rules":            "id | shortDescription defaultConfiguration",
	"shortDescription":                  "text",
	"defaultConfiguration":              "| level",
	"runs.invocations":                  "executionSuccessful | toolExecutionNotifications",
	"toolExecutionNotifications":        "message | level",
	"runs.results":                      "message | ruleId ruleIndex level locations partialFingerprints properties",
	"message":                           "text",
	"locations":                         "| physicalLocation logicalLocations",
	"locations.physicalLocation":        "| artifactLocation region",
	"physicalLocation.artifactLocation": "| uri",
	"locations.physicalLocation.region": "| startLine",
	"locations.logicalLocations":        "| fullyQualifiedName kind",
	"runs.results.partialFingerprints":  "*",
	"runs.results.properties":           "*",
}

// checkSarif checks an object and all in it.
func checkSarif(t *testing.T, path string, v any) {
	t.Helper()
	if list, ok := v.([]any); ok {
		for _, x := range list {
			checkSarif(t, path, x)
		}
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	shape, found := sarifShape[path]
	for p := path; !found; {
		_, rest, more := strings.Cut(p, ".")
		if !more {
			t.Fatalf("%s: the schema has no such object", path)
		}
		p = rest
		shape, found = sarifShape[p]
	}
	if shape == "*" {
		return
	}
	must, may, _ := strings.Cut(shape, "|")
	for _, name := range strings.Fields(must) {
		if object[name] == nil {
			t.Errorf("%s: no %s", path, name)
		}
	}
	for name, x := range object {
		if !slices.Contains(strings.Fields(must+" "+may), name) {
			t.Errorf("%s: %s is no property of it", path, name)
		}
		if name == "level" && !slices.Contains([]any{"none", "note", "warning", "error"}, x) {
			t.Errorf("%s: level %v", path, x)
		}
		checkSarif(t, strings.TrimPrefix(path+"."+name, "."), x)
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
		var v any
		var log sarifLog
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		checkSarif(t, "", v)
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
