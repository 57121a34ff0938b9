package manifest

import (
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
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
	in               document
	place            string // in the document: empty at its root, else such as items[3]
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
func Objects(paths []string, o Options) (objects []Object, warnings []Warning, err error) {
	r, err := readAll(paths, o)
	if err != nil {
		return nil, nil, err
	}
	return r.objects, r.warnings, nil
}

// Lines finds on which lines of their files objects are written. The zero Lines is ready.
type Lines struct {
	parsed map[string]*yamlv3.Node // by file and document
}

// Of returns the line, from 1, of a field of o, such as spec.ingress[0].from; where it is not
// written, that of the closest one around it.
func (l *Lines) Of(o Object, field string) int {
	key := fmt.Sprint(o.File, " ", o.Document)
	root, ok := l.parsed[key]
	if !ok {
		root = &yamlv3.Node{}
		if len(o.in.text) > MaxYAMLBytes || yamlv3.Unmarshal(o.in.text, root) != nil {
			root = &yamlv3.Node{}
		}
		if l.parsed == nil {
			l.parsed = map[string]*yamlv3.Node{}
		}
		l.parsed[key] = root
	}
	line, at := 1, root
	if at.Kind == yamlv3.DocumentNode && len(at.Content) == 1 {
		at = at.Content[0]
		line = at.Line
	}
	for _, part := range steps(o.place, field) {
		next, found := child(at, part)
		if next == nil {
			break
		}
		at, line = next, found
	}
	return o.in.line + line - 1
}

// steps returns the names and indexes on the way to a field.
func steps(paths ...string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, strings.FieldsFunc(p, func(r rune) bool { return r == '.' || r == '[' || r == ']' })...)
	}
	return out
}

// child returns what has a name or an index in n, and the line that it begins on.
func child(n *yamlv3.Node, part string) (*yamlv3.Node, int) {
	for n != nil && n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if n == nil {
		return nil, 0
	}
	switch i, err := strconv.Atoi(part); {
	case n.Kind == yamlv3.SequenceNode && err == nil && i >= 0 && i < len(n.Content):
		return n.Content[i], n.Content[i].Line
	case n.Kind == yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	}
	return nil, 0
}
