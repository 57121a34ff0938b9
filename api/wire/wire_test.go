package wire_test

import (
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"isobar.dev/api/wire"
)

// What each Put writes is what the well-known library writes, and is read again.
func TestPut(t *testing.T) {
	const num = 1 << 11 // a tag of two bytes
	b := make([]byte, 64)
	for _, v := range []uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<63 - 1, math.MaxUint64} {
		i := wire.PutVarint(b, len(b), num, v)
		want := protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
		check(t, b[i:], want, wire.SizeVarint(num, v))
		if f := next(t, b[i:]); f.Value != v || f.Number != num {
			t.Errorf("%d is read as %+v", v, f)
		}
	}
	for _, v := range []float64{0, -1.5, math.Inf(1), math.MaxFloat64} {
		i := wire.PutDouble(b, len(b), num, v)
		check(t, b[i:], protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), math.Float64bits(v)), wire.SizeFixed64(num))
		var got float64
		if err := wire.Double(next(t, b[i:]), &got); err != nil || got != v {
			t.Errorf("%v is read as %v, %v", v, got, err)
		}
	}
	for _, v := range []string{"", "x", "a name", string(make([]byte, 40))} {
		want := protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), v)
		check(t, b[wire.PutString(b, len(b), num, v):], want, wire.SizeBytes(num, len(v)))
		check(t, b[wire.PutBytes(b, len(b), num, []byte(v)):], want, wire.SizeBytes(num, len(v)))
		var text string
		var data []byte
		f := next(t, want)
		if err := wire.String(f, &text); err != nil || text != v {
			t.Errorf("%q is read as %q, %v", v, text, err)
		}
		if err := wire.Bytes(f, &data); err != nil || string(data) != v || data == nil {
			t.Errorf("%q is read as %q, %v", v, data, err)
		}
		if len(v) > 0 && &data[0] == &f.Bytes[0] {
			t.Errorf("%q: what is read is a part of what it was read from", v)
		}
	}
	for _, v := range []bool{false, true} {
		var got bool
		if err := wire.Bool(next(t, b[wire.PutBool(b, len(b), 1, v):]), &got); err != nil || got != v {
			t.Errorf("%t is read as %t, %v", v, got, err)
		}
	}
	var n int32
	if err := wire.Varint(next(t, b[wire.PutVarint(b, len(b), 1, uint64(math.MaxUint64)):]), &n); err != nil || n != -1 {
		t.Errorf("-1 is read as %d, %v", n, err)
	}
}

func check(t *testing.T, got, want []byte, size int) {
	t.Helper()
	if string(got) != string(want) || size != len(want) {
		t.Errorf("wrote %x, of size %d; want %x, of size %d", got, size, want, len(want))
	}
}

func next(t *testing.T, b []byte) wire.Field {
	t.Helper()
	f, rest, err := wire.Next(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%x: %v, and %x is left", b, err, rest)
	}
	return f
}

func TestCount(t *testing.T) {
	b := []byte{0x12, 1, 'x', 0x08, 1, 0x12, 0, 0x12, 5}
	if n := wire.Count(b, 2); n != 2 {
		t.Errorf("%x has %d whole fields 2, want 2", b, n)
	}
}

// FuzzNext: what is read is what the well-known library reads.
func FuzzNext(f *testing.F) {
	f.Add([]byte{0x12, 1, 'x', 0x08, 1})
	f.Add([]byte{0x63, 0x08, 1, 0x64})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, rest, err := wire.Next(b)
		num, typ, n := protowire.ConsumeField(b)
		if (err != nil) != (n < 0) {
			t.Fatalf("%x: %v, the library %v", b, err, protowire.ParseError(n))
		}
		if err == nil && (got.Number != num || got.Type != typ || len(rest) != len(b)-n) {
			t.Errorf("%x: %+v and %d left, the library %d, %d and %d left", b, got, len(rest), num, typ, len(b)-n)
		}
	})
}
