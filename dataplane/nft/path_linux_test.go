package nft_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// pathNames are those of paths, from the cheapest.
var pathNames = []string{
	"routed", "policies=0", "policies=10", "policies=1000", "policies=1000/members=100", "policies=1000/members=10000", "policies=1000/members=100000", "policies=1000/linear",
}

// path returns a Ruleset that lets web-0 reach db-0 in a shop, which its last rule does, to a group
// of which web-0 is a member: alone, or one of so many. It is nil for a path without a table.
func path(name string) *policy.Ruleset {
	switch name {
	case "routed":
		return nil
	case "policies=0":
		rs := ruleset(shop()) // whose connections the kernel follows
		return &rs
	}
	n, members := 10, 0
	_, _ = fmt.Sscanf(name, "policies=%d/members=%d", &n, &members)
	rs := many(1, n, 10, 1000)
	web, _ := shop().Workloads.Get("pod/shop/web-0")
	db, _ := shop().Workloads.Get("pod/shop/db-0")
	g := policy.Members{Key: "pod web"}
	g.Workloads = policy.ByID(web)
	for i := range members {
		w := member(200, i)
		g.Workloads = g.Workloads.Put(w.ID, w)
	}
	rs.Groups = append(rs.Groups, g)
	r := &rs.Rules[n-1]
	r.Groups, r.Traffic = []string{g.Key}, tcp(1999)
	rs.Workloads[0].Workload = db
	if strings.HasSuffix(name, "linear") { // without a port to tell rules apart each is asked
		for i := range rs.Rules {
			rs.Rules[i].Traffic = []policy.Traffic{{Protocol: policy.TCP}}
		}
	}
	return &rs
}

// onPath runs f for each path, on a machine of its own with the table of it.
func onPath(b *testing.B, f func(b *testing.B, m *machine)) {
	for _, name := range pathNames {
		b.Run(name, func(b *testing.B) {
			m := newMachine(b)
			if rs := path(name); rs != nil {
				if _, err := plan.NewSyncer("", m.driver).Sync(b.Context(), *rs); err != nil {
					b.Fatal(err)
				}
			}
			f(b, m)
		})
	}
}

// What a new connection costs with policies, and without: compare in one run.
func BenchmarkConnect(b *testing.B) {
	onPath(b, func(b *testing.B, m *machine) {
		const port = 1999
		m.serve("db-0", port)
		to := netip.AddrPortFrom(m.addr("db-0", false), port)
		defer cpu(b)()
		_, err := in(b, m.pods["web-0"], func() (int, error) {
			for b.Loop() {
				c, err := net.Dial("tcp", to.String())
				if err != nil {
					return 0, err
				}
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
			return 0, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}

// connection returns the ends of a connection from web-0 to db-0.
func connection(b *testing.B, m *machine) (client, server net.Conn) {
	const port = 1999
	l, err := in(b, m.pods["db-0"], func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprint("10.1.0.3:", port)) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	c, got := m.dial("web-0", netip.AddrPortFrom(m.addr("db-0", false), port), generous)
	if got != passed {
		b.Fatal(got)
	}
	b.Cleanup(func() { c.Close() })
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close() })
	return c, server
}

// What carrying bytes costs, once a connection is there.
func BenchmarkCarry(b *testing.B) {
	onPath(b, func(b *testing.B, m *machine) {
		client, server := connection(b, m)
		go io.Copy(io.Discard, server)
		chunk := make([]byte, 1<<20)
		b.SetBytes(int64(len(chunk)))
		defer cpu(b)()
		for b.Loop() {
			if _, err := client.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a question and its answer cost, once a connection is there.
func BenchmarkRoundTrip(b *testing.B) {
	onPath(b, func(b *testing.B, m *machine) {
		client, server := connection(b, m)
		go io.Copy(server, server)
		buf := make([]byte, 64)
		defer cpu(b)()
		for b.Loop() {
			if _, err := client.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(client, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What the first packet of a flow costs the kernel of a router.
func BenchmarkPacket(b *testing.B) {
	for _, name := range pathNames {
		b.Run(name, func(b *testing.B) {
			r := newRouter(b)
			if rs := path(name); rs != nil {
				if _, err := plan.NewSyncer("", r.driver).Sync(b.Context(), *rs); err != nil {
					b.Fatal(err)
				}
			}
			f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.1")}, To: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.3")}, Protocol: policy.TCP, Port: 1999}
			p := []probe{{Flow: f}}
			defer cpu(b)()
			for i := 0; b.Loop(); i++ {
				p[0].SourcePort = uint16(i)
				r.ask(p)
			}
		})
	}
}
