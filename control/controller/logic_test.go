package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// These tests are of what has no exported form: the pure parts and the clocks.

var acct = types.NamespacedName{Namespace: "ns", Name: "acct"}

func machine(id, name, network string) cloud.VM {
	return cloud.VM{ID: id, Name: name, Region: "r", NetworkID: network, NetworkName: "Net " + network}
}

func ids(vms map[string]cloud.VM) string { return fmt.Sprint(slices.Sorted(maps.Keys(vms))) }

func TestViewAfterARead(t *testing.T) {
	broken := cloud.VMs{Err: errors.New("500")}
	a, b, c := machine("a", "web", "n1"), machine("b", "db", "n1"), machine("c", "web", "n2")
	all, n1 := cloud.Match{}, cloud.Match{NetworkID: "N1"}
	web := cloud.Match{VMs: []cloud.VMMatch{{Name: "web"}}}
	answer := func(vms ...cloud.VM) cloud.VMs { return cloud.VMs{VMs: vms} }
	known := regionView{}.with(nil, nil, []cloud.Match{all}, []cloud.VMs{answer(a, b, c)})
	for _, tt := range []struct {
		why     string
		matches []cloud.Match
		answers []cloud.VMs
		want    string
	}{
		{"a good answer is the truth", []cloud.Match{all}, []cloud.VMs{answer(a)}, "[a]"},
		{"a bad one says nothing", []cloud.Match{all}, []cloud.VMs{broken}, "[a b c]"},
		{"an answer that is missing says nothing", []cloud.Match{all}, nil, "[a b c]"},
		{"a match that was never read keeps what it would pick", []cloud.Match{n1}, []cloud.VMs{broken}, "[a b]"},
		{"so does one by name", []cloud.Match{web}, []cloud.VMs{broken}, "[a c]"},
		{"what a good answer should have told of is gone", []cloud.Match{all, n1}, []cloud.VMs{answer(a), broken}, "[a]"},
		{"no match, no VM", nil, nil, "[]"},
	} {
		once := known.with(nil, nil, tt.matches, tt.answers)
		if got := ids(once.with(nil, nil, tt.matches, tt.answers).vms); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
	once := known.with(nil, nil, []cloud.Match{all}, []cloud.VMs{answer(a)})
	if got := ids(once.vms); got != "[a b c]" {
		t.Errorf("after one answer without them: %s, want all", got)
	}
	if got := once.with(nil, nil, []cloud.Match{all}, []cloud.VMs{answer(a, b, c)}); len(got.doubted) != 0 || ids(got.vms) != "[a b c]" {
		t.Errorf("when they are back: %s, in doubt %v", ids(got.vms), got.doubted)
	}
	// One that starts again stays, and one that starts for the first time waits.
	b.Starting = true
	d := b
	d.ID = "d"
	starts := known.with(nil, nil, []cloud.Match{all}, []cloud.VMs{answer(a, b, c, d)})
	if got := ids(starts.vms); got != "[a b c]" || len(starts.doubted) != 0 {
		t.Errorf("while b starts again and d for the first time: %s, in doubt %v", got, starts.doubted)
	}
	if v := known.with(nil, errors.New("500"), nil, nil); !v.networksRead || v.networksErr == nil {
		t.Errorf("after an error: networks read %t, error %v", v.networksRead, v.networksErr)
	}
}

func TestViewKnows(t *testing.T) {
	n1, n2 := cloud.Match{NetworkID: "n1"}, cloud.Match{NetworkName: "Net n2"}
	v := regionView{}.with([]cloud.Network{{ID: "n1"}, {ID: "n2"}}, nil, []cloud.Match{n1, n2}, []cloud.VMs{{}, {Err: errors.New("500")}})
	for _, tt := range []struct {
		network cloud.Network
		want    bool
	}{
		{cloud.Network{ID: "n1", Name: "Net n1"}, true},
		{cloud.Network{ID: "n2", Name: "net N2"}, false},
	} {
		if got := v.knows(tt.network, []cloud.Match{n1, n2}); got != tt.want {
			t.Errorf("knows(%v) = %t", tt.network, got)
		}
	}
	if v.knows(cloud.Network{ID: "n1"}, []cloud.Match{n1, {}}) {
		t.Error("a match of everything that was not read may tell of any network")
	}
	if (regionView{}).knows(cloud.Network{ID: "n1"}, nil) {
		t.Error("nothing is known before networks are read")
	}
}

// A network has one Target, by whichever of its names that is called.
func TestTargetNames(t *testing.T) {
	for _, tt := range []struct{ id, ref, want string }{
		{"vpc-1", "", "aws/ns/acct/r/vpc-1"},
		{"/subscriptions/s/g/vnet", "g:vnet/s", "aws/ns/acct/r/g:vnet/s"},
	} {
		a := &account{key: acct, provider: "aws"}
		i := &imported{account: acct, provider: "aws", vm: cloud.VM{Region: "r", NetworkID: tt.id, NetworkRef: tt.ref}}
		if got, vms := a.targetOf("r", cloud.Network{ID: tt.id, Ref: tt.ref}), i.target(); got != tt.want || vms != tt.want {
			t.Errorf("the target of %s is %s, that of its VMs %s; want %s", tt.id, got, vms, tt.want)
		}
	}
}

func TestAssign(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	named := func(name string, created int, entries ...entry) selector {
		return selector{key: types.NamespacedName{Namespace: "ns-" + name, Name: name}, created: at(created), entries: entries}
	}
	byID := entry{match: cloud.Match{VMs: []cloud.VMMatch{{ID: "a"}}}, isolation: policy.IsolateNone}
	byNet := entry{match: cloud.Match{NetworkID: "n1"}, isolation: policy.IsolateBoth}
	any := entry{isolation: policy.IsolateDirection}
	views := map[string]regionView{"r": {vms: map[string]cloud.VM{"a": machine("a", "web", "n1"), "b": machine("b", "db", "n1"), "c": machine("c", "x", "n2")}}}

	got := assign(nil, origin{account: acct, provider: "aws"}, views, []selector{named("young", 9, any), named("old", 1, byNet, byID)})
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(got.vms)) {
		i := got.vms[id]
		lines = append(lines, fmt.Sprintf("%s by %s, isolation %d, target %s", id, i.selector.Name, i.isolation, i.target()))
	}
	want := []string{
		"ee/ns-old/virtualmachine-a by old, isolation 1, target aws/ns/acct/r/n1",
		"ee/ns-old/virtualmachine-b by old, isolation 3, target aws/ns/acct/r/n1",
		"ee/ns-young/virtualmachine-c by young, isolation 2, target aws/ns/acct/r/n2",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Error(d)
	}
	if n := len(got.overlaps[types.NamespacedName{Namespace: "ns-young", Name: "young"}]); n != 2 {
		t.Errorf("%d overlaps; want 2", n)
	}
	again := assign(got.vms, origin{account: acct, provider: "aws"}, views, []selector{named("old", 1, byNet, byID), named("young", 9, any)})
	for id, i := range again.vms {
		if i != got.vms[id] {
			t.Errorf("%s is not the same when nothing has changed", id)
		}
	}
}

