package acceptance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"isobar.dev/control/controller"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// reach compares who reaches whom now with a matrix such as
//
//	FROM \ TO     db:5432  db:udp/53  web:icmp/8/0  198.51.100.77:443
//	web           .        X          .             .
//	198.51.100.7  X        X          -             ?
//
// in which rows and columns are VMs by their Name ("web#1" is the second interface) or
// addresses, a port alone is of TCP, and a verdict is . for allowed, X for denied by
// groups, - for unreachable, and ? for a flow that makes no sense.
func (w *world) reach(matrix string) error {
	w.t.Helper()
	want := fields(matrix)
	got := w.matrix(want)
	wrong := 0
	for i, row := range got {
		for j, cell := range row {
			if cell != want[i][j] {
				got[i][j] = cell + " not " + want[i][j]
				wrong++
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d verdicts are wrong:\n%s", wrong, aligned(got))
	}
	return nil
}

// eventuallyReach waits until who reaches whom is as in a matrix.
func (w *world) eventuallyReach(matrix string) {
	w.t.Helper()
	w.eventually("reach", func() error { return w.reach(matrix) })
}

// mustReach fails the test when who reaches whom is not as in a matrix now.
func (w *world) mustReach(matrix string) {
	w.t.Helper()
	if err := w.reach(matrix); err != nil {
		w.t.Fatal(err)
	}
}

func fields(matrix string) [][]string {
	var out [][]string
	for line := range strings.Lines(matrix) {
		f := strings.Fields(strings.Replace(line, `FROM \ TO`, "FROM", 1))
		if len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// matrix is a matrix with the cells of now.
func (w *world) matrix(want [][]string) [][]string {
	w.t.Helper()
	columns := want[0][1:]
	for _, row := range want {
		if len(row) != len(want[0]) {
			w.t.Fatalf("a row has %d cells, its header %d: %q", len(row)-1, len(columns), row)
		}
	}
	var flows []sim.Flow
	for _, row := range want[1:] {
		for _, c := range columns {
			flows = append(flows, w.flow(row[0], c))
		}
	}
	verdicts := w.verdicts(flows)
	out := [][]string{want[0]}
	for i, row := range want[1:] {
		cells := []string{row[0]}
		for _, v := range verdicts[i*len(columns) : (i+1)*len(columns)] {
			cells = append(cells, map[sim.Result]string{sim.Allowed: ".", sim.Denied: "X", sim.Unreachable: "-", sim.Invalid: "?"}[v])
		}
		out = append(out, cells)
	}
	return out
}

func aligned(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	t.Flush()
	return b.String()
}

// flow is one cell: from a row's name to a column's "name:port", "name:udp/port" or
// "name:icmp/type/code".
func (w *world) flow(from, to string) sim.Flow {
	w.t.Helper()
	at := strings.LastIndex(to, ":")
	if at < 0 {
		w.t.Fatalf("column %q: want name:port", to)
	}
	f := sim.Flow{From: w.id(from), To: w.id(to[:at]), Protocol: "tcp"}
	parts := strings.Split(to[at+1:], "/")
	if len(parts) > 1 {
		f.Protocol, parts = parts[0], parts[1:]
	}
	var numbers [2]int
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || i >= len(numbers) {
			w.t.Fatalf("column %q: want a port, or ICMP's type and code", to)
		}
		numbers[i] = n
	}
	if strings.HasPrefix(f.Protocol, "icmp") {
		f.ICMPType, f.ICMPCode = numbers[0], numbers[1]
	} else {
		f.Port = numbers[0]
	}
	return f
}

// id is the cloud's name of a VM or network, or the address that is given.
func (w *world) id(name string) string { return cmp.Or(w.names[name], w.nets[name], name) }

// object is what the objects of a VM or network are called.
func (w *world) object(name string) string { return w.cloud.object(w.id(name)) }

// objectsOf is what the objects of VMs are called, sorted.
func (w *world) objectsOf(vms ...string) []string {
	var out []string
	for _, m := range vms {
		out = append(out, w.object(m))
	}
	slices.Sort(out)
	return out
}

// calls returns how often each action was called since the start or the last ResetCalls.
func (w *world) calls() map[string]int { return w.cloud.calls() }

// mustNotWrite fails the test when a call that changes the cloud was made since the last
// ResetCalls.
func (w *world) mustNotWrite() {
	w.t.Helper()
	if all := w.written(); len(all) > 0 {
		w.t.Fatalf("%d writes; want none. The first: %s", len(all), all[0])
	}
}

// verdicts asks who reaches whom.
func (w *world) verdicts(flows []sim.Flow) []sim.Result { return w.cloud.verdicts(flows) }

// written tells of the calls that changed the cloud, or tried to, since the last ResetCalls.
func (w *world) written() []string { return w.cloud.written() }

// fault sets a fault of the cloud.
func (w *world) fault(f sim.Fault) {
	w.t.Helper()
	if _, err := w.sim.AddFault(f); err != nil {
		w.t.Fatal(err)
	}
}

// attached returns the groups of every interface, with its tags: what has to be as before in
// the end.
func (w *world) attached() map[string]string { return w.cloud.attached() }

// ours returns the names of groups that somebody with our mark has made.
func (w *world) ours() []string { return w.cloud.ours() }

// edit changes a VM in the cloud, as others do who have it.
func (w *world) edit(name string, f func(*labels)) {
	w.t.Helper()
	if err := w.cloud.edit(w.id(name), f); err != nil {
		w.t.Fatal(err)
	}
}

// securityGroups returns every group of AWS.
func (w *world) securityGroups() []*sim.Group { return awsCloud{w.sim}.groups() }

// settle waits until the cloud has settled: everything that the API server has is in what
// was compiled, every target is as it should be, and neither did the state change nor
// was a write tried while each target was read anew twice and each region listed twice.
func (w *world) settle() {
	w.t.Helper()
	var s stillness
	w.eventually("settled", func() error { return s.look(w) })
}

// stillness is since when nothing has happened.
type stillness struct {
	print  string
	synced map[string]time.Time // the last sync of each target
	rounds map[string]int       // syncs since
	polls  uint64
}

func (s *stillness) look(w *world) error {
	if w.run == nil {
		return fmt.Errorf("no controller runs")
	}
	state, err := json.Marshal(w.cloud.state())
	if err != nil {
		return err
	}
	h := fnv.New64a()
	h.Write(state)
	print := fmt.Sprint(h.Sum64(), len(w.written()))
	targets, stats := w.run.Targets(), w.run.Stats()
	err = unsynced(targets)
	if err == nil && s.print == print && s.done(targets, stats.Polls) {
		if err = w.behind(); err == nil {
			return nil
		}
	}
	if err != nil || s.print != print {
		*s = stillness{print: print, synced: map[string]time.Time{}, rounds: map[string]int{}, polls: stats.Polls}
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("not still for two rounds: %v", s.rounds)
}

func unsynced(targets []controller.TargetStatus) error {
	for _, t := range targets {
		if !t.Synced {
			return fmt.Errorf("target %s: held %t, error %q", t.Name, t.Held, t.Err)
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("no targets yet")
	}
	return nil
}

func (s *stillness) done(targets []controller.TargetStatus, polls uint64) bool {
	still := true
	for _, t := range targets {
		if !t.LastGood.Equal(s.synced[t.Name]) {
			s.synced[t.Name] = t.LastGood
			s.rounds[t.Name]++
		}
		still = still && s.rounds[t.Name] > 2 // the first was seen, not made
	}
	// Accounts have the regions of networks, so there are no more regions than targets.
	return still && polls >= s.polls+2*uint64(len(targets))
}

// behind says what the API server has that was not compiled yet.
func (w *world) behind() error {
	compiled := w.run.World()
	for _, ns := range w.o.Namespaces {
		l, err := w.client.Resource(entities).Namespace(ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range l.Items {
			x, ok := compiled.Workloads.Get(policy.WorkloadID(policy.KindExternal, ns, o.GetName()))
			if !ok {
				return fmt.Errorf("the entity %s/%s is not compiled", ns, o.GetName())
			}
			for key, value := range o.GetLabels() {
				if have, ok := x.Labels.Value(key); !ok || have != value {
					return fmt.Errorf("the label %s=%s of the entity %s/%s is not compiled", key, value, ns, o.GetName())
				}
			}
		}
	}
	for _, k := range []struct {
		resource schema.GroupVersionResource
		dialect  policy.Dialect
	}{
		{policies, policy.AntreaNetworkPolicy},
		{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, policy.KubernetesNetworkPolicy},
	} {
		for _, ns := range w.o.Namespaces {
			l, err := w.client.Resource(k.resource).Namespace(ns).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			written := map[string]bool{}
			for _, o := range l.Items {
				id := policy.PolicyID(k.dialect, ns, o.GetName())
				written[id] = true
				if p, ok := compiled.Policies.Get(id); !ok || p.Generation != o.GetGeneration() || p.UID != string(o.GetUID()) {
					return fmt.Errorf("%s is not compiled in generation %d", id, o.GetGeneration())
				}
			}
			for id, p := range compiled.Policies.All() {
				if p.Dialect == k.dialect && p.Namespace == ns && !written[id] {
					return fmt.Errorf("%s is deleted and still compiled", id)
				}
			}
		}
	}
	return nil
}

// flows are all pairs of VMs and what is outside, with each "port", "udp/port" or
// "icmp/type/code".
func (w *world) flows(ports ...string) []sim.Flow {
	w.t.Helper()
	ends := append(slices.Sorted(maps.Keys(w.names)), outside)
	var out []sim.Flow
	for _, from := range ends {
		for _, to := range ends {
			for _, p := range ports {
				if from != to {
					out = append(out, w.flow(from, to+":"+p))
				}
			}
		}
	}
	return out
}

// vmPolicies is nil when policiesOn is as wanted.
func (w *world) vmPolicies(want map[string]string) error {
	if got := w.policiesOn(); !maps.Equal(got, want) {
		return fmt.Errorf("%v; want %v", got, want)
	}
	return nil
}

// noFaults is nil when no fault is left.
func (w *world) noFaults() error {
	if left := w.sim.Faults(); len(left) > 0 {
		return fmt.Errorf("left: %+v", left)
	}
	return nil
}
