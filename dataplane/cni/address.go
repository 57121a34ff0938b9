package cni

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

// addresses are those of the Node's ranges, each with a file while somebody has
// it. Whatever the file says, its address is not given to anybody else.
type addresses struct {
	dir, network string
	ranges       []netip.Prefix

	mu    sync.Mutex  // the store's lock keeps other processes out, and lets goroutines of this one in
	store *disk.Store // nil as long as it cannot be opened
}

func (a *addresses) lock() (unlock func(), err error) {
	a.mu.Lock()
	if err := a.open(); err != nil {
		a.mu.Unlock()
		return nil, err
	}
	if err := a.store.Lock(); err != nil {
		a.mu.Unlock()
		return nil, fmt.Errorf("lock %s: %w", a.folder(), err)
	}
	return func() {
		_ = a.store.Unlock() // closing the file, at the latest, unlocks
		a.mu.Unlock()
	}, nil
}

// errNoAddress says that all addresses of a range are taken.
var errNoAddress = errors.New("no address is left")

// newAddresses keeps addresses in dir/network, which is opened when it is needed.
func newAddresses(dir, network string, ranges []netip.Prefix) (*addresses, error) {
	for i, r := range ranges {
		if r != r.Masked() || r.Addr().Is4In6() {
			return nil, fmt.Errorf("range %s: want a masked prefix, as %s", r, r.Masked())
		}
		if r.Bits() > r.Addr().BitLen()-2 {
			return nil, fmt.Errorf("range %s has no addresses for Pods: want /%d or wider", r, r.Addr().BitLen()-2)
		}
		if slices.ContainsFunc(ranges[:i], func(x netip.Prefix) bool { return x.Addr().Is4() == r.Addr().Is4() }) {
			return nil, fmt.Errorf("range %s: there is another one of its family", r)
		}
	}
	return &addresses{dir: dir, network: network, ranges: ranges}, nil
}

// open opens the store, if it is not. The caller holds a.mu.
func (a *addresses) open() (err error) {
	if a.store == nil {
		if a.store, err = disk.New(a.network, a.dir); err != nil {
			a.store = nil
			return fmt.Errorf("addresses in %s: %w", a.dir, err)
		}
	}
	return nil
}

// tryOpen says whether the store can be opened.
func (a *addresses) tryOpen() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open()
}

// close lets go of the store, if it was opened.
func (a *addresses) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return nil
	}
	return a.store.Close()
}

// folder is where the files are.
func (a *addresses) folder() string { return filepath.Join(a.dir, a.network) }

// take gives one address of each range to an attachment that has none. It takes
// all or none.
func (a *addresses) take(id, ifname string) ([]netip.Addr, error) {
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var out []netip.Addr
	for i, r := range a.ranges {
		addr, err := a.takeOf(r, fmt.Sprint(i), id, ifname)
		if err != nil {
			return nil, errors.Join(err, a.give(out, id, ifname))
		}
		out = append(out, addr)
	}
	return out, nil
}

// takeOf goes round the range from the one that was given last, so that an
// address rests as long as it can before somebody else has it.
func (a *addresses) takeOf(r netip.Prefix, rangeID, id, ifname string) (netip.Addr, error) {
	first, last := r.Addr().Next(), lastOf(r) // the first is the network's own
	if r.Addr().Is4() {
		last = last.Prev() // the broadcast address
	}
	start := first
	if ip, err := a.store.LastReservedIP(rangeID); err == nil {
		if addr, ok := netip.AddrFromSlice(ip); ok && r.Contains(addr.Unmap()) {
			start = addr.Unmap().Next()
		}
	}
	if start.Less(first) || last.Less(start) {
		start = first
	}
	for addr := start; ; {
		ok, err := a.store.Reserve(id, ifname, addr.AsSlice(), rangeID)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("address %s: %w", addr, err)
		}
		if ok {
			return addr, nil
		}
		if addr = addr.Next(); !addr.IsValid() || last.Less(addr) {
			addr = first
		}
		if addr == start {
			return netip.Addr{}, fmt.Errorf("%w in %s", errNoAddress, r)
		}
	}
}

func lastOf(r netip.Prefix) netip.Addr {
	b := r.Addr().AsSlice()
	for i := r.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// release gives back addresses that an attachment has, and leaves others'.
func (a *addresses) release(addrs []netip.Addr, id, ifname string) error {
	unlock, err := a.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return a.give(addrs, id, ifname)
}

func (a *addresses) give(addrs []netip.Addr, id, ifname string) error {
	var errs []error
	for _, addr := range addrs {
		path := filepath.Join(a.folder(), addr.String())
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case !isOwner(text, id, ifname):
			errs = append(errs, fmt.Errorf("address %s is not of %s/%s", addr, id, ifname))
		default:
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

func isOwner(text []byte, id, ifname string) bool {
	return string(bytes.TrimSpace(text)) == id+disk.LineBreak+ifname
}

// of returns the addresses that files give to an attachment. It reads every file:
// for attachments of which nothing else is known.
func (a *addresses) of(id, ifname string) ([]netip.Addr, error) {
	unlock, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	files, err := os.ReadDir(a.folder())
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, f := range files {
		addr, err := netip.ParseAddr(f.Name())
		if err != nil {
			continue // the lock, and the last ones given
		}
		text, err := os.ReadFile(filepath.Join(a.folder(), f.Name()))
		if err != nil {
			return nil, err
		}
		if isOwner(text, id, ifname) {
			out = append(out, addr)
		}
	}
	return out, nil
}

// Taken is how many addresses of a range are taken.
type Taken struct {
	Range netip.Prefix
	Taken int
}

// Size is how many addresses of a range Pods can have.
func Size(r netip.Prefix) float64 {
	n := math.Exp2(float64(r.Addr().BitLen()-r.Bits())) - 1 // less the network's own
	if r.Addr().Is4() {
		n-- // and the broadcast address
	}
	return n
}

// taken counts those of which there are files.
func (a *addresses) taken() ([]Taken, error) {
	files, err := os.ReadDir(a.folder())
	if err != nil {
		return nil, err
	}
	out := make([]Taken, len(a.ranges))
	for i, r := range a.ranges {
		out[i].Range = r
		for _, f := range files {
			if addr, err := netip.ParseAddr(f.Name()); err == nil && r.Contains(addr) {
				out[i].Taken++
			}
		}
	}
	return out, nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// anywhere returns the prefix of all addresses of addr's family.
func anywhere(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