// What a Match that was never read would pick, and which of several entries counts.
func TestPicks(t *testing.T) {
	vm := machine("a", "web", "n1")
	vm.Tags = map[string]string{"Role": "db", "Empty": ""}
	vm.Interfaces = []cloud.Interface{{ID: "e1", Subnet: "s-1"}, {ID: "e2", Subnet: "s-2"}}
	type tags = map[string]string
	byID := []cloud.VMMatch{{ID: "a"}}
	for _, tt := range []struct {
		match cloud.Match
		want  bool
	}{
		{cloud.Match{}, true},
		{cloud.Match{Tags: tags{"Role": "db", "Empty": ""}}, true},
		{cloud.Match{Tags: tags{"Role": "db", "Other": ""}}, false},
		{cloud.Match{Tags: tags{"Role": "DB"}}, false},
		{cloud.Match{Subnets: []string{"s-9", "S-2"}}, true},
		{cloud.Match{Subnets: []string{"s-9"}}, false},
		{cloud.Match{Subnets: []string{"s-1"}, Tags: tags{"Role": "db"}, VMs: byID, NetworkID: "N1"}, true},
		{cloud.Match{Subnets: []string{"s-1"}, Tags: tags{"Role": "db"}, VMs: byID, NetworkID: "n2"}, false},
		{cloud.Match{Tags: tags{"Role": "web"}, VMs: byID}, false},
	} {
		if got := picks(tt.match, vm); got != tt.want {
			t.Errorf("picks(%+v) = %t", tt.match, got)
		}
	}
	all, network := entry{}, entry{match: cloud.Match{NetworkID: "n1"}}
	tagged := entry{match: cloud.Match{Tags: tags{"Role": "db"}}}
	both := entry{match: cloud.Match{NetworkID: "n1", Subnets: []string{"s-1"}}}
	named := entry{match: cloud.Match{VMs: []cloud.VMMatch{{Name: "web"}}}}
	id := entry{match: cloud.Match{VMs: byID}}
	order := []entry{all, network, tagged, both, named, id}
	for i := 1; i < len(order); i++ {
		for _, entries := range [][]entry{order[:i+1], {order[i], order[i-1]}} {
			if got, ok := (selector{entries: entries}).entryOf(regionView{}, vm); !ok || matchKey(got.match) != matchKey(order[i].match) {
				t.Errorf("of %+v counts %+v; want %+v", entries, got.match, order[i].match)
			}
		}
	}
}

