package agents_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// meddler stands between an agent and its server, inside of TLS, and changes what watches
// tell.
type meddler struct {
	// each, when not nil, returns what the agent is sent in place of an event.
	each func(resource string, e frame) []frame

	mu     sync.Mutex
	open   map[chan []frame]string // watches, by where frames are put into them
	told   []string                // events that were sent, and of what, when keeps is set
	keeps  bool
	begins int // of watches
}

// frame is an event of a watch as it goes over the wire: the object is in Kubernetes'
// envelope.
type frame struct {
	Type   watch.EventType
	Object runtime.Unknown
}

// wrap returns config with m in between.
func (m *meddler) wrap(config *rest.Config) *rest.Config {
	m.open = map[chan []frame]string{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return meddling{m, next} })
	return config
}

type meddling struct {
	m    *meddler
	next http.RoundTripper
}

// RoundTrip passes a request on, and what a watch answers through m.
func (x meddling) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := x.next.RoundTrip(q)
	if err != nil || q.Method != http.MethodGet || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	resource, from := path.Base(q.URL.Path), answer.Body
	r, w := io.Pipe()
	events, inject, done := make(chan frame), make(chan []frame, 16), make(chan struct{})
	x.m.mu.Lock()
	x.m.open[inject] = resource
	x.m.begins++
	x.m.mu.Unlock()
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
			var send []frame
			select {
			case e := <-events:
				send = x.m.take(resource, e)
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

func (m *meddler) take(resource string, e frame) []frame {
	out := []frame{e}
	if m.each != nil {
		out = m.each(resource, e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keeps && e.Type != watch.Bookmark {
		m.told = append(m.told, fmt.Sprint(e.Type, " ", resource))
	}
	return out
}

// send puts an event into all watches of a resource, or of all when that is empty.
func (m *meddler) send(resource string, e frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for into, of := range m.open {
		if resource == "" || resource == of {
			into <- []frame{e}
		}
	}
}

// keep begins to remember what is sent, anew.
func (m *meddler) keep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keeps, m.told = true, nil
}

func (m *meddler) kept() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.told...)
}

func (m *meddler) beginnings() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begins
}

var envelope = []byte("k8s\x00")

func readFrames(from io.Reader, to chan<- frame, done <-chan struct{}) error {
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
		f := frame{Type: watch.EventType(event.Type)}
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

func (f frame) bytes() []byte {
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

// expired is what a server says whose history does not go back to what was asked for.
func expired() frame {
	status := metav1.Status{Status: metav1.StatusFailure, Message: "too old resource version", Reason: metav1.StatusReasonExpired, Code: http.StatusGone}
	raw, err := status.Marshal()
	if err != nil {
		panic(err)
	}
	return frame{Type: watch.Error, Object: runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}}
}
