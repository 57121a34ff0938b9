package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	heartbeat = 15 * time.Second
	// betweenRevisions is how long a page has rest after it was told of one.
	betweenRevisions = time.Second / 2
	// Streams of one session, and of all sessions of one user.
	maxStreams, maxStreamsOfUser = 8, 32
	// watchLife is how long one watch lasts: whether the credentials are still good is asked that often.
	watchLife = 5 * time.Minute
	// A watch that ends with an error begins anew after the first, and later after the last of these.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	maxWatched            = 1 << 16 // bytes of what a watch tells at a time
)

// events tells a page that the world has changed, and that the session has ended.
func (s *Server) events(w http.ResponseWriter, r *http.Request, x *session) {
	done, ok := s.stream(x)
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too many pages are open")
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	revisions := make(chan string) // its other end waits while a page has rest
	go s.follow(ctx, x, revisions)

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies are to pass it on at once
	w.WriteHeader(http.StatusOK)
	out := stream{w, http.NewResponseController(w)}
	if out.send(": hello\n\n") != nil {
		return
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		var err error
		select {
		case revision := <-revisions:
			if err = out.event("revision", map[string]string{"revision": revision}); err == nil {
				pause(ctx, betweenRevisions)
			}
		case <-tick.C:
			err = out.send(": alive\n\n")
		case <-x.ctx.Done():
			_ = out.event("ended", map[string]string{"reason": x.why()}) // the browser may be gone
			return
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// stream counts one of the session's, until done is called.
func (s *Server) stream(x *session) (done func(), ok bool) {
	if s.sessions.streams(x.user.Name) >= maxStreamsOfUser {
		return nil, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.events >= maxStreams {
		return nil, false
	}
	x.events++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.events--
	}, true
}

// stream writes server-sent events.
type stream struct {
	w io.Writer
	c *http.ResponseController
}

func (s stream) send(text string) error {
	if err := s.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.c.Flush()
}

// event sends one whose data is JSON, which has no line breaks.
func (s stream) event(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.send("event: " + name + "\ndata: " + string(text) + "\n\n")
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// follow tells each revision of the world that is another than the last, until ctx ends. Of those that come while nobody
// listens it tells the last. Credentials that are not taken any more end the session.
func (s *Server) follow(ctx context.Context, x *session, out chan<- string) {
	in := make(chan string)
	go func() {
		retry := firstRetry
		for ctx.Err() == nil {
			began := time.Now()
			err := s.watch(ctx, x, in)
			if errors.Is(err, errRefused) {
				x.end(errRefused)
				return
			}
			if err == nil || time.Since(began) > lastRetry {
				retry = firstRetry
			}
			// A server that ends each watch at once is not asked all the time either.
			pause(ctx, retry/2+rand.N(retry/2))
			if err != nil {
				retry = min(2*retry, lastRetry)
			}
		}
	}()
	var told, last string
	for {
		to := out
		if last == told {
			to = nil
		}
		select {
		case last = <-in:
		case to <- last:
			told = last
		case <-ctx.Done():
			return
		}
	}
}

// watch tells the revisions of one watch of the API server, until that ends. nil means that it has ended as it should.
func (s *Server) watch(ctx context.Context, x *session, out chan<- string) error {
	query := url.Values{"watch": {"true"}, "timeoutSeconds": {strconv.Itoa(int(watchLife.Seconds()))}}
	// The server ends the watch. That it does not, must not keep one for ever.
	ctx, cancel := context.WithTimeout(ctx, watchLife+time.Minute)
	defer cancel()
	r, err := s.access.request(ctx, http.MethodGet, query, nil, "apis", viewsGroup, "views")
	if err != nil {
		return err
	}
	got, err := x.do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("watch views: status %d", got.StatusCode)
	}
	lines := bufio.NewScanner(got.Body)
	lines.Buffer(nil, maxWatched)
	for lines.Scan() {
		revision, err := revisionOf(lines.Bytes())
		if err != nil {
			return err
		}
		if revision == "" {
			continue
		}
		select {
		case out <- revision:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return lines.Err()
}

// revisionOf reads an event of a watch of views. It is empty where the event tells of none.
func revisionOf(line []byte) (string, error) {
	var e struct {
		Type   watch.EventType `json:"type"`
		Object struct {
			Status json.RawMessage `json:"status"` // an error's is a word
			Code   int             `json:"code"`
		} `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", fmt.Errorf("watch views: %w", err)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
	case watch.Bookmark, watch.Deleted:
		return "", nil
	case watch.Error:
		if e.Object.Code == http.StatusUnauthorized {
			return "", errRefused
		}
		return "", fmt.Errorf("watch views: error %d", e.Object.Code)
	default:
		return "", fmt.Errorf("watch views: an event of type %q", e.Type)
	}
	var status struct {
		Revision string `json:"revision"`
	}
	if err := json.Unmarshal(e.Object.Status, &status); err != nil {
		return "", fmt.Errorf("watch views: %w", err)
	}
	return status.Revision, nil
}
