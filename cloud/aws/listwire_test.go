package aws_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/cloud/aws"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

func (e *ec2) lists() []*sim.PrefixList { return e.Estate().Accounts[0].Regions[0].PrefixLists }

// dualPods is podsOf for more Pods, which have IPv6 too.
func dualPods(s policy.Snapshot, app string, from, to int) policy.Snapshot {
	for i := from; i < to; i++ {
		a4 := netip.AddrFrom4([4]byte{10, 1, byte(i / 100), byte(2 * (i % 100))})
		a6 := netip.MustParseAddr(fmt.Sprintf("fd02::%x", 2*i))
		name := fmt.Sprint("pod-", i)
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "shop", name), Kind: policy.KindPod, Namespace: "shop",
			Name: name, Node: "n", Addrs: []netip.Addr{a4, a6}, Labels: policy.LabelsOf(map[string]string{"app": app})}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

// Lists of more entries than one call takes or one page holds, in both families, with
// every call failing on the way, and what passes looked at between any two.
func TestLargeLists(t *testing.T) {
	quotas := sim.Quotas{RulesPerGroup: 200}
	world := func(from, to int) policy.Snapshot {
		return with(dualPods(shop(), "x", from, to), perApp(podsWith("x"), "web", "db")...)
	}
	moved := world(60, 190)
	for id, to := range map[string]string{"ee/shop/vm-0": "db", "ee/shop/vm-3": "batch"} {
		w, _ := moved.Workloads.Get(id)
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": to})
		moved.Workloads = moved.Workloads.Put(id, &c)
	}
	states := map[string]policy.Snapshot{"nothing": shop(), "many": world(0, 130), "others": world(60, 190), "moved": moved}
	var probes []sim.Flow
	for _, i := range []int{5, 61, 100, 129, 150, 188} {
		for nic := range 7 {
			for _, port := range []int{80, 81} {
				to := fmt.Sprintf("eni-%d0", nic)
				probes = append(probes, sim.Flow{From: fmt.Sprintf("10.1.%d.%d", i/100, 2*(i%100)), To: to, Protocol: "tcp", Port: port, Family: "ipv4"},
					sim.Flow{From: fmt.Sprintf("fd02::%x", 2*i), To: to, Protocol: "tcp", Port: port, Family: "ipv6"})
			}
		}
	}
	open := func(t testing.TB, busy int) *ec2 {
		first := estate(shop(), quotas)
		for i, x := range first.Accounts[0].Regions[0].Instances {
			x.Interfaces[0].IPv6 = append(x.Interfaces[0].IPv6, netip.MustParseAddr(fmt.Sprintf("fd01::%x", i+1)))
		}
		e := serve(t, first, sim.Options{NoThrottle: true, PrefixListBusyCalls: busy})
		e.probes, e.quotas = probes, aws.Quotas{RulesPerGroup: 200}
		return e
	}
	want := map[string][]sides{}
	var named []plantest.State
	names := []string{"nothing", "many", "others", "moved"}
	if testing.Short() {
		names = names[1:3]
	}
	for _, name := range names {
		e := open(t, 0)
		e.sync(t, e.account(t, aws.Options{ManyPrefixes: 999}), states[name])
		if n := len(e.lists()); n > 0 {
			t.Fatalf("%d lists where none is wanted", n)
		}
		want[name] = e.passes()
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	plantest.Run(t, named, func(t testing.TB) plantest.Place[aws.Object] {
		p := place(t, open(t, 0), aws.Options{Settle: time.Second, ManyPrefixes: 9, ManyPeers: 9}, want, false)
		return p
	})
	e := open(t, 2)
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	e.sync(t, a, states["many"])
	end := e.watch(want["many"], want["others"])
	e.sync(t, a, states["others"])
	if err := end(); err != nil {
		t.Error(err)
	}
	families := ""
	for _, l := range e.lists() {
		families += fmt.Sprint(l.Family, " ", len(l.Entries), " of ", l.MaxEntries, ", ")
	}
	if strings.Count(families, "130 of 192") != 2 || !strings.Contains(families, "IPv6 130") {
		t.Errorf("lists %s; want one of 130 in each family", families)
	}
}

// Members whose number swings around a size, or around that from which on they are a
// list, do not replace it: a list keeps its size while it is more than half full.
func TestListsSwing(t *testing.T) {
	world := func(n int) policy.Snapshot {
		return with(podsOf(shop(), "x", upTo(n)...), perApp(podsWith("x"), "web", "db")...)
	}
	e := newShop(t, sim.Options{})
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	e.sync(t, a, world(12))
	e.calls()
	const create, modify, remove, allow, revoke = "CreateManagedPrefixList", "ModifyManagedPrefixList", "DeleteManagedPrefixList", "AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"
	inPlace, replaced := map[string]int{modify: 1}, map[string]int{create: 1, allow: 2, revoke: 2, remove: 1}
	for i, step := range []struct {
		pods, max int
		want      map[string]int
	}{
		{11, 12, inPlace}, {12, 12, inPlace},
		{13, 16, replaced}, {12, 16, inPlace}, {13, 16, inPlace}, {9, 16, inPlace},
		{8, 0, map[string]int{allow: 2, revoke: 2, remove: 1}},
		{9, 12, map[string]int{create: 1, allow: 2, revoke: 2}}, {8, 12, inPlace}, {9, 12, inPlace}, {7, 12, inPlace},
		{6, 0, map[string]int{allow: 2, revoke: 2, remove: 1}},
		{40, 48, map[string]int{create: 1, allow: 2, revoke: 2}}, {24, 48, inPlace}, {13, 48, inPlace}, {12, 12, replaced},
		{20, 24, replaced}, {13, 24, inPlace}, {12, 12, replaced}, {13, 16, replaced},
	} {
		e.sync(t, a, world(step.pods))
		got, size := e.calls(), 0
		for _, l := range e.lists() {
			size += l.MaxEntries
		}
		if delete(got, "DeleteTags"); size != step.max || !maps.Equal(got, step.want) {
			t.Errorf("step %d, %d Pods: %v, and a list of %d; want %v and %d", i, step.pods, got, size, step.want, step.max)
		}
		e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), world(step.pods))
		if got := e.calls(); len(got) > 0 {
			t.Errorf("step %d, %d Pods: a new process writes %v", i, step.pods, got)
		}
	}
}

