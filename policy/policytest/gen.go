package policytest

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"isobar.dev/policy"
)

// Seeds yields the seeds 1 to n, n times the factor in ISOBAR_WORLDS when that
// is set (0.1, 100); or the one in ISOBAR_SEED, to repeat a failure.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	if env := os.Getenv("ISOBAR_SEED"); env != "" {
		seed, err := strconv.ParseUint(env, 10, 64)
		if err != nil {
			t.Fatalf("ISOBAR_SEED: %v", err)
		}
		return func(yield func(uint64) bool) { yield(seed) }
	}
	if env := os.Getenv("ISOBAR_WORLDS"); env != "" {
		factor, err := strconv.ParseFloat(env, 64)
		if err != nil || factor <= 0 {
			t.Fatalf("ISOBAR_WORLDS: %q: want a factor above 0", env)
		}
		n = max(1, int(float64(n)*factor))
	}
	return func(yield func(uint64) bool) {
		for seed := uint64(1); seed <= uint64(n) && yield(seed); seed++ {
		}
	}
}

// Rand returns the random numbers of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x150BA2)) }

// gen draws the parts of worlds. What it draws from is small, so that things meet.
type gen struct {
	*rand.Rand
	size int // about the number of workloads
	vm   bool
	vpcs int // of a VM world
}

func pick[T any](g *gen, from ...T) T { return from[g.IntN(len(from))] }

// odds is true once in n.
func (g *gen) odds(n int) bool { return g.IntN(n) == 0 }

// some returns up to n drawn values, at least least.
func some[T any](g *gen, least, n int, draw func() T) []T {
	var out []T
	for range least + g.IntN(n-least+1) {
		out = append(out, draw())
	}
	return out
}

var (
	labelKeys   = []string{"app", "tier", "env"}
	labelValues = map[string][]string{"app": {"web", "db", "cache"}, "tier": {"front", "back"}, "env": {"prod", "dev"}}
	nsKeys      = []string{"team", "env"}
	nsValues    = map[string][]string{"team": {"a", "b"}, "env": {"prod", "dev"}}
	namespaces  = []string{"ns-a", "ns-b", "ns-c"}
	nodes       = []string{"node-1", "node-2", "node-3"}
	accounts    = []string{"default", "robot"}
	portNames   = []string{"http", "dns", "admin"}
	userTiers   = []string{"audit", "late", "tied"}
	names       = []string{"db.example.com", "*.example.com", "API.example.com", "*", "*a*e.com"}
)

// Ports that rules and workloads have; ranges overlap, and flows look beside them.
var ports = []uint16{53, 80, 81, 443, 8080, 65535}

func (g *gen) labels(keys []string, values map[string][]string) policy.Labels {
	m := map[string]string{}
	for _, k := range keys {
		if !g.odds(3) {
			m[k] = pick(g, values[k]...)
		}
	}
	return policy.LabelsOf(m)
}

