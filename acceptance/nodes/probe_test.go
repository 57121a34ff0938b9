package nodes_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"isobar.dev/policy"
)

// What Pods answer on, and are tried on. Both take bytes and send them back.
var (
	tcpPorts = []uint16{80, 5432}
	udpPorts = []uint16{53}
)

const (
	// every is the time between two probes of a flow.
	every = 250 * time.Millisecond
	// silence is how long a probe waits for an answer. It is less than the second after which
	// TCP sends again what was lost: a probe is one packet, and what came of it.
	silence = 900 * time.Millisecond
)

// pod is one that runs: a thread in its namespace, which answers and tries others.
type pod struct {
	key, id string
	addr    netip.Addr
	judge   *judge
	space   ns.NetNS

	jobs   chan func() // done on the thread
	done   chan error
	epoll  int
	files  map[int32]func(events uint32) // what is done when something is to be read or written
	icmp   int
	flows  []*trial
	open   map[*probe]struct{}
	echoes map[uint32]*probe // of ICMP

	turned, woke atomic.Int64 // when the thread last came round, and when it last did so late
}

// trial is a flow from this Pod, and when it is tried next.
type trial struct {
	*flow
	at time.Time
}

// probe is one packet that was sent.
type probe struct {
	trial *trial
	era   *era
	sent  time.Time
	until time.Time
	fd    int // -1 of ICMP
	id    uint32
}

// join runs a Pod that is plugged in, and has all try it, and it all.
func (c *cluster) join(p *corev1.Pod) {
	c.t.Helper()
	at := c.lab.Pod(p.Namespace, p.Name)
	if at == nil {
		c.t.Fatalf("%s/%s does not run", p.Namespace, p.Name)
	}
	x := &pod{
		key: p.Namespace + "/" + p.Name, id: policy.WorkloadID(policy.KindPod, p.Namespace, p.Name), addr: at.Addrs[0], judge: c.judge, space: at.Space,
		jobs: make(chan func(), 64), done: make(chan error, 1), files: map[int32]func(uint32){}, open: map[*probe]struct{}{}, echoes: map[uint32]*probe{},
	}
	ready := make(chan error, 1)
	go func() { x.done <- x.run(ready) }()
	if err := <-ready; err != nil {
		c.t.Fatalf("%s: %v", x.key, err)
	}
	for _, other := range c.pods {
		c.between(x, other)
		c.between(other, x)
	}
	c.pods[x.key] = x
	c.t.Cleanup(func() { c.end(x) })
}

// leave has nobody try a Pod any more, and it nobody.
func (c *cluster) leave(p *corev1.Pod) {
	c.t.Helper()
	if x := c.pods[p.Namespace+"/"+p.Name]; x != nil {
		c.end(x)
	}
}

func (c *cluster) end(x *pod) {
	if c.pods[x.key] != x {
		return
	}
	delete(c.pods, x.key)
	c.links.leave(x)
	c.judge.drop(x)
	for _, other := range c.pods {
		other.do(func() {
			keep := other.flows[:0]
			for _, f := range other.flows {
				if f.to != x {
					keep = append(keep, f)
				}
			}
			other.flows = keep
		})
	}
	close(x.jobs)
	if err := <-x.done; err != nil {
		c.t.Errorf("%s: %v", x.key, err)
	}
}

func (x *pod) do(f func()) {
	done := make(chan struct{})
	x.jobs <- func() { f(); close(done) }
	<-done
}

// between has a Pod try another by all that it answers on.
func (c *cluster) between(from, to *pod) {
	var flows []*flow
	for _, p := range tcpPorts {
		flows = append(flows, &flow{from: from, to: to, protocol: policy.TCP, port: p, reads: true})
	}
	for _, p := range udpPorts {
		flows = append(flows, &flow{from: from, to: to, protocol: policy.UDP, port: p})
	}
	flows = append(flows, &flow{from: from, to: to, protocol: policy.ICMP})
	for _, f := range flows {
		f.isFresh = true
	}
	c.judge.add(flows...)
	from.do(func() {
		for i, f := range flows {
			from.flows = append(from.flows, &trial{f, time.Now().Add(time.Duration(i) * every / time.Duration(len(flows)))})
		}
	})
}