// Lists of a VPC that has gone are deleted by whoever reads the region, and no
// others: not those of a VPC that is there without groups of ours, of another owner,
// or when it cannot be read what VPCs there are.
func TestListsOfGoneVPC(t *testing.T) {
	list := func(id, owner, kind, vpc string) *sim.PrefixList {
		return &sim.PrefixList{ID: id, Name: id, Family: "IPv4", MaxEntries: 8, Entries: []sim.Entry{{CIDR: netip.MustParsePrefix("10.9.0.0/16")}},
			Tags: map[string]string{"isobar.dev/cluster": owner, "isobar.dev/kind": kind, "isobar.dev/class": "l-0", "isobar.dev/vpc": vpc}}
	}
	first := estate(shop(), sim.Quotas{})
	r := first.Accounts[0].Regions[0]
	addVPC(r, "vpc-2")
	r.PrefixLists = []*sim.PrefixList{list("pl-1", "test", "list", "vpc-gone"), list("pl-2", "test", "list", "vpc-2"), list("pl-3", "other", "list", "vpc-gone"),
		list("pl-4", "test", "other", "vpc-gone"), list("pl-5", "test", "list", "vpc-gone"), list("pl-6", "test", "list", "")}
	e := serve(t, first, sim.Options{NoThrottle: true, PrefixListBusyCalls: 1})
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	left := func() string {
		var out []string
		for _, l := range e.lists() {
			if strings.HasPrefix(l.ID, "pl-") && len(l.ID) == 4 {
				out = append(out, l.ID)
			}
		}
		return strings.Join(out, " ")
	}
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: "DescribeVpcs", Skip: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.account(t, aws.Options{ManyPrefixes: 9, Attempts: 1}).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s)); err == nil {
		t.Error("no error, and it is not known what VPCs there are")
	}
	if got := left(); got != "pl-1 pl-2 pl-3 pl-4 pl-5 pl-6" {
		t.Errorf("left are %s; want all, since it is not known what VPCs there are", got)
	}
	e.ClearFaults()
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	if got := left(); got != "pl-2 pl-3 pl-4 pl-6" {
		t.Errorf("left are %s; want those that are not of a VPC that has gone", got)
	}
	e.calls()
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	if got := e.calls(); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
}

