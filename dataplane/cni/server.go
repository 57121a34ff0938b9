package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/cni/rpc"
)

// Config is what a Server needs to know.
type Config struct {
	// StateDir has a file for each attachment. It is ours alone, and survives a
	// restart of the Node.
	StateDir string
	// AddressDir is that of host-local, /var/lib/cni/networks by default; the
	// addresses are in its folder Network, "isobar" by default.
	AddressDir, Network string
	// Ranges are the Node's spec.podCIDRs, at most one of a family. As long as there
	// are none, no Pod is plugged in.
	Ranges []netip.Prefix
	// OnlyChained says that other plugins plug Pods in: then there are no ranges.
	OnlyChained bool
	// MTU is that of Pods' interfaces, in bytes.
	MTU int
	// Sysctls is where the kernel's settings below net can be written; empty means /proc/sys/net.
	Sysctls string
	// Node is the network namespace of the Node; nil for the caller's.
	Node ns.NetNS
	// Attached is called before a runtime is told that a Pod is attached, and may
	// wait until policies hold for it; when it fails so does the command, with
	// "try again later". Nil for nothing. The Attachment is not to be changed.
	Attached func(context.Context, *Attachment) error
	// Detached is called when a Pod is gone from the Node and before anybody gets
	// its addresses. Nil for nothing.
	Detached func(*Attachment)
	Log      *slog.Logger // nil for none
}

// Server carries out commands, each attachment's one after the other. Its methods
// may be called concurrently.
type Server struct {
	rpc.UnimplementedCNIServer
	config    Config
	node      node
	addresses *addresses // nil without ranges
	records   records

	mu   sync.Mutex
	all  map[string]*Attachment   // by key; a value is not changed
	busy map[string]chan struct{} // by key, closed when its command ends
}