// run is the Pod's thread, until there are no more jobs.
func (x *pod) run(ready chan<- error) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	err := netns.Set(netns.NsHandle(x.space.Fd()))
	if err == nil {
		err = x.listen()
	}
	ready <- err
	if err != nil {
		return nil
	}
	defer func() {
		x.turned.Store(math.MaxInt64) // nobody waits for it
		for fd := range x.files {
			unix.Close(int(fd))
		}
		unix.Close(x.epoll)
	}()
	before := time.Now()
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(x.epoll, events, 5)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if f := x.files[e.Fd]; f != nil {
				f(e.Events)
			}
		}
		for more := true; more; {
			select {
			case f, ok := <-x.jobs:
				if !ok {
					return nil
				}
				f()
			default:
				more = false
			}
		}
		now := time.Now()
		if late := now.Sub(before) - prompt; late > 0 { // and so was everybody else, perhaps
			for p := range x.open {
				p.until = p.until.Add(late + silence/2)
			}
			x.woke.Store(now.UnixNano())
		}
		x.turned.Store(now.UnixNano())
		before = now
		if n == len(events) {
			continue // there is more to read
		}
		for p := range x.open {
			if now.After(p.until) && now.After(p.answerable(now)) {
				x.close(p, lost)
			}
		}
		for _, f := range x.flows {
			if now.After(f.at) {
				f.at = now.Add(every)
				if err := x.try(f); err != nil {
					return fmt.Errorf("%v: %w", f, err)
				}
			}
		}
	}
}

// prompt is how long a thread takes to come round on a machine that is not busy.
const prompt = 50 * time.Millisecond

// answerable is until when there may be an answer yet, since who is to send it does not come round. The kernel answers
// what is not UDP.
func (p *probe) answerable(now time.Time) time.Time {
	to := p.trial.to
	if p.trial.protocol != policy.UDP {
		return time.Time{}
	}
	if now.Sub(time.Unix(0, to.turned.Load())) > prompt {
		return now
	}
	return time.Unix(0, to.woke.Load()).Add(silence / 2)
}

func (x *pod) watch(fd int, events uint32, f func(uint32)) error {
	x.files[int32(fd)] = f
	return unix.EpollCtl(x.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (x *pod) forget(fd int) {
	delete(x.files, int32(fd))
	// A process that is just being started may have the file open for a moment longer, and the
	// number is somebody else's at once.
	_ = unix.EpollCtl(x.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	unix.Close(fd)
}

const nonblocking = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
}

// listen opens what answers.
func (x *pod) listen() (err error) {
	if x.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, port := range tcpPorts {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|nonblocking, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, sockaddr(x.addr, port)), unix.Listen(fd, 4096)); err != nil {
			return err
		}
		if err := x.watch(fd, unix.EPOLLIN, func(uint32) { x.accept(fd) }); err != nil {
			return err
		}
	}
	for _, port := range udpPorts {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|nonblocking, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Bind(fd, sockaddr(x.addr, port)), x.watch(fd, unix.EPOLLIN, func(uint32) { echo(fd) })); err != nil {
			return err
		}
	}
	if x.icmp, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|nonblocking, unix.IPPROTO_ICMP); err != nil {
		return err
	}
	return x.watch(x.icmp, unix.EPOLLIN, func(uint32) { x.readICMP() })
}

func echo(fd int) {
	var b [64]byte
	for {
		n, from, err := unix.Recvfrom(fd, b[:], 0)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return
		}
		if from != nil {
			_ = unix.Sendto(fd, b[:n], 0, from)
		}
	}
}

