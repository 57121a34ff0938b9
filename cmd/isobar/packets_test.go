package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/control/feed"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	simlab "isobar.dev/sim/lab"
	"isobar.dev/source/manifest"
)

// The same tables by packets: three Nodes with a kernel's nftables each, which have what
// agents are told, and the first packet of each flow, sent by one Pod and looked for at
// the other. Each step follows the one before, as changes do.
func TestConformanceByPackets(t *testing.T) {
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	dir := conformanceDir(t)
	for _, name := range []string{
		"networkpolicy-v4", "networkpolicy-v6", "clusternetworkpolicy-v4", "clusternetworkpolicy-v6", "antrea-v4", "antrea-v6",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachines(t, 3)
			steps := 0
			eachConformanceStep(t, filepath.Join(dir, name+".jsonl"), func(id string, s *conformanceStep) {
				m.step(id, s)
				steps++
			})
			t.Logf("%d steps, %d packets of %d flows judged, of which %d from or to Nodes themselves; of %d flows an end has no address", steps, m.judged, m.asked, m.ofNodes, m.nowhere)
			if m.judged == 0 {
				t.Fatal("no packet was judged")
			}
		})
	}
}

// machines are Nodes whose Pods are wires.
type machines struct {
	*testing.T
	lab   *simlab.Lab
	nodes map[string]*machine // by name in the tables
	spare []*machine          // those that no name has
	wires map[netip.Addr]*simlab.Wire
	at    map[netip.Addr]*machine

	next                            uint32 // number of the next packet
	asked, judged, ofNodes, nowhere int
}

type machine struct {
	*simlab.Node
	place  nft.Place
	syncer *plan.Syncer
}