func TestReadEntry(t *testing.T) {
	id, name := cloudv1alpha1.EntityMatch{MatchID: "x"}, cloudv1alpha1.EntityMatch{MatchName: "x"}
	for _, tt := range []struct {
		in cloudv1alpha1.VirtualMachineSelector
		ok bool
	}{
		{cloudv1alpha1.VirtualMachineSelector{VpcMatch: &cloudv1alpha1.EntityMatch{}}, true}, // everything
		{cloudv1alpha1.VirtualMachineSelector{VpcMatch: &id, VMMatch: []cloudv1alpha1.EntityMatch{id, name}}, true},
		{cloudv1alpha1.VirtualMachineSelector{}, false},
		{cloudv1alpha1.VirtualMachineSelector{VMMatch: []cloudv1alpha1.EntityMatch{{}}}, false},
		{cloudv1alpha1.VirtualMachineSelector{VMMatch: []cloudv1alpha1.EntityMatch{{MatchID: "x", MatchName: "y"}}}, false},
		{cloudv1alpha1.VirtualMachineSelector{VpcMatch: &cloudv1alpha1.EntityMatch{MatchID: "x", MatchName: "y"}}, false},
		{cloudv1alpha1.VirtualMachineSelector{VpcMatch: &id, Isolation: "Sometimes"}, false},
		{cloudv1alpha1.VirtualMachineSelector{Tags: map[string]string{"a": ""}, Subnets: []string{"s"}}, true},
		{cloudv1alpha1.VirtualMachineSelector{Tags: map[string]string{"": "a"}}, false},
		{cloudv1alpha1.VirtualMachineSelector{Subnets: []string{""}}, false},
	} {
		if _, err := readEntry(tt.in); (err == nil) != tt.ok {
			t.Errorf("readEntry(%+v) = %v; want ok %t", tt.in, err, tt.ok)
		}
	}
}

