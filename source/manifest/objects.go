package manifest

import (
	"fmt"

	"sigs.k8s.io/json"
)

// Object is one object of manifests, and where it stands.
type Object struct {
	File     string // "-" for the standard input
	Document int    // from 1
	Label    string // such as "NetworkPolicy shop/db"

	APIVersion, Kind string
	Namespace, Name  string // the namespace is filled in, and empty for a kind of the cluster
	raw              []byte
}

// Where says in messages where the object stands, and what it is.
func (o Object) Where() string {
	return fmt.Sprintf("%s: document %d: %s", o.File, o.Document, o.Label)
}

// Manifest returns the object, whole.
func (o Object) Manifest() (map[string]any, error) {
	var out map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(o.raw, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Where(), err)
	}
	out["apiVersion"], out["kind"] = o.APIVersion, o.Kind
	if m, ok := out["metadata"].(map[string]any); ok && o.Namespace != "" {
		m["namespace"] = o.Namespace
	}
	return out, nil
}

// Objects reads files and folders as [Read] does, and returns their objects in
// order. What they refer to may be elsewhere.
func Objects(paths []string, o Options) (objects []Object, warnings []string, err error) {
	r, err := readAll(paths, o)
	if err != nil {
		return nil, nil, err
	}
	return r.objects, r.warnings, nil
}
