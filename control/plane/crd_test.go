package plane_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/client-go/rest"

	"isobar.dev/control/plane"
)

func TestApplyCRDsRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		fsys fstest.MapFS
		want string
	}{
		{"nothing", fstest.MapFS{"README.md": {Data: []byte("text")}}, "there are none"},
		{"broken YAML", fstest.MapFS{"a.yaml": {Data: []byte("a: [")}}, "a.yaml: document 1"},
		{"another kind", fstest.MapFS{"a.yaml": {Data: []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n")}}, "want a CustomResourceDefinition"},
		{"no name", fstest.MapFS{"a.yml": {Data: []byte("# first\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n")}}, "has no name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := plane.ApplyCRDs(t.Context(), &rest.Config{}, tt.fsys)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ApplyCRDs() = %v, want %q", err, tt.want)
			}
		})
	}
}
