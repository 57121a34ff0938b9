package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isobar.dev/api/verdict"
)

// Commands that look at a cluster say of its VMs and Pods what the simulated clouds say, and what
// a label would change.
func TestLookAtCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	dir := t.TempDir()
	u, _, _ := startUp(t, upFlags{dataDir: dir})
	t.Setenv("KUBECONFIG", filepath.Join(dir, "control-plane", "kubeconfig"))
	look := func(want int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		if got := run(args, strings.NewReader(""), &out, &errOut); got != want {
			t.Fatalf("isobar %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &errOut)
		}
		return out.String()
	}
	asked := map[string]int{}
	for _, from := range reachFrom {
		for _, to := range reachTo {
			if from.cloud != inAWS || to.cloud != inAWS || from.upEnd.name == to.upEnd.name {
				continue
			}
			cloud := u.reach(from.upEnd, to.upEnd, to.port)
			if cloud != "allowed" && cloud != "denied" {
				continue // there is no way, which no policy knows
			}
			var x verdict.Explained
			text := look(0, "explain", "vm:shop/"+from.upEnd.name, "vm:shop/"+to.upEnd.name, fmt.Sprint("TCP/", to.port), "-o", "json")
			if err := json.Unmarshal([]byte(text), &x); err != nil {
				t.Fatal(err)
			}
			asked[cloud]++
			if (x.Verdict == "Allow") != (cloud == "allowed") {
				t.Errorf("%s to %s: the cloud says %s, explain %s", from.name, to.name, cloud, text)
			}
		}
	}
	if asked["allowed"] < 5 || asked["denied"] < 5 {
		t.Errorf("few flows were asked: %v", asked)
	}
	label := filepath.Join(dir, "cleanup.yaml")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: cleanup, namespace: jobs, labels: {access: db}}\nspec: {containers: [{name: c, image: x}]}\n"
	if err := os.WriteFile(label, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := look(2, "diff", "-f", label, "--fail-on", "gained"); !strings.Contains(text, "+ jobs/cleanup → ") || !strings.Contains(text, "TCP/5432 (drop → allow)") {
		t.Errorf("a label: %s", text)
	}
	var found lintAnswer
	if err := json.Unmarshal([]byte(look(0, "lint", "--via", "aws,azure", "-o", "json")), &found); err != nil || found.Totals["error"] > 0 {
		t.Errorf("lint: %+v, %v", found, err)
	}
	t.Run("top", func(t *testing.T) { testTop(t, u, look) })
	if text := look(0, "matrix", "--port", "TCP/5432"); !strings.Contains(text, "shop") {
		t.Errorf("matrix: %s", text)
	}
}
