package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field as it stands in a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	Value  uint64 // of a varint, a fixed64 or a fixed32
	Bytes  []byte // of a string, bytes or a message: a part of what was read
}

// Next reads the first field of b and returns what is after it.
func Next(b []byte) (f Field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return Field{}, nil, fmt.Errorf("tag: %w", protowire.ParseError(n))
	}
	f.Number, f.Type = num, typ
	b = b[n:]
	switch typ {
	case protowire.VarintType:
		f.Value, n = protowire.ConsumeVarint(b)
	case protowire.Fixed64Type:
		f.Value, n = protowire.ConsumeFixed64(b)
	case protowire.BytesType:
		f.Bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return Field{}, nil, fmt.Errorf("field %d: %w", num, protowire.ParseError(n))
	}
	return f, b[n:], nil
}

// Count returns how many fields of that number b has, up to where it cannot be read.
func Count(b []byte, num protowire.Number) int {
	n := 0
	for len(b) > 0 {
		f, rest, err := Next(b)
		if err != nil {
			break
		}
		if f.Number == num {
			n++
		}
		b = rest
	}
	return n
}

// In says in which message and field err is.
func In(err error, message string, f Field) error {
	return fmt.Errorf("%s: field %d: %w", message, f.Number, err)
}

func (f Field) want(t protowire.Type) error {
	if f.Type != t {
		return fmt.Errorf("wire type %d, want %d", f.Type, t)
	}
	return nil
}

// Varint reads a whole number into out; bits beyond its size are dropped, as all
// readers of protobuf do.
func Varint[T ~int32 | ~int64 | ~uint32](f Field, out *T) error {
	*out = T(f.Value)
	return f.want(protowire.VarintType)
}

// Bool reads a truth.
func Bool[T ~bool](f Field, out *T) error {
	*out = f.Value != 0
	return f.want(protowire.VarintType)
}

// Double reads a double.
func Double(f Field, out *float64) error {
	*out = math.Float64frombits(f.Value)
	return f.want(protowire.Fixed64Type)
}

// String reads text.
func String[T ~string](f Field, out *T) error {
	*out = T(f.Bytes)
	return f.want(protowire.BytesType)
}

// Bytes reads bytes, which are copied.
func Bytes[T ~[]byte](f Field, out *T) error {
	*out = bytes.Clone(f.Bytes)
	if *out == nil {
		*out = T{}
	}
	return f.want(protowire.BytesType)
}

// Message reads a message into m, over what m has.
func Message(f Field, m interface{ Unmarshal([]byte) error }) error {
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	return m.Unmarshal(f.Bytes)
}

// Varints reads a whole number of a repeated field, or a packed run of them.
func Varints[T ~int32 | ~int64 | ~uint32](f Field, out *[]T) error {
	if f.Type == protowire.VarintType {
		*out = append(*out, T(f.Value))
		return nil
	}
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	for b := f.Bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return errors.Join(errPacked, protowire.ParseError(n))
		}
		*out, b = append(*out, T(v)), b[n:]
	}
	return nil
}

var errPacked = errors.New("packed numbers")
