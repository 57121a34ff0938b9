package v1beta2_test

import (
	"context"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// contract returns the messages of the .proto files, compiled.
func contract(t testing.TB) func(m message) protoreflect.MessageDescriptor {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apimachinery").Output()
	if err != nil {
		t.Fatal(err)
	}
	machinery := strings.TrimSpace(string(out))
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(path string) (io.ReadCloser, error) {
			if rest, ok := strings.CutPrefix(path, "isobar.dev/"); ok {
				return os.Open(filepath.Join("../../..", rest))
			}
			return os.Open(filepath.Join(machinery, strings.TrimPrefix(path, "k8s.io/apimachinery/")))
		},
	})}
	files, err := compiler.Compile(context.Background(),
		"isobar.dev/api/controlplane/v1beta2/controlplane.proto", "isobar.dev/api/stats/v1alpha1/stats.proto")
	if err != nil {
		t.Fatal(err)
	}
	return func(m message) protoreflect.MessageDescriptor {
		t.Helper()
		pkg, kind, _ := strings.Cut(name(m), ".")
		file := files[map[string]int{"v1beta2": 0, "v1alpha1": 1}[pkg]]
		d := find(file, kind)
		if d == nil {
			t.Fatalf("%s: not in %s", name(m), file.Path())
		}
		return d
	}
}

func find(f linker.File, kind string) protoreflect.MessageDescriptor {
	return f.Messages().ByName(protoreflect.Name(kind))
}

// TestContract gives what the codec wrote to a reader that knows the .proto files
// alone, compares the two field by field and by name, and reads back what that one
// writes.
func TestContract(t *testing.T) {
	descriptor := contract(t)
	for _, kind := range kinds(t) {
		for seed := range int64(40) {
			m := random(kind, seed)
			if seed == 0 {
				m = empty(kind)
			}
			b := encode(t, m)
			other := dynamicpb.NewMessage(descriptor(kind))
			if err := proto.Unmarshal(b, other); err != nil {
				t.Fatalf("%s, seed %d: %v", name(kind), seed, err)
			}
			same(t, name(kind), reflect.ValueOf(m).Elem(), other)
			if t.Failed() {
				t.Fatalf("seed %d: %x", seed, b)
			}
			text, err := proto.Marshal(other)
			if err != nil {
				t.Fatal(err)
			}
			back := empty(kind)
			if err := back.Unmarshal(text); err != nil {
				t.Fatalf("%s, seed %d: read back: %v", name(kind), seed, err)
			}
			if !equality.Semantic.DeepEqual(m, back) {
				t.Fatalf("%s, seed %d: %+v came back as %+v", name(kind), seed, m, back)
			}
		}
	}
}

// same compares a struct with a message, by the names of fields.
func same(t *testing.T, path string, v reflect.Value, m protoreflect.Message) {
	t.Helper()
	if len(m.GetUnknown()) > 0 {
		t.Errorf("%s: has fields that the contract does not know: %x", path, m.GetUnknown())
	}
	if at, ok := v.Interface().(metav1.Time); ok {
		seconds := m.Get(m.Descriptor().Fields().ByName("seconds")).Int()
		if at.IsZero() && seconds != 0 || !at.IsZero() && at.Unix() != seconds {
			t.Errorf("%s: %v, but %d", path, at, seconds)
		}
		return
	}
	if v.Type() == reflect.TypeFor[metav1.FieldsV1]() {
		return // opaque
	}
	fields := map[protoreflect.Name]bool{}
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("protobuf")
		if !ok {
			continue
		}
		parts := strings.Split(tag, ",")
		n := protoreflect.Name(strings.TrimPrefix(parts[3], "name="))
		fd := m.Descriptor().Fields().ByName(n)
		if fd == nil {
			t.Errorf("%s: field %s is not in the contract", path, n)
			continue
		}
		fields[n] = true
		sameField(t, path+"."+string(n), v.Field(i), m, fd)
	}
	if len(fields) != m.Descriptor().Fields().Len() {
		t.Errorf("%s: has %d fields, the contract %d", path, len(fields), m.Descriptor().Fields().Len())
	}
}

func sameField(t *testing.T, path string, v reflect.Value, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	t.Helper()
	switch {
	case fd.IsMap():
		if m.Get(fd).Map().Len() != v.Len() {
			t.Errorf("%s: %d entries, want %d", path, m.Get(fd).Map().Len(), v.Len())
		}
	case fd.IsList():
		list := m.Get(fd).List()
		if list.Len() != v.Len() {
			t.Errorf("%s: %d elements, want %d", path, list.Len(), v.Len())
			return
		}
		for i := range v.Len() {
			sameValue(t, path, v.Index(i), list.Get(i))
		}
	case v.Kind() == reflect.Pointer && v.IsNil(), v.Kind() == reflect.Slice && v.IsNil():
		if m.Has(fd) {
			t.Errorf("%s: is there, and should not be", path)
		}
	case !m.Has(fd):
		t.Errorf("%s: is not there", path)
	default:
		sameValue(t, path, reflect.Indirect(v), m.Get(fd))
	}
}

func sameValue(t *testing.T, path string, v reflect.Value, got protoreflect.Value) {
	t.Helper()
	ok := true
	switch v.Kind() {
	case reflect.String:
		ok = v.String() == got.String()
	case reflect.Bool:
		ok = v.Bool() == got.Bool()
	case reflect.Int32, reflect.Int64:
		ok = v.Int() == got.Int()
	case reflect.Uint32:
		ok = v.Uint() == got.Uint()
	case reflect.Float64:
		ok = math.Float64bits(v.Float()) == math.Float64bits(got.Float())
	case reflect.Slice:
		ok = string(v.Bytes()) == string(got.Bytes())
	case reflect.Struct:
		same(t, path, v, got.Message())
	default:
		t.Errorf("%s: a %v", path, v.Kind())
	}
	if !ok {
		t.Errorf("%s: %v, but the other reader has %v", path, v, got)
	}
}
