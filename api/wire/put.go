package wire

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Marshaler is a message, of this package's or of Kubernetes' codecs.
type Marshaler interface {
	Size() int
	// MarshalToSizedBuffer writes the message to the end of b, which holds at
	// least Size bytes, and returns how many it wrote.
	MarshalToSizedBuffer(b []byte) (int, error)
}

// Marshal returns m in protobuf, in one allocation.
func Marshal(m Marshaler) ([]byte, error) {
	b := make([]byte, m.Size())
	n, err := m.MarshalToSizedBuffer(b)
	if err != nil {
		return nil, err
	}
	return b[len(b)-n:], nil
}

// MarshalTo writes m to the beginning of b, which holds at least m.Size() bytes.
func MarshalTo(m Marshaler, b []byte) (int, error) {
	return m.MarshalToSizedBuffer(b[:m.Size()])
}

// SizeVarint is the size of v with the tag of field num.
func SizeVarint(num protowire.Number, v uint64) int {
	return protowire.SizeTag(num) + protowire.SizeVarint(v)
}

// SizeFixed64 is the size of a double with the tag of field num.
func SizeFixed64(num protowire.Number) int { return protowire.SizeTag(num) + 8 }

// SizeBytes is the size of n bytes with their length and the tag of field num.
func SizeBytes(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

// Each Put writes a field so that it ends before b[i], and returns where it begins.
// b has place for it.

// PutVarint writes a whole number; a negative one takes ten bytes.
func PutVarint(b []byte, i int, num protowire.Number, v uint64) int {
	return tag(b, varint(b, i, v), num, protowire.VarintType)
}

// PutBool writes a truth.
func PutBool(b []byte, i int, num protowire.Number, v bool) int {
	return PutVarint(b, i, num, protowire.EncodeBool(v))
}

// PutDouble writes a double.
func PutDouble(b []byte, i int, num protowire.Number, v float64) int {
	i -= 8
	binary.LittleEndian.PutUint64(b[i:], math.Float64bits(v))
	return tag(b, i, num, protowire.Fixed64Type)
}

// PutString writes text.
func PutString(b []byte, i int, num protowire.Number, v string) int {
	i -= len(v)
	copy(b[i:], v)
	return tag(b, varint(b, i, uint64(len(v))), num, protowire.BytesType)
}

// PutBytes writes bytes.
func PutBytes(b []byte, i int, num protowire.Number, v []byte) int {
	i -= len(v)
	copy(b[i:], v)
	return tag(b, varint(b, i, uint64(len(v))), num, protowire.BytesType)
}

// PutMessage writes a message.
func PutMessage(b []byte, i int, num protowire.Number, m Marshaler) (int, error) {
	n, err := m.MarshalToSizedBuffer(b[:i])
	if err != nil {
		return 0, err
	}
	return tag(b, varint(b, i-n, uint64(n)), num, protowire.BytesType), nil
}

func tag(b []byte, i int, num protowire.Number, t protowire.Type) int {
	return varint(b, i, protowire.EncodeTag(num, t))
}

func varint(b []byte, i int, v uint64) int {
	i -= protowire.SizeVarint(v)
	begin := i
	for ; v >= 0x80; i++ {
		b[i] = byte(v) | 0x80
		v >>= 7
	}
	b[i] = byte(v)
	return begin
}
