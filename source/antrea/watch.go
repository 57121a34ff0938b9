package antrea

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// The time until a watch that broke is tried again: the first time soon, but not all
// Nodes at once, then twice as long each time.
const (
	firstRetry = 500 * time.Millisecond
	mostRetry  = 10 * time.Second
	// steady is how long a watch lasts that broke for a reason of its own.
	steady = 30 * time.Second
	// initialTimeout bounds the time without any event before a watch's BOOKMARK.
	initialTimeout = time.Minute
)

// backoff returns how long to wait after n failures in a row, from 1.
func backoff(n int) time.Duration {
	if n <= 1 {
		return rand.N(firstRetry)
	}
	most := mostRetry
	if n < 8 {
		most = min(most, firstRetry<<(n-1))
	}
	return most/2 + rand.N(most/2)
}

// message is what a watcher tells: that a watch begins, an event of it, or its end.
type message struct {
	resource int // an index of resources
	begins   *connection
	of       *connection
	event    watch.EventType
	object   any   // nil of a BOOKMARK
	err      error // why it ended
}

// connection is one watch from its beginning to its end.
type connection struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// watcher keeps one watch going.
type watcher struct {
	resource int
	node     string
	dial     *dialer
	out      chan<- message
}

func (w *watcher) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		if err := w.once(ctx); time.Since(began) > steady || isOurs(err) {
			failures = 0
		}
		failures++
		if ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(backoff(failures))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// once runs one watch until it ends. It tells the end, and returns why.
func (w *watcher) once(ctx context.Context) error {
	c := &connection{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	err := w.follow(c)
	if cause := context.Cause(c.ctx); cause != nil && ctx.Err() == nil {
		err = cause // why we have ended it
	}
	w.tell(ctx, message{of: c, err: err})
	return err
}

// isOurs says whether err is that we have ended a watch to begin it anew: where the others are, that is
// where its client leads, or elsewhere.
func isOurs(err error) bool {
	return errors.Is(err, errOtherController) || errors.Is(err, errBehind) || errors.Is(err, errAsked)
}

// failed tells the dialer that a watch by client has failed, unless we have ended it.
func (w *watcher) failed(c *connection, client *client, err error) {
	if !isOurs(context.Cause(c.ctx)) {
		w.dial.failed(client, err)
	}
}

func (w *watcher) follow(c *connection) error {
	client, err := w.dial.client(c.ctx)
	if err != nil {
		return err
	}
	defer func() { // after the body is closed
		if errors.Is(context.Cause(c.ctx), errBehind) {
			w.dial.leave(client)
		}
	}()
	// Until the BOOKMARK something has to come; then it may be quiet for hours.
	silence := time.AfterFunc(initialTimeout, func() { c.cancel(fmt.Errorf("nothing came for %v before the BOOKMARK", initialTimeout)) })
	defer silence.Stop()
	body, frames, err := client.watch(c.ctx, resources[w.resource], w.node)
	if err != nil {
		w.failed(c, client, err)
		return err
	}
	defer body.Close()
	if !w.tell(c.ctx, message{begins: c}) {
		return c.ctx.Err()
	}
	initial := true
	for {
		f, err := frames.next()
		if err == nil && f.event == watch.Bookmark {
			initial = false
			silence.Stop()
		} else if initial {
			silence.Reset(initialTimeout)
		}
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			w.failed(c, client, err)
			return err
		}
		object, err := f.object()
		if err != nil {
			return err
		}
		if !w.tell(c.ctx, message{of: c, event: f.event, object: object}) {
			return c.ctx.Err()
		}
	}
}

var errEnded = errors.New("the controller has ended the watch")

// tell hands over m, and says whether it was taken.
func (w *watcher) tell(ctx context.Context, m message) bool {
	m.resource = w.resource
	select {
	case w.out <- m:
		return true
	case <-ctx.Done():
		return false
	}
}