// NewServer makes the Node ready for Pods, and undoes what was begun and not
// ended before, or is of Pods that are gone. Attachments that stand are left
// alone. What is damaged in the folders is told, and stays taken.
func NewServer(c Config) (*Server, error) {
	s := &Server{config: c, records: records{c.StateDir}, busy: map[string]chan struct{}{}}
	if s.config.AddressDir == "" {
		s.config.AddressDir = "/var/lib/cni/networks"
	}
	if s.config.Network == "" {
		s.config.Network = "isobar"
	}
	if s.config.Log == nil {
		s.config.Log = slog.New(slog.DiscardHandler)
	}
	if c.Node == nil {
		own, err := ns.GetCurrentNS()
		if err != nil {
			return nil, err
		}
		s.config.Node = own
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(s.config.Node.Fd()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	s.node = node{s.config.Node, nl, sysctls(c.Sysctls)}
	if c.Sysctls == "" {
		s.node.sysctls = "/proc/sys/net"
	}
	if err := s.prepare(); err != nil {
		nl.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) prepare() error {
	var err error
	if s.config.OnlyChained && len(s.config.Ranges) > 0 {
		return errors.New("other plugins plug Pods in: then there are no ranges")
	}
	if len(s.config.Ranges) > 0 {
		if s.config.MTU < 1280 || s.config.MTU > 65535 {
			return fmt.Errorf("MTU %d: want 1280 to 65535", s.config.MTU)
		}
		if s.addresses, err = newAddresses(s.config.AddressDir, s.config.Network, s.config.Ranges); err != nil {
			return err
		}
		if err := s.addresses.tryOpen(); err != nil { // Pods that are there have their policies all the same
			s.config.Log.Warn("no Pod can be attached until this is mended", "error", err)
		}
		if err := s.node.guard(); err != nil {
			return err
		}
		is4 := slices.ContainsFunc(s.config.Ranges, func(p netip.Prefix) bool { return p.Addr().Is4() })
		is6 := slices.ContainsFunc(s.config.Ranges, func(p netip.Prefix) bool { return p.Addr().Is6() })
		if err := s.node.forward(is4, is6); err != nil {
			return err
		}
	}
	all, damaged, err := s.records.load()
	if err != nil {
		return fmt.Errorf("attachments in %s: %w", s.config.StateDir, err)
	}
	for _, name := range damaged {
		s.config.Log.Warn("the record of an attachment is damaged: its addresses stay taken until its Pod is removed", "dir", s.config.StateDir, "file", name)
	}
	if !s.config.OnlyChained {
		if err := s.findUnrecorded(all); err != nil {
			return err
		}
	}
	s.all = all
	s.Sweep(context.Background())
	return nil
}

// findUnrecorded adds the Pods that are plugged in and of which no record says so: who
// enforces policies has to know that they are there.
func (s *Server) findUnrecorded(all map[string]*Attachment) error {
	found, err := s.node.plugged()
	if err != nil {
		return err
	}
	for _, a := range found {
		if all[a.key()] == nil {
			all[a.key()] = a
			s.config.Log.Warn("a Pod is plugged in and has no record that can be read, so nobody knows which one it is: delete the Pod", "interface", a.HostInterface, "containerID", a.ContainerID, "addresses", a.Addrs)
		}
	}
	return nil
}

// Sweep undoes the attachments of Pods that are gone, of which no command told, and
// mends what others have taken from those that stand. What is right is not touched.
func (s *Server) Sweep(ctx context.Context) {
	if s.addresses != nil {
		if mended, err := s.node.mendGuard(); err != nil || mended {
			s.config.Log.Warn("others had changed what keeps Pods from taking others' addresses", "table", guardTable, "error", err)
		}
	}
	for _, a := range s.list() {
		if err := s.sweep(ctx, a.key()); err != nil {
			s.config.Log.Warn("attachment left as it is", "containerID", a.ContainerID, "interface", a.Interface, "error", err)
		}
	}
}

func (s *Server) sweep(ctx context.Context, key string) error {
	free, err := s.hold(ctx, key)
	if err != nil {
		return err
	}
	defer free()
	a := s.known(key)
	if a == nil {
		return nil
	}
	isGone := a.Begun
	if !isGone {
		if isGone, err = s.node.isGone(a); err != nil {
			return err
		}
		if !isGone {
			return s.mend(a)
		}
	}
	return s.detach(a)
}

// mend makes the Node lead to a Pod as it did.
func (s *Server) mend(a *Attachment) error {
	if a.Chained || a.Unrecorded {
		return nil
	}
	mended, err := s.node.mend(a)
	if mended != "" {
		s.config.Log.Warn("others had changed how a Pod is reached", "containerID", a.ContainerID, "interface", a.HostInterface, "mended", mended)
	}
	return err
}

// Attachments returns the Node's Pods as they are attached, by container ID and
// interface, without those of which that is not known.
func (s *Server) Attachments() []*Attachment {
	return slices.DeleteFunc(s.list(), func(a *Attachment) bool { return a.Begun })
}

// NoteKnown notes that the policies of the Pod behind an interface of the Node have become known.
// There being none is success.
func (s *Server) NoteKnown(ctx context.Context, hostInterface, podUID string) error {
	for _, a := range s.Attachments() {
		if a.HostInterface == hostInterface && a.PodUID == podUID {
			return s.noteKnown(ctx, a.key(), podUID)
		}
	}
	return nil
}

func (s *Server) noteKnown(ctx context.Context, key, podUID string) error {
	free, err := s.hold(ctx, key)
	if err != nil {
		return err
	}
	defer free()
	a := s.known(key)
	if a == nil || a.Begun || a.Known || a.PodUID != podUID {
		return nil
	}
	next := *a
	next.Known = true
	if err := s.records.save(&next); err != nil {
		return fmt.Errorf("note that policies of %s/%s are known: %w", a.PodNamespace, a.PodName, err)
	}
	s.note(key, &next)
	return nil
}

func (s *Server) list() []*Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Attachment
	for _, a := range s.all {
		out = append(out, a)
	}
	slices.SortFunc(out, compareAttachments)
	return out
}

// hold returns when no other command is about the attachment.
func (s *Server) hold(ctx context.Context, key string) (free func(), err error) {
	for {
		s.mu.Lock()
		other, isBusy := s.busy[key]
		if !isBusy {
			done := make(chan struct{})
			s.busy[key] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.busy, key)
				s.mu.Unlock()
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("another command for it goes on: %w", context.Cause(ctx))
		}
	}
}

func (s *Server) known(key string) *Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key]
}

func (s *Server) note(key string, a *Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == nil {
		delete(s.all, key)
		return
	}
	s.all[key] = a
}

// answer is what a runtime is told.
func (s *Server) answer(command string, c *call, result []byte, err error) (*rpc.Answer, error) {
	if err == nil {
		return &rpc.Answer{Result: result}, nil
	}
	var e *types.Error
	if !errors.As(err, &e) {
		e = types.NewError(types.ErrInternal, err.Error(), "")
	}
	attrs := []any{"command", command, "error", e.Error()}
	if c != nil {
		attrs = append(attrs, "containerID", c.id, "interface", c.ifname, "pod", c.podNamespace+"/"+c.podName)
	}
	s.config.Log.Warn("command failed", attrs...)
	return &rpc.Answer{Error: &rpc.Error{Code: uint32(e.Code), Msg: e.Msg, Details: e.Details}}, nil
}

// tryAgain is an error that passes.
func tryAgain(err error) error {
	return types.NewError(types.ErrTryAgainLater, err.Error(), "")
}

