// Package machines keeps what the agents of VMs say of themselves, and judges it: who is
// connected, who has fallen silent, and whose name two machines use.
//
// It is kept for one term of office: the agents may have said something else since to who
// leads then. They say all of it again within seconds.
package machines

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/leader"
	"isobar.dev/policy"
)

// Options configure what is Told. The zero value is ready to use.
type Options struct {
	// Office says whether agents are heard here: by the leader. nil means always.
	Office *leader.Office
	// Lost is how long after it has last spoken an agent counts as not connected; 0 means
	// 40 seconds. It speaks every 10.
	Lost time.Duration
	// Silent is how long after that moment nobody relies on it any more; 0 means 5 minutes.
	Silent time.Duration
	// Forget is how long after it all that it has said is forgotten; 0 means 24 hours.
	Forget time.Duration
	// Recall is how long agents have, after the start and after a change of leaders, to say
	// again what they have said before; 0 means 45 seconds.
	Recall time.Duration
}

func (o Options) withDefaults() Options {
	o.Lost = cmp.Or(o.Lost, 40*time.Second)
	o.Silent = cmp.Or(o.Silent, 5*time.Minute)
	o.Forget = cmp.Or(o.Forget, 24*time.Hour)
	o.Recall = cmp.Or(o.Recall, 45*time.Second)
	return o
}

// Stance is what can be relied on of an agent.
type Stance uint8

// The stances.
const (
	Unknown   Stance = iota + 1 // it may have spoken to who led before, and has not yet here
	Absent                      // it has said nothing, although it has had time
	Waiting                     // it knows no rules yet
	Enforcing                   // it enforces all that it was told
	Lagging                     // it enforces, and has not told yet that it does so for all that it was told
	Failing                     // it does not enforce all that it was told
	Off                         // it is switched off
	Silent                      // it has not spoken for long
	Doubled                     // two machines speak under its name: nobody knows which of them enforces
)

// Told is what agents have said. Methods may be called by several goroutines.
type Told struct {
	o Options

	mu      sync.Mutex
	term    string    // in which all this was said
	held    bool      // the office, when it was last looked
	began   time.Time // since when agents could speak
	settled bool      // they have had time
	of      map[types.NamespacedName]*machine
	infos   policy.Table[*runtimev1alpha1.VirtualMachineRuntimeInfo]
	at      map[netip.Addr]map[types.NamespacedName]struct{} // who reports an address
	dirty   map[types.NamespacedName]struct{}
	all     bool          // all are dirty
	changed chan struct{} // holds one
}

// machine is one name, under which there should be one machine.
type machine struct {
	info             *runtimev1alpha1.VirtualMachineRuntimeInfo // not changed once made
	heard            time.Time
	isLost, isSilent bool
	isDoubled        bool
	addrs            []netip.Addr
	before           string    // the MachineID before that of info
	swapped          time.Time // when the MachineID last became another
	doubled          time.Time // when it last became again what it was before
}

// New returns what nobody has told anything yet. Call Run.
func New(o Options) *Told {
	t := &Told{o: o.withDefaults(), changed: make(chan struct{}, 1)}
	t.reset()
	return t
}

// reset forgets everything. The caller holds t.mu, or is the only one.
func (t *Told) reset() {
	t.of, t.at = map[types.NamespacedName]*machine{}, map[netip.Addr]map[types.NamespacedName]struct{}{}
	t.infos = policy.Table[*runtimev1alpha1.VirtualMachineRuntimeInfo]{}
	t.dirty, t.all, t.began, t.settled = map[types.NamespacedName]struct{}{}, true, time.Now(), false
}

// begin forgets what was said in another term, and begins to wait anew when the office is
// taken. The caller holds t.mu.
func (t *Told) begin() {
	term, held := t.o.Office.Term(), t.o.Office.IsHeld()
	if term != t.term || held && !t.held {
		t.reset()
		t.tell()
	}
	if t.held && !held {
		t.all = true
		t.tell()
	}
	t.term, t.held = term, held
}

