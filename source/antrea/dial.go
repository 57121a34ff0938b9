package antrea

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// dialer has the client of all watches and reports.
type dialer struct {
	endpoint Endpoint

	mu    sync.Mutex
	now   *client       // nil at first, and when it was left
	stale bool          // now has not reached its controller
	apart bool          // clients share no connection, since one was left
	asked time.Time     // the Endpoint, for now
	busy  chan struct{} // closed when whoever asks the Endpoint is done
}

const (
	// dialTimeout bounds what an Endpoint may take.
	dialTimeout = 30 * time.Second
	// askEvery is the time between two questions to an Endpoint: behind it is an API
	// server, and when a controller is away every Node asks.
	askEvery = 2 * time.Second
)

// client returns the client, of an Endpoint that is asked by one at a time.
func (d *dialer) client(ctx context.Context) (*client, error) {
	for {
		d.mu.Lock()
		if d.now != nil && (!d.stale || time.Since(d.asked) < askEvery) {
			defer d.mu.Unlock()
			return d.now, nil
		}
		busy := d.busy
		if busy == nil {
			d.busy = make(chan struct{})
			d.mu.Unlock()
			return d.connect(ctx)
		}
		d.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *dialer) connect(ctx context.Context) (c *client, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil {
			d.now, d.stale, d.asked = c, false, time.Now()
		}
		close(d.busy)
		d.busy = nil
	}()
	config, err := d.endpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the controller: %w", err)
	}
	d.mu.Lock()
	apart := d.apart
	d.mu.Unlock()
	return newClient(config, apart)
}

// leave has other requests made by another client than c, over a connection of its own: it is
// to lead to another replica, where there is one.
func (d *dialer) leave(c *client) {
	d.mu.Lock()
	if d.apart = true; d.now == c {
		d.now = nil
	}
	d.mu.Unlock()
	c.close()
}

// failed notes that a request by c has failed. Where it has not reached its controller,
// the Endpoint is asked again.
func (d *dialer) failed(c *client, err error) {
	if isAnswer(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = d.stale || d.now == c
}

// prover asks a controller over connections of its own, each made anew.
type prover struct {
	mu     sync.Mutex
	config *rest.Config // of the client
	client *client
}

// Prove returns nil when the controller has answered a question over a connection that was made for it,
// whatever it answered; it is found by the Endpoint anew. Nothing is said of the watches.
func (s *Source) Prove(ctx context.Context) error {
	s.prover.mu.Lock()
	defer s.prover.mu.Unlock()
	config, err := s.dial.endpoint(ctx)
	if err != nil {
		return fmt.Errorf("find the controller: %w", err)
	}
	p := &s.prover
	if p.client == nil || p.config != config {
		if p.client, err = newClient(config, true); err != nil {
			return err
		}
		p.config = config
	}
	p.client.close() // of whom there is one connection at most, with nothing under way
	defer p.client.close()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.client.base.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := p.client.http.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	return answer.Body.Close()
}
