package leader_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"isobar.dev/control/leader"
)

func TestOffice(t *testing.T) {
	var none *leader.Office
	if _, done, err := none.Begin(t.Context()); err != nil || !none.IsHeld() || none.Check() != nil {
		t.Errorf("without an office: %v", err)
	} else {
		done()
	}
	o := &leader.Office{}
	if _, _, err := o.Begin(t.Context()); !errors.Is(err, leader.ErrFollower) || o.IsHeld() {
		t.Errorf("before it is taken: %v", err)
	}
	changed, lapsed := o.Changed(), error(nil)
	leave := o.Take(func() error { return lapsed })
	<-changed
	ctx, done, err := o.Begin(t.Context())
	if err != nil || ctx.Err() != nil {
		t.Fatal(err)
	}
	lapsed = leader.ErrFollower // the Lease may have expired, unnoticed
	if _, _, err := o.Begin(t.Context()); err == nil || !o.IsHeld() {
		t.Errorf("with a Lease that may have expired: %v", err)
	}
	if leave(time.Millisecond) {
		t.Error("a write that goes on has ended")
	}
	if !errors.Is(context.Cause(ctx), leader.ErrFollower) || o.IsHeld() {
		t.Errorf("the write's context: %v", context.Cause(ctx))
	}
	again := o.Take(nil)
	done()
	if !leave(time.Minute) || !o.IsHeld() || !again(time.Minute) {
		t.Error("the end of one term is not that of the next, and all writes have ended")
	}
}

// Who does not lead hears of each term once, and of its own by its name too.
func TestHear(t *testing.T) {
	var none *leader.Office
	if none.Term() != "" {
		t.Error("without an office there is a term")
	}
	o := &leader.Office{}
	heard := func(term string) bool {
		changed := o.Changed()
		o.Hear(term)
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if !heard("a 1") || heard("a 1") || !heard("b 2") || o.Term() != "b 2" || o.IsHeld() {
		t.Errorf("after b's term began it is %q, held %t", o.Term(), o.IsHeld())
	}
	leave := o.Take(nil)
	leave(time.Second)
	if o.Term() != "b 2" {
		t.Errorf("the term is %q", o.Term())
	}
}

// What changes something goes out while the office is held, and not after.
func TestGuard(t *testing.T) {
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	defer close(release)
	o := &leader.Office{}
	client := http.Client{Transport: o.Guard(http.DefaultTransport)}
	send := func(method, path string) error {
		r, err := http.NewRequest(method, server.URL+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	if err := errors.Join(send(http.MethodGet, "/"), send(http.MethodHead, "/")); err != nil {
		t.Errorf("reading: %v", err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if err := send(method, "/"); !errors.Is(err, leader.ErrFollower) {
			t.Errorf("%s by a follower: %v", method, err)
		}
	}
	leave := o.Take(nil)
	if err := send(http.MethodPatch, "/"); err != nil {
		t.Errorf("by the leader: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- send(http.MethodPatch, "/slow") }()
	<-arrived
	if !leave(time.Minute) {
		t.Error("the write was not given up")
	}
	if err := <-ended; err == nil {
		t.Error("a write outlived its term")
	}
}
