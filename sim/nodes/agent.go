package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// agent stands in for that of one Node.
type agent struct {
	fleet *Fleet
	node  string
	http  *http.Client
	parts [3]part // as Resources
	live  int     // watches; Fleet.mu
}

// part is one watch, and what it has told.
type part struct {
	agent    *agent
	resource string

	mu   sync.Mutex
	have objects // nil before the first BOOKMARK
	live bool
}

// objects are what is there, by name: all agents share the names.
type objects map[unique.Handle[string]]sum

func newAgent(f *Fleet, node string, client *http.Client) *agent {
	a := &agent{fleet: f, node: node, http: client}
	for i, r := range Resources {
		a.parts[i] = part{agent: a, resource: r}
	}
	return a
}

// The time until a watch that broke is tried again is that of our own agents: the first time soon, but
// not all at once, then twice as long each time.
const (
	firstRetry = 500 * time.Millisecond
	mostRetry  = 10 * time.Second
	steady     = 30 * time.Second
)

func backoff(failures int) time.Duration {
	if failures <= 1 {
		return rand.N(firstRetry)
	}
	most := mostRetry
	if failures < 8 {
		most = min(most, firstRetry<<(failures-1))
	}
	return most/2 + rand.N(most/2)
}

func (p *part) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := p.once(ctx)
		p.mu.Lock()
		wasLive := p.live
		p.live = false
		p.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		p.agent.fleet.lost(p.agent, wasLive, fmt.Errorf("%s: %w", p.resource, err))
		if wasLive || time.Since(began) > steady {
			failures = 0
		}
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(backoff(failures)):
		}
	}
}

var errEnded = errors.New("the server has ended the watch")

// once watches until the watch ends, and says why it has.
func (p *part) once(ctx context.Context) error {
	f := p.agent.fleet
	if f.gate != nil {
		select {
		case f.gate <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	initial := true
	free := sync.OnceFunc(func() {
		initial = false
		if f.gate != nil {
			<-f.gate
		}
	})
	defer free()
	body, err := p.agent.open(ctx, p.resource)
	if err != nil {
		return err
	}
	defer body.Close()
	first := objects{}
	for {
		event, err := readFrame(body)
		if err != nil {
			return ended(err)
		}
		if event.Type == string(watch.Bookmark) {
			if !initial {
				p.mark()
				continue
			}
			free()
			p.begin(first)
			first = nil
			continue
		}
		t, err := readObject(event)
		if err != nil {
			return err
		}
		p.count(&event, initial)
		if initial {
			err = first.take(t)
		} else {
			err = p.take(t)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errOdd, err)
		}
	}
}

// ended is why a watch has ended, without addresses: errors are counted by their text.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var network *net.OpError
	if errors.As(err, &network) {
		err = fmt.Errorf("%s: %w", network.Op, network.Err)
	}
	return err
}

// errOdd is of events that do not follow from those before.
var errOdd = errors.New("odd")

func (p *part) count(e *metav1.WatchEvent, initial bool) {
	f := p.agent.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Bytes += int64(e.Size()) + 4
	if initial {
		f.counts.Initial++
		return
	}
	f.counts.Events++
}

// mark counts a BOOKMARK after the first.
func (p *part) mark() {
	f := p.agent.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Marks++
}

// open begins a watch. It asks for bookmarks, as our agents do.
func (a *agent) open(ctx context.Context, resource string) (io.ReadCloser, error) {
	u := a.fleet.base.JoinPath(resource)
	u.RawQuery = url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "fieldSelector": {fields.OneTermEqualSelector("nodeName", a.node).String()}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	request.Header.Set("User-Agent", "isobar-sim-nodes")
	answer, err := a.http.Do(request)
	if err != nil {
		return nil, ended(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	if answer.ProtoMajor != 2 { // one connection would not do for three watches
		defer answer.Body.Close()
		return nil, fmt.Errorf("the server speaks %s, want HTTP/2", answer.Proto)
	}
	return answer.Body, nil
}

// refusal is what a server says that it will not do.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	var status metav1.Status
	var envelope runtime.Unknown
	if len(text) > len(envelopeMark) && envelope.Unmarshal(text[len(envelopeMark):]) == nil && status.Unmarshal(envelope.Raw) == nil && status.Message != "" {
		return fmt.Errorf("%s: %s", answer.Status, status.Message)
	}
	return errors.New(answer.Status)
}

// begin makes what has come before a BOOKMARK what there is.
func (p *part) begin(first objects) {
	p.mu.Lock()
	had := p.have
	p.have, p.live = first, true
	p.mu.Unlock()
	f := p.agent.fleet
	if had != nil {
		f.mu.Lock()
		if len(differences(had, first)) == 0 {
			f.counts.Equal++
		} else {
			f.counts.Unequal++
		}
		f.mu.Unlock()
	}
	f.begun(p.agent)
}

// take takes an event after the BOOKMARK.
func (p *part) take(t told) error {
	if s := p.agent.fleet.expecting.Load(); s != nil {
		s.see(p.agent, t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.have.take(t)
	if err != nil {
		f := p.agent.fleet
		f.mu.Lock()
		defer f.mu.Unlock()
		f.counts.Odd++
	}
	return err
}

// take takes an event. It is an error when it does not follow from what is there.
func (o objects) take(t told) error {
	key := unique.Make(t.name)
	have, has := o[key]
	isPatch := t.kind == "AppliedToGroupPatch" || t.kind == "AddressGroupPatch"
	switch {
	case t.event == watch.Deleted:
		if !has {
			return fmt.Errorf("%s %s is deleted and was not there", t.kind, t.name)
		}
		delete(o, key)
	case t.event == watch.Added:
		if has || isPatch {
			return fmt.Errorf("%s %s is added and was there, or is a Patch", t.kind, t.name)
		}
		o[key] = t.sum
	case t.event != watch.Modified:
		return fmt.Errorf("event %q", t.event)
	case !has:
		return fmt.Errorf("%s %s is modified and was not there", t.kind, t.name)
	case isPatch:
		now := have.plus(t.sum)
		if now.n < 0 {
			return fmt.Errorf("%s %s removes more members than there are", t.kind, t.name)
		}
		o[key] = now
	default:
		o[key] = t.sum
	}
	return nil
}

// differences names the objects that are not the same in both.
func differences(a, b objects) []string {
	var out []string
	for key, s := range a {
		t, ok := b[key]
		switch {
		case !ok:
			out = append(out, key.Value()+" is not there any more")
		case s != t:
			out = append(out, fmt.Sprintf("%s has %d members, and should have others, %d", key.Value(), s.n, t.n))
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			out = append(out, key.Value()+" is missing")
		}
	}
	return out
}
