package vm

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Interface is one of the machine's that others see.
type Interface struct {
	Name  string
	MAC   string
	Addrs []netip.Addr // sorted; those of its own link alone left out
}

// Links are the interfaces of a machine.
type Links struct {
	Outer []Interface // sorted by name
	Inner []string    // names of those that lead to what is behind the machine, sorted
}

// DefaultInner are patterns of the names that container runtimes, hypervisors and CNI plugins give to the
// interfaces of what runs behind the machine.
var DefaultInner = []string{
	"docker*", "br-????????????", "veth*", "cni*", "cali*", "lxc*", "lxdbr*", "incusbr*", "podman*", "virbr*", "vnet*", "cilium_*", "flannel*", "isopod*", "kube-*", "nodelocaldns", "weave",
}

// link is what Links are made of.
type link struct {
	index, master int
	name, kind    string
	mac           string
	isLoopback    bool
	addrs         []netip.Addr
}

// sort says which links are whose. One is Inner that has such a name, or is a bridge of nothing but virtual
// ends of containers and machines. What is a part of a bridge or a bond has no packets of its own.
func sortLinks(list []link, inner, outer []string) Links {
	var out Links
	members := map[int][]link{}
	bridges := map[int]bool{}
	for _, l := range list {
		members[l.master] = append(members[l.master], l)
		bridges[l.index] = l.kind == "bridge" || l.kind == "bond" || l.kind == "team"
	}
	for _, l := range list {
		isInner := matches(inner, l.name)
		if l.kind == "bridge" && !isInner {
			isInner = !slices.ContainsFunc(members[l.index], func(m link) bool {
				return m.kind != "veth" && m.kind != "tuntap" && m.kind != "tun" || matches(outer, m.name)
			})
		}
		switch {
		case l.isLoopback, l.master != 0 && bridges[l.master]:
		case isInner && !matches(outer, l.name):
			out.Inner = append(out.Inner, l.name)
		default:
			slices.SortFunc(l.addrs, netip.Addr.Compare)
			out.Outer = append(out.Outer, Interface{Name: l.name, MAC: l.mac, Addrs: slices.Compact(l.addrs)})
		}
	}
	slices.SortFunc(out.Outer, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(out.Inner)
	return out
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok })
}

// equal says whether the links are the same.
func (l Links) equal(o Links) bool {
	return slices.Equal(l.Inner, o.Inner) && slices.EqualFunc(l.Outer, o.Outer, func(a, b Interface) bool {
		return a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.Addrs, b.Addrs)
	})
}

func (l Links) outer() []string {
	var out []string
	for _, i := range l.Outer {
		out = append(out, i.Name)
	}
	return out
}

// handle is a network namespace as netlink's package wants it; 0 is the caller's, which is not entered.
func handle(space int) netns.NsHandle {
	if space == 0 {
		return netns.None()
	}
	return netns.NsHandle(space)
}

// readLinks returns the interfaces of a network namespace, or, where space is 0, of the caller's.
func readLinks(space int, inner, outer []string) (Links, error) {
	h, err := netlink.NewHandleAt(handle(space), unix.NETLINK_ROUTE)
	if err != nil {
		return Links{}, fmt.Errorf("read interfaces: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return Links{}, fmt.Errorf("read interfaces: %w", err)
	}
	var list []link
	for _, x := range links {
		a := x.Attrs()
		l := link{index: a.Index, master: a.MasterIndex, name: a.Name, kind: x.Type(), mac: a.HardwareAddr.String(), isLoopback: a.Flags&net.FlagLoopback != 0}
		addrs, err := h.AddrList(x, netlink.FAMILY_ALL)
		if err != nil {
			return Links{}, fmt.Errorf("read the addresses of %s: %w", a.Name, err)
		}
		for _, x := range addrs {
			// An address that another machine has, or may have, is not this one's.
			if x.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && x.Flags&unix.IFA_F_OPTIMISTIC == 0 {
				continue
			}
			addr, ok := netip.AddrFromSlice(x.IP)
			if addr = addr.Unmap(); ok && addr.IsGlobalUnicast() {
				l.addrs = append(l.addrs, addr)
			}
		}
		list = append(list, l)
	}
	return sortLinks(list, inner, outer), nil
}

const (
	linksEvery  = 30 * time.Second
	linksSettle = 20 * time.Millisecond // in which what changes together has changed
)

// followLinks calls f with the interfaces whenever they may be others, until ctx ends.
func followLinks(ctx context.Context, space int, inner, outer []string, f func(Links, error)) {
	for ctx.Err() == nil {
		done := make(chan struct{})
		changed := make(chan struct{}, 1)
		poke := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		at := handle(space)
		links, addrs := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
		err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{Namespace: &at})
		if err == nil {
			go func() {
				for range links {
					poke()
				}
				poke() // it has ended
			}()
			if err = netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{Namespace: &at}); err == nil {
				go func() {
					for range addrs {
						poke()
					}
					poke()
				}()
			}
		}
		if err != nil {
			f(Links{}, fmt.Errorf("follow interfaces: %w", err))
		}
		// A subscription may end, or lose something, without a word: it is made anew now and then.
		for end := time.Now().Add(linksEvery); ctx.Err() == nil && time.Now().Before(end); {
			now, err := readLinks(space, inner, outer)
			f(now, err)
			select {
			case <-ctx.Done():
			case <-changed:
				select {
				case <-ctx.Done():
				case <-time.After(linksSettle):
				}
			case <-time.After(time.Until(end)):
			}
		}
		close(done)
	}
}

// CheckPatterns says whether names can be held against patterns.
func CheckPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, "x"); err != nil || p == "" || strings.ContainsAny(p, "/ ") {
			return fmt.Errorf("%q: want a name of interfaces, which may have *, ? and [a-z] in it", p)
		}
	}
	return nil
}
