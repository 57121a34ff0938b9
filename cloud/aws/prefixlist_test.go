package aws_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/cloud/aws"
	"isobar.dev/plan"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
)

// podsOf returns s with Pods of these numbers, with the label app. Their addresses
// do not aggregate.
func podsOf(s policy.Snapshot, app string, numbers ...int) policy.Snapshot {
	for _, i := range numbers {
		a := netip.AddrFrom4([4]byte{10, 1, 0, byte(2 * i)})
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "shop", fmt.Sprint("pod-", i)), Kind: policy.KindPod, Namespace: "shop",
			Name: fmt.Sprint("pod-", i), Node: "n", Addrs: []netip.Addr{a}, Labels: policy.LabelsOf(map[string]string{"app": app})}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

func upTo(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}

func podsWith(names ...string) policy.Peers {
	var set policy.Set
	for _, n := range names {
		set.Selections = append(set.Selections, policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces,
			Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{n}}}})
	}
	return policy.Peers{Set: set}
}

// perApp are policies that allow each of some applications what peers send, so that
// each is a class.
func perApp(peers policy.Peers, apps ...string) []*policy.Policy {
	var out []*policy.Policy
	for i, name := range apps {
		out = append(out, &policy.Policy{Name: name, AppliedTo: app(name), Ingress: []policy.Rule{allow(peers, tcp(uint16(80+i)))}})
	}
	return out
}

func listsOf(objects map[string]aws.Object) []*aws.List {
	var out []*aws.List
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if objects[key].List != nil {
			out = append(out, objects[key].List)
		}
	}
	return out
}

// When peers are a list is decided by how many name them, how many they are, and
// the quotas.
func TestChooseLists(t *testing.T) {
	apps := []string{"web", "db", "batch"}
	ports := func(n int) []policy.Traffic {
		var out []policy.Traffic
		for i := range n {
			out = append(out, policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: uint16(1000 + 2*i), Last: uint16(1000 + 2*i)}})
		}
		return out
	}
	crowd := func(n int) []*policy.Policy {
		ps := perApp(podsWith("x"), apps...)
		for _, p := range ps {
			p.Ingress = append(p.Ingress, allow(policy.Peers{All: true}, ports(n)))
		}
		return ps
	}
	for _, tt := range []struct {
		name     string
		place    aws.Place
		pods     int
		policies []*policy.Policy
		want     []int // what each list may have
	}{
		{"three classes", aws.Place{}, 9, perApp(podsWith("x"), apps...), []int{12}},
		{"a few more fit in", aws.Place{}, 12, perApp(podsWith("x"), apps...), []int{12}},
		{"then it is larger", aws.Place{}, 13, perApp(podsWith("x"), apps...), []int{16}},
		{"too few Pods", aws.Place{}, 8, perApp(podsWith("x"), apps...), nil},
		{"one class", aws.Place{}, 20, perApp(podsWith("x"), "web"), nil},
		{"others name others", aws.Place{}, 20, append(perApp(podsWith("x"), "web"), perApp(podsWith("x", "y"), "db")...), []int{24}},
		{"none is wanted", aws.Place{Quotas: aws.Quotas{PrefixLists: -1}}, 20, perApp(podsWith("x"), apps...), nil},
		{"none is left", aws.Place{ForeignLists: 99}, 20, perApp(podsWith("x"), apps...), nil},
		{"entries are few", aws.Place{Quotas: aws.Quotas{EntriesPerList: 20}}, 20, perApp(podsWith("x"), apps...), nil},
		{"as many as a group takes", aws.Place{}, 48, perApp(podsWith("x"), apps...), []int{48}},
		{"too many for a group", aws.Place{}, 49, perApp(podsWith("x"), apps...), nil},
		{"the groups have a place", aws.Place{}, 20, crowd(36), []int{24}},
		{"the groups have a place for the prefixes alone", aws.Place{}, 20, crowd(37), nil},
	} {
		for _, p := range tt.policies {
			for i := range p.Ingress {
				for j := range p.Ingress[i].Peers.Set.Selections { // both name the same Pods
					p.Ingress[i].Peers.Set.Selections[j].Labels = policy.Selector{{Key: "app", Op: policy.In, Values: []string{"x"}}}
				}
			}
		}
		objects, refusals := aws.Lower(tt.place, rulesetOf(t, with(podsOf(shop(), "x", upTo(tt.pods)...), tt.policies...)))
		var got []int
		for _, x := range listsOf(objects) {
			got = append(got, x.Max)
			if len(x.Entries) != tt.pods {
				t.Errorf("%s: a list of %d entries; want %d", tt.name, len(x.Entries), tt.pods)
			}
		}
		if !slices.Equal(got, tt.want) || len(refusals) > 0 {
			t.Errorf("%s: lists of at most %v; want %v (refusals %v)", tt.name, got, tt.want, refusals)
		}
		for _, u := range aws.UsageOf(tt.place, objects) {
			if u.Used > u.Limit {
				t.Errorf("%s: %+v", tt.name, u)
			}
		}
	}
}

