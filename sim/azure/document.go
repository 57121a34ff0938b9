package azure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
)

// Document is a resource as Resource Manager writes it, in JSON's terms: what is in it and not known
// here is kept and returned.
type Document = map[string]any

const (
	maxBody  = 4 << 20 // of a request, in bytes, as Resource Manager has it
	maxDepth = 40      // of a document
)

// parseDocument reads one JSON object.
func parseDocument(b []byte) (Document, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var doc Document
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one document")
	}
	if doc == nil {
		return nil, fmt.Errorf("not an object")
	}
	if depth(doc) > maxDepth {
		return nil, fmt.Errorf("more than %d levels", maxDepth)
	}
	return doc, nil
}

func depth(v any) int {
	most := 0
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			most = max(most, depth(x))
		}
	case []any:
		for _, x := range v {
			most = max(most, depth(x))
		}
	default:
		return 0
	}
	return most + 1
}

// copied is a deep copy.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v)+4)
		for k, x := range v {
			out[k] = copied(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = copied(x)
		}
		return out
	}
	return v
}

// view reads the parts of a document that matter here.
func view[T any](doc Document) (*T, error) {
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	t := new(T)
	if err := json.Unmarshal(b, t); err != nil {
		return nil, err
	}
	return t, nil
}

// object is the object of that name in doc, made when there is none and put right when only its case
// is wrong.
func object(doc Document, name string) Document {
	for k := range doc {
		if k != name && strings.EqualFold(k, name) {
			if _, ok := doc[name]; !ok {
				doc[name] = doc[k]
			}
			delete(doc, k)
		}
	}
	o, ok := doc[name].(map[string]any)
	if !ok {
		o = Document{}
		doc[name] = o
	}
	return o
}

// inside is the object at a path in doc; nil when there is none.
func inside(doc Document, names ...string) Document {
	for _, n := range names {
		doc, _ = doc[n].(map[string]any)
	}
	return doc
}

// objects are the objects of a list in doc.
func objects(doc Document, name string) []Document {
	list, _ := doc[name].([]any)
	var out []Document
	for _, x := range list {
		if o, ok := x.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

func text(doc Document, name string) string {
	s, _ := doc[name].(string)
	return s
}

// orDefault sets a property that is not there.
func orDefault(doc Document, name string, v any) {
	if doc[name] == nil {
		doc[name] = v
	}
}

// without removes what Azure computes.
func without(doc Document, names ...string) {
	maps.DeleteFunc(doc, func(k string, _ any) bool {
		for _, n := range names {
			if strings.EqualFold(k, n) {
				return true
			}
		}
		return false
	})
}

// tagsOf reads the tags; anything but texts is an error.
func tagsOf(doc Document) (map[string]string, error) {
	out := map[string]string{}
	switch t := doc["tags"].(type) {
	case nil:
	case map[string]any:
		for k, v := range t {
			s, ok := v.(string)
			if !ok && v != nil {
				return nil, fmt.Errorf("tag %q is not text", k)
			}
			out[k] = s
		}
	default:
		return nil, fmt.Errorf("tags are not an object")
	}
	return out, nil
}
