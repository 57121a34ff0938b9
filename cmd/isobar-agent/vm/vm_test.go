package vm_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/sim/lab"
)

// All interfaces and both families are under the machine's policies, at addresses that nobody was told of, too; what always
// passes does.
func TestEnforce(t *testing.T) {
	w := newWorld(t)
	w.run(nil)
	w.isIn(runtimev1alpha1.AgentEnforcing, 0)
	w.wants("without policies", slices.Concat(w.in(80, lab.Allow), w.in(22, lab.Allow), w.out(80, lab.Allow))...)

	w.world(policyOf(noIngress))
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
	ssh := slices.DeleteFunc(w.in(22, lab.Allow), func(f flow) bool { return f.protocol == "UDP" })
	w.wants("no ingress", slices.Concat(w.in(80, lab.Drop), ssh, w.out(80, lab.Allow))...)

	w.world(policyOf("  ingress: [{action: Allow, ports: [{protocol: TCP, port: 80}], from: [{ipBlock: {cidr: 10.7.2.0/24}}]}, {action: Drop}]\n" + noEgress))
	w.isIn(runtimev1alpha1.AgentEnforcing, 1)
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
