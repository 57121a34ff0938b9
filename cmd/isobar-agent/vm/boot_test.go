package vm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"k8s.io/client-go/rest"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
)

// As an agent of a process of its own, this binary is run with the environment of it.
const hostVariable, dirVariable = "ISOBAR_TEST_VM_HOST", "ISOBAR_TEST_VM_DIR"

func TestMain(m *testing.M) {
	host := os.Getenv(hostVariable)
	if host == "" {
		os.Exit(m.Run())
	}
	err := vm.Run(context.Background(), vm.Options{
		Namespace: "vms", Name: "db", StateDir: os.Getenv(dirVariable), SSH: vm.Anywhere(),
		Controller: antrea.Fixed(&rest.Config{Host: host, Dial: node.Dial}),
		Ready:      func() { fmt.Println("ready") },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process starts an agent as a process in the VM, and waits until it is ready.
func (w *world) process() *exec.Cmd {
	w.Helper()
	self, err := os.Executable()
	w.must(err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), hostVariable+"="+w.host, dirVariable+"="+w.dir)
	cmd.Stderr = w.Output()
	out, err := cmd.StdoutPipe()
	w.must(err)
	w.must(w.vm.Do(func(ns.NetNS) error { return cmd.Start() }))
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		w.Fatal(err)
	}
	return cmd
}

// echo is a connection to the VM's port 80 that goes on.
func (w *world) echo() net.Conn {
	w.Helper()
	mine, _ := addrs(2)
	at := netip.AddrPortFrom(mine[0], 80).String()
	var l net.Listener
	w.must(w.vm.Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", at)
		return err
	}))
	taken := make(chan struct{})
	go func() {
		c, err := l.Accept()
		close(taken)
		if err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	var c net.Conn
	w.must(w.peers[1].Do(func(ns.NetNS) (err error) {
		c, err = net.DialTimeout("tcp", at, 10*time.Second)
		return err
	}))
	<-taken // one that is not is reset with the listener
	w.must(l.Close())
	w.Cleanup(func() { c.Close() })
	return c
}

func echoes(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

// insist tries flows all the while, until the end.
func (w *world) insist(flows []flow) (end func() error) {
	var errs []error
	stop := make(chan struct{})
	var one sync.WaitGroup
	rounds := 0
	one.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			rounds++
			if err := w.try(flows); err != nil {
				errs = append(errs, err)
			}
		}
	})
	return func() error {
		close(stop)
		one.Wait()
		w.Logf("%d rounds of %d flows", rounds, len(flows))
		return errors.Join(errs...)
	}
}

// An agent that is killed, however often, and comes back opens and cuts nothing.
func TestKill(t *testing.T) {
	w := newWorld(t)
	before := w.echo() // which began when nobody knew of it
	cmd := w.process()
	w.must(echoes(before))
	w.world(policyOf("  ingress: [{action: Allow, ports: [{protocol: TCP, port: 81}]}, {action: Drop}]\n" + noEgress))
	flows := slices.Concat(w.in(80, lab.Drop), w.out(80, lab.Drop), slices.DeleteFunc(slices.Concat(w.in(81, lab.Allow), w.in(22, lab.Allow)), func(f flow) bool { return f.protocol == "UDP" }))
	w.await("rules", func() error { return w.try(flows) })
	end := w.insist(flows)
	for range 5 {
		w.must(cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait()
		w.must(echoes(before))
		cmd = w.process()
		w.must(echoes(before))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// reboot forgets what the kernel has.
func (w *world) reboot() {
	w.Helper()
	if w.stop != nil {
		w.stop()
	}
	d := nft.NewDriver(nft.Config{NetNS: int(w.vm.Fd()), Place: func() nft.Place { return nft.Place{Locals: []nft.Local{}} }})
	defer d.Close()
	_, err := plan.NewSyncer("", d).Sync(w.Context(), policy.Ruleset{})
	w.must(err)
	if w.hasTable() {
		w.Fatal("the table is there")
	}
}

func (w *world) hasTable() bool {
	w.Helper()
	d := nft.NewDriver(nft.Config{NetNS: int(w.vm.Fd())})
	defer d.Close()
	objects, err := d.Read(w.Context())
	w.must(err)
	return len(objects) > 0
}

func (w *world) isReady() {
	w.Helper()
	w.await("ready", func() error {
		if !w.ready.Load() {
			return errors.New("not yet")
		}
		return nil
	})
}

// A machine that starts without its server enforces what it knew; when it knows nothing any more it is closed, but for
// what always passes.
func TestBoot(t *testing.T) {
	w := newWorld(t)
	tcp := func(list []flow) []flow {
		return slices.DeleteFunc(list, func(f flow) bool { return f.protocol == "UDP" })
	}
	w.setAway(true)
	w.run(nil)
	w.isReady()
	w.wants("never any rules", slices.Concat(w.in(80, lab.Allow), w.out(80, lab.Allow))...)
	if s := w.machine.Status(); s.State != runtimev1alpha1.AgentWaiting {
		t.Errorf("%+v", s)
	}
	w.setAway(false)
	w.world(policyOf("  ingress: [{action: Drop, ports: [{protocol: TCP, port: 80}]}]\n"))
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	file := filepath.Join(w.dir, "policies", "controlplane.state")
	w.await("the state is kept", func() error {
		_, err := os.Stat(file)
		return err
	})

	w.setAway(true)
	w.reboot()
	w.run(nil)
	w.isReady()
	rules := tcp(slices.Concat(w.in(80, lab.Drop), w.in(81, lab.Allow), w.out(80, lab.Allow)))
	w.wants("kept rules", rules...)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)

	good, err := os.ReadFile(file)
	w.must(err)
	closed := slices.Concat(w.in(80, lab.Drop), w.in(81, lab.Drop), w.out(80, lab.Drop), tcp(w.in(22, lab.Allow)))
	for _, tt := range []struct {
		name  string
		spoil func() error
		why   string
	}{
		{"damaged", func() error {
			return os.WriteFile(file, append(slices.Clone(good[:len(good)-1]), good[len(good)-1]+1), 0o600)
		}, "damaged"},
		{"gone", func() error { return os.RemoveAll(filepath.Join(w.dir, "policies")) }, "gone"},
		{"never came to be a file", func() error {
			return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(filepath.Join(w.dir, "policies", "controlplane.ahead"), nil, 0o600), os.Remove(filepath.Join(w.dir, "enforced")))
		}, "older than what was enforced"},
	} {
		// The table is in the kernel still, and stays.
		w.stop()
		w.must(tt.spoil())
		w.run(nil)
		w.isReady()
		w.wants(tt.name+", but the kernel has the rules", rules...)
		if s := w.machine.Status(); s.State != runtimev1alpha1.AgentWaiting || !strings.Contains(s.LastError, tt.why) {
			t.Errorf("%s: %+v", tt.name, s)
		}
		w.reboot()
		w.run(nil)
		w.isReady()
		w.wants(tt.name, closed...)
		w.reboot()
		w.run(func(o *vm.Options) { o.UnreadableOpen = true })
		w.isReady()
		w.wants(tt.name+", and open", tcp(slices.Concat(w.in(80, lab.Allow), w.out(80, lab.Allow)))...)
		w.stop()
		w.must(errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.RemoveAll(filepath.Join(w.dir, "policies", "controlplane.ahead")), os.WriteFile(file, good, 0o600)))
		w.reboot()
		w.run(nil)
		w.isIn(runtimev1alpha1.AgentEnforcing, 1)
		w.wants(tt.name+", and mended", rules...)
	}

	// What is closed, others cannot open, and the server does.
	w.must(os.Remove(file))
	w.reboot()
	w.must(os.RemoveAll(filepath.Join(w.dir, "policies")))
	w.run(nil)
	w.isReady()
	w.must(w.vm.Do(func(ns.NetNS) error {
		d := nft.NewDriver(nft.Config{Place: func() nft.Place { return nft.Place{Locals: []nft.Local{}} }})
		defer d.Close()
		_, err := plan.NewSyncer("", d).Sync(t.Context(), policy.Ruleset{})
		return err
	}))
	w.await("closed again", func() error { return w.try(closed) })
	w.setAway(false)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	w.wants("the server is back", rules...)
}