// tell wakes who waits for a change. The caller holds t.mu.
func (t *Told) tell() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run notices who has not spoken for long, until ctx is done.
func (t *Told) Run(ctx context.Context) {
	tick := time.NewTicker(max(min(t.o.Lost, t.o.Silent, t.o.Recall)/20, 10*time.Millisecond))
	defer tick.Stop()
	for {
		changed := t.o.Office.Changed()
		t.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

func (t *Told) look(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	if !t.settled && t.held && now.Sub(t.began) >= t.o.Recall {
		t.settled, t.all = true, true
		t.tell()
	}
	for key, m := range t.of {
		since := now.Sub(m.heard)
		if since >= t.o.Forget {
			t.drop(key)
			continue
		}
		isLost, isSilent, isDoubled := since >= t.o.Lost, since >= t.o.Silent, m.areTwo(now)
		if isLost != m.isLost || isSilent != m.isSilent || isDoubled != m.isDoubled {
			m.isLost, m.isSilent, m.isDoubled = isLost, isSilent, isDoubled
			t.show(key, m, m.info.DeepCopy())
			t.mark(key)
		}
	}
}

// mark has a name looked at. The caller holds t.mu.
func (t *Told) mark(key types.NamespacedName) {
	t.dirty[key] = struct{}{}
	t.tell()
}

// drop forgets a name. The caller holds t.mu.
func (t *Told) drop(key types.NamespacedName) {
	m := t.of[key]
	if m == nil {
		return
	}
	t.setAddrs(key, m, nil)
	delete(t.of, key)
	t.infos = t.infos.Delete(key.String())
	t.mark(key)
}

// Forget forgets the VM of that name: its ExternalNode is gone.
func (t *Told) Forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(key)
}

// Put keeps what an agent says, which has been checked, and returns it as it is shown. After
// an error it has to be said again: the office is not held here, or may not be.
func (t *Told) Put(in *runtimev1alpha1.VirtualMachineRuntimeInfo) (*runtimev1alpha1.VirtualMachineRuntimeInfo, error) {
	out := t.put(in)
	return out, t.o.Office.Check() // afterwards: what was kept until here was kept in time
}

func (t *Told) put(in *runtimev1alpha1.VirtualMachineRuntimeInfo) *runtimev1alpha1.VirtualMachineRuntimeInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	now, key := time.Now(), types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
	next := in.DeepCopy()
	next.Status.HeartbeatTime, next.Status.Conditions = metav1.NewTime(now.Truncate(time.Second)), nil
	m := t.of[key]
	if m == nil {
		m = &machine{}
		t.of[key] = m
		t.mark(key)
	} else {
		next.Status.Conditions = slices.Clone(m.info.Status.Conditions)
		wasDoubled := m.isDoubled
		m.identify(next.Status.MachineID, now)
		m.isDoubled = m.areTwo(now)
		if a, b := m.info.Status, next.Status; a.State != b.State || a.Policies != b.Policies || a.RealizedPolicies != b.RealizedPolicies ||
			a.FailedPolicies != b.FailedPolicies || m.isLost || wasDoubled != m.isDoubled ||
			!slices.EqualFunc(a.Interfaces, b.Interfaces, equalInterface) {
			t.mark(key)
		}
	}
	m.heard, m.isLost, m.isSilent = now, false, false
	t.setAddrs(key, m, addrsOf(next.Status.Interfaces))
	t.show(key, m, next)
	return m.info
}

func equalInterface(a, b runtimev1alpha1.VirtualMachineInterface) bool {
	return a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.IPs, b.IPs)
}

// quarantine is how long one machine alone must speak under a name that two have used.
const quarantine = 10 * time.Minute

// identify notes whether another machine speaks than the last time. One that is replaced
// has another ID once; two that speak in turns go back and forth.
func (m *machine) identify(id string, now time.Time) {
	was := m.info.Status.MachineID
	if id == was || id == "" || was == "" {
		return
	}
	if id == m.before && now.Sub(m.swapped) < quarantine {
		m.doubled = now
	}
	m.before, m.swapped = was, now
}

// areTwo says whether two machines have taken turns lately.
func (m *machine) areTwo(now time.Time) bool {
	return !m.doubled.IsZero() && now.Sub(m.swapped) < quarantine
}

// show has next shown for a name. The caller holds t.mu.
func (t *Told) show(key types.NamespacedName, m *machine, next *runtimev1alpha1.VirtualMachineRuntimeInfo) {
	connected := metav1.Condition{Type: runtimev1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: "Connected", Message: "the agent speaks"}
	if m.isLost {
		connected.Status, connected.Reason = metav1.ConditionFalse, "Silent"
		connected.Message = fmt.Sprintf("the agent has said nothing since %s", m.heard.UTC().Format(time.RFC3339))
	}
	one := metav1.Condition{Type: runtimev1alpha1.ConditionOneMachine, Status: metav1.ConditionTrue, Reason: "OneMachine", Message: "one machine has this name"}
	if m.isDoubled {
		one.Status, one.Reason = metav1.ConditionFalse, "Cloned"
		one.Message = "two machines take turns under this name: one is a clone of the other, and must join under a name of its own"
	}
	meta.SetStatusCondition(&next.Status.Conditions, connected)
	meta.SetStatusCondition(&next.Status.Conditions, one)
	m.info = next
	t.infos = t.infos.Put(key.String(), next)
}

