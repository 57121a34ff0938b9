package aws_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/plan"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

func newShop(t testing.TB, o sim.Options) *ec2 {
	t.Helper()
	o.NoThrottle = true
	return serve(t, estate(shop(), sim.Quotas{}), o)
}

// nic returns an interface as it is.
func (e *ec2) nic(t testing.TB, id string) *sim.Interface {
	t.Helper()
	for _, i := range e.Estate().Accounts[0].Regions[0].Instances {
		for _, n := range i.Interfaces {
			if n.ID == id {
				return n
			}
		}
	}
	t.Fatalf("no interface %s", id)
	return nil
}

// ours returns our groups, by class.
func (e *ec2) ours() map[string]*sim.Group {
	out := map[string]*sim.Group{}
	for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
		if g.Tags["isobar.dev/cluster"] == "test" {
			out[g.Tags["isobar.dev/class"]] = g
		}
	}
	return out
}

func one(t testing.TB, reports map[string]plan.Report) plan.Report {
	t.Helper()
	for _, r := range reports {
		return r
	}
	t.Fatal("no report")
	return plan.Report{}
}

// A rule that a user puts into a group of ours stays, and is told; one that is
// what we want anyway serves as ours, and stays when we do not want it any more.
func TestForeignRules(t *testing.T) {
	e := newShop(t, sim.Options{})
	s := shopVPC.States()
	e.sync(t, e.account(t, aws.Options{}), s["three"])
	web := e.nic(t, "eni-00").Groups
	extra := []*sim.Rule{
		{Protocol: "tcp", From: 9999, To: 9999, CIDR: netip.MustParsePrefix("203.0.113.0/24"), Description: "mine"},
		{Protocol: "tcp", From: 8443, To: 8443, CIDR: netip.MustParsePrefix("0.0.0.0/0"), Description: "mine"}, // wanted in "edited"
	}
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			if g.Tags["isobar.dev/kind"] == "enforcement" && slices.Contains(web, g.ID) {
				g.Rules = append(g.Rules, extra...)
			}
		}
	})
	count := func() (n int) {
		for _, g := range e.ours() {
			for _, r := range g.Rules {
				if r.Description == "mine" {
					n++
				}
			}
		}
		return n
	}
	for _, state := range []string{"three", "edited", "three"} {
		report := one(t, e.sync(t, e.account(t, aws.Options{}), s[state]))
		if len(report.Notes) != 2 || !strings.Contains(fmt.Sprint(report.Notes), "tcp 9999 203.0.113.0/24") {
			t.Errorf("in %q the notes are %v; want the two rules of the user", state, report.Notes)
		}
		if n := count(); n != 2 {
			t.Errorf("in %q the user has %d rules; want 2", state, n)
		}
	}
}

