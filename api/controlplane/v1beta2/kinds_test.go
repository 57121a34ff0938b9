package v1beta2_test

import (
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
)

// message is what the codec gives each kind.
type message interface {
	runtime.Object
	Reset()
	Size() int
	Marshal() ([]byte, error)
	MarshalTo([]byte) (int, error)
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta2.AddToScheme, statsv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// kinds returns an empty object of each kind of both groups, sorted by group and kind.
func kinds(t testing.TB) []message {
	t.Helper()
	s := newScheme(t)
	var out []message
	for gvk := range s.AllKnownTypes() {
		obj, err := s.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(reflect.TypeOf(obj).Elem().PkgPath(), "isobar.dev/") {
			continue // what every group has, such as WatchEvent
		}
		m, ok := obj.(message)
		if !ok {
			t.Fatalf("%T has no codec", obj)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b message) int { return strings.Compare(name(a), name(b)) })
	if len(out) < 30 {
		t.Fatalf("only %d kinds", len(out))
	}
	return out
}

func name(m message) string { return reflect.TypeOf(m).Elem().String() }

// filler fills objects at random with what both JSON and protobuf can say.
func filler(seed int64) *randfill.Filler {
	return fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(runtime.NewScheme())).NumElements(1, 3).Funcs(
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} }, // not in the message
		func(p *intstr.IntOrString, c randfill.Continue) {
			if *p = intstr.FromInt32(c.Int31()); c.Bool() {
				*p = intstr.FromString(c.String(0))
			}
		},
	)
}

// random returns an object of the kind of m.
func random(m message, seed int64) message {
	out := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
	filler(seed).Fill(out)
	return out
}

func empty(m message) message {
	return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
}

func encode(t testing.TB, m message) []byte {
	t.Helper()
	b, err := m.Marshal()
	if err != nil {
		t.Fatalf("marshal %s: %v", name(m), err)
	}
	return b
}