// SetCondition adds what the server thinks of a name that has spoken.
func (t *Told) SetCondition(key types.NamespacedName, c metav1.Condition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.of[key]
	if m == nil {
		return
	}
	next := m.info.DeepCopy()
	if meta.SetStatusCondition(&next.Status.Conditions, c) {
		m.info = next
		t.infos = t.infos.Put(key.String(), next)
	}
}

// addrsOf returns the addresses of interfaces, sorted, each once. Those that mean another
// machine on each link are none.
func addrsOf(in []runtimev1alpha1.VirtualMachineInterface) []netip.Addr {
	var out []netip.Addr
	for _, n := range in {
		out = append(out, AddrsOf(n)...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// AddrsOf returns by which addresses an interface is known to others: not loopback, link-local
// and multicast ones, which are the same on many machines.
func AddrsOf(n runtimev1alpha1.VirtualMachineInterface) []netip.Addr {
	var out []netip.Addr
	for _, text := range n.IPs {
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err == nil && a.Zone() == "" && a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	return out
}

// setAddrs notes who reports which address, and has those looked at that share one which has
// come or gone. The caller holds t.mu.
func (t *Told) setAddrs(key types.NamespacedName, m *machine, next []netip.Addr) {
	if slices.Equal(m.addrs, next) {
		return
	}
	touch := func(a netip.Addr) {
		for other := range t.at[a] {
			t.mark(other)
		}
	}
	for _, a := range m.addrs {
		if !slices.Contains(next, a) {
			if delete(t.at[a], key); len(t.at[a]) == 0 {
				delete(t.at, a)
			}
			touch(a)
		}
	}
	for _, a := range next {
		if !slices.Contains(m.addrs, a) {
			touch(a)
			if t.at[a] == nil {
				t.at[a] = map[types.NamespacedName]struct{}{}
			}
			t.at[a][key] = struct{}{}
		}
	}
	m.addrs = next
}

// Reporters returns whose agents report an address, sorted.
func (t *Told) Reporters(a netip.Addr) []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Keys(t.at[a]), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
}

// Get returns what the agent of that name has last said in this term.
func (t *Told) Get(key types.NamespacedName) (*runtimev1alpha1.VirtualMachineRuntimeInfo, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	if m := t.of[key]; m != nil {
		return m.info, true
	}
	return nil, false
}

// Stance returns what can be relied on of the agent of that name. isFresh says that it is
// connected.
func (t *Told) Stance(key types.NamespacedName) (s Stance, isFresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	m := t.of[key]
	switch {
	case !t.held || m == nil && !t.settled:
		return Unknown, false
	case m == nil:
		return Absent, false
	case m.isSilent:
		return Silent, false
	case m.isDoubled:
		return Doubled, !m.isLost
	}
	s = Failing // what is no state is none that anybody relies on
	switch st := m.info.Status; st.State {
	case runtimev1alpha1.AgentOff:
		s = Off
	case runtimev1alpha1.AgentWaiting:
		s = Waiting
	case runtimev1alpha1.AgentEnforcing:
		if st.FailedPolicies == 0 && st.RealizedPolicies >= st.Policies {
			s = Enforcing
		} else if st.FailedPolicies == 0 {
			s = Lagging
		}
	}
	return s, !m.isLost
}

// Infos returns what all agents have said in this term, by "namespace/name". What has not
// changed since the last call is the same pointer.
func (t *Told) Infos() policy.Table[*runtimev1alpha1.VirtualMachineRuntimeInfo] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	return t.infos
}

// IsSettled says whether agents have had time to say again what they have said to others.
func (t *Told) IsSettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	return t.held && t.settled
}

// HasForgotten says whether all that may have been said before this term is too old to count.
func (t *Told) HasForgotten() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	return t.held && time.Since(t.began) >= t.o.Forget
}

// Changed receives after something has changed that matters to others than who reads it. It
// holds one.
func (t *Told) Changed() <-chan struct{} { return t.changed }

// Dirty returns the names of which something has changed since the last call, sorted; all
// says that it may have for any.
func (t *Told) Dirty() (keys []types.NamespacedName, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	keys = slices.SortedFunc(maps.Keys(t.dirty), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	all, t.all = t.all, false
	clear(t.dirty)
	return keys, all
}
