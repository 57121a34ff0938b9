package apiserver

import (
	"bytes"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// envelope begins what Kubernetes sends in protobuf.
var envelope = []byte("k8s\x00")

// elements returns how many messages or objects there may be in a body, at least as many
// as there are: an element of two or three bytes becomes hundreds when it is read, copied
// and answered. ok is false when a body of that type is not read here: nothing that reports
// needs YAML, of which one line can stand for many.
func elements(contentType string, body []byte) (n int, ok bool) {
	media, _, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		media, err = runtime.ContentTypeJSON, nil // as an API server takes it
	}
	switch {
	case err != nil:
		return 0, false
	case media == runtime.ContentTypeJSON:
		return bytes.Count(body, []byte("{")), true
	case media == runtime.ContentTypeProtobuf:
		n, _ = messages(bytes.TrimPrefix(body, envelope), maxDepth)
		return n, true
	}
	return 0, false
}

// maxDepth is how deep messages in messages are counted. No kind that is reported goes so
// deep, and what no kind has is skipped when it is read.
const maxDepth = 12

// messages counts what may be a message in b, itself not counted. isMessage is false when b cannot be
// one. A text that looks like one is counted, too.
func messages(b []byte, depth int) (n int, isMessage bool) {
	for len(b) > 0 {
		_, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n, false
		}
		b = b[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(1, kind, b); size < 0 {
				return n, false
			}
			b = b[size:]
			continue
		}
		part, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n, false
		}
		b = b[size:]
		if depth == 0 {
			continue
		}
		below, ok := messages(part, depth-1)
		if n += below; ok { // what is read before something is wrong in it counts, too
			n++
		}
	}
	return n, true
}