func newMachines(t *testing.T, n int) *machines {
	lab, err := simlab.New(simlab.Options{Nodes: n, IPv6: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	m := &machines{T: t, lab: lab, nodes: map[string]*machine{}, wires: map[netip.Addr]*simlab.Wire{}, at: map[netip.Addr]*machine{}}
	t.Cleanup(func() {
		for _, w := range m.wires {
			_ = w.Close()
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, n := range lab.Nodes {
		if err := n.Router(); err != nil {
			t.Fatal(err)
		}
		x := &machine{Node: n}
		driver := nft.NewDriver(nft.Config{NetNS: int(n.Space.Fd()), Place: func() nft.Place { return x.place }})
		t.Cleanup(driver.Close)
		x.syncer = plan.NewSyncer("", driver)
		m.spare = append(m.spare, x)
	}
	return m
}

// machine returns the Node that stands for one of the tables.
func (m *machines) machine(name string) *machine {
	m.Helper()
	x := m.nodes[name]
	if x == nil {
		if len(m.spare) == 0 {
			m.Fatalf("there are more Nodes than %d: %s", len(m.nodes), name)
		}
		x, m.spare = m.spare[0], m.spare[1:]
		m.nodes[name] = x
	}
	return x
}

// machineOf is the name of the machine of a workload, or "".
func machineOf(w *policy.Workload) string {
	switch {
	case len(w.Addrs) == 0 || w.Terminated:
	case w.Kind == policy.KindPod:
		return w.Node
	case w.Kind == policy.KindExternal:
		name, _ := feed.NodeOf(w.Target)
		return name
	}
	return ""
}

func (m *machines) step(id string, s *conformanceStep) {
	m.Helper()
	world, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: bytes.NewReader(s.manifests(m.T))})
	if err != nil {
		m.Fatal(err)
	}
	m.plug(world.Snapshot)
	rulesets, err := agentRulesets(world.Snapshot)
	if err != nil {
		m.Fatal(err)
	}
	for name, x := range m.nodes {
		rs := policy.Ruleset{Target: name}
		if i := slices.IndexFunc(rulesets, func(r policy.Ruleset) bool { node, ok := feed.NodeOf(r.Target); return ok && node == name }); i >= 0 {
			rs = rulesets[i]
		}
		if _, err := x.syncer.Sync(m.Context(), rs); err != nil {
			m.Fatalf("%s step %d: %s: %v", id, s.Step, name, err)
		}
		if err := x.Forget(); err != nil {
			m.Fatal(err)
		}
	}
	m.ask(id, s, world.Snapshot)
}

// plug makes the Pods of the Nodes, and the VMs, those of a world.
func (m *machines) plug(s policy.Snapshot) {
	m.Helper()
	names, at := map[string]bool{}, map[netip.Addr]string{}
	for _, w := range s.Workloads.All() {
		if name := machineOf(w); name != "" {
			names[name], at[w.Addrs[0]] = true, name
		}
	}
	for name, x := range m.nodes {
		// The tables ask what is sent to Pods in any case.
		x.place = nft.Place{Locals: []nft.Local{}, JudgeProbes: true}
		if !names[name] && strings.Contains(name, "/") { // a VM, of which there are others in each table
			m.spare = append(m.spare, x)
			delete(m.nodes, name)
		}
	}
	for addr := range maps.Clone(m.wires) {
		if m.at[addr] != m.nodes[at[addr]] {
			m.unplug(addr)
		}
	}
	for _, w := range s.Workloads.All() {
		name := machineOf(w)
		if name == "" {
			continue
		}
		x, addr := m.machine(name), w.Addrs[0]
		if m.wires[addr] == nil {
			wire, err := m.wire(x, w)
			if err != nil {
				m.Fatal(err)
			}
			m.wires[addr], m.at[addr] = wire, x
			for _, other := range m.lab.Nodes {
				if other != x.Node {
					if err := other.Lead(addr, x.Node); err != nil {
						m.Fatal(err)
					}
				}
			}
		}
		if w.Kind == policy.KindExternal {
			x.place.Locals = append(x.place.Locals, nft.Local{ID: w.ID, Addrs: w.Addrs, Host: true})
		} else if !w.HostNetwork {
			x.place.Locals = append(x.place.Locals, nft.Local{ID: w.ID, Addrs: w.Addrs, Interface: m.wires[addr].Interface})
		}
	}
}

// wire returns one to a Pod, or to the Node that the Pod shares its network with, or to a VM.
func (m *machines) wire(x *machine, w *policy.Workload) (*simlab.Wire, error) {
	if w.HostNetwork || w.Kind == policy.KindExternal {
		return x.Own(w.Addrs[0])
	}
	m.next++
	return x.Plug(fmt.Sprint("isopod", m.next), w.Addrs[0])
}

func (m *machines) unplug(addr netip.Addr) {
	if w := m.wires[addr]; w != nil {
		if err := w.Close(); err != nil {
			m.Error(err)
		}
		if w.Interface == "" {
			if err := m.at[addr].Disown(addr); err != nil {
				m.Error(err)
			}
		}
		delete(m.wires, addr)
		delete(m.at, addr)
	}
}

// quiet is how long there must be no packet until all are taken to have arrived. Those on
// the way between Nodes are queued for some microseconds; on a loaded machine, for more.
const quiet = 20 * time.Millisecond

// ask sends the packets of a step, and those that do not arrive once more.
func (m *machines) ask(id string, s *conformanceStep, world policy.Snapshot) {
	m.Helper()
	flows, want := s.questions()
	questions, err := readFlows("flows", bytes.NewReader(flows))
	if err != nil {
		m.Fatal(err)
	}
	verdicts := make([]simlab.Verdict, len(questions))
	var sent []int
	for i := range questions {
		q := &questions[i]
		for _, end := range []*policy.Endpoint{&q.flow.From, &q.flow.To} {
			if w, ok := world.Workloads.Get(end.Workload); ok && !end.Addr.IsValid() && len(w.Addrs) > 0 {
				end.Addr = w.Addrs[0]
			}
		}
		verdicts[i] = simlab.Drop
		m.asked++
		from, to := m.wires[q.flow.From.Addr], m.wires[q.flow.To.Addr]
		if from == nil || to == nil {
			m.nowhere++
			continue
		}
		if want[i].packet() != 0 {
			sent = append(sent, i)
			if from.Interface == "" || to.Interface == "" {
				m.ofNodes++
			}
		}
	}
	for range 2 {
		m.send(questions, sent, verdicts)
		sent = slices.DeleteFunc(sent, func(i int) bool {
			if verdicts[i] == simlab.Drop && want[i].packet() != 'X' {
				return false // late, or wrong
			}
			m.judged++
			if got := map[simlab.Verdict]byte{simlab.Allow: '.', simlab.Drop: 'X', simlab.Reject: 'R'}[verdicts[i]]; got != want[i].packet() {
				m.Errorf("%s step %d: %s: %s to %s is %c, want %c", id, s.Step, want[i].where, questions[i].ask.From, questions[i].ask.To, got, want[i].packet())
			}
			return true
		})
	}
	for _, i := range sent {
		m.judged++
		m.Errorf("%s step %d: %s: %s to %s is X, want %c", id, s.Step, want[i].where, questions[i].ask.From, questions[i].ask.To, want[i].packet())
	}
}

func (m *machines) send(questions []question, which []int, verdicts []simlab.Verdict) {
	m.Helper()
	wires := slices.Collect(maps.Values(m.wires))
	base := m.next
	receive := func(patience time.Duration) {
		err := simlab.Receive(wires, patience, func(_ *simlab.Wire, b []byte) {
			if n, v, ok := simlab.Number(b); ok && n-base < uint32(len(which)) {
				if i := which[n-base]; verdicts[i] != simlab.Allow { // else it is the answer of a Node that has taken it
					verdicts[i] = v
				}
			}
		})
		if err != nil {
			m.Fatal(err)
		}
	}
	for k, i := range which {
		f := questions[i].flow
		if f.SourcePort == 0 {
			f.SourcePort = uint16(10000 + m.next%20000)
		}
		if err := m.wires[f.From.Addr].Send(simlab.Packet(f, m.next)); err != nil {
			m.Fatalf("%s to %s: %v", f.From.Addr, f.To.Addr, err)
		}
		m.next++
		if k%64 == 63 { // queues are bounded
			receive(0)
		}
	}
	receive(quiet)
}

// packet is what must become of the first packet: 0 where nothing is said of it.
func (e expectation) packet() byte {
	if e.combined == '.' || e.combined == 'X' || e.combined == 'R' {
		return e.combined
	}
	return 0
}
