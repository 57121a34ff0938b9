package names

// Decode is decode.
var Decode = decode

// Held is how many bytes of streams r holds.
func (r *Reader) Held() int {
	n := 0
	for _, s := range r.streams {
		n += len(s.buf)
	}
	if n != r.bytes {
		panic("the bytes that are held are not those that are counted")
	}
	return n
}
