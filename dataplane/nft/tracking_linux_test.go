package nft_test

import (
	"net/netip"
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
	m.tries("web-0", "db-0", 5432, passed)
	m.tries("web-0", "db-0", 22, dropped)
	c, got := m.dial("web-0", netip.AddrPortFrom(m.addr("db-0", false), 5432), generous)
	if got != passed {
		t.Fatal(got)
	}
	defer c.Close()
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
	if !m.echoes(c) {
		t.Error("a connection from before does not go on")
	}
	m.enforce(shop(isolating("db", app("db"))))
	m.tries("web-0", "db-0", 5432, dropped)
	if !m.echoes(c) {
		t.Error("a connection from before does not go on, and policies have changed")
	}
	m.enforce(worlds["db"]())
	h, err := netlink.NewHandleAt(m.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, measured{}); err != nil {
		t.Fatal(err)
	}
	if !m.echoes(c) {
		t.Error("a connection from before does not go on at the end")
	}
	m.tries("web-0", "db-0", 5432, passed)
	m.tries("web-0", "db-0", 22, dropped)
}

// measured matches the connections of nobody.
type measured struct{}

func (measured) MatchConntrackFlow(x *netlink.ConntrackFlow) bool {
	return x.Forward.SrcIP[0] == 198 && x.Forward.SrcIP[1] == 18
}
