package vms_test

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"isobar.dev/acceptance/process"
	"isobar.dev/policy"
	simlab "isobar.dev/sim/lab"
)

// BenchmarkVMs measures the agents of ISOBAR_VMS machines, 100 where it is not set, which one server tells, all
// on this machine: what each needs, and how long a change takes from the API server to the first packet.
func BenchmarkVMs(b *testing.B) {
	n := 100
	if text := os.Getenv("ISOBAR_VMS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 3 {
			b.Fatalf("ISOBAR_VMS=%q: want a number from 3 on", text)
		}
	}
	began := time.Now()
	e := newEstate(b, fleet(n))
	e.awaitEntities()
	metrics := map[string]float64{"s/joined": time.Since(began).Seconds() / float64(n)} // those that are reported before the loop are forgotten
	e.apply(clusterPolicies, onlyWeb("db", 5432))
	e.awaitRealized()

	const watched = 30 * time.Second
	agents, server := e.cpu()
	time.Sleep(watched)
	agentsNow, serverNow := e.cpu()
	metrics["idle-mCPU/agent"] = 1000 * (agentsNow - agents).Seconds() / watched.Seconds() / float64(n)
	metrics["idle-mCPU/server"] = 1000 * (serverNow - server).Seconds() / watched.Seconds()
	var memory, unshared []float64
	for _, v := range e.vms {
		memory, unshared = append(memory, e.memory(v.agent, "Rss:")), append(unshared, e.memory(v.agent, "Pss:"))
	}
	slices.Sort(memory)
	slices.Sort(unshared)
	metrics["MiB-RSS/agent"] = memory[n/2]
	metrics["MiB-PSS/agent"] = unshared[n/2]

	var took []time.Duration
	all := []time.Duration{}
	for b.Loop() {
		for i := range 20 {
			port := int64(5432)
			if i%2 == 0 {
				port = 80
			}
			at := time.Now()
			e.apply(clusterPolicies, onlyWeb("db", port))
			took = append(took, e.awaitClosed(e.vms[2], e.vms[1], uint16(port), at))
			e.awaitRealized()
			all = append(all, time.Since(at))
		}
	}
	for name, x := range metrics {
		b.ReportMetric(x, name)
	}
	for name, x := range map[string][]time.Duration{"first-packet": took, "all-realized": all} {
		slices.Sort(x)
		b.ReportMetric(ms(x[len(x)/2]), "p50-ms-"+name)
		b.ReportMetric(ms(x[int(math.Ceil(float64(len(x))*0.99))-1]), "p99-ms-"+name)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// awaitClosed returns how long after a moment a connection was not taken any more.
func (e *estate) awaitClosed(from, to *vm, port uint16, since time.Time) time.Duration {
	e.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		at := time.Now()
		got, err := simlab.Ask(e.t.Context(), []simlab.Probe{{From: from.space, To: to.space, Addr: to.nics[0].addrs[0], Protocol: policy.TCP.String(), Port: port}})
		if err != nil {
			e.t.Fatal(err)
		}
		if got[0] == simlab.Drop { // when it was asked first
			return at.Sub(since)
		}
	}
	e.t.Fatal("the change does not show")
	return 0
}

// cpu is what the agents, and the server with its control plane, have used.
func (e *estate) cpu() (agents, server time.Duration) {
	e.t.Helper()
	for _, v := range e.vms {
		agents += e.used(v.agent.Cmd.Process.Pid)
	}
	return agents, e.used(e.server.Cmd.Process.Pid) + e.usedByChildren(e.server.Cmd.Process.Pid)
}

// used is the processor time of a process so far.
func (e *estate) used(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		e.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := cmp.Or(err1, err2); err != nil {
		e.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // a hundredth of a second, on all that Linux runs on
}

// usedByChildren is that of the processes that it has started and that run.
func (e *estate) usedByChildren(pid int) (sum time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		e.t.Fatal(err)
	}
	for _, child := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(child); err == nil {
			sum += e.used(n)
		}
	}
	return sum
}

// memory is a line of what the kernel says of a process, in MiB.
func (e *estate) memory(p *process.Process, line string) float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", p.Cmd.Process.Pid))
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), line); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				e.t.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	e.t.Fatalf("no %s", line)
	return 0
}