// A list that a rule of others names stays, and it is told by whom, until it can go.
func TestListNamedByOthers(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	for _, busy := range []int{0, 1} {
		e := newShop(t, sim.Options{PrefixListBusyCalls: busy})
		a := e.account(t, aws.Options{ManyPrefixes: 9})
		e.sync(t, a, s)
		e.edit(t, func(r *sim.Region) {
			i := slices.IndexFunc(r.Groups, func(g *sim.Group) bool { return g.ID == ownGroup("vpc-1") })
			r.Groups[i].Rules = append(r.Groups[i].Rules, &sim.Rule{Protocol: "-1", From: -1, To: -1, PrefixList: r.PrefixLists[0].ID})
		})
		enforcer := a.Enforcer(regionID, "vpc-1")
		enforcer.Forget()
		for range 2 {
			_, err := enforcer.Sync(context.Background(), rulesetOf(t, shop()))
			if err == nil || !strings.Contains(err.Error(), ownGroup("vpc-1")) {
				t.Errorf("busy %d: Sync = %v; want who names the list", busy, err)
			}
		}
		// One that could not be deleted is not used again.
		id := e.lists()[0].ID
		if _, err := enforcer.Sync(context.Background(), rulesetOf(t, s)); err == nil || !strings.Contains(err.Error(), ownGroup("vpc-1")) {
			t.Errorf("busy %d: Sync = %v; want who names the list", busy, err)
		}
		for _, g := range e.ours() {
			for _, r := range g.Rules {
				if r.PrefixList == id {
					t.Errorf("busy %d: %s names %s, which could not be deleted", busy, g.Name, id)
				}
			}
		}
		if n := len(e.lists()); n != 2 {
			t.Errorf("busy %d: %d lists; want another one", busy, n)
		}
		e.edit(t, func(r *sim.Region) {
			i := slices.IndexFunc(r.Groups, func(g *sim.Group) bool { return g.ID == ownGroup("vpc-1") })
			r.Groups[i].Rules = slices.DeleteFunc(r.Groups[i].Rules, func(x *sim.Rule) bool { return x.PrefixList != "" })
		})
		e.sync(t, a, s)
		if n := len(e.lists()); n != 1 {
			t.Errorf("busy %d: %d lists; want one", busy, n)
		}
	}
}

// A list of another account that is shared with ours is not ours, whatever its tags.
func TestListShared(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	e := newShop(t, sim.Options{})
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	shared := e.lists()[0]
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			g.Rules = slices.DeleteFunc(g.Rules, func(x *sim.Rule) bool { return x.PrefixList != "" })
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		rec := httptest.NewRecorder()
		e.Handler().ServeHTTP(rec, q)
		body := rec.Body.Bytes()
		if i := bytes.Index(body, []byte("<prefixListId>"+shared.ID)); i >= 0 {
			body = slices.Concat(body[:i], bytes.Replace(body[i:], []byte("<ownerId>"+accountID), []byte("<ownerId>999988887777"), 1))
		}
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		w.Write(body)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	if n := len(e.lists()); n != 2 {
		t.Errorf("%d lists; want another one", n)
	}
	for _, g := range e.ours() {
		for _, r := range g.Rules {
			if r.PrefixList == shared.ID {
				t.Errorf("%s names %s, which is another account's", g.Name, shared.ID)
			}
		}
	}
}

// What leaves a list and passes by another rule from then on passes all the while: when
// that rule is new, when the interface moves to where it is, and when either fails.
func TestListLosesWhatAnotherRuleHas(t *testing.T) {
	q := netip.MustParsePrefix("10.1.0.6/32") // Pod 3
	world := func(isMember bool, vm0 string, blocked ...netip.Prefix) policy.Snapshot {
		s := podsOf(shop(), "x", 0, 1, 2, 4, 5, 6, 7, 8, 9, 10)
		s = podsOf(s, map[bool]string{true: "x", false: "z"}[isMember], 3)
		w, _ := s.Workloads.Get("ee/shop/vm-0")
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": vm0})
		s.Workloads = s.Workloads.Put(c.ID, &c)
		var peers policy.Peers
		for _, p := range blocked {
			peers.Blocks = append(peers.Blocks, policy.Block{Prefix: p})
		}
		return with(s, &policy.Policy{Name: "all", AppliedTo: app("web", "db"), Ingress: []policy.Rule{allow(podsWith("x"), tcp(80))}},
			&policy.Policy{Name: "more", AppliedTo: app("db"), Ingress: []policy.Rule{allow(peers, tcp(80))}})
	}
	full := func(s policy.Snapshot, more ...int) policy.Snapshot { return podsOf(s, "x", more...) }
	other := netip.MustParsePrefix("192.0.2.1/32")
	for name, steps := range map[string][2]policy.Snapshot{
		"a new rule":          {world(true, "web", other), world(false, "web", other, q)},
		"an interface moves":  {world(true, "web", other, q), world(false, "db", other, q)},
		"a new rule, and one": {world(true, "web", other), world(false, "db", other, q)},
		"the list is full":    {full(world(true, "web", other, q), 11), full(world(false, "db", other, q), 11, 12)},
	} {
		for _, failing := range []string{"", "AuthorizeSecurityGroupIngress", "ModifyNetworkInterfaceAttribute"} {
			e := newShop(t, sim.Options{PrefixListBusyCalls: 1})
			e.probes = podFlows(3, 4)
			a := e.account(t, aws.Options{ManyPrefixes: 9, Attempts: 1})
			e.sync(t, a, steps[0])
			before := e.passes()
			e2 := newShop(t, sim.Options{})
			e2.probes = e.probes
			e2.sync(t, e2.account(t, aws.Options{ManyPrefixes: 99}), steps[1])
			after := e2.passes()
			if failing != "" {
				if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: failing}); err != nil {
					t.Fatal(err)
				}
			}
			end := e.watch(before, after)
			_, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, steps[1]))
			if watched := end(); watched != nil {
				t.Errorf("%s, failing %q: %v", name, failing, watched)
			}
			if failing == "" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			e.ClearFaults()
			e.sync(t, a, steps[1])
			if err := differ(e.flows(), e.passes(), after); err != nil {
				t.Errorf("%s, failing %q: %v", name, failing, err)
			}
			if n := len(e.lists()); n != 1 {
				t.Errorf("%s, failing %q: %d lists; want one", name, failing, n)
			}
		}
	}
}

