package nodes_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"isobar.dev/policy"
)

// links are TCP connections that were made when they could be, and on which bytes go both
// ways from then on. None of them may ever break, whatever becomes of policies.
type links struct {
	t     testing.TB
	judge *judge
	stop  context.CancelFunc
	ctx   context.Context
	all   sync.WaitGroup

	mu     sync.Mutex
	open   map[*link]struct{}
	broken []string
	bytes  atomic.Int64
}

type link struct {
	from, to *pod
	port     uint16
	conn     net.Conn
	isOver   atomic.Bool // its Pod goes
	answers  atomic.Int64
}

func (l *link) String() string {
	return fmt.Sprintf("%s to %s, port %d", l.from.key, l.to.key, l.port)
}

func newLinks(t testing.TB, j *judge) *links {
	l := &links{t: t, judge: j, open: map[*link]struct{}{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.end)
	return l
}

// connect makes a link of each flow of TCP that the last world allows and that has none.
func (l *links) connect(c *cluster) {
	l.t.Helper()
	w := l.judge.latest()
	for _, from := range c.pods {
		for _, to := range c.pods {
			for _, port := range tcpPorts {
				if from == to || l.has(from, to, port) {
					continue
				}
				m := l.judge.meaning(w, &flow{from: from, to: to, protocol: policy.TCP, port: port})
				if m.verdicts() != passed {
					continue
				}
				x := &link{from: from, to: to, port: port}
				err := from.space.Do(func(ns.NetNS) (err error) {
					x.conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(to.addr, port).String(), patience)
					return err
				})
				if err != nil {
					l.t.Fatal(err)
				}
				l.mu.Lock()
				l.open[x] = struct{}{}
				l.mu.Unlock()
				l.all.Go(func() { l.run(x) })
			}
		}
	}
}

func (l *links) has(from, to *pod, port uint16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.open {
		if x.from == from && x.to == to && x.port == port {
			return true
		}
	}
	return false
}

// run sends numbers and waits for each to come back.
func (l *links) run(x *link) {
	defer x.conn.Close()
	sent, got := make([]byte, 8), make([]byte, 8)
	for n := uint64(1); l.ctx.Err() == nil; n++ {
		binary.BigEndian.PutUint64(sent, n)
		_ = x.conn.SetDeadline(time.Now().Add(patience / 2))
		_, err := x.conn.Write(sent)
		if err == nil {
			_, err = io.ReadFull(x.conn, got)
		}
		if err == nil && string(got) != string(sent) {
			err = fmt.Errorf("%x came back as %x", sent, got)
		}
		if err != nil {
			if !x.isOver.Load() && l.ctx.Err() == nil {
				l.mu.Lock()
				l.broken = append(l.broken, fmt.Sprintf("%v: after %d answers: %v", x, n-1, err))
				l.mu.Unlock()
			}
			return
		}
		l.bytes.Add(16)
		x.answers.Add(1)
		select {
		case <-l.ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leave ends the links of a Pod.
func (l *links) leave(p *pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.open {
		if x.from == p || x.to == p {
			x.isOver.Store(true)
			x.conn.Close()
			delete(l.open, x)
		}
	}
}

// report fails the test for links that broke, once each of the others has had an answer to
// what it sent after now.
func (l *links) report(what string) {
	l.t.Helper()
	l.mu.Lock()
	want := map[*link]int64{}
	for x := range l.open {
		want[x] = x.answers.Load() + 2
	}
	l.mu.Unlock()
	eventually(l.t, what+": connections go on", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.broken) > 0 {
			return ""
		}
		for x, n := range want {
			if _, isOpen := l.open[x]; isOpen && x.answers.Load() < n {
				return fmt.Sprint(x, " does not")
			}
		}
		return ""
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%s: %d connections go on, %d bytes", what, len(l.open), l.bytes.Swap(0))
	for _, b := range l.broken {
		l.t.Errorf("%s: a connection broke: %s", what, b)
	}
	l.broken = nil
}

func (l *links) end() {
	l.stop()
	l.mu.Lock()
	for x := range l.open {
		x.conn.Close()
	}
	l.mu.Unlock()
	l.all.Wait()
}
