package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// fieldManager is the name under which CRDs are applied.
const fieldManager = "isobar"

// ApplyCRDs applies every CustomResourceDefinition in the .yaml and .yml files
// of fsys, and waits until the server serves each served version of it. It
// replaces the fields that it applied before, and takes over those of others: the
// schema is ours. Documents of another kind are an error.
func ApplyCRDs(ctx context.Context, config *rest.Config, fsys fs.FS) error {
	crds, err := readCRDs(fsys)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("apply CRDs: %w", err)
	}
	for _, crd := range crds {
		// Each is a few milliseconds of the server; it works on them meanwhile.
		if _, err := client.Resource(crdResource).Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("apply CRD %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		if err := waitServed(ctx, client, crd); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

func readCRDs(fsys fs.FS) ([]*unstructured.Unstructured, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("read CRDs: %w", err)
	}
	var crds []*unstructured.Unstructured
	for _, e := range entries {
		if ext := path.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, err := fs.ReadFile(fsys, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read CRDs: %w", err)
		}
		got, err := decodeCRDs(data)
		if err != nil {
			return nil, fmt.Errorf("read CRDs: %s: %w", e.Name(), err)
		}
		crds = append(crds, got...)
	}
	if len(crds) == 0 {
		return nil, errors.New("read CRDs: there are none")
	}
	return crds, nil
}

func decodeCRDs(data []byte) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for doc := 1; ; doc++ {
		u := &unstructured.Unstructured{}
		err := d.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", doc, err)
		}
		if u.Object == nil { // only comments
			continue
		}
		if gvk := u.GroupVersionKind(); gvk.Group != crdResource.Group || gvk.Version != crdResource.Version || gvk.Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("document %d: is a %s, want a CustomResourceDefinition", doc, gvk)
		}
		if u.GetName() == "" {
			return nil, fmt.Errorf("document %d: has no name", doc)
		}
		crds = append(crds, u)
	}
}

// waitServed waits until the CRD is established and its versions answer, which
// comes a moment later. It ends early when the server refuses its names.
func waitServed(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	resources, err := served(crd)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	touch := time.Now().Add(touchAfter)
	for {
		ok, err := isServed(ctx, client, crd.GetName(), resources)
		if ok || err != nil {
			return err
		}
		if time.Now().After(touch) {
			if err := touchCRD(ctx, client, crd.GetName()); err != nil {
				return err
			}
			touch = time.Now().Add(touchAfter)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// touchAfter is how long a server may take for a CRD before it is reminded.
const touchAfter = 2 * time.Second

// touchCRD changes a CRD and changes it back. A kube-apiserver that is killed when it has accepted the names of a CRD, and has not
// established it, thinks of it no more after its next start, for five minutes, unless it hears of a change.
func touchCRD(ctx context.Context, client dynamic.Interface, name string) error {
	for _, value := range []string{`"true"`, "null"} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"isobar.dev/touched":%s}}}`, value)
		if _, err := client.Resource(crdResource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func isServed(ctx context.Context, client dynamic.Interface, name string, resources []schema.GroupVersionResource) (bool, error) {
	have, err := client.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	// A new CRD has "conditions: null", which NestedSlice would call an error.
	field, _, err := unstructured.NestedFieldNoCopy(have.Object, "status", "conditions")
	if err != nil {
		return false, err
	}
	conditions, _ := field.([]any)
	has := func(kind, status string) bool {
		return slices.ContainsFunc(conditions, func(c any) bool {
			m, _ := c.(map[string]any)
			return m["type"] == kind && m["status"] == status
		})
	}
	if has("NamesAccepted", "False") {
		return false, errors.New("its names conflict with those of another")
	}
	if !has("Established", "True") {
		return false, nil
	}
	for _, r := range resources {
		_, err := client.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list %s: %w", r, err)
		}
	}
	return true, nil
}

// served are the resources that the CRD defines, one for each served version.
func served(crd *unstructured.Unstructured) ([]schema.GroupVersionResource, error) {
	group, _, err1 := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, err2 := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, err3 := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var all []schema.GroupVersionResource
	for _, v := range versions {
		m, _ := v.(map[string]any)
		version, _ := m["name"].(string)
		if m["served"] == true {
			all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
		}
	}
	return all, nil
}