// A change of members is one call, whatever the number of classes, and a larger
// list replaces one that is full.
func TestListCallCounts(t *testing.T) {
	apps := []string{"web", "db", "batch", "idle"}
	world := func(n int, more ...int) policy.Snapshot {
		return with(podsOf(podsOf(shop(), "x", upTo(n)...), "x", more...), perApp(podsWith("x"), apps...)...)
	}
	e := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true, PrefixListBusyCalls: 1})
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	e.sync(t, a, world(20))
	if n := len(e.Estate().Accounts[0].Regions[0].PrefixLists); n != 1 {
		t.Fatalf("%d lists; want 1", n)
	}
	e.calls()
	for _, step := range []struct {
		name  string
		world policy.Snapshot
		want  map[string]int
	}{
		{"nothing new", world(20), map[string]int{}},
		{"a member comes", world(21), map[string]int{"ModifyManagedPrefixList": 1}},
		{"one comes and others go", world(19, 30), map[string]int{"ModifyManagedPrefixList": 1}},
		{"more than fit in", world(25), map[string]int{"CreateManagedPrefixList": 1, "AuthorizeSecurityGroupIngress": 4, "RevokeSecurityGroupIngress": 4, "DeleteManagedPrefixList": 1}},
		{"few", world(8), map[string]int{"AuthorizeSecurityGroupIngress": 4, "RevokeSecurityGroupIngress": 4, "DeleteManagedPrefixList": 1}},
		{"many", world(20), map[string]int{"CreateManagedPrefixList": 1, "AuthorizeSecurityGroupIngress": 4, "RevokeSecurityGroupIngress": 4}},
	} {
		e.sync(t, a, step.world)
		if got := e.calls(); !maps.Equal(got, step.want) {
			t.Errorf("%s: %v; want %v", step.name, got, step.want)
		}
		e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), step.world)
		if got := e.calls(); len(got) > 0 {
			t.Errorf("%s: a new process writes %v", step.name, got)
		}
	}
	r := one(t, e.sync(t, a, world(20)))
	if i := slices.IndexFunc(r.Usage, func(u plan.Usage) bool { return u.Quota == "prefix lists in the region" }); i < 0 || r.Usage[i].Used != 1 || r.Usage[i].Limit != 100 {
		t.Errorf("usage %+v; want one list of 100", r.Usage)
	}
}

// podFlows are shopFlows, and those from and to Pods.
func podFlows(pods ...int) []sim.Flow {
	out := shopFlows()
	for _, p := range pods {
		ip := fmt.Sprint("10.1.0.", 2*p)
		for i := range 7 {
			for _, port := range []int{80, 81, 443} {
				out = append(out, sim.Flow{From: ip, To: fmt.Sprintf("eni-%d0", i), Protocol: "tcp", Port: port, Family: "ipv4"},
					sim.Flow{From: fmt.Sprintf("eni-%d0", i), To: ip, Protocol: "tcp", Port: port, Family: "ipv4"})
			}
		}
	}
	return out
}