// Add attaches a Pod. Asked again for one that is attached as it should be, it
// changes nothing and answers the same.
func (s *Server) Add(ctx context.Context, q *rpc.Call) (*rpc.Answer, error) {
	c, refused := readCall(q, true)
	if refused != nil {
		return s.answer("ADD", nil, nil, refused)
	}
	result, err := s.add(ctx, c)
	return s.answer("ADD", c, result, err)
}

func (s *Server) add(ctx context.Context, c *call) ([]byte, error) {
	if c.netns == "" {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_NETNS is empty", "")
	}
	key := keyOf(c.id, c.ifname)
	free, err := s.hold(ctx, key)
	if err != nil {
		return nil, tryAgain(err)
	}
	defer free()
	a, err := s.attach(c, key)
	if err != nil {
		return nil, err
	}
	if s.config.Attached != nil {
		if err := s.config.Attached(ctx, a); err != nil {
			return nil, tryAgain(fmt.Errorf("policies of %s/%s: %w", a.PodNamespace, a.PodName, err))
		}
	}
	return a.result(c)
}

// attach returns the attachment that there is, or makes one.
func (s *Server) attach(c *call, key string) (*Attachment, error) {
	if a := s.known(key); a != nil {
		if !a.Begun && a.Netns == c.netns && a.Network == c.network && a.Chained == (c.previous != nil) && (a.Chained || s.node.check(a) == nil) {
			return a, nil
		}
		if err := s.detach(a); err != nil {
			return nil, fmt.Errorf("what was left of an earlier attachment: %w", err)
		}
	}
	a := &Attachment{
		Network: c.network, ContainerID: c.id, Interface: c.ifname, Netns: c.netns, PodNamespace: c.podNamespace, PodName: c.podName, PodUID: c.podUID,
		MTU: s.config.MTU, Begun: true,
	}
	if c.previous != nil {
		if err := a.chain(c); err != nil {
			return nil, err
		}
		return a, s.finish(key, a)
	}
	if s.config.OnlyChained {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "prevResult is missing", "this plugin gives no addresses here: put it after the one that does")
	}
	if s.addresses == nil {
		return nil, tryAgain(errors.New("this Node has no range of addresses for Pods yet: spec.podCIDRs is empty"))
	}
	a.HostInterface = hostInterface(key)
	if err := s.records.save(a); err != nil {
		return nil, fmt.Errorf("note the attachment: %w", err)
	}
	s.note(key, a)
	plugged, err := s.plug(*a)
	if err != nil {
		return nil, errors.Join(err, s.detach(plugged))
	}
	return plugged, s.finish(key, plugged)
}

// plug returns the attachment with what it has been given, also with an error.
func (s *Server) plug(a Attachment) (*Attachment, error) {
	if err := s.giveBackUnknown(&a); err != nil {
		return &a, err
	}
	addrs, err := s.addresses.take(a.ContainerID, a.Interface)
	if err != nil {
		if errors.Is(err, errNoAddress) {
			err = tryAgain(err)
		}
		return &a, err
	}
	a.Addrs = addrs
	if err := s.records.save(&a); err != nil {
		return &a, fmt.Errorf("note the attachment: %w", err)
	}
	noted := a
	s.note(a.key(), &noted)
	return &a, s.node.plug(&a)
}

// finish notes that an attachment is whole.
func (s *Server) finish(key string, a *Attachment) error {
	a.Begun = false
	if err := s.records.save(a); err != nil {
		a.Begun = true
		return errors.Join(fmt.Errorf("note the attachment: %w", err), s.detach(a))
	}
	s.note(key, a)
	return nil
}

// chain takes what a plugin before has done.
func (a *Attachment) chain(c *call) error {
	a.Chained = true
	for _, i := range c.previous.Interfaces {
		switch {
		case i.Sandbox == "" && a.HostInterface == "":
			a.HostInterface = i.Name
		case i.Sandbox != "" && i.Name == c.ifname:
			a.MAC, a.MTU = i.Mac, i.Mtu
		}
	}
	for _, ip := range c.previous.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("prevResult has the address %q", ip.Address.IP), "")
		}
		a.Addrs = append(a.Addrs, addr.Unmap())
	}
	if len(a.Addrs) == 0 {
		return types.NewError(types.ErrInvalidNetworkConfig, "prevResult has no address", "put the plugin that gives Pods addresses before this one")
	}
	return nil
}

// detach undoes an attachment, whatever there is of it. The record goes last.
func (s *Server) detach(a *Attachment) error {
	if !a.Chained {
		if err := s.node.unplug(a); err != nil {
			return err
		}
	}
	if s.config.Detached != nil {
		s.config.Detached(a)
	}
	if !a.Chained && s.addresses != nil {
		if err := s.addresses.release(a.Addrs, a.ContainerID, a.Interface); err != nil {
			return err
		}
		if a.Begun {
			if err := s.giveBackUnknown(a); err != nil {
				return err
			}
		}
	}
	if err := s.records.remove(a.key()); err != nil {
		return err
	}
	s.note(a.key(), nil)
	return nil
}

