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
	"strings"
	"sync"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// image stands in for the value without which nothing is rendered.
const image = "image: {repository: registry.example/isobar}\n"

// Helm runs Helm's code on the chart of the checkout at root, and returns what it
// prints: "lint", or "template" with a release and a namespace. values is YAML;
// without an image it has that of an example.
func Helm(t testing.TB, root, values string, verb string, args ...string) ([]byte, error) {
	t.Helper()
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "image.yaml"), filepath.Join(dir, "values.yaml")}
	for i, text := range []string{image, values} {
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := build(filepath.Join(root, "tools", "helm"))
	if err != nil {
		t.Fatal(err)
	}
	args = append(append([]string{verb, filepath.Join(root, "deploy", "chart", "isobar")}, args...), files...)
	cmd := exec.CommandContext(t.Context(), tool, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm %s with %s: %w\n%s%s", verb, values, err, out.Bytes(), errOut.Bytes())
	}
	return out.Bytes(), nil
}

// built is the tool of this test binary: asking Go for it costs seconds.
var built struct {
	sync.Mutex
	path string
}

// build returns the tool in dir, which stays in Go's cache.
func build(dir string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if built.path != "" {
		return built.path, nil
	}
	// Two go commands that build it at once may take what the other has not wholly written into the cache for theirs.
	main, err := os.Open(filepath.Join(dir, "main.go"))
	if err != nil {
		return "", fmt.Errorf("build tools/helm: %w", err)
	}
	defer main.Close() // which unlocks it
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(main.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", main.Name(), err)
	}
	cmd := exec.Command("go", "-C", dir, "tool", "-n", "isobar.dev/tools/helm")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build tools/helm: %w\n%s", err, errOut.Bytes())
	}
	built.path = strings.TrimSpace(out.String())
	return built.path, nil
}

// Render returns the objects of a release.
func Render(t testing.TB, root, namespace, values string) []*unstructured.Unstructured {
	t.Helper()
	text, err := Helm(t, root, values, "template", "isobar", namespace)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
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
