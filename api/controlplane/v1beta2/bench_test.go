package v1beta2_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"isobar.dev/api/controlplane/v1beta2"
)

// members returns n Pods with an address and a port each.
func members(n int) []v1beta2.GroupMember {
	out := make([]v1beta2.GroupMember, n)
	for i := range out {
		out[i] = v1beta2.GroupMember{
			Pod:   &v1beta2.PodReference{Name: fmt.Sprintf("web-6d4cf56db6-%05d", i), Namespace: "production"},
			IPs:   []v1beta2.IPAddress{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, byte(i >> 8), byte(i)}},
			Ports: []v1beta2.NamedPort{{Port: 80, Name: "http", Protocol: v1beta2.ProtocolTCP}},
		}
	}
	return out
}

func sizes() map[string]message {
	meta := metav1.ObjectMeta{Name: "be7d41cc-6e83-5836-9087-8ed1aa7bc2fa", UID: "be7d41cc-6e83-5836-9087-8ed1aa7bc2fa"}
	return map[string]message{
		"group-of-1000": &v1beta2.AddressGroup{ObjectMeta: meta, GroupMembers: members(1000)},
		"patch-of-1":    &v1beta2.AddressGroupPatch{ObjectMeta: meta, AddedGroupMembers: members(1)},
	}
}

func BenchmarkMarshal(b *testing.B) {
	for name, m := range sizes() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(m.Size()))
			for b.Loop() {
				if _, err := m.Marshal(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	for name, m := range sizes() {
		text, into := encode(b, m), empty(m)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				into.Reset()
				if err := into.Unmarshal(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEnvelope is what a server pays for one event, once for all watchers.
func BenchmarkEnvelope(b *testing.B) {
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		b.Fatal(err)
	}
	envelope := protobuf.NewSerializer(s, s)
	for name, m := range sizes() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var w counter
				if err := envelope.Encode(m, &w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// Writing allocates the buffer and nothing else, however many members there are.
func TestMarshalAllocatesOnce(t *testing.T) {
	for name, m := range sizes() {
		if n := testing.AllocsPerRun(10, func() { encode(t, m) }); n != 1 {
			t.Errorf("%s: %v allocations, want 1", name, n)
		}
	}
}