// giveBackUnknown releases addresses that files give to an attachment of which
// no record says so: one that was begun, or whose record was lost.
func (s *Server) giveBackUnknown(a *Attachment) error {
	addrs, err := s.addresses.of(a.ContainerID, a.Interface)
	if err != nil || len(addrs) == 0 {
		return err
	}
	if err := s.node.forgetFlows(addrs); err != nil {
		return err
	}
	return s.addresses.release(addrs, a.ContainerID, a.Interface)
}

// Del undoes an attachment. There being none is success.
func (s *Server) Del(ctx context.Context, q *rpc.Call) (*rpc.Answer, error) {
	c, refused := readCall(q, true)
	if refused != nil {
		return s.answer("DEL", nil, nil, refused)
	}
	return s.answer("DEL", c, nil, s.del(ctx, c.id, c.ifname))
}

func (s *Server) del(ctx context.Context, id, ifname string) error {
	key := keyOf(id, ifname)
	free, err := s.hold(ctx, key)
	if err != nil {
		return tryAgain(err)
	}
	defer free()
	a := s.known(key)
	if a == nil { // its record may have been lost
		a = &Attachment{ContainerID: id, Interface: ifname, HostInterface: hostInterface(key), Begun: true}
	}
	return s.detach(a)
}

// Check says what of an attachment is not as it was left.
func (s *Server) Check(ctx context.Context, q *rpc.Call) (*rpc.Answer, error) {
	c, refused := readCall(q, true)
	if refused != nil {
		return s.answer("CHECK", nil, nil, refused)
	}
	return s.answer("CHECK", c, nil, s.check(ctx, c))
}

func (s *Server) check(ctx context.Context, c *call) error {
	key := keyOf(c.id, c.ifname)
	free, err := s.hold(ctx, key)
	if err != nil {
		return tryAgain(err)
	}
	defer free()
	a := s.known(key)
	switch {
	case a == nil || a.Begun:
		return types.NewError(types.ErrUnknownContainer, fmt.Sprintf("container %s has no interface %s here", c.id, c.ifname), "")
	case a.Netns != c.netns:
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("container %s is attached in %s, not %s", c.id, a.Netns, c.netns), "")
	}
	if c.previous != nil {
		for _, addr := range a.Addrs {
			if !slices.ContainsFunc(c.previous.IPs, func(x *types100.IPConfig) bool { return x.Address.IP.Equal(addr.AsSlice()) }) {
				return types.NewError(types.ErrInternal, fmt.Sprintf("prevResult lacks the address %s", addr), "")
			}
		}
	}
	if a.Chained {
		return nil
	}
	return s.node.check(a)
}

// GC undoes the attachments of a network that its runtime does not know.
func (s *Server) GC(ctx context.Context, q *rpc.Call) (*rpc.Answer, error) {
	c, refused := readCall(q, false)
	if refused != nil {
		return s.answer("GC", nil, nil, refused)
	}
	return s.answer("GC", nil, nil, s.gc(ctx, c))
}

func (s *Server) gc(ctx context.Context, c *call) error {
	if !c.hasValid { // what is unsaid is not an empty list
		return types.NewError(types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments is missing", "")
	}
	valid := map[string]bool{}
	for _, v := range c.valid {
		valid[keyOf(v.ContainerID, v.IfName)] = true
	}
	var errs []error
	for _, a := range s.list() {
		if a.Network == c.network && !valid[a.key()] {
			if err := s.del(ctx, a.ContainerID, a.Interface); err != nil {
				errs = append(errs, fmt.Errorf("%s/%s: %w", a.ContainerID, a.Interface, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Status says whether Pods can be attached.
func (s *Server) Status(_ context.Context, q *rpc.Call) (*rpc.Answer, error) {
	if _, refused := readCall(q, false); refused != nil {
		return s.answer("STATUS", nil, nil, refused)
	}
	if s.addresses == nil && !s.config.OnlyChained {
		return s.answer("STATUS", nil, nil, types.NewError(types.ErrPluginNotAvailable, "this Node has no range of addresses for Pods yet", "spec.podCIDRs is empty"))
	}
	return s.answer("STATUS", nil, nil, nil)
}

// Addresses returns how many of the Node's addresses for Pods are taken, by range.
func (s *Server) Addresses() ([]Taken, error) {
	if s.addresses == nil {
		return nil, nil
	}
	return s.addresses.taken()
}

// Close lets go of the kernel; it undoes nothing.
func (s *Server) Close() error {
	s.node.nl.Close()
	if s.addresses != nil {
		return s.addresses.close()
	}
	return nil
}
