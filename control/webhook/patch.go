package webhook

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// operation is one of a JSON patch (RFC 6902). Add sets a member, whether or
// not it is there.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// difference appends what turns before into after, where after only fills in
// members and lists keep their length. The result fits every object that reads
// as before, also one with members that we do not know.
func difference(ops []operation, path string, before, after any) []operation {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			if was, has := b[key]; has {
				ops = difference(ops, at, was, a[key])
			} else {
				ops = append(ops, operation{"add", at, a[key]})
			}
		}
		return ops
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			ops = difference(ops, path+"/"+strconv.Itoa(i), b[i], a[i])
		}
		return ops
	}
	if reflect.DeepEqual(before, after) {
		return ops
	}
	return append(ops, operation{"add", path, after})
}