// Lists that cannot be read are not none: nothing is written.
func TestListsUnreadable(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	for _, action := range []string{"DescribeManagedPrefixLists", "GetManagedPrefixListEntries"} {
		e := newShop(t, sim.Options{})
		e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
		e.calls()
		if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: action}); err != nil {
			t.Fatal(err)
		}
		_, err := e.account(t, aws.Options{ManyPrefixes: 9, Attempts: 1}).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
		if got := e.calls(); err == nil || len(got) > 0 {
			t.Errorf("%s fails: Sync = %v, and %v is written", action, err, got)
		}
	}
}

// A change that a process has begun and not seen the end of counts for the next.
func TestListChangeUnderWay(t *testing.T) {
	world := func(n int) policy.Snapshot {
		return with(podsOf(shop(), "x", upTo(n)...), perApp(podsWith("x"), "web", "db")...)
	}
	e := newShop(t, sim.Options{PrefixListBusyCalls: 2})
	o := aws.Options{ManyPrefixes: 9, Attempts: 1}
	e.sync(t, e.account(t, o), world(10))
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultCutAfter, Action: "ModifyManagedPrefixList", Count: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.account(t, o).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, world(11))); err == nil {
		t.Error("no error, and no answer came")
	}
	e.sync(t, e.account(t, o), world(10))
	for range 3 {
		if _, err := e.account(t, o).Driver(regionID, "vpc-1").Read(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.lists()[0].Entries); n != 10 {
		t.Errorf("the list has %d entries in the end; want 10", n)
	}
}

// VPCs share the lists that others leave, and each has as many again to replace them by.
func TestListsAreShared(t *testing.T) {
	s := podsOf(podsOf(shop(), "x", upTo(10)...), "y", 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	for i := range 7 {
		w, _ := s.Workloads.Get(fmt.Sprint("ee/shop/vm-", i))
		c := *w
		c.Name = fmt.Sprint("far-", i)
		c.ID = policy.WorkloadID(policy.KindExternal, "shop", c.Name)
		c.Network, c.Target = "vpc-2", "aws/vpc-2"
		c.Interfaces = []policy.Interface{{ID: fmt.Sprintf("eni-f%d0", i), Addrs: w.Addrs}}
		s.Workloads = s.Workloads.Put(c.ID, &c)
	}
	first := estate(s, sim.Quotas{PrefixLists: 8})
	r := first.Accounts[0].Regions[0]
	for i := range 3 {
		r.PrefixLists = append(r.PrefixLists, &sim.PrefixList{ID: fmt.Sprint("pl-f", i), Name: "f", Family: "IPv4", MaxEntries: 1})
	}
	e := serve(t, first, sim.Options{NoThrottle: true})
	e.quotas = aws.Quotas{PrefixLists: 8}
	both := with(s, append(perApp(podsWith("x"), "web", "db"), perApp(podsWith("y"), "batch", "idle")...)...)
	for range 3 { // each sees only then what the other has
		e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), both)
	}
	got := map[string]int{}
	for _, l := range e.lists() {
		got[l.Tags["isobar.dev/vpc"]]++
	}
	// Of eight others have three; of the five each VPC uses half of a half.
	if want := map[string]int{"": 3, "vpc-1": 1, "vpc-2": 1}; !maps.Equal(got, want) {
		t.Errorf("lists of each VPC %v; want %v", got, want)
	}
}