// What a network interface had comes back, as far as it is still there.
func TestOriginals(t *testing.T) {
	s := shopVPC.States()
	for _, tt := range []struct {
		name string
		edit func(r *sim.Region, n *sim.Interface) // while we enforce
		want func(before []string) []string        // nil: the VPC's default group
		note bool
	}{
		{"all there", func(*sim.Region, *sim.Interface) {}, func(b []string) []string { return b }, false},
		{"one deleted", func(r *sim.Region, n *sim.Interface) {
			r.Groups = slices.DeleteFunc(r.Groups, func(g *sim.Group) bool { return g.ID == "sg-extra1" })
		}, func(b []string) []string { return []string{"sg-extra2", "sg-own1"} }, false},
		{"all deleted", func(r *sim.Region, n *sim.Interface) {
			for _, i := range r.Instances { // nobody may have the groups
				for _, x := range i.Interfaces {
					x.Groups = slices.DeleteFunc(x.Groups, func(id string) bool { return id == "sg-own1" })
				}
			}
			r.Groups = slices.DeleteFunc(r.Groups, func(g *sim.Group) bool { return strings.HasPrefix(g.ID, "sg-extra") || g.ID == "sg-own1" })
		}, nil, false},
		{"tags lost", func(r *sim.Region, n *sim.Interface) { n.Tags = nil }, nil, true},
		{"a group added by hand", func(r *sim.Region, n *sim.Interface) { n.Groups = append(n.Groups, "sg-extra3") },
			func(b []string) []string { return append(slices.Clone(b), "sg-extra3") }, false},
	} {
		e := newShop(t, sim.Options{})
		e.edit(t, func(r *sim.Region) {
			for _, id := range []string{"sg-extra1", "sg-extra2", "sg-extra3"} {
				r.Groups = append(r.Groups, &sim.Group{ID: id, VPC: "vpc-1", Name: id})
			}
			r.Instances[0].Interfaces[0].Groups = []string{"sg-extra1", "sg-extra2", "sg-own1"}
		})
		id := e.Estate().Accounts[0].Regions[0].Instances[0].Interfaces[0].ID
		before := e.nic(t, id).Groups
		e.sync(t, e.account(t, aws.Options{}), s["three"])
		e.edit(t, func(r *sim.Region) { tt.edit(r, r.Instances[0].Interfaces[0]) })
		report := one(t, e.sync(t, e.account(t, aws.Options{}), s["three"]))
		if got := len(report.Notes) > 0; got != tt.note && tt.name != "tags lost" {
			t.Errorf("%s: notes %v", tt.name, report.Notes)
		}
		e.sync(t, e.account(t, aws.Options{}), s["nothing"])
		got := slices.Clone(e.nic(t, id).Groups)
		slices.Sort(got)
		var want []string
		if tt.want != nil {
			want = tt.want(before)
			slices.Sort(want)
		} else {
			for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
				if g.VPC == "vpc-1" && g.Name == "default" {
					want = []string{g.ID}
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: it has %v at the end; want %v", tt.name, got, want)
		}
		if n := len(e.ours()); n != 0 {
			t.Errorf("%s: %d groups of ours are left", tt.name, n)
		}
		if tags := e.nic(t, id).Tags; len(tags) != 0 {
			t.Errorf("%s: the tags %v are left", tt.name, tags)
		}
	}
}

// Two clusters in one VPC, with the same names, leave each other alone.
func TestTwoClusters(t *testing.T) {
	e := newShop(t, sim.Options{})
	mine := e.account(t, aws.Options{})
	other := e.account(t, aws.Options{}, func(c *aws.Config) { c.Cluster = "other" })
	web := &policy.Policy{Name: "p", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(80))}}
	db := &policy.Policy{Name: "p", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(5432))}}
	e.sync(t, mine, with(shop(), web))
	e.sync(t, other, with(shop(), db))
	writes := e.writes()
	e.sync(t, e.account(t, aws.Options{}), with(shop(), web))
	if n := e.writes() - writes; n != 0 {
		t.Errorf("%d writes after the other cluster's", n)
	}
	// What the other enforces on is not taken from it.
	_, err := e.account(t, aws.Options{}).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, with(shop(), db)))
	if err == nil || !strings.Contains(err.Error(), `"other" enforces`) {
		t.Errorf("taking over another cluster's interface: %v", err)
	}
	e.sync(t, other, shop())
	e.sync(t, mine, shop())
	if n := len(e.ours()); n != 0 {
		t.Errorf("%d groups are left", n)
	}
}

// A new security group may be unknown for a while.
func TestLateGroups(t *testing.T) {
	e := newShop(t, sim.Options{GroupHiddenCalls: 1})
	s := shopVPC.States()["mesh"]
	reports := e.sync(t, e.account(t, aws.Options{}), s)
	if r := one(t, reports); r.Written == 0 {
		t.Error("nothing was written")
	}
}

