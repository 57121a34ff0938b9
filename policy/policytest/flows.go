package policytest

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Flows draws n flows that are worth asking about in s: between its workloads,
// addresses at and beside the edges of its prefixes, and strangers, to ports at
// and beside the edges of its ranges.
func Flows(rnd *rand.Rand, s policy.Snapshot, n int) []policy.Flow {
	g := &gen{Rand: rnd}
	o := observe(s)
	out := make([]policy.Flow, n)
	for i := range out {
		out[i] = g.flow(o)
	}
	return out
}

// interest is what rules of a world may turn on.
type interest struct {
	workloads []*policy.Workload
	addrs     []netip.Addr
	ports     []uint16
}

func observe(s policy.Snapshot) interest {
	var o interest
	for _, w := range s.Workloads.All() {
		o.workloads = append(o.workloads, w)
		for _, p := range w.Ports {
			o.ports = append(o.ports, p.Port)
		}
	}
	for _, svc := range s.Services.All() {
		o.addrs = append(o.addrs, svc.Addrs...)
	}
	for _, gr := range s.Groups.All() {
		o.blocks(gr.Blocks)
	}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			o.blocks(r.Peers.Blocks)
			for _, t := range r.Traffic {
				o.ports = append(o.ports, t.Ports.First, t.Ports.Last, t.Ports.First-1, t.Ports.Last+1)
			}
		}
	}
	o.addrs = append(o.addrs, addr("10.0.0.1"), addr("172.16.1.2"), addr("198.51.100.7"), addr("fd00::1"), addr("2001:db8::1"))
	o.ports = append(o.ports, ports...)
	return o
}

func (o *interest) blocks(blocks []policy.Block) {
	for _, b := range blocks {
		for _, p := range append([]netip.Prefix{b.Prefix}, b.Except...) {
			if !p.IsValid() {
				continue
			}
			first := p.Masked().Addr()
			last := lastAddr(p)
			for _, a := range []netip.Addr{first, last, first.Prev(), last.Next()} {
				if a.IsValid() {
					o.addrs = append(o.addrs, a)
				}
			}
		}
	}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (g *gen) flow(o interest) policy.Flow {
	f := policy.Flow{From: g.endpoint(o), To: g.endpoint(o), Protocol: g.protocol()}
	for range 4 { // most flows should have an answer worth asking for
		if o.meet(f.From, f.To) {
			break
		}
		f.To = g.endpoint(o)
	}
	switch {
	case f.Protocol == policy.ICMP:
		if g.odds(6) {
			f.Protocol = pick(g, policy.IGMP, policy.OtherProtocol)
			if g.odds(2) {
				f.To = policy.Endpoint{Addr: addr("224.0.0.1")}
			}
		}
		f.ICMPType, f.ICMPCode = pick(g, uint8(0), 8, 0x11), uint8(g.IntN(2))
	default:
		f.Port = pick(g, o.ports...)
		if g.odds(2) {
			f.SourcePort = pick(g, o.ports...)
		}
	}
	if g.odds(4) {
		f.ToName = pick(g, "db.example.com", "api.example.com.", "elsewhere.org")
	}
	return f
}

// meet says whether the ends differ and have addresses of one family.
func (o *interest) meet(a, b policy.Endpoint) bool {
	if a.Workload == b.Workload && a.Workload != "" {
		return false
	}
	for _, x := range o.addrsOf(a) {
		for _, y := range o.addrsOf(b) {
			if x.Is4() == y.Is4() {
				return true
			}
		}
	}
	return false
}

func (o *interest) addrsOf(e policy.Endpoint) []netip.Addr {
	if e.Addr.IsValid() {
		return []netip.Addr{e.Addr}
	}
	for _, w := range o.workloads {
		if w.ID == e.Workload {
			return w.Addrs
		}
	}
	return nil
}

func (g *gen) endpoint(o interest) policy.Endpoint {
	if len(o.workloads) == 0 || g.odds(4) {
		return policy.Endpoint{Addr: pick(g, o.addrs...)}
	}
	w := pick(g, o.workloads...)
	e := policy.Endpoint{Workload: w.ID}
	if len(w.Addrs) > 0 {
		if g.odds(3) {
			e.Addr = pick(g, w.Addrs...)
		}
		if g.odds(6) {
			return policy.Endpoint{Addr: pick(g, w.Addrs...)}
		}
	}
	return e
}
