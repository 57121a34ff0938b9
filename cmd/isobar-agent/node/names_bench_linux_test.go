package node

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/net/dns/dnsmessage"

	"isobar.dev/dataplane/names"
	"isobar.dev/policy"
)

// BenchmarkNamesAnswer is one question of a Pod, and its answer: routed, where no policy has names, where the
// name is known, and where each answer has an address more, of a set that has many.
func BenchmarkNamesAnswer(b *testing.B) {
	w := newWorld(b)
	w.log = slog.New(slog.DiscardHandler)
	w.options = names.Options{MaxAddrs: 1 << 16, MaxTotal: 1 << 20}
	var servers [2]net.PacketConn
	w.must(w.resolver.Do(func(ns.NetNS) (err error) {
		servers[0], err = net.ListenPacket("udp4", ":53")
		return err
	}))
	defer servers[0].Close()
	next, fresh := uint32(0), false
	go func() { // answers without reading much, so that it is not what is measured
		buf := make([]byte, 2048)
		for {
			_, from, err := servers[0].ReadFrom(buf)
			if err != nil {
				return
			}
			if fresh {
				next++
			}
			a := netip.AddrFrom4([4]byte{10, 3 + byte(next>>16), byte(next >> 8), byte(next)})
			_, _ = servers[0].WriteTo(packed(a), from)
		}
	}()
	var c net.Conn
	w.must(w.pod.Do(func(ns.NetNS) (err error) {
		c, err = net.Dial("udp4", netip.AddrPortFrom(resolverAddrs[0], 53).String())
		return err
	}))
	defer c.Close()
	buf := make([]byte, 2048)
	ask := func(b *testing.B) {
		for b.Loop() {
			_, err := c.Write([]byte("question"))
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				_, err = c.Read(buf)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("routed", ask)
	w.start()
	w.enforce(false)
	b.Run("policies without names", ask)
	w.enforce(false, named(policy.Allow, "*.example"))
	b.Run("known", ask)
	fresh = true
	b.Run("new address", ask)
	b.Logf("%+v", w.names.Counts())
	for i := range 50000 {
		next = uint32(i)
		_, _ = w.names.cache.Learn(time.Now(), names.Answer{Name: fmt.Sprint(i%60, ".example"), Addrs: []names.Found{{Addr: netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), TTL: time.Hour}}})
	}
	before := w.agent.Status().LastGood
	w.agent.Reread()
	w.await("the agent has synced", func() bool { return w.agent.Status().LastGood.After(before) })
	b.Run("new address of 50000", ask)
}

// packed is an answer with one address.
func packed(a netip.Addr) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("db.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Answers: []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("db.example."), Class: dnsmessage.ClassINET, TTL: 300}, Body: &dnsmessage.AResource{A: a.As4()}}}}
	out, _ := m.Pack()
	return out
}