func TestEntityOf(t *testing.T) {
	vm := cloud.VM{
		ID: "i-0A", Name: "Web-1", Region: "eu-west-1", NetworkID: "vpc-0B", NetworkName: "prod vpc",
		Tags: map[string]string{"Name": "Web-1", "a": "1", "x": "", "aws:y": "z", "k8s.io/x": "y", "Bad": "two words"},
		Interfaces: []cloud.Interface{
			{ID: "eni-1", Private: []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::1")}, Public: []netip.Addr{netip.MustParseAddr("::ffff:203.0.113.1")}},
			{ID: "eni-2", Private: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.9")}},
		},
	}
	i := &imported{account: acct, provider: "aws", selector: types.NamespacedName{Namespace: "team", Name: "s"}, vm: vm}
	got := entityOf(i)
	want := map[string]string{
		"nephe.antrea.io/kind": "virtualmachine", "nephe.antrea.io/namespace": "team", "nephe.antrea.io/owner-vm": "i-0a",
		"nephe.antrea.io/owner-vm-vpc": "vpc-0B", "nephe.antrea.io/cloud-region": "eu-west-1", "nephe.antrea.io/cloud-vpc-uid": "vpc-0b",
		"nephe.antrea.io/cloud-vm-uid": "i-0a", "nephe.antrea.io/cloud-vm-name": "web-1",
		"nephe.antrea.io/tag-Name": "Web-1", "nephe.antrea.io/tag-a": "1", "nephe.antrea.io/tag-x": "",
	}
	if d := cmp.Diff(want, got.labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"10.0.0.2", "10.0.0.9", "203.0.113.1", "fd00::1"}, got.endpoints); d != "" {
		t.Error(d)
	}
	if got := i.key().String(); got != "team/virtualmachine-i-0a" {
		t.Errorf("key %s", got)
	}
}

func FuzzEntityOf(f *testing.F) {
	f.Add("Name", "web 1", "vpc name", "i-1")
	f.Fuzz(func(t *testing.T, key, value, network, id string) {
		e := entityOf(&imported{selector: acct, vm: cloud.VM{ID: id, NetworkID: network, NetworkName: network, Tags: map[string]string{key: value}}})
		for k, v := range e.labels {
			if faults := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(faults) > 0 {
				t.Errorf("label %q=%q is not valid: %v", k, v, faults)
			}
		}
		if _, err := e.document(acct, ""); err != nil {
			t.Error(err)
		}
	})
}

// FuzzManagedLabels: whatever stands in managedFields, reading it does not end the process.
func FuzzManagedLabels(f *testing.F) {
	f.Add([]byte(`{"f:metadata":{"f:labels":{".":{},"f:nephe.antrea.io/tag-Role":{}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		managedLabels(metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(string(raw))})
	})
}

func TestReadEntity(t *testing.T) {
	const role, team = "nephe.antrea.io/tag-Role", "nephe.antrea.io/tag-Team"
	fields := func(labels ...string) *metav1.FieldsV1 {
		text := `{"f:metadata":{"f:labels":{".":{}`
		for _, l := range labels {
			text += fmt.Sprintf(",%q:{}", "f:"+l)
		}
		return metav1.NewFieldsV1(text + `}}}`)
	}
	have := readEntity(&antreav1alpha2.ExternalEntity{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{role: "db", team: "a", "mine": "x"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "isobar", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields(team)},
			{Manager: "kubectl-label", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: fields(role, "mine")},
		},
	}})
	want := entity{labels: map[string]string{role: "web", team: "a"}}
	if d := cmp.Diff(map[string]string{team: "a"}, want.yielding(have).labels); d != "" {
		t.Errorf("what is applied: %s", d)
	}
	if !want.yielding(have).isMet(have) {
		t.Error("a tag of somebody else's is a reason to write")
	}
	if more := (entity{labels: map[string]string{role: "web"}}); more.yielding(have).isMet(have) {
		t.Error("a tag of ours that is to go is no reason to write")
	}
}

func TestErrText(t *testing.T) {
	a := errText(errors.Join(fmt.Errorf("api error, RequestID: 0f-1, code X"), errors.New("b\n c")))
	b := errText(errors.Join(fmt.Errorf("api error, RequestID: 77-2, code X"), errors.New("b\n c")))
	if a != b || a != "api error, code X; b; c" {
		t.Errorf("%q and %q", a, b)
	}
	scrub := scrubber([]byte(`{"accessKeyId":"AKIAOPEN0","accessKeySecret":"very-secret"}`))
	if got := scrub("key AKIAOPEN0 with very-secret"); got != "key AKIAOPEN0 with [secret]" {
		t.Error(got)
	}
	if got := scrubber([]byte("not json"))("text"); got != "text" {
		t.Error(got)
	}
}

// An ExternalEntity that goes while its VM is there changes nothing; one without
// a VM has no target.
func TestLaid(t *testing.T) {
	vm := &imported{account: acct, provider: "aws", selector: acct, vm: machine("a", "web", "n1"), isolation: policy.IsolateBoth}
	from := &policy.Workload{ID: "ee/ns/virtualmachine-a", Kind: policy.KindExternal, Labels: policy.Labels{{Key: "k", Value: "v"}}}
	have := laid(nil, from, vm)
	if have.Target != "aws/ns/acct/r/n1" || have.Network != "n1" || have.Isolation != policy.IsolateBoth || from.Target != "" {
		t.Errorf("laid = %+v", have)
	}
	if got := laid(have, nil, vm); cmp.Diff(have, got) != "" {
		t.Errorf("without its ExternalEntity: %+v", got)
	}
	if got := laid(have, from, nil); got != from {
		t.Errorf("without its VM: %+v", got)
	}
	if got := laid(have, nil, nil); got != nil {
		t.Errorf("without both: %+v", got)
	}
	role, _ := laid(nil, nil, vm).Labels.Value("nephe.antrea.io/owner-vm")
	if got := laid(nil, nil, vm); got.ID != "ee/ns/virtualmachine-a" || got.Target != have.Target || role != "a" || !slices.Equal(have.Addrs, got.Addrs) {
		t.Errorf("before its ExternalEntity: %+v", got)
	}
}

// A VM whose ExternalEntity was never there follows its tags; one whose entity
// was deleted stays what it was.
func TestOverlayWithoutEntity(t *testing.T) {
	tagged := func(role string) policy.Table[*imported] {
		m := machine("a", "web", "n1")
		m.Tags = map[string]string{"Role": role}
		i := &imported{account: acct, provider: "aws", selector: acct, vm: m, isolation: policy.IsolateBoth}
		return policy.Table[*imported]{}.Put("ee/ns/virtualmachine-a", i)
	}
	w := &world{}
	w.init(engine{}, func(*imported) map[string]string { return nil })
	check := func(why, want string, source policy.Table[*policy.Workload], imports policy.Table[*imported]) {
		t.Helper()
		w.now.Workloads, _ = w.overlay(source, imports)
		got := ""
		if x, ok := w.now.Workloads.Get("ee/ns/virtualmachine-a"); ok {
			got, _ = x.Labels.Value("nephe.antrea.io/tag-Role")
		}
		if got != want {
			t.Errorf("%s: role %q, want %q", why, got, want)
		}
	}
	none := policy.Table[*policy.Workload]{}
	entity := none.Put("ee/ns/virtualmachine-a", &policy.Workload{
		ID: "ee/ns/virtualmachine-a", Kind: policy.KindExternal, Labels: policy.LabelsOf(map[string]string{"nephe.antrea.io/tag-Role": "user"}),
	})
	check("new", "web", none, tagged("web"))
	check("retagged before it has an entity", "db", none, tagged("db"))
	check("its entity comes", "user", entity, tagged("db"))
	check("and is deleted", "user", none, tagged("db"))
	check("retagged meanwhile", "user", none, tagged("web"))
	check("the VM goes", "", none, policy.Table[*imported]{})
	check("and comes back", "web", none, tagged("web"))
}

// stub is an Enforcer that says when it was called.
type stub struct {
	takes time.Duration

	mu      sync.Mutex
	start   time.Time
	calls   []string
	forgets int
	err     error
}

func (s *stub) Preview(context.Context, policy.Ruleset) (plan.Report, error) {
	return plan.Report{}, nil
}

func (s *stub) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets++
}

func (s *stub) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%v %d rules", time.Since(s.start).Round(time.Second), len(rs.Rules)))
	err, takes := s.err, s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return plan.Report{}, ctx.Err()
	}
	return plan.Report{Target: rs.Target}, err
}

// seen returns the calls and the reads anew since the last reset.
func (s *stub) seen() ([]string, int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls), s.forgets
}

// reset forgets the calls, and sets what those to come return.
func (s *stub) reset(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.calls, s.forgets, s.err = time.Now(), nil, 0, err
}

func rulesOf(n int) policy.Ruleset {
	return policy.Ruleset{Target: "t", Rules: make([]policy.TargetRule, n)}
}

// newLoop returns what runs loops of targets, of which it enforces on none.
func newLoop() *syncer {
	return &syncer{
		every: 5 * time.Minute, timeout: time.Minute, slots: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), stats: &counters{},
		mayWrite: func(*target) bool { return true }, siblings: func(*target) []*target { return nil },
		scrubbed: func(_ *target, err error) error { return err }, changed: func(*target, map[string]struct{}) {},
	}
}

// loopOf runs the loop of a target in a bubble.
func loopOf(t *testing.T, s *stub) *target {
	ctx, cancel := context.WithCancel(t.Context())
	l := &target{name: "t", wake: make(chan struct{}, 1), done: make(chan struct{})}
	loop := newLoop()
	loop.enforcer = func(*target) (cloud.Enforcer, error) { return s, nil }
	go loop.run(ctx, l)
	t.Cleanup(func() { cancel(); <-l.done })
	return l
}

func TestTargetLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		l := loopOf(t, s)
		time.Sleep(time.Hour)
		if calls, _ := s.seen(); len(calls) != 0 {
			t.Errorf("without a Ruleset: calls %v", calls)
		}
		s.reset(nil)
		l.put(newGiven(rulesOf(1), nil, nil))
		l.poke()
		calls, _ := s.seen()
		if d := cmp.Diff([]string{"0s 1 rules"}, calls); d != "" {
			t.Errorf("a Ruleset is not enforced at once: %s", d)
		}
		s.reset(nil)
		time.Sleep(time.Hour)
		if calls, forgets := s.seen(); forgets != len(calls) || forgets < 10 || forgets > 14 {
			t.Errorf("in an hour %d calls and %d reads anew; want one each 5 minutes", len(calls), forgets)
		}
	})
}

// What comes while a call is under way is done at once afterwards, in one call.
func TestTargetLoopCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{takes: 10 * time.Second}
		l := loopOf(t, s)
		s.reset(nil)
		for n := range 5 {
			l.put(newGiven(rulesOf(n), nil, nil))
			l.poke()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		calls, _ := s.seen()
		if d := cmp.Diff([]string{"0s 0 rules", "10s 4 rules"}, calls); d != "" {
			t.Error(d)
		}
	})
}

// A call that hangs is given up, and tried again.
func TestTargetLoopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{takes: time.Hour}
		l := loopOf(t, s)
		l.put(newGiven(rulesOf(1), nil, nil))
		l.poke()
		time.Sleep(90 * time.Second)
		if calls, _ := s.seen(); len(calls) != 2 || l.failed() != 1 {
			t.Errorf("calls %v, %d failures; want the second call, after one failure", calls, l.failed())
		}
		if got := l.about("p"); got.err != nil && !strings.Contains(got.err.Error(), "gave up after 1m0s") {
			t.Error(got.err)
		}
	})
}

// coded is an error of a cloud.
type coded cloud.Cause

func (c coded) Error() string      { return "code " + string(c) }
func (c coded) Cause() cloud.Cause { return cloud.Cause(c) }

func TestTargetLoopBacksOff(t *testing.T) {
	for _, tt := range []struct {
		err  error
		news int // how many of 10 changes, one each 100 ms, are tried in that second
	}{
		{coded(""), 1},
		{fmt.Errorf("sync: %w", errors.Join(errors.New("x"), coded(cloud.Throttled))), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stub{}
			l := loopOf(t, s)
			s.reset(tt.err)
			l.put(newGiven(rulesOf(1), nil, nil))
			l.poke()
			time.Sleep(time.Minute)
			if calls, _ := s.seen(); len(calls) < 5 || len(calls) > 8 { // after 1, 2, 4, 8, 16 and 32 s, less a quarter
				t.Errorf("%v: calls in a minute: %v", tt.err, calls)
			}
			s.reset(tt.err)
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				l.put(newGiven(rulesOf(2), nil, nil))
				l.poke()
			}
			if calls, _ := s.seen(); len(calls) > tt.news {
				t.Errorf("%v: tries of news: %v; want at most %d", tt.err, calls, tt.news)
			}
			s.reset(nil)
			time.Sleep(6 * time.Minute)
			if calls, _ := s.seen(); len(calls) == 0 || l.failed() != 0 {
				t.Errorf("%v: it has not recovered: calls %v", tt.err, calls)
			}
		})
	}
}

// A controller that sees the accounts of one namespace alone knows nothing of others.
func TestIsStale(t *testing.T) {
	for _, tt := range []struct {
		namespaces []string
		account    string
		want       bool
	}{
		{nil, "gone/main", true},
		{[]string{"gone"}, "gone/main", true},
		{[]string{"mine", "gone"}, "gone/main", true},
		{[]string{"mine"}, "gone/main", false},
		{[]string{"mine"}, "", false},
	} {
		c := &Controller{o: Options{Namespaces: tt.namespaces}, accountMirror: newMirror[*cloudv1alpha1.CloudProviderAccount](nil, "", nil, nil)}
		if got := c.isStale(entity{account: tt.account, applied: true}); got != tt.want {
			t.Errorf("in namespaces %q, of the account %q: %t", tt.namespaces, tt.account, got)
		}
	}
}

// A secret at the bound of a text leaves no part of itself.
func TestCleanText(t *testing.T) {
	const secret = "topsecretkey"
	scrub := scrubber([]byte(`{"accessKeySecret":"` + secret + `"}`))
	for n := maxText - len(secret); n <= maxText; n++ {
		if got := cleanText(scrub, errors.New(strings.Repeat("x", n)+secret)); strings.Contains(got, secret[:1]) && !strings.Contains(got, "[") {
			t.Fatalf("%d characters before it: ends with %q", n, got[n-1:])
		}
	}
}

// What a cloud calls a VM and its network besides their IDs is what their objects and
// labels have.
func TestObjectNames(t *testing.T) {
	i := &imported{selector: types.NamespacedName{Namespace: "team", Name: "s"}, vm: cloud.VM{
		ID: "/subscriptions/s/vm", Object: "vm-42", UID: "GUID-1", NetworkID: "/subscriptions/s/net", NetworkObject: "net-17", NetworkUID: "GUID-2", NetworkName: "net",
	}}
	if got := i.key().Name; got != "virtualmachine-vm-42" {
		t.Errorf("the entity is called %s", got)
	}
	labels := entityOf(i).labels
	for label, want := range map[string]string{
		cloudv1alpha1.LabelOwnerVM: "vm-42", cloudv1alpha1.LabelOwnerVMVpc: "net-17", cloudv1alpha1.LabelCloudVMUID: "guid-1", cloudv1alpha1.LabelCloudVpcUID: "guid-2", cloudv1alpha1.LabelCloudVpcName: "net",
	} {
		if labels[label] != want {
			t.Errorf("%s = %q, want %q", label, labels[label], want)
		}
	}
}