// Between every pair of states with lists and without, with every call failing.
func TestDriverLists(t *testing.T) {
	both := func(pods ...int) policy.Snapshot {
		return with(podsOf(shop(), "x", pods...), perApp(podsWith("x"), "web", "db")...)
	}
	apart := with(podsOf(podsOf(shop(), "x", 1, 2, 3), "y", 4), append(perApp(podsWith("x"), "db", "batch"), perApp(podsWith("x", "y"), "web")...)...)
	denied := both(1, 2, 3, 5)
	denied = with(denied, &policy.Policy{Name: "deny", Priority: 1, AppliedTo: app("db"), Ingress: []policy.Rule{
		{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.1.0.10/32")}}}, Traffic: tcp(81)}}})
	moved := both(1, 2, 4)
	for id, to := range map[string]string{"ee/shop/vm-0": "db", "ee/shop/vm-3": "batch"} {
		w, _ := moved.Workloads.Get(id)
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": to})
		moved.Workloads = moved.Workloads.Put(id, &c)
	}
	states := map[string]policy.Snapshot{"nothing": shop(), "three": both(1, 2, 3), "others": both(1, 4, 5), "one": both(1), "apart": apart, "denied": denied, "moved": moved}
	names := []string{"nothing", "three", "others", "apart", "denied", "moved"}
	if testing.Short() {
		names = []string{"three", "apart", "moved"}
	}
	var named []plantest.State
	for _, name := range names {
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	probes := podFlows(1, 3, 4, 5)
	want := verdicts(t, states, probes...)
	for _, busy := range []int{0, 1} {
		t.Run(fmt.Sprintf("busy %d", busy), func(t *testing.T) {
			t.Parallel()
			plantest.Run(t, named, func(t testing.TB) plantest.Place[aws.Object] {
				e := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true, PrefixListBusyCalls: busy})
				e.probes = probes
				return place(t, e, aws.Options{Settle: time.Second, ManyPrefixes: 2, ManyPeers: 9}, want, busy == 1)
			})
		})
	}
}

// As Pods come and go, VMs move between classes and policies change, EC2 lets pass
// what the policies say, and at every moment between nothing that neither does.
func TestListsAreEvaluate(t *testing.T) {
	worlds := 25
	if testing.Short() {
		worlds = 5
	}
	calls := map[string]int{}
	ran, checked := 0, 0
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		e := serve(t, estate(shop(), sim.Quotas{GroupsPerInterface: 10}), sim.Options{NoThrottle: true, PrefixListBusyCalls: rnd.IntN(3)})
		o := aws.Options{ManyPrefixes: 1 + rnd.IntN(3), ManyPeers: 1 + rnd.IntN(4)}
		account := func() *aws.Account {
			return e.account(t, o, func(c *aws.Config) { c.Quotas = aws.Quotas{GroupsPerNIC: 10, PrefixLists: 4 + rnd.IntN(20)} })
		}
		before, a, s := e.Estate(), account(), shop()
		everyone := podsOf(shop(), "x", upTo(10)...)
		for step := range 7 {
			s = drawn(rnd, s)
			end := e.record(everyone, policytest.Flows(rnd, podsOf(s, "x", 9), 80))
			e.ResetCalls()
			reports := e.sync(t, a, s)
			if err := end(); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%+v\n%s", seed, step, err, e.Calls().Writes, policytest.Print(s))
			}
			for action, n := range e.calls() {
				calls[action] += n
			}
			n, err := e.check(s, reports, policytest.Flows(rnd, s, 120))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			checked += n
			e.sync(t, a, s)
			if got := e.calls(); len(got) > 0 {
				t.Fatalf("seed %d, step %d: %v when nothing has changed", seed, step, got)
			}
		}
		e.sync(t, a, shop())
		if err := same(before, e.Estate()); err != nil {
			t.Fatalf("seed %d: not as before: %v", seed, err)
		}
	}
	t.Logf("%d decisions checked; %v", checked, calls)
	for _, action := range []string{"CreateManagedPrefixList", "ModifyManagedPrefixList", "DeleteManagedPrefixList"} {
		if ran >= 10 && calls[action] < ran {
			t.Errorf("only %d calls of %s", calls[action], action)
		}
	}
}

// drawn changes some of a world: its Pods, at times the labels of a VM, and at
// times the policies.
func drawn(rnd *rand.Rand, s policy.Snapshot) policy.Snapshot {
	some := func(from ...string) []string {
		var out []string
		for _, x := range from {
			if rnd.IntN(2) == 0 {
				out = append(out, x)
			}
		}
		return append(out, from[rnd.IntN(len(from))])
	}
	for i := range 10 {
		switch rnd.IntN(5) {
		case 0:
			s.Workloads = s.Workloads.Delete(policy.WorkloadID(policy.KindPod, "shop", fmt.Sprint("pod-", i)))
		case 1:
			s = podsOf(s, []string{"x", "y"}[rnd.IntN(2)], i)
		}
	}
	if rnd.IntN(2) == 0 {
		w, _ := s.Workloads.Get(fmt.Sprint("ee/shop/vm-", rnd.IntN(7)))
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": some("web", "db", "batch", "idle")[0]})
		s.Workloads = s.Workloads.Put(c.ID, &c)
	}
	if s.Policies.Len() > 0 && rnd.IntN(3) > 0 {
		return s
	}
	s.Policies = policy.Snapshot{}.Policies
	for i := range 2 + rnd.IntN(4) {
		p := &policy.Policy{Name: fmt.Sprint("p", i), Priority: float64(rnd.IntN(3)), AppliedTo: app(some("web", "db", "batch")...)}
		for range 1 + rnd.IntN(2) {
			r := allow(podsWith(some("x", "y")...), tcp([]uint16{80, 81, 443}[rnd.IntN(3)]))
			switch rnd.IntN(6) {
			case 0:
				r.Action = policy.Drop
				r.Peers = policy.Peers{Blocks: []policy.Block{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(rnd.IntN(20))}), 30).Masked()}}}
			case 1:
				r.Peers = policy.Peers{Set: app(some("web", "db")...)}
			case 2:
				r.Traffic = policy.AllTraffic
			}
			if rnd.IntN(3) == 0 {
				p.Egress = append(p.Egress, r)
			} else {
				p.Ingress = append(p.Ingress, r)
			}
		}
		s = with(s, p)
	}
	return s
}

