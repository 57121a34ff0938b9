package antrea

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/wire"
)

// maxFrame bounds one event, as client-go does: no server for its clients sends more.
const maxFrame = 16 << 20

// keptBuffer is how much room a stream keeps between events: most are small.
const keptBuffer = 64 << 10

var errTooLarge = fmt.Errorf("an event of more than %d bytes", maxFrame)

// frame is one event as it came.
type frame struct {
	event      watch.EventType
	apiVersion string
	kind       string
	isJSON     bool
	body       []byte // valid until the next frame
}

// frames reads the events of one watch. Its error is io.EOF where the server has ended
// the watch between two of them.
type frames interface{ next() (frame, error) }

// newFrames returns the frames of a body with that content type.
func newFrames(contentType string, body io.Reader) (frames, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	switch kind {
	case runtime.ContentTypeProtobuf:
		return &protobufFrames{r: bufio.NewReader(body)}, nil
	case runtime.ContentTypeJSON:
		b := &bounded{r: body}
		return &jsonFrames{bounded: b, decoder: json.NewDecoder(b)}, nil
	}
	return nil, fmt.Errorf("content type %q: want protobuf or JSON", contentType)
}

// protobufFrames are WatchEvents, each behind its length in four bytes, with an object
// in Kubernetes' envelope.
type protobufFrames struct {
	r      *bufio.Reader
	buffer bytes.Buffer
}