// accept takes connections: of a probe there comes nothing more, of a link bytes.
func (x *pod) accept(listener int) {
	for {
		fd, _, err := unix.Accept4(listener, nonblocking)
		if err != nil {
			return
		}
		err = x.watch(fd, unix.EPOLLIN|unix.EPOLLRDHUP, func(uint32) {
			var b [4096]byte
			n, err := unix.Read(fd, b[:])
			if errors.Is(err, unix.EAGAIN) {
				return
			}
			if err == nil && n > 0 {
				_, err = unix.Write(fd, b[:n]) // few bytes: they fit
			}
			if err != nil || n == 0 {
				x.forget(fd)
			}
		})
		if err != nil {
			x.forget(fd)
		}
	}
}

// try sends one packet.
func (x *pod) try(t *trial) error {
	p := &probe{trial: t, era: x.judge.begin(), sent: time.Now(), fd: -1}
	p.until = p.sent.Add(silence)
	x.open[p] = struct{}{}
	if t.protocol == policy.ICMP {
		p.id = x.judge.ports.Add(1)
		x.echoes[p.id] = p
		b := []byte{8, 0, 0, 0}
		b = binary.BigEndian.AppendUint32(b, p.id<<16|p.id>>16) // with another identifier it is another flow
		b = binary.BigEndian.AppendUint32(append(b, "isobar"...), p.id)
		binary.BigEndian.PutUint16(b[2:], checksum(b))
		if err := unix.Sendto(x.icmp, b, 0, sockaddr(t.to.addr, 0)); err != nil {
			x.close(p, lost) // there is no way, or no room
		}
		return nil
	}
	kind := unix.SOCK_STREAM
	if t.protocol == policy.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|nonblocking, 0)
	if err != nil {
		return err
	}
	p.fd = fd
	events := uint32(unix.EPOLLOUT)
	if kind == unix.SOCK_STREAM {
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a reset at the end: no port is kept
	} else {
		events = unix.EPOLLIN
	}
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, sockaddr(x.addr, x.judge.port())); err != nil {
		return err
	}
	err = unix.Connect(fd, sockaddr(t.to.addr, t.port))
	if err == nil && kind == unix.SOCK_DGRAM {
		_, err = unix.Write(fd, []byte("x"))
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		x.files[int32(fd)] = nil
		x.close(p, verdictOfError(err, t.protocol))
		return nil
	}
	return x.watch(fd, events, func(uint32) {
		number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		v := passed
		if err == nil && number != 0 {
			v = verdictOfError(unix.Errno(number), t.protocol)
		}
		x.close(p, v)
	})
}

// verdictOfError is what an error says became of a packet.
func verdictOfError(err error, protocol policy.Protocol) verdict {
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return rejected
	case errors.Is(err, unix.EHOSTUNREACH) && protocol == policy.UDP: // "administratively prohibited"
		return rejected
	}
	return lost
}

// close ends a probe.
func (x *pod) close(p *probe, v verdict) {
	delete(x.open, p)
	if p.fd >= 0 {
		x.forget(p.fd)
	} else {
		delete(x.echoes, p.id)
	}
	x.judge.end(p.trial.flow, p.era, p.sent, v)
}

// readICMP reads answers to echoes, and what is told of them.
func (x *pod) readICMP() {
	var b [512]byte
	for {
		n, _, err := unix.Recvfrom(x.icmp, b[:], 0)
		if err != nil {
			return
		}
		m := body(b[:n])
		v := passed
		if len(m) > 8 && m[0] == 3 && m[1] == 13 {
			m, v = body(m[8:]), rejected
		} else if len(m) < 8 || m[0] != 0 {
			continue
		}
		if len(m) < 8 {
			continue
		}
		number := binary.BigEndian.Uint32(m[4:])
		if p := x.echoes[number<<16|number>>16]; p != nil {
			x.close(p, v)
		}
	}
}

// body is what an IPv4 packet carries.
func body(b []byte) []byte {
	if len(b) < 20 || len(b) < int(b[0]&15)*4 {
		return nil
	}
	return b[int(b[0]&15)*4:]
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
