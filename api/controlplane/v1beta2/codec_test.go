package v1beta2_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"isobar.dev/api/controlplane/v1beta2"
)

// TestCodec writes each kind, by itself and in Kubernetes' envelope, and reads it again.
func TestCodec(t *testing.T) {
	scheme := newScheme(t)
	envelope := protobuf.NewSerializer(scheme, scheme)
	for _, kind := range kinds(t) {
		for seed := range int64(20) {
			m := random(kind, seed)
			b := encode(t, m)
			if len(b) != m.Size() {
				t.Fatalf("%s, seed %d: %d bytes, Size says %d", name(kind), seed, len(b), m.Size())
			}
			larger := bytes.Repeat([]byte{0xff}, len(b)+3)
			if n, err := m.MarshalTo(larger); err != nil || !bytes.Equal(larger[:n], b) || n+3 != len(larger) || larger[n] != 0xff {
				t.Fatalf("%s, seed %d: MarshalTo wrote %x (%v), Marshal %x", name(kind), seed, larger[:n], err, b)
			}
			back := empty(kind)
			if err := back.Unmarshal(b); err != nil || !equality.Semantic.DeepEqual(m, back) {
				t.Fatalf("%s, seed %d: %+v came back as %+v (%v)", name(kind), seed, m, back, err)
			}
			gvks, _, err := scheme.ObjectKinds(m)
			if err != nil {
				t.Fatal(err)
			}
			m.GetObjectKind().SetGroupVersionKind(gvks[0])
			var text bytes.Buffer
			if err := envelope.Encode(m, &text); err != nil {
				t.Fatal(err)
			}
			obj, gvk, err := envelope.Decode(text.Bytes(), nil, nil)
			if err != nil || *gvk != gvks[0] || !equality.Semantic.DeepEqual(m, obj) {
				t.Fatalf("%s, seed %d: from its envelope %v %+v (%v), want %+v", name(kind), seed, gvk, obj, err, m)
			}
		}
	}
}

// TestUnknownFields: a newer peer's fields are skipped, wherever they stand.
func TestUnknownFields(t *testing.T) {
	var unknown []byte
	unknown = protowire.AppendVarint(protowire.AppendTag(unknown, 99, protowire.VarintType), 1<<63)
	unknown = protowire.AppendFixed32(protowire.AppendTag(unknown, 99, protowire.Fixed32Type), 7)
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 99, protowire.Fixed64Type), 7)
	unknown = protowire.AppendString(protowire.AppendTag(unknown, 99, protowire.BytesType), "news")
	unknown = protowire.AppendTag(unknown, 99, protowire.StartGroupType)
	unknown = protowire.AppendVarint(protowire.AppendTag(unknown, 1, protowire.VarintType), 1)
	unknown = protowire.AppendTag(unknown, 99, protowire.EndGroupType)
	for _, kind := range kinds(t) {
		m := random(kind, 1)
		b := append(append(bytes.Clone(unknown), encode(t, m)...), unknown...)
		back := empty(kind)
		if err := back.Unmarshal(b); err != nil || !equality.Semantic.DeepEqual(m, back) {
			t.Errorf("%s: %+v came back as %+v (%v)", name(kind), m, back, err)
		}
	}
	// Inside a message: a rule's direction, after it what is unknown, and its name.
	rule := append(append([]byte{0x0a, 2, 'I', 'n'}, unknown...), 0x4a, 1, 'r')
	var p v1beta2.NetworkPolicy
	if err := p.Unmarshal(protowire.AppendBytes([]byte{0x12}, rule)); err != nil || p.Rules[0].Direction != "In" || p.Rules[0].Name != "r" {
		t.Errorf("%+v, %v", p.Rules, err)
	}
}