// What holds what goes and what comes both passes while a list changes in several calls.
func TestListChangesInSeveralCalls(t *testing.T) {
	world := func(pairs bool) policy.Snapshot {
		s := shop()
		add := func(n int) {
			a := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
			w := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "shop", fmt.Sprint("pod-", n)), Kind: policy.KindPod, Namespace: "shop",
				Name: fmt.Sprint("pod-", n), Node: "n", Addrs: []netip.Addr{a}, Labels: policy.LabelsOf(map[string]string{"app": "x"})}
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		for i := range 130 {
			add(4 * i)
			if pairs && i < 52 {
				add(4*i + 1)
			}
		}
		return with(s, perApp(podsWith("x"), "web", "db")...)
	}
	e := serve(t, estate(shop(), sim.Quotas{RulesPerGroup: 200}), sim.Options{NoThrottle: true})
	e.quotas = aws.Quotas{RulesPerGroup: 200}
	for _, i := range []int{0, 25, 51, 52, 129} {
		for _, end := range []int{0, 1} {
			from := fmt.Sprintf("10.1.%d.%d", (4*i+end)>>8, (4*i+end)&255)
			e.probes = append(e.probes, sim.Flow{From: from, To: "eni-00", Protocol: "tcp", Port: 80, Family: "ipv4"})
		}
	}
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	e.sync(t, a, world(true))
	apart := e.passes()
	for i := range apart {
		apart[i].in = i%2 == 0
	}
	for _, step := range []struct {
		pairs    bool
		from, to []sides
	}{{false, e.passes(), apart}, {true, apart, e.passes()}} {
		e.calls()
		end := e.watch(step.from, step.to)
		e.sync(t, a, world(step.pairs))
		if err := end(); err != nil {
			t.Error(err)
		}
		if got := e.calls(); !maps.Equal(got, map[string]int{"ModifyManagedPrefixList": 2}) {
			t.Errorf("%v; want two calls that change the list", got)
		}
		if err := differ(e.flows(), e.passes(), step.to); err != nil {
			t.Error(err)
		}
	}
}

// A class that lets not all of a list pass does not name it.
func TestListOnlyWhereAllPass(t *testing.T) {
	ps := append(perApp(podsWith("x"), "web", "db", "batch"), &policy.Policy{Name: "deny", Priority: -1, AppliedTo: app("db"), Ingress: []policy.Rule{
		{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.1.0.8/32")}}}, Traffic: tcp(81)}}})
	objects, refusals := aws.Lower(aws.Place{}, rulesetOf(t, with(podsOf(shop(), "x", upTo(10)...), ps...)))
	named := 0
	for key, o := range objects {
		if o.Group == nil || o.Group.Kind != aws.Enforcement {
			continue
		}
		for _, r := range o.Group.Ingress {
			if r.List != "" {
				named++
			}
			if r.List != "" && r.From == 81 {
				t.Errorf("%s: %v names a list with a Pod that may not pass", key, r)
			}
		}
	}
	if named != 2 || len(refusals) > 0 {
		t.Errorf("%d rules name a list; want those of the two other classes (refusals %v)", named, refusals)
	}
}

// A Pod that goes from one list to another, both of which a class names, is let pass
// throughout.
func TestListHandsOver(t *testing.T) {
	policies := perApp(podsWith("x", "y"), "web", "db", "batch")
	world := func(app string) policy.Snapshot {
		return with(podsOf(podsOf(podsOf(shop(), "x", 1, 2, 3, 4), "y", 5, 6, 7, 8), app, 0), policies...)
	}
	e := newShop(t, sim.Options{PrefixListBusyCalls: 2})
	a := e.account(t, aws.Options{ManyPrefixes: 2})
	e.sync(t, a, world("x"))
	if n := len(e.Estate().Accounts[0].Regions[0].PrefixLists); n != 2 {
		t.Fatalf("%d lists, want 2", n)
	}
	flow := []policy.Flow{{From: policy.Endpoint{Workload: "pod/shop/pod-0"}, To: policy.Endpoint{Workload: "ee/shop/vm-0"}, Protocol: policy.TCP, Port: 80}}
	for i := range 4 { // which of two calls comes first is left to chance
		s := world([]string{"y", "x"}[i%2])
		end := e.record(s, flow)
		e.sync(t, a, s)
		if err := end(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}
