package nft_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"isobar.dev/dataplane/nft"
)

// A kernel that follows as many connections as it can begins no other one, whatever policies allow:
// those that it follows go on, nothing opens, and policies can be changed.
func TestTrackingIsFull(t *testing.T) {
	m := newMachine(t)
	m.enforce(worlds["db"]())
	m.serve("db-0", 5432)
	m.serve("db-0", 22)
	m.tries("web-0", "db-0", 22, dropped)
	var open []net.Conn // none ends before the test: the kernel gives up at any time what it knows of one that has
	for _, v6 := range []bool{false, true} {
		c, got := m.dial("web-0", netip.AddrPortFrom(m.addr("db-0", v6), 5432), generous)
		if got != passed {
			t.Fatal(got)
		}
		defer c.Close()
		open = append(open, c)
	}
	goOn := func(when string) {
		t.Helper()
		if slices.ContainsFunc(open, func(c net.Conn) bool { return !m.echoes(c) }) {
			t.Errorf("%s: a connection from before does not go on", when)
		}
	}
	n, err := nft.Kernel{NetNS: int(m.ns)}.Track()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections of nobody", n)
	if n < 1000 {
		t.Fatal("it was full before")
	}
	m.tries("web-0", "db-0", 22, dropped)
	m.tries("web-0", "db-0", 5432, dropped)
	goOn("full")
	m.enforce(shop(isolating("db", app("db"))))
	m.tries("web-0", "db-0", 5432, dropped)
	goOn("policies have changed")
	m.enforce(worlds["db"]())
	h, err := netlink.NewHandleAt(m.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, measured{}); err != nil {
		t.Fatal(err)
	}
	goOn("at the end")
	m.tries("web-0", "db-0", 5432, passed)
	m.tries("web-0", "db-0", 22, dropped)
}

// measured matches the connections of nobody.
type measured struct{}

func (measured) MatchConntrackFlow(x *netlink.ConntrackFlow) bool {
	return x.Forward.SrcIP[0] == 198 && x.Forward.SrcIP[1] == 18
}