// TestUnreadable: what is cut off, or says something else than a message of its kind
// can, is an error that says where, and never an object with less in it.
func TestUnreadable(t *testing.T) {
	for _, kind := range kinds(t) {
		b := encode(t, random(kind, 1))
		whole := boundaries(t, b)
		for n := range b {
			if err := empty(kind).Unmarshal(b[:n]); (err == nil) != whole[n] {
				t.Fatalf("%s: the first %d bytes of %x: %v", name(kind), n, b, err)
			}
		}
	}
	for _, tt := range []struct {
		why  string
		in   []byte
		want string
	}{
		{"a list of rules that is a number", []byte{0x10, 1}, "NetworkPolicy: field 2: wire type 0, want 2"},
		{"a priority that is text", []byte{0x22, 1, 'x'}, "NetworkPolicy: field 4: wire type 2, want 1"},
		{"a truth that is text, in a rule", []byte{0x12, 3, 0x3a, 1, 'x'}, "NetworkPolicy: field 2: NetworkPolicyRule: field 7: wire type 2, want 0"},
		{"a length beyond the end", []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f}, "field 2: unexpected EOF"},
		{"a length that no int holds", []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "field 2: "},
		{"a number of eleven bytes", append([]byte{0x28}, bytes.Repeat([]byte{0x80}, 11)...), "field 5: "},
		{"field 0", []byte{0x00, 0}, "invalid field number"},
		{"the end of a group that did not begin", []byte{0x64}, "field 12: "},
		{"a group without an end", []byte{0x63}, "field 12: unexpected EOF"},
		{"a wire type that there is not", []byte{0x0f}, "field 1: "},
		{"packed numbers that are cut off", []byte{0x12, 5, 0x12, 3, 0x2a, 1, 0x80}, "NetworkPolicyPeer: field 5: packed numbers"},
	} {
		err := new(v1beta2.NetworkPolicy).Unmarshal(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
}

// boundaries returns after how many bytes of b a field ends.
func boundaries(t *testing.T, b []byte) map[int]bool {
	t.Helper()
	out := map[int]bool{0: true}
	for i := 0; i < len(b); {
		_, _, n := protowire.ConsumeField(b[i:])
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		i += n
		out[i] = true
	}
	return out
}

// TestBounded: however many elements a message claims, room is made for those that
// are there alone.
func TestBounded(t *testing.T) {
	var g v1beta2.AddressGroup
	b := bytes.Repeat([]byte{0x12, 0}, 1000)
	if err := g.Unmarshal(b); err != nil || len(g.GroupMembers) != 1000 || cap(g.GroupMembers) != 1000 {
		t.Errorf("%d members in place for %d, %v; want 1000", len(g.GroupMembers), cap(g.GroupMembers), err)
	}
	deep := bytes.Repeat([]byte{0x63}, 1<<20) // groups in groups
	if err := g.Unmarshal(deep); err == nil {
		t.Error("a million groups in each other are read")
	}
}

// TestPacked: numbers of a list come one by one or in one run.
func TestPacked(t *testing.T) {
	var p v1beta2.NetworkPolicyPeer
	if err := p.Unmarshal([]byte{0x28, 7, 0x2a, 3, 9, 0x80, 0x01}); err != nil || len(p.LabelIdentities) != 3 || p.LabelIdentities[2] != 128 {
		t.Errorf("%v, %v", p.LabelIdentities, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	all := kinds(f)
	for i, kind := range all {
		f.Add(uint8(i), encode(f, random(kind, int64(i))))
	}
	f.Add(uint8(0), bytes.Repeat([]byte{0x12, 0}, 100))
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		kind := all[int(i)%len(all)]
		m := empty(kind)
		if m.Unmarshal(b) != nil {
			return
		}
		again := empty(kind)
		if err := again.Unmarshal(encode(t, m)); err != nil {
			t.Fatalf("%s: %x was read, and what was written of it was not: %v", name(kind), b, err)
		}
		if !bytes.Equal(encode(t, again), encode(t, m)) {
			t.Errorf("%s: %x reads as %x, and that as %x", name(kind), b, encode(t, m), encode(t, again))
		}
	})
}