// What others break is found after Forget, and mended.
func TestDrift(t *testing.T) {
	s := shopVPC.States()["mesh"]
	want := verdicts(t, map[string]policy.Snapshot{"mesh": s})["mesh"]
	for name, edit := range map[string]func(r *sim.Region){
		"rules gone": func(r *sim.Region) {
			for _, g := range r.Groups {
				if g.Tags["isobar.dev/cluster"] == "test" && len(g.Rules) > 1 {
					g.Rules = g.Rules[1:]
				}
			}
		},
		"rules added in our name": func(r *sim.Region) {
			for _, g := range r.Groups {
				if g.Tags["isobar.dev/kind"] == "enforcement" {
					g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 22, To: 22, CIDR: netip.MustParsePrefix("0.0.0.0/0"), Description: "isobar.dev/cluster=test"})
				}
			}
		},
		"default egress again": func(r *sim.Region) {
			for _, g := range r.Groups {
				if g.Tags["isobar.dev/kind"] == "enforcement" {
					g.Rules = append(g.Rules, &sim.Rule{Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix("0.0.0.0/0")})
				}
			}
		},
		"detached": func(r *sim.Region) {
			for _, i := range r.Instances {
				i.Interfaces[0].Groups = []string{"sg-own1"}
			}
		},
		"deleted": func(r *sim.Region) {
			for _, i := range r.Instances {
				i.Interfaces[0].Groups = []string{"sg-own1"}
			}
			r.Groups = slices.DeleteFunc(r.Groups, func(g *sim.Group) bool { return g.Tags["isobar.dev/cluster"] == "test" })
		},
		"an orphan": func(r *sim.Region) {
			r.Groups = append(r.Groups, &sim.Group{ID: "sg-orphan", VPC: "vpc-1", Name: "orphan", Tags: map[string]string{
				"isobar.dev/cluster": "test", "isobar.dev/kind": "enforcement", "isobar.dev/class": "e-old"}})
		},
		"a copy": func(r *sim.Region) {
			for _, g := range slices.Clone(r.Groups) {
				if g.Tags["isobar.dev/kind"] == "enforcement" {
					c := *g
					c.ID, c.Name, c.Rules = "sg-zz"+strings.TrimPrefix(g.ID, "sg-"), g.Name+"-copy", nil
					r.Groups = append(r.Groups, &c)
				}
			}
		},
	} {
		e := newShop(t, sim.Options{})
		a := e.account(t, aws.Options{})
		e.sync(t, a, s)
		before := len(e.ours())
		e.edit(t, edit)
		a.Enforcer(regionID, "vpc-1").Forget()
		e.sync(t, a, s)
		if err := differ(e.flows(), e.passes(), want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(e.ours()); n != before {
			t.Errorf("%s: %d groups of ours; want %d", name, n, before)
		}
		if n := e.Estate().Accounts[0].Regions[0].Groups; slices.ContainsFunc(n, func(g *sim.Group) bool { return g.ID == "sg-orphan" || strings.HasSuffix(g.Name, "-copy") }) {
			t.Errorf("%s: an orphan is left", name)
		}
	}
}

// pods returns n Pods whose addresses do not aggregate.
func pods(s policy.Snapshot, n int) policy.Snapshot {
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i * 2 / 256), byte(i * 2 % 256)})
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, "shop", fmt.Sprint("pod-", i)), Kind: policy.KindPod, Namespace: "shop",
			Name: fmt.Sprint("pod-", i), Node: "n", Addrs: []netip.Addr{a}}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

var allPods = policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces}}}}

// What does not fit into one group is spread over more, as long as there is
// place; then whole rules are left out, and the report says so before a write.
func TestQuota(t *testing.T) {
	for _, tt := range []struct {
		pods, groups int
		refused      string // the rule that is left out
	}{
		{50, 1, ""},
		{61, 2, ""},
		{295, 5, ""},
		{299, 5, ""},
		{300, 1, "acnp/p/ingress/1"},
		{2500, 1, "acnp/p/ingress/1"},
	} {
		e := newShop(t, sim.Options{})
		p := &policy.Policy{Name: "p", AppliedTo: app("idle"), Ingress: []policy.Rule{
			allow(policy.Peers{Set: app("web")}, tcp(22)), allow(allPods, tcp(80))}}
		s := with(pods(shop(), tt.pods), p)
		report := one(t, e.sync(t, e.account(t, aws.Options{ManyPeers: 1}), s))
		if n := len(e.nic(t, "eni-60").Groups); n != tt.groups {
			t.Errorf("%d pods: %d groups; want %d", tt.pods, n, tt.groups)
		}
		var refused string
		for _, r := range report.Refusals {
			if r.Reason == policy.RefusedQuota {
				refused = r.Rule
				if r.Limit != 300 || r.Need <= 300 || len(r.Workloads) != 1 {
					t.Errorf("%d pods: %+v", tt.pods, r)
				}
			}
		}
		if refused != tt.refused {
			t.Errorf("%d pods: %q is refused; want %q", tt.pods, refused, tt.refused)
		}
		v := e.Reach(sim.Flow{From: "eni-00", To: "eni-60", Protocol: "tcp", Port: 22})
		if v.Ingress.Result != sim.Allowed {
			t.Errorf("%d pods: the other rule does not hold: %+v", tt.pods, v)
		}
	}
}

