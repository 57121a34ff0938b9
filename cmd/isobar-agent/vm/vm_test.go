package vm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/sim/lab"
)

// All interfaces and both families are under the machine's policies, at addresses that nobody was told of, too; what always
// passes does.
func TestEnforce(t *testing.T) {
	w := newWorld(t)
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 0)
	w.wants("without policies", slices.Concat(w.in(80, lab.Allow), w.in(22, lab.Allow), w.out(80, lab.Allow))...)

	w.enforce(noIngress)
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	ssh := slices.DeleteFunc(w.in(22, lab.Allow), func(f flow) bool { return f.protocol == "UDP" })
	w.wants("no ingress", slices.Concat(w.in(80, lab.Drop), ssh, w.out(80, lab.Allow))...)

	w.enforce("  ingress: [{action: Allow, ports: [{protocol: TCP, port: 80}], from: [{ipBlock: {cidr: 10.7.2.0/24}}]}, {action: Drop}]\n" + noEgress)
	w.wants("from the second network alone",
		flow{from: w.peers[1], to: w.vm, addr: "10.7.2.2", port: 80, want: lab.Allow},
		flow{from: w.peers[1], to: w.vm, addr: "fd07:2::2", port: 80, want: lab.Drop},
		flow{from: w.peers[0], to: w.vm, addr: "10.7.1.2", port: 80, want: lab.Drop},
		flow{from: w.vm, to: w.vm, addr: "10.7.1.2", port: 80, want: lab.Allow},
		flow{from: w.vm, to: w.vm, addr: "127.0.0.1", port: 80, want: lab.Allow},
	)
	w.wants("no egress", w.out(80, lab.Drop)...)

	// Nobody is asked before the first packet: the agent does not run.
	w.stop()
	w.give(w.vm, "eth0", "10.7.1.77")
	w.give(w.vm, "eth0", "fd07:1::77")
	w.wants("an address of which nobody knows",
		flow{from: w.peers[0], to: w.vm, addr: "10.7.1.77", port: 80, want: lab.Drop},
		flow{from: w.peers[0], to: w.vm, addr: "fd07:1::77", port: 80, want: lab.Drop},
		flow{from: w.peers[0], to: w.vm, addr: "fd07:1::77", port: 22, want: lab.Allow},
	)
	w.take(w.vm, "eth0", "10.7.1.2") // and with it the other one
	w.give(w.vm, "eth0", "10.7.1.77")
	w.wants("from an address of which nobody knows", w.out(80, lab.Drop)...)
}