func (g *gen) namespace(name string) *policy.Namespace {
	labels := g.labels(nsKeys, nsValues)
	if !g.odds(4) {
		labels = append(labels, policy.Label{Key: "kubernetes.io/metadata.name", Value: name})
		slices.SortFunc(labels, func(a, b policy.Label) int { return cmpString(a.Key, b.Key) })
	}
	return &policy.Namespace{Name: name, Labels: labels}
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (g *gen) requirement(keys []string, values map[string][]string) policy.Requirement {
	k := pick(g, keys...)
	switch g.IntN(8) {
	case 0:
		return policy.Requirement{Key: k, Op: policy.Exists}
	case 1:
		return policy.Requirement{Key: k, Op: policy.DoesNotExist}
	case 2:
		return policy.Requirement{Key: k, Op: policy.NotIn, Values: g.values(values[k])}
	}
	return policy.Requirement{Key: k, Op: policy.In, Values: g.values(values[k])}
}

func (g *gen) values(from []string) []string {
	out := some(g, 1, 2, func() string { return pick(g, from...) })
	slices.Sort(out)
	return slices.Compact(out)
}

func (g *gen) selector(keys []string, values map[string][]string) policy.Selector {
	switch g.IntN(40) {
	case 0:
		return policy.NoLabels
	case 1:
		return policy.Selector{{Key: pick(g, keys...), Op: policy.In}} // no values: met by nothing
	case 2:
		return policy.Selector{{Key: "unheard", Op: pick(g, policy.NotIn, policy.Exists), Values: []string{"of"}}}
	}
	return some(g, 0, pick(g, 0, 1, 2), func() policy.Requirement { return g.requirement(keys, values) })
}

// selection draws a Selection as a policy in namespace ns (empty: of the cluster)
// may have it as a peer, or, without relative, as what it applies to.
func (g *gen) selection(ns string, relative bool) policy.Selection {
	sel := policy.Selection{
		Kind: pick(g, policy.KindPod, policy.KindPod, policy.KindPod, policy.KindExternal, policy.KindExternal, policy.KindNode),
	}
	if g.vm {
		sel.Kind = policy.KindExternal
	}
	sel.Labels = g.selector(labelKeys, labelValues)
	switch {
	case g.odds(60):
		return policy.Selection{} // a field that was forgotten
	case sel.Kind == policy.KindNode:
		sel.Scope = policy.AllNamespaces
	case ns != "" && !g.odds(3):
		sel.Scope, sel.Namespace = policy.OneNamespace, ns
	case relative && ns == "" && g.odds(3):
		sel.Scope = policy.OwnNamespace
	case relative && ns == "" && g.odds(3):
		sel.Scope = policy.SameLabels
		sel.SameKeys = g.values(nsKeys)
		if g.odds(8) {
			sel.SameKeys = nil
		}
	default:
		switch g.IntN(4) {
		case 0:
			sel.Scope, sel.Namespace = policy.OneNamespace, pick(g, namespaces...)
		case 1:
			sel.Scope, sel.NamespaceLabels = policy.ByLabels, g.selector(nsKeys, nsValues)
		default:
			sel.Scope = policy.AllNamespaces
		}
	}
	if sel.Kind == policy.KindPod && g.odds(6) {
		sel.ServiceAccount = pick(g, accounts...)
	}
	return sel
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// addrs draws up to two addresses, of the network that has prefix as its IPv4.
func (g *gen) addrs(v4, v6 string) []netip.Addr {
	n := g.IntN(g.size + 2)
	a4, a6 := addr(fmt.Sprintf("%s.%d.%d", v4, n%3, 1+n)), addr(fmt.Sprintf("%s:%d::%x", v6, n%3, 1+n))
	switch g.IntN(6) {
	case 0, 1:
		return []netip.Addr{a4, a6}
	case 2:
		return []netip.Addr{a6}
	}
	return []netip.Addr{a4}
}

func (g *gen) prefix() netip.Prefix {
	v4, v6 := pick(g, "10.0", "10.0", "172.16", "192.168", "203.0"), pick(g, "fd00", "fd01", "2001:db8")
	if g.vm {
		v4, v6 = pick(g, "172.16", "172.16", "10.0", "203.0"), "fd01"
	}
	n := g.IntN(g.size + 2)
	a := addr(fmt.Sprintf("%s.%d.%d", v4, n%3, 1+n))
	bits := pick(g, 0, 8, 16, 23, 24, 30, 31, 32)
	if g.odds(5) {
		a = addr(fmt.Sprintf("%s:%d::%x", v6, n%3, 1+n))
		bits = pick(g, 0, 16, 32, 48, 64, 126, 127, 128)
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// block draws a Block, with exceptions inside it.
func (g *gen) block() policy.Block {
	b := policy.Block{Prefix: g.prefix()}
	if g.odds(30) {
		return policy.Block{} // has nothing
	}
	for range g.IntN(3) {
		e := g.prefix()
		if e.Bits() > b.Prefix.Bits() && b.Prefix.Contains(e.Addr()) {
			b.Except = append(b.Except, e)
		}
	}
	return b
}

func (g *gen) protocol() policy.Protocol {
	return pick(g, policy.TCP, policy.TCP, policy.TCP, policy.UDP, policy.UDP, policy.SCTP, policy.ICMP)
}

func (g *gen) portRange() policy.Ports {
	a, b := pick(g, ports...), pick(g, ports...)
	switch {
	case g.odds(4):
		return policy.Ports{}
	case g.odds(2):
		b = a
	}
	return policy.Ports{First: min(a, b), Last: max(a, b)}
}

func (g *gen) traffic() policy.Traffic {
	t := policy.Traffic{Protocol: g.protocol()}
	switch {
	case g.odds(50):
		return policy.Traffic{} // matches nothing
	case g.odds(3):
		return policy.AllTraffic[0]
	case t.Protocol == policy.ICMP:
		if g.odds(25) && !g.vm {
			t.Protocol = policy.IGMP
			if g.odds(2) {
				t.GroupAddress = addr("224.0.0.1")
			}
			if g.odds(2) {
				t.IGMPType = new(uint8(0x11))
			}
			return t
		}
		if g.odds(2) {
			t.ICMPType = new(uint8(g.IntN(2) * 8))
			if g.odds(2) {
				t.ICMPCode = new(uint8(g.IntN(2)))
			}
		}
		return t
	case g.odds(5):
		t.PortName = pick(g, portNames...)
	default:
		t.Ports = g.portRange()
	}
	if g.odds(15) && !g.vm {
		t.SourcePorts = g.portRange()
	}
	return t
}