// What others do to lists is mended, and what is not ours is left alone.
func TestListDrift(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db", "batch")...)
	ours := func(l *sim.PrefixList) bool {
		return l.Tags["isobar.dev/cluster"] == "test" && l.Tags["isobar.dev/vpc"] == "vpc-1"
	}
	for name, edit := range map[string]func(r *sim.Region){
		"an entry more": func(r *sim.Region) {
			r.PrefixLists[0].Entries = append(r.PrefixLists[0].Entries, sim.Entry{CIDR: netip.MustParsePrefix("0.0.0.0/0")})
		},
		"entries gone": func(r *sim.Region) { r.PrefixLists[0].Entries = nil },
		"resized":      func(r *sim.Region) { r.PrefixLists[0].MaxEntries = 20 },
		"rules gone": func(r *sim.Region) {
			for _, g := range r.Groups {
				g.Rules = slices.DeleteFunc(g.Rules, func(x *sim.Rule) bool { return x.PrefixList != "" })
			}
		},
		"a copy": func(r *sim.Region) {
			c := *r.PrefixLists[0]
			c.ID = "pl-zzz"
			r.PrefixLists = append(r.PrefixLists, &c)
		},
		"an orphan": func(r *sim.Region) {
			r.PrefixLists = append(r.PrefixLists, &sim.PrefixList{ID: "pl-orphan", Name: "orphan", Family: "IPv6", MaxEntries: 3,
				Tags: map[string]string{"isobar.dev/cluster": "test", "isobar.dev/kind": "list", "isobar.dev/class": "l-old", "isobar.dev/vpc": "vpc-1"}})
		},
		"another's": func(r *sim.Region) {
			c, d := *r.PrefixLists[0], *r.PrefixLists[0]
			c.ID, c.Tags = "pl-other1", map[string]string{"isobar.dev/cluster": "other", "isobar.dev/kind": "list", "isobar.dev/class": c.Tags["isobar.dev/class"], "isobar.dev/vpc": "vpc-1"}
			addVPC(r, "vpc-2")
			d.ID, d.Tags = "pl-other2", map[string]string{"isobar.dev/cluster": "test", "isobar.dev/kind": "list", "isobar.dev/class": d.Tags["isobar.dev/class"], "isobar.dev/vpc": "vpc-2"}
			r.PrefixLists = append(r.PrefixLists, &c, &d)
		},
	} {
		e := newShop(t, sim.Options{})
		e.probes = podFlows(1, 9, 12)
		a := e.account(t, aws.Options{ManyPrefixes: 9})
		e.sync(t, a, s)
		want := e.passes()
		e.edit(t, edit)
		others := 0
		for _, l := range e.Estate().Accounts[0].Regions[0].PrefixLists {
			if !ours(l) {
				others++
			}
		}
		a.Enforcer(regionID, "vpc-1").Forget()
		e.sync(t, a, s)
		if err := differ(e.flows(), e.passes(), want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(e.Estate().Accounts[0].Regions[0].PrefixLists); n != others+1 {
			t.Errorf("%s: %d lists; want one of ours, and %d of others", name, n, others)
		}
	}
}

// Another's change of a list between reading and writing does not stand in the way.
func TestListStaleVersion(t *testing.T) {
	world := func(n int) policy.Snapshot {
		return with(podsOf(shop(), "x", upTo(n)...), perApp(podsWith("x"), "web", "db")...)
	}
	e := newShop(t, sim.Options{})
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	e.sync(t, a, world(10))
	e.edit(t, func(r *sim.Region) {
		l := r.PrefixLists[0]
		l.Entries, l.Version = append(l.Entries[1:], sim.Entry{CIDR: netip.MustParsePrefix("192.0.2.0/24")}), l.Version+3
	})
	e.sync(t, a, world(11))
	l := e.Estate().Accounts[0].Regions[0].PrefixLists[0]
	if len(l.Entries) != 11 || slices.ContainsFunc(l.Entries, func(x sim.Entry) bool { return x.CIDR.Bits() != 32 }) {
		t.Errorf("the list has %v; want 11 Pods", l.Entries)
	}
}

// An account that may not list prefix lists has none, and keeps its VMs.
func TestListsDenied(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	e := newShop(t, sim.Options{})
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	e.probes = podFlows(1, 9, 12)
	want := e.passes()
	now := e.Estate()
	now.Accounts[0].Keys[0].Deny = []string{"ec2:*ManagedPrefixList*"}
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
	end := e.watch(want, want)
	e.sync(t, e.account(t, aws.Options{ManyPrefixes: 9}), s)
	if err := end(); err != nil {
		t.Error(err)
	}
	for _, g := range e.ours() {
		if slices.ContainsFunc(g.Rules, func(r *sim.Rule) bool { return r.PrefixList != "" }) {
			t.Errorf("%s names a list still", g.Name)
		}
	}
}

// An account that may list prefix lists and not make them does without from the
// second try on.
func TestListsMayNotBeMade(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	e := newShop(t, sim.Options{})
	e.probes = podFlows(1, 9, 12)
	now := e.Estate()
	now.Accounts[0].Keys[0].Deny = []string{"ec2:CreateManagedPrefixList"}
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
	a := e.account(t, aws.Options{ManyPrefixes: 9})
	enforcer := a.Enforcer(regionID, "vpc-1")
	if _, err := enforcer.Sync(context.Background(), rulesetOf(t, s)); err == nil || !strings.Contains(err.Error(), "create prefix list") {
		t.Errorf("Sync = %v; want that no list can be made", err)
	}
	if _, err := enforcer.Sync(context.Background(), rulesetOf(t, s)); err != nil {
		t.Errorf("Sync again: %v", err)
	}
	other := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true})
	other.probes = e.probes
	other.sync(t, other.account(t, aws.Options{ManyPrefixes: 99}), s)
	if err := differ(e.flows(), e.passes(), other.passes()); err != nil {
		t.Error(err)
	}
}

// A list that cannot be made leaves what was.
func TestListLimit(t *testing.T) {
	s := with(podsOf(shop(), "x", upTo(10)...), perApp(podsWith("x"), "web", "db")...)
	e := newShop(t, sim.Options{})
	e.probes = podFlows(1, 9, 12)
	a := e.account(t, aws.Options{ManyPrefixes: 20})
	e.sync(t, a, s)
	want := e.passes()
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: "CreateManagedPrefixList"}); err != nil {
		t.Fatal(err)
	}
	_, err := e.account(t, aws.Options{ManyPrefixes: 9, Attempts: 1}).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
	if err == nil || !strings.Contains(err.Error(), "create prefix list") {
		t.Errorf("Sync = %v; want that no list can be made", err)
	}
	if err := differ(e.flows(), e.passes(), want); err != nil {
		t.Error(err)
	}
}
