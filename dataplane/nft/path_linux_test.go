package nft_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// paths are Rulesets that let web-0 reach db-0 in a shop: none, few policies, and many. The
// one that allows it is the last.
func paths() map[string]*policy.Ruleset {
	none := ruleset(shop()) // whose connections the kernel follows
	out := map[string]*policy.Ruleset{"routed": nil, "policies=0": &none}
	for name, n := range map[string]int{"policies=10": 10, "policies=1000": 1000} {
		rs := many(1, n, 10, 1000)
		web, _ := shop().Workloads.Get("pod/shop/web-0")
		db, _ := shop().Workloads.Get("pod/shop/db-0")
		rs.Groups = append(rs.Groups, policy.Members{Key: "pod web", Workloads: []*policy.Workload{web}})
		r := &rs.Rules[n-1]
		r.Groups, r.Traffic = []string{"pod web"}, tcp(1999)
		rs.Workloads[0].Workload = db
		out[name] = &rs
	}
	// The same without a port to tell rules apart: each is asked.
	rs := *out["policies=1000"]
	rs.Rules = append([]policy.TargetRule(nil), rs.Rules...)
	for i := range rs.Rules {
		rs.Rules[i].Traffic = []policy.Traffic{{Protocol: policy.TCP}}
	}
	out["policies=1000/linear"] = &rs
	return out
}

// What a new connection costs with policies, and without: compare in one run.
func BenchmarkConnect(b *testing.B) {
	for _, name := range []string{"routed", "policies=0", "policies=10", "policies=1000", "policies=1000/linear"} {
		b.Run(name, func(b *testing.B) {
			rs := paths()[name]
			m := newMachine(b)
			const port = 1999
			if rs != nil {
				if _, err := plan.NewSyncer("", m.driver).Sync(b.Context(), *rs); err != nil {
					b.Fatal(err)
				}
			}
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
}

// What carrying bytes costs, once a connection is there.
func BenchmarkCarry(b *testing.B) {
	for _, name := range []string{"routed", "policies=0", "policies=1000"} {
		b.Run(name, func(b *testing.B) {
			rs := paths()[name]
			m := newMachine(b)
			const port = 1999
			if rs != nil {
				if _, err := plan.NewSyncer("", m.driver).Sync(b.Context(), *rs); err != nil {
					b.Fatal(err)
				}
			}
			l, err := in(b, m.pods["db-0"], func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprint("10.1.0.3:", port)) })
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					io.Copy(io.Discard, c)
				}
			}()
			c, got := m.dial("web-0", netip.AddrPortFrom(m.addr("db-0", false), port), generous)
			if got != passed {
				b.Fatal(got)
			}
			defer c.Close()
			chunk := make([]byte, 1<<20)
			b.SetBytes(int64(len(chunk)))
			defer cpu(b)()
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What the first packet of a flow costs the kernel of a router.
func BenchmarkPacket(b *testing.B) {
	for _, name := range []string{"routed", "policies=0", "policies=10", "policies=1000", "policies=1000/linear"} {
		b.Run(name, func(b *testing.B) {
			r := newRouter(b)
			if rs := paths()[name]; rs != nil {
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
