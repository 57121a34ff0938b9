package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Meddler stands between an agent and its server, inside of TLS, and changes what watches
// tell.
type Meddler struct {
	// Each, when not nil, is called when a watch begins, and returns what the agent is sent in
	// place of each of its events.
	Each func(resource string) func(Frame) []Frame

	mu     sync.Mutex
	open   map[chan []Frame]string // watches, by where frames are put into them
	told   []string                // events that were sent, and of what, when keeps is set
	keeps  bool
	begins map[string]int // watches, by resource
}

// Frame is an event of a watch as it goes over the wire: the object is in Kubernetes'
// envelope.
type Frame struct {
	Type   watch.EventType
	Object runtime.Unknown
}

// Wrap returns config with m in between.
func (m *Meddler) Wrap(config *rest.Config) *rest.Config {
	m.open, m.begins = map[chan []Frame]string{}, map[string]int{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return meddling{m, next} })
	return config
}

type meddling struct {
	m    *Meddler
	next http.RoundTripper
}

// RoundTrip passes a request on, and what a watch answers through m.
func (x meddling) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := x.next.RoundTrip(q)
	if err != nil || q.URL.Query().Get("watch") != "true" || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	resource, from := path.Base(q.URL.Path), answer.Body
	r, w := io.Pipe()
	events, inject, done := make(chan Frame), make(chan []Frame, 16), make(chan struct{})
	x.m.mu.Lock()
	x.m.open[inject] = resource
	x.m.begins[resource]++
	x.m.mu.Unlock()
	each := func(e Frame) []Frame { return []Frame{e} }
	if x.m.Each != nil {
		each = x.m.Each(resource)
	}
	go func() { w.CloseWithError(readFrames(from, events, done)) }()
	go func() {
		defer func() {
			x.m.mu.Lock()
			delete(x.m.open, inject)
			x.m.mu.Unlock()
			close(done)
			from.Close()
		}()
		for {
			var send []Frame
			select {
			case e := <-events:
				send = each(e)
				x.m.take(resource, e)
			case send = <-inject:
			case <-q.Context().Done():
				w.CloseWithError(q.Context().Err())
				return
			}
			for _, e := range send {
				if _, err := w.Write(e.bytes()); err != nil {
					return
				}
			}
		}
	}()
	answer.Body = r
	return answer, nil
}

func (m *Meddler) take(resource string, e Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keeps && e.Type != watch.Bookmark {
		m.told = append(m.told, fmt.Sprint(e.Type, " ", resource))
	}
}

// Send puts an event into all watches of a resource, or of all when that is empty.
func (m *Meddler) Send(resource string, e Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for into, of := range m.open {
		if resource == "" || resource == of {
			into <- []Frame{e}
		}
	}
}

// Keep begins to remember what is sent, anew.
func (m *Meddler) Keep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keeps, m.told = true, nil
}

// Kept is what was sent since Keep.
func (m *Meddler) Kept() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.told...)
}

// Beginnings is how many watches have begun, by resource.
func (m *Meddler) Beginnings() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.begins)
}

var envelope = []byte("k8s\x00")

func readFrames(from io.Reader, to chan<- Frame, done <-chan struct{}) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(from, body); err != nil {
			return err
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(body); err != nil {
			return err
		}
		f := Frame{Type: watch.EventType(event.Type)}
		if len(event.Object.Raw) > len(envelope) {
			if err := f.Object.Unmarshal(event.Object.Raw[len(envelope):]); err != nil {
				return err
			}
		}
		select {
		case to <- f:
		case <-done:
			return io.ErrClosedPipe
		}
	}
}

func (f Frame) bytes() []byte {
	object, err := f.Object.Marshal()
	if err != nil {
		panic(err) // of what was read
	}
	event := metav1.WatchEvent{Type: string(f.Type), Object: runtime.RawExtension{Raw: append([]byte(envelope), object...)}}
	body, err := event.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// Expired is what a server says whose history does not go back to what was asked for.
func Expired() Frame {
	status := metav1.Status{Status: metav1.StatusFailure, Message: "too old resource version", Reason: metav1.StatusReasonExpired, Code: http.StatusGone}
	raw, err := status.Marshal()
	if err != nil {
		panic(err)
	}
	return Frame{Type: watch.Error, Object: runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}}
}
