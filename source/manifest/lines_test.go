package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"isobar.dev/source/manifest"
)

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "world.yaml")
	text := `# a comment
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---

apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: shop}
spec:
  podSelector: {}
  ingress:
  - from:
    - podSelector: {}
  -
    ports:
    - port: 80
--- # the next
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: one}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: b, namespace: shop}
  spec: {podSelector: {}, ingress: [{}]}
---
{"apiVersion": "v1", "kind": "Namespace",
 "metadata": {"name": "two"}}
{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
 "metadata": {"name": "c", "namespace": "shop"},
 "spec": {"podSelector": {},
  "policyTypes": ["Egress"]}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	world, err := manifest.Read([]string{path}, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var lines manifest.Lines
	for _, tt := range []struct {
		object, field string
		want          int
	}{
		{"Namespace shop", "", 2},
		{"NetworkPolicy shop/a", "", 7},
		{"NetworkPolicy shop/a", "spec.podSelector", 11},
		{"NetworkPolicy shop/a", "spec.ingress[0].from", 13},
		{"NetworkPolicy shop/a", "spec.ingress[1]", 16},
		{"NetworkPolicy shop/a", "spec.ingress[1].ports", 16},
		{"NetworkPolicy shop/a", "spec.ingress[7].ports", 12},
		{"NetworkPolicy shop/a", "spec.policyTypes", 10},
		{"NetworkPolicy shop/b", "", 25},
		{"NetworkPolicy shop/b", "spec.ingress[0]", 28},
		{"Namespace two", "", 30},
		{"NetworkPolicy shop/c", "", 32},
		{"NetworkPolicy shop/c", "spec.policyTypes", 35},
	} {
		found := false
		for _, o := range world.Objects {
			if o.Label == tt.object {
				found = true
				if got := lines.Of(o, tt.field); got != tt.want {
					t.Errorf("%s %s: line %d, want %d", tt.object, tt.field, got, tt.want)
				}
			}
		}
		if !found {
			t.Errorf("%s is not there", tt.object)
		}
	}
}
