// Package charttest renders the chart, with Helm's own code, for tests.
package charttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// Helm runs Helm's code on the chart of the checkout at root, and returns what it
// prints: "lint", or "template" with a release and a namespace. values is YAML.
func Helm(t testing.TB, root, values string, verb string, args ...string) []byte {
	t.Helper()
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(append([]string{"-C", filepath.Join(root, "tools", "helm"), "run", ".", verb, filepath.Join(root, "deploy", "chart", "isobar")}, args...), file)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("helm %s with %s: %v\n%s%s", verb, values, err, out.Bytes(), errOut.Bytes())
	}
	return out.Bytes()
}

// Render returns the objects of a release.
func Render(t testing.TB, root, namespace, values string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(Helm(t, root, values, "template", "isobar", namespace)), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(o); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// Apply makes an object, or changes it, as Helm does.
func Apply(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var r dynamic.ResourceInterface = client.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			return fmt.Errorf("%s %s has no namespace", gvk.Kind, o.GetName())
		}
		r = client.Resource(m.Resource).Namespace(o.GetNamespace())
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = r.Patch(ctx, o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "helm", Force: &force, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the namespace is missing: %w", err)
	}
	return err
}
