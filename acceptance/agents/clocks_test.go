package agents_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"isobar.dev/control/leader"
	"isobar.dev/control/plane/planetest"
)

// candidate stands for election with a clock that is off, and over a network that may let
// nothing through.
type candidate struct {
	office  leader.Office
	off     time.Duration
	blocked atomic.Bool
	next    http.RoundTripper
}

// leaseTimes are the times that a replica writes into a Lease: all that others see of its clock.
var leaseTimes = regexp.MustCompile(`"(acquireTime|renewTime)":"([^"]+)"`)

// RoundTrip sends a request as a replica with that clock would.
func (c *candidate) RoundTrip(q *http.Request) (*http.Response, error) {
	if c.blocked.Load() {
		return nil, errors.New("nothing comes through")
	}
	if q.Body != nil && strings.Contains(q.URL.Path, "/leases") {
		text, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		text = leaseTimes.ReplaceAllFunc(text, func(b []byte) []byte {
			x := leaseTimes.FindSubmatch(b)
			at, err := time.Parse(time.RFC3339Nano, string(x[2]))
			if err != nil {
				return b
			}
			return []byte(`"` + string(x[1]) + `":"` + at.Add(c.off).Format("2006-01-02T15:04:05.000000Z07:00") + `"`)
		})
		q = q.Clone(q.Context())
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	return c.next.RoundTrip(q)
}

// Two replicas, whose clocks are ten minutes apart, and of whom the leader cannot renew its
// Lease: never do both write, and the other one does soon. Each hears of every term.
func TestF09_ClocksAndBlockedRenewal(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	ns := e.Namespace(t)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	// Who is not heard of for two thirds of it does not lead, and a busy machine may stand still for seconds.
	const lease = 9 * time.Second
	names := []string{"fast", "slow"}
	all := []*candidate{{off: 5 * time.Minute}, {off: -5 * time.Minute}}
	stand := func(i int) {
		c := all[i]
		config := e.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { c.next = next; return c })
		config.ContentType = "application/json"
		election, err := leader.New(rest.CopyConfig(config), ns, names[i], &c.office, leader.Options{Lease: lease, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() { _ = election.Run(ctx) }) // its error is of its options alone
	}
	writes := func(i int) bool { return all[i].office.Check() == nil }
	until := func(what string, isDone func() bool) {
		t.Helper()
		eventually(t, what, func() string {
			if writes(0) && writes(1) && writes(0) { // not one after the other
				t.Fatalf("%s: both may write", what)
			}
			if isDone() {
				return ""
			}
			return "not yet"
		})
	}
	stand(0)
	until("the first leads", func() bool { return writes(0) })
	stand(1)
	began := time.Now()
	until("the second sees a Lease from the future for longer than it lasts", func() bool { return time.Since(began) > lease+time.Second })
	if !writes(0) {
		t.Error("the first does not lead any more, though it is well")
	}
	for _, from := range []int{0, 1} {
		to := 1 - from
		all[from].blocked.Store(true)
		until("the leader cannot renew, and the other one leads", func() bool { return writes(to) })
		if writes(from) {
			t.Error("the leader of before may write")
		}
		all[from].blocked.Store(false)
		until("it hears of the other one's term", func() bool {
			return strings.HasPrefix(all[from].office.Term(), names[to]+" ")
		})
		began = time.Now()
		until("the other one goes on", func() bool { return time.Since(began) > time.Second })
		if !writes(to) || writes(from) {
			t.Error("the one of before has come back by itself")
		}
	}
}