// What the machine has is told at once.
func TestReport(t *testing.T) {
	w := newWorld(t)
	w.world(policyOf(noIngress))
	w.run(nil)
	told := func(want string) {
		t.Helper()
		w.await(want, func() error {
			s := w.last()
			text := fmt.Sprint(s.State, s.RealizedPolicies)
			for _, i := range s.Interfaces {
				text += fmt.Sprint(" ", i.Name, i.IPs)
				if i.MAC == "" {
					text += " without MAC"
				}
			}
			if text != want {
				return errors.New(text)
			}
			return nil
		})
	}
	told("Enforcing1 eth0[10.7.1.2 fd07:1::2] eth1[10.7.2.2 fd07:2::2]")
	w.take(w.vm, "eth1", "10.7.2.2")
	w.give(w.vm, "eth1", "10.7.2.3")
	told("Enforcing1 eth0[10.7.1.2 fd07:1::2] eth1[10.7.2.3 fd07:2::2]")
	w.join(w.vm, "eth2", newSpace(t))
	told("Enforcing1 eth0[10.7.1.2 fd07:1::2] eth1[10.7.2.3 fd07:2::2] eth2[]")
	w.at(w.vm, "eth1", netlink.LinkDel)
	told("Enforcing1 eth0[10.7.1.2 fd07:1::2] eth2[]")
	s := w.last()
	if s.KernelVersion == "" || s.AgentVersion == "" || s.StartTime.IsZero() || s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

// Who asks on the machine hears that the server takes no reports, and since when, and that it does again; what is enforced
// is another question.
func TestAway(t *testing.T) {
	w := newWorld(t)
	var isAway atomic.Bool
	var posted atomic.Int64
	w.run(func(o *vm.Options) {
		o.Post = func(context.Context, vm.Status) ([]metav1.Condition, error) {
			posted.Add(1)
			if isAway.Load() {
				return nil, errors.New("it is revoked")
			}
			return nil, nil
		}
	})
	w.enforce(noIngress)
	says := func(what string, want bool) {
		t.Helper()
		w.await(what, func() error {
			r := w.machine.Reply()
			if is := r.Away == "it is revoked" && !r.AwaySince.IsZero() && time.Since(r.AwaySince) < time.Hour; is != want || !want && (r.Away != "" || !r.AwaySince.IsZero()) || !r.IsWhole() || posted.Load() == 0 {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
	says("the server takes reports", false)
	isAway.Store(true)
	says("the server takes none", true)
	isAway.Store(false)
	says("the server takes reports again", false)
}

// What is behind the machine is the machine to others, by the ports that they ask it for, and to the machine it is
// what it was.
func TestBehind(t *testing.T) {
	w := newWorld(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("addresses are translated by nft, which is not here")
	}
	w.container()
	w.must(w.vm.Do(func(ns.NetNS) error {
		out, err := exec.Command("nft", `add table ip docker
add chain ip docker pre { type nat hook prerouting priority dstnat ; }
add rule ip docker pre iifname "eth*" tcp dport 8080 dnat to 172.17.0.2:80
add rule ip docker pre iifname "eth*" tcp dport 8081 dnat to 172.17.0.2:81
add chain ip docker post { type nat hook postrouting priority srcnat ; }
add rule ip docker post ip saddr 172.17.0.0/16 oifname "eth*" masquerade`).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 0)
	listen := func(port uint16) {
		t.Helper()
		var l net.Listener
		w.must(w.behind.Do(func(ns.NetNS) (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf("172.17.0.2:%d", port))
			return err
		}))
		t.Cleanup(func() { l.Close() })
	}
	listen(80)
	listen(81)
	published := func(port uint16, patience time.Duration) error {
		return w.peers[0].Do(func(ns.NetNS) error {
			c, err := net.DialTimeout("tcp", fmt.Sprintf("10.7.1.2:%d", port), patience)
			if err == nil {
				c.Close()
			}
			return err
		})
	}
	w.must(published(8080, patience))
	_, theirs := addrs(1)
	from := func(port uint16, want lab.Verdict) flow {
		return flow{from: w.behind, to: w.peers[0], addr: theirs[0].String(), port: port, want: want}
	}
	inside := []flow{
		{from: w.behind, to: w.vm, addr: "172.17.0.1", port: 90, want: lab.Allow},
		{from: w.vm, to: w.behind, addr: "172.17.0.2", port: 90, want: lab.Allow},
	}
	w.wants("without policies", append(inside, from(80, lab.Allow))...)

	w.enforce("  ingress: [{action: Allow, ports: [{protocol: TCP, port: 8080}]}, {action: Drop}]\n  egress: [{action: Drop, ports: [{protocol: TCP, port: 80}]}]\n")
	w.must(published(8080, patience))
	if published(8081, lab.Patience) == nil {
		t.Error("a port that the policy does not allow is published all the same")
	}
	w.wants("with policies", append(inside, from(80, lab.Drop), from(81, lab.Allow))...)
	w.enforce("  ingress: [{action: Drop, ports: [{protocol: TCP, port: 80}]}]\n")
	w.must(published(8080, patience)) // by the port that was asked for
	w.must(published(8081, patience))

	// Another bridge is found, and before it is, it is none that leads to others.
	w.must(w.vm.Do(func(ns.NetNS) error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "podnet"}})
	}))
	w.await("podnet", func() error {
		if inner := w.machine.Inner(); !slices.Equal(inner, []string{"docker0", "podnet"}) {
			return fmt.Errorf("%q", inner)
		}
		return nil
	})
}