func (p *protobufFrames) next() (frame, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.r, size[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return frame{}, errTooLarge
	}
	if p.buffer.Reset(); p.buffer.Cap() > keptBuffer {
		p.buffer = bytes.Buffer{}
	}
	// It grows with what comes, whatever was announced.
	if _, err := io.CopyN(&p.buffer, p.r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return readWatchEvent(p.buffer.Bytes())
}

// envelopeMark stands before each object.
var envelopeMark = []byte("k8s\x00")

func readWatchEvent(b []byte) (out frame, err error) {
	var object []byte
	err = fields("WatchEvent", b, func(f wire.Field) error {
		switch f.Number {
		case 1:
			return wire.String(f, &out.event)
		case 2:
			return fields("RawExtension", f.Bytes, func(f wire.Field) error {
				if f.Number == 1 {
					object = f.Bytes
				}
				return nil
			})
		}
		return nil
	})
	if err != nil || out.event == watch.Bookmark && len(object) == 0 {
		return out, err
	}
	body, ok := bytes.CutPrefix(object, envelopeMark)
	if !ok {
		return out, fmt.Errorf("an object that is not in Kubernetes' envelope")
	}
	encoding, contentType := "", ""
	err = fields("Unknown", body, func(f wire.Field) error {
		switch f.Number {
		case 1:
			return fields("TypeMeta", f.Bytes, func(f wire.Field) error {
				switch f.Number {
				case 1:
					return wire.String(f, &out.apiVersion)
				case 2:
					return wire.String(f, &out.kind)
				}
				return nil
			})
		case 2:
			out.body = f.Bytes
		case 3:
			return wire.String(f, &encoding)
		case 4:
			return wire.String(f, &contentType)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	switch {
	case encoding != "":
		return out, fmt.Errorf("an object in the encoding %q", encoding)
	case contentType == runtime.ContentTypeJSON:
		out.isJSON = true
	case contentType != "" && contentType != runtime.ContentTypeProtobuf:
		return out, fmt.Errorf("an object of the type %q", contentType)
	}
	return out, nil
}

// fields calls f for each field of a message.
func fields(message string, b []byte, f func(wire.Field) error) error {
	for len(b) > 0 {
		x, rest, err := wire.Next(b)
		if err != nil {
			return fmt.Errorf("%s: %w", message, err)
		}
		if err := f(x); err != nil {
			return wire.In(err, message, x)
		}
		b = rest
	}
	return nil
}

// jsonFrames are JSON objects, one after the other.
type jsonFrames struct {
	bounded *bounded
	decoder *json.Decoder
}

func (j *jsonFrames) next() (frame, error) {
	j.bounded.left = maxFrame
	var text json.RawMessage
	if err := j.decoder.Decode(&text); err != nil {
		return frame{}, err
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &event); err != nil {
		return frame{}, err
	}
	out := frame{event: event.Type, isJSON: true, body: event.Object}
	if event.Type == watch.Bookmark && len(event.Object) == 0 {
		return out, nil
	}
	var meta metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(event.Object, &meta); err != nil {
		return out, err
	}
	out.apiVersion, out.kind = meta.APIVersion, meta.Kind
	return out, nil
}

// bounded reads until left is used up.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// mark is what a BOOKMARK of an Isobar tells.
type mark struct {
	controlplanev1beta2.Moment
	position controlplanev1beta2.Position // of what was known then; zero where that is not told
}

// object returns what f is about: one of the kinds of a watch, or of a BOOKMARK its
// *mark, nil where it has none. Fields that are not known are left out, and rules that have
// some closed. An ERROR is an error.
func (f frame) object() (any, error) {
	switch f.event {
	case watch.Bookmark:
		return f.mark()
	case watch.Added, watch.Modified, watch.Deleted:
	case watch.Error:
		var status metav1.Status
		if err := f.decode(&status); err != nil {
			return nil, fmt.Errorf("the watch ended with an error that cannot be read: %w", err)
		}
		return nil, fmt.Errorf("the watch ended: %d %s: %s", status.Code, status.Reason, cut(status.Message))
	default:
		return nil, fmt.Errorf("event %q is not known", cut(string(f.event)))
	}
	if f.apiVersion != controlplanev1beta2.GroupVersion.String() {
		return nil, fmt.Errorf("%s %s is not known", cut(f.apiVersion), cut(f.kind))
	}
	var into decodable
	switch f.kind {
	case "NetworkPolicy":
		into = new(controlplanev1beta2.NetworkPolicy)
	case "AppliedToGroup":
		into = new(controlplanev1beta2.AppliedToGroup)
	case "AppliedToGroupPatch":
		into = new(controlplanev1beta2.AppliedToGroupPatch)
	case "AddressGroup":
		into = new(controlplanev1beta2.AddressGroup)
	case "AddressGroupPatch":
		into = new(controlplanev1beta2.AddressGroupPatch)
	default:
		return nil, fmt.Errorf("%s %s is not known", f.apiVersion, cut(f.kind))
	}
	if err := f.decode(into); err != nil {
		return nil, fmt.Errorf("%s: %w", f.kind, err)
	}
	if p, ok := into.(*controlplanev1beta2.NetworkPolicy); ok {
		u, err := f.unknownOf()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.kind, err)
		}
		u.close(p)
	}
	return into, nil
}

// mark returns the *mark of a BOOKMARK, or nil.
func (f frame) mark() (any, error) {
	if len(f.body) == 0 {
		return nil, nil
	}
	var o metav1.PartialObjectMetadata // any kind: there is no more in it
	if err := f.decode(&o); err != nil {
		return nil, fmt.Errorf("BOOKMARK: %w", err)
	}
	text, ok := o.Annotations[controlplanev1beta2.MomentAnnotation]
	if !ok {
		return nil, nil
	}
	m, err := controlplanev1beta2.ParseMoment(text)
	if err != nil {
		return nil, fmt.Errorf("BOOKMARK: %w", err)
	}
	out := &mark{Moment: m}
	if text, ok := o.Annotations[controlplanev1beta2.PositionAnnotation]; ok {
		if out.position, err = controlplanev1beta2.ParsePosition(text); err != nil {
			return nil, fmt.Errorf("BOOKMARK: %w", err)
		}
	}
	return out, nil
}

type decodable interface{ Unmarshal([]byte) error }

func (f frame) decode(into decodable) error {
	if f.isJSON {
		return kjson.UnmarshalCaseSensitivePreserveInts(f.body, into)
	}
	return into.Unmarshal(f.body)
}

// cut bounds text of a controller.
func cut(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