// One thing that cannot be written does not stop the others.
func TestOneFails(t *testing.T) {
	e := newShop(t, sim.Options{})
	s := shopVPC.States()["three"]
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: "CreateSecurityGroup", Count: 1}); err != nil {
		t.Fatal(err)
	}
	report, err := e.account(t, aws.Options{Attempts: 1}).Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
	if err == nil || report.Written == 0 || report.Written == len(report.Changes) {
		t.Errorf("%d of %d written, %v; want some, and an error", report.Written, len(report.Changes), err)
	}
	if err != nil && !strings.Contains(err.Error(), "group/") {
		t.Errorf("the error does not name the object: %v", err)
	}
	e.sync(t, e.account(t, aws.Options{}), s)
}

// A VM that has ended needs no policy, though the inventory still knows it.
func TestVMGone(t *testing.T) {
	e := newShop(t, sim.Options{})
	e.edit(t, func(r *sim.Region) {
		r.Instances = slices.DeleteFunc(r.Instances, func(i *sim.Instance) bool { return i.Interfaces[0].ID == "eni-00" })
	})
	e.sync(t, e.account(t, aws.Options{}), shopVPC.States()["mesh"])
}

// An interface without a place for one more group is written as an address.
func TestNoSlot(t *testing.T) {
	e := newShop(t, sim.Options{})
	e.edit(t, func(r *sim.Region) {
		var ids []string
		for i := range 5 {
			ids = append(ids, fmt.Sprint("sg-full", i))
			r.Groups = append(r.Groups, &sim.Group{ID: ids[i], VPC: "vpc-1", Name: ids[i]})
		}
		for _, i := range r.Instances {
			if i.Interfaces[0].ID == "eni-00" {
				i.Interfaces[0].Groups = ids
			}
		}
	})
	p := &policy.Policy{Name: "db", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(5432))}}
	e.sync(t, e.account(t, aws.Options{}), with(shop(), p))
	if n := len(e.nic(t, "eni-00").Groups); n != 5 {
		t.Errorf("the full interface has %d groups", n)
	}
	if n := len(e.nic(t, "eni-10").Groups); n != 2 {
		t.Errorf("the other peer has %d groups; want its own and a membership", n)
	}
	for i := range 3 {
		if v := e.Reach(sim.Flow{From: fmt.Sprintf("eni-%d0", i), To: "eni-30", Protocol: "tcp", Port: 5432}); v.Ingress.Result != sim.Allowed {
			t.Errorf("vm-%d does not reach the database: %+v", i, v)
		}
	}
}

// What others have done since the last read does not stand in the way: a rule
// that is there already, and one that is gone.
func TestStaleKnowledge(t *testing.T) {
	e := newShop(t, sim.Options{})
	a := e.account(t, aws.Options{})
	s := shopVPC.States()
	e.sync(t, a, s["three"])
	all := netip.MustParsePrefix("0.0.0.0/0")
	edits := 0
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			n := len(g.Rules)
			g.Rules = slices.DeleteFunc(g.Rules, func(r *sim.Rule) bool { return r.Description != "" && r.From == 80 && r.CIDR == all })
			if len(g.Rules) < n {
				edits++
				g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 443, To: 8443, CIDR: all, Description: "mine"})
			}
		}
	})
	if edits != 1 {
		t.Fatalf("%d groups edited; want 1", edits)
	}
	e.sync(t, a, s["edited"])
	want := verdicts(t, map[string]policy.Snapshot{"edited": s["edited"]})["edited"]
	if err := differ(e.flows(), e.passes(), want); err != nil {
		t.Error(err)
	}
}

