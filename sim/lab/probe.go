package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// Verdict is what came of a Probe.
type Verdict string

// The verdicts. A Drop is one of which nothing was heard for [Patience].
const (
	Allow  Verdict = "Allow"
	Drop   Verdict = "Drop"
	Reject Verdict = "Reject"
)

// Patience is how long a Probe waits for an answer, where this process has its share of the machine; else longer.
const Patience = 300 * time.Millisecond

// Probe is a packet, or the first of a connection, from one namespace to another.
type Probe struct {
	From, To ns.NetNS
	Addr     netip.Addr // of To
	Protocol string     // TCP or UDP
	Port     uint16
}

// Ask sends real packets for each Probe and returns what came of each, in their order. The
// error is of what could not be tried.
func Ask(ctx context.Context, probes []Probe) ([]Verdict, error) {
	servers, err := serve(probes)
	defer servers.close()
	if err != nil {
		return nil, err
	}
	out, errs := make([]Verdict, len(probes)), make([]error, len(probes))
	var wg sync.WaitGroup
	var beats pulse
	defer beats.start()()
	limit := make(chan struct{}, 128) // each is a thread
	for i, p := range probes {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				out[i], errs[i] = p.ask(&beats)
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// ask tries once; a Drop is tried a second time, since a loaded machine may be late.
func (p Probe) ask(beats *pulse) (Verdict, error) {
	v, err := p.surely(beats)
	if err == nil && v == Drop {
		v, err = p.surely(beats)
	}
	return v, err
}

// surely tries until something is heard, or who would have heard it was awake.
func (p Probe) surely(beats *pulse) (Verdict, error) {
	for patience := Patience; ; patience *= 2 {
		before := beats.n.Load()
		v, err := p.once(patience)
		if err != nil || v != Drop || beats.n.Load()-before >= awake || patience > 10*time.Second {
			return v, err
		}
	}
}

// pulse tells whether this process gets to run. On a machine that has much to do it may get nothing for
// longer than a Probe waits, and what has come meanwhile is found after the time is over.
type pulse struct{ n atomic.Int64 }

const (
	beat  = 10 * time.Millisecond
	awake = int64(Patience / beat / 2) // beats while a Probe has waited
)

// start has it beat until the end.
func (p *pulse) start() (end func()) {
	ticker, done := time.NewTicker(beat), make(chan struct{})
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C: // one that is missed is not made up for
				p.n.Add(1)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (p Probe) once(patience time.Duration) (Verdict, error) {
	network := map[string]string{"TCP": "tcp", "UDP": "udp"}[p.Protocol]
	if network == "" {
		return "", fmt.Errorf("protocol %q: want TCP or UDP", p.Protocol)
	}
	to := netip.AddrPortFrom(p.Addr, p.Port).String()
	conn, err := in(p.From, func() (net.Conn, error) { return net.DialTimeout(network, to, patience) })
	if err == nil {
		defer conn.Close()
		if p.Protocol == "TCP" {
			return Allow, nil
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err = conn.Write([]byte("x")); err == nil {
			_, err = conn.Read(make([]byte, 9))
		}
		if err == nil {
			return Allow, nil
		}
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return Drop, nil
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM),
		errors.Is(err, unix.EHOSTUNREACH) && p.Protocol == "UDP": // as IPv4 says that something is prohibited
		return Reject, nil
	}
	return "", fmt.Errorf("to %s by %s: %w", to, p.Protocol, err)
}

// servers answer on what is probed.
type servers []interface{ Close() error }

func (s servers) close() {
	for _, x := range s {
		_ = x.Close()
	}
}

// serve answers in each namespace on each port that a Probe goes to.
func serve(probes []Probe) (servers, error) {
	type place struct {
		space    uintptr
		protocol string
		addr     netip.AddrPort
	}
	seen := map[place]bool{}
	var out servers
	for _, p := range probes {
		at := netip.AddrPortFrom(p.Addr, p.Port)
		key := place{p.To.Fd(), p.Protocol, at}
		if seen[key] {
			continue
		}
		seen[key] = true
		if p.Protocol == "UDP" {
			c, err := listening(func() (*net.UDPConn, error) {
				return in(p.To, func() (*net.UDPConn, error) { return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)) })
			})
			if err != nil {
				return out, err
			}
			out = append(out, c)
			go echo(c)
			continue
		}
		l, err := listening(func() (net.Listener, error) {
			return in(p.To, func() (net.Listener, error) { return net.Listen("tcp", at.String()) })
		})
		if err != nil {
			return out, err
		}
		out = append(out, l)
		go accept(l)
	}
	return out, nil
}

// listening listens, and once more where the one before, which was closed, has yet to let go: whoever
// waits there does first.
func listening[T any](listen func() (T, error)) (T, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		l, err := listen()
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

func echo(c *net.UDPConn) {
	buf := make([]byte, 9)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(buf[:n], from)
		}
	}
}

func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_ = c.Close()
		}
	}
}