// Off takes all away at once, whoever runs or does not, and stays off until On.
func TestSwitch(t *testing.T) {
	w := newWorld(t)
	w.world(policyOf(noIngress))
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	open, closed := w.in(80, lab.Allow), w.in(80, lab.Drop)
	foreign := w.foreignTable()
	w.wants("on", closed...)
	space := int(w.vm.Fd())
	w.must(vm.Off(t.Context(), w.dir, space))
	w.wants("off", open...)
	if w.hasTable() {
		t.Error("the table is there")
	}
	w.isIn(runtimev1alpha1.AgentOff, 0)
	w.enforce(noIngress + noEgress) // which the agent hears of, and would
	w.await("told", func() error {
		if s := w.last(); s.State != runtimev1alpha1.AgentOff {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.setAway(true)
	w.run(nil)
	w.isReady()
	w.wants("off after a restart", append(open, w.out(80, lab.Allow)...)...)
	w.must(vm.On(w.dir))
	w.await("on again", func() error { return w.try(append(closed, w.out(80, lab.Drop)...)) })
	w.stop()
	w.must(vm.Off(t.Context(), w.dir, space))
	w.wants("off without an agent", open...)
	w.must(vm.Off(t.Context(), w.dir, space))
	w.must(vm.On(w.dir))
	w.must(vm.On(w.dir))
	w.wants("on without an agent", open...)
	w.run(nil)
	w.isReady()
	w.wants("on", closed...)
	if err := vm.Uninstall(t.Context(), w.dir, space); !errors.Is(err, vm.ErrRunning) {
		t.Errorf("uninstall while the agent runs: %v", err)
	}
	if err := vm.Run(t.Context(), w.options()); !errors.Is(err, vm.ErrRunning) {
		t.Errorf("a second agent: %v", err)
	}
	w.stop()
	w.must(vm.Uninstall(t.Context(), w.dir, space))
	w.wants("uninstalled", open...)
	if _, err := os.Lstat(w.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", w.dir, err)
	}
	if now := w.foreignText(); now != foreign {
		t.Errorf("others' rules: %s, were %s", now, foreign)
	}
	w.must(vm.Uninstall(t.Context(), w.dir, space))
}

// foreignTable makes a table that is not Isobar's, and returns how it reads.
func (w *world) foreignTable() string {
	w.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		return ""
	}
	w.must(w.vm.Do(func(ns.NetNS) error {
		return exec.Command("nft", "add table inet other; add chain inet other c { type filter hook input priority 5 ; }; add rule inet other c tcp dport 7 drop").Run()
	}))
	return w.foreignText()
}

func (w *world) foreignText() string {
	w.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		return ""
	}
	var out []byte
	w.must(w.vm.Do(func(ns.NetNS) (err error) {
		out, err = exec.Command("nft", "list", "table", "inet", "other").Output()
		return err
	}))
	return string(out)
}