// All but one port of TCP cannot be written for every protocol there is: what is
// left out is told, in the name of the rule that is to blame.
func TestOtherProtocols(t *testing.T) {
	s := shop()
	w, _ := s.Workloads.Get("ee/shop/vm-0")
	open := *w
	open.Isolation = policy.IsolateNone
	s.Workloads = s.Workloads.Put(open.ID, &open)
	s = with(s, &policy.Policy{Name: "p", AppliedTo: app("web"), Ingress: []policy.Rule{{Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: tcp(22)}}})
	objects, refusals := aws.Lower(aws.Place{}, rulesetOf(t, s))
	for protocol, want := range map[policy.Protocol]bool{policy.TCP: true, policy.UDP: true, policy.SCTP: true, policy.ICMP: true, policy.OtherProtocol: false} {
		f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("198.51.100.1")}, To: policy.Endpoint{Workload: open.ID}, Protocol: protocol, Port: 80}
		got, governed, err := aws.Answer(objects, &open, nil, policy.Ingress, f)
		if got != want || !governed || err != nil {
			t.Errorf("%v: allowed %t, governed %t, %v; want %t", protocol, got, governed, err, want)
		}
	}
	var told []string
	for _, r := range refusals {
		if r.Reason == policy.RefusedProtocol && slices.Contains(r.Workloads, open.ID) {
			told = append(told, r.Rule)
		}
	}
	if !slices.Equal(told, []string{"acnp/p/ingress/0"}) {
		t.Errorf("refused for their protocols: %v; want the rule that drops", told)
	}
}

// A group that has the name of ours and not our tags is another's: ours gets the
// next name, also when the other has come since the last read.
func TestNameTaken(t *testing.T) {
	s := shopVPC.States()["three"]
	first := newShop(t, sim.Options{})
	first.sync(t, first.account(t, aws.Options{}), s)
	for _, late := range []bool{false, true} {
		e := newShop(t, sim.Options{})
		a := e.account(t, aws.Options{})
		if late {
			e.sync(t, a, shop()) // reads
		}
		e.edit(t, func(r *sim.Region) {
			for _, g := range first.ours() {
				r.Groups = append(r.Groups, &sim.Group{ID: "sg-taken" + strings.TrimPrefix(g.ID, "sg-"), VPC: g.VPC, Name: g.Name, Description: g.Description})
			}
		})
		before := e.foreign()
		e.sync(t, a, s)
		if after := e.foreign(); after != before {
			t.Errorf("late %t: another's groups were\n%s\nand are\n%s", late, before, after)
		}
		for class, g := range e.ours() {
			if want := first.ours()[class].Name + "-2"; g.Name != want {
				t.Errorf("late %t: our group is called %s; want %s", late, g.Name, want)
			}
		}
		report := one(t, e.sync(t, e.account(t, aws.Options{}), s))
		if n := len(report.Notes); n != len(first.ours()) {
			t.Errorf("late %t: the notes are %v; want one for each group with a name of ours", late, report.Notes)
		}
	}
}

// Where a group has no place for old and new rules together, they change by
// turns, and no flow breaks that both allow.
func TestTightGroup(t *testing.T) {
	peers := policy.Peers{Set: app("web", "db")} // five that do not aggregate
	from := func(p policy.Ports) policy.Snapshot {
		return with(shop(), &policy.Policy{Name: "p", AppliedTo: app("batch"), Ingress: []policy.Rule{allow(peers, []policy.Traffic{{Protocol: policy.TCP, Ports: p}})}})
	}
	old, wide := from(policy.Ports{First: 80, Last: 443}), from(policy.Ports{First: 443, Last: 9000})
	small := func() (*ec2, *aws.Account) {
		e := serve(t, estate(shop(), sim.Quotas{RulesPerGroup: 6}), sim.Options{NoThrottle: true})
		return e, e.account(t, aws.Options{ManyPeers: 100}, func(c *aws.Config) { c.Quotas.RulesPerGroup = 6 })
	}
	other, b := small()
	other.sync(t, b, wide)
	e, a := small()
	e.sync(t, a, old)
	end := e.watch(e.passes(), other.passes())
	e.sync(t, a, wide)
	if err := end(); err != nil {
		t.Error(err)
	}
	if n := len(e.ours()); n != 1 {
		t.Errorf("%d groups; want 1", n)
	}
}
