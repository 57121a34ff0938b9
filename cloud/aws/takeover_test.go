package aws_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
)

func takeOver(c *aws.Config) { c.TakeOver = "nephe" }

// asNephe makes our groups look as if a Nephe had made them, which remembers
// nothing of what interfaces had before.
func asNephe(r *sim.Region) {
	names := map[string]string{"enforcement": "nephe-at-", "membership": "nephe-ag-"}
	for _, g := range r.Groups {
		if g.Tags["isobar.dev/cluster"] == "" {
			continue
		}
		g.Name, g.Description = names[g.Tags["isobar.dev/kind"]]+g.Tags["isobar.dev/class"], "Managed by nephe controller"
		g.Tags = nil
		for _, x := range g.Rules {
			x.Description = "Name:p, Ns:shop"
		}
	}
	for _, i := range r.Instances {
		for _, n := range i.Interfaces {
			maps.DeleteFunc(n.Tags, func(k, _ string) bool { return strings.HasPrefix(k, "isobar.dev/") })
		}
	}
}

// nephes returns the IDs of Nephe's groups, sorted.
func (e *ec2) nephes() []string {
	var out []string
	for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
		if g.Description == "Managed by nephe controller" {
			out = append(out, g.ID)
		}
	}
	slices.Sort(out)
	return out
}

// isFull says whether an interface has no place for as many groups again.
func (e *ec2) isFull() bool {
	for _, i := range e.Estate().Accounts[0].Regions[0].Instances {
		if slices.ContainsFunc(i.Interfaces, func(n *sim.Interface) bool { return len(n.Groups) > 8 }) {
			return true
		}
	}
	return false
}

// What a Nephe enforces is taken over with no flow cut that passes before and
// after, and none opened in between, whatever the policies; nothing of Nephe's is
// left, and nothing is written a second time.
func TestTakeOver(t *testing.T) {
	worlds := 20
	if testing.Short() {
		worlds = 8
	}
	taken := 0
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		s := distinct(policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		// Interfaces have places enough to keep old groups beside new ones.
		e := serve(t, estate(s, sim.Quotas{GroupsPerInterface: 16}), sim.Options{NoThrottle: true})
		account := func(change ...func(*aws.Config)) *aws.Account {
			return e.account(t, aws.Options{}, append(change, func(c *aws.Config) { c.Quotas.GroupsPerNIC = 16 })...)
		}
		e.sync(t, account(), s)
		e.edit(t, asNephe)
		taken += len(e.nephes())

		a := account(takeOver)
		end := e.recordFor(s, policytest.Flows(rnd, s, 80), e.isFull())
		reports := e.sync(t, a, s)
		reports = e.sync(t, account(takeOver), s) // what another VPC's groups named
		if err := end(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		if _, err := e.check(s, reports, policytest.Flows(rnd, s, 80)); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		if left := e.nephes(); len(left) > 0 {
			t.Fatalf("seed %d: groups of Nephe are left: %v\n%s", seed, left, text(e.Estate()))
		}
		writes := e.writes()
		e.sync(t, a, s)
		e.sync(t, account(), s) // the request may end
		if n := e.writes(); n != writes {
			t.Fatalf("seed %d: %d writes when nothing has changed: %+v", seed, n-writes, e.Calls().Writes[writes:])
		}
	}
	if taken < worlds {
		t.Errorf("only %d groups were taken over", taken)
	}
}

// nepheShop is the shop as a Nephe has programmed it: policies "web" and "db",
// one for "idle" that is not known here, and a user's rule and reference.
func nepheShop(t *testing.T) *ec2 {
	t.Helper()
	e := newShop(t, sim.Options{})
	e.edit(t, func(r *sim.Region) {
		add := func(id, name string, rules ...*sim.Rule) {
			r.Groups = append(r.Groups, &sim.Group{ID: id, VPC: "vpc-1", Name: "nephe-" + name, Description: "Managed by nephe controller", Rules: rules})
		}
		rule := func(egress bool, port int, cidr, group string) *sim.Rule {
			x := &sim.Rule{Egress: egress, Protocol: "tcp", From: port, To: port, Group: group, Description: "Name:p, Ns:shop"}
			if cidr != "" {
				x.CIDR = netip.MustParsePrefix(cidr)
			}
			return x
		}
		add("sg-agweb", "ag-web")
		add("sg-agdb", "ag-db")
		add("sg-agidle", "ag-idle")
		add("sg-atweb", "at-web", rule(false, 80, "0.0.0.0/0", ""), rule(false, 443, "0.0.0.0/0", ""), rule(true, 5432, "", "sg-agdb"))
		add("sg-atdb", "at-db", rule(false, 5432, "", "sg-agweb"))
		add("sg-atidle", "at-idle", rule(false, 22, "", "sg-agweb"))
		add("sg-similar", "at-similar")
		r.Groups[len(r.Groups)-1].Description = "by hand"
		for i, groups := range [][]string{
			{"sg-agweb", "sg-atweb"}, {"sg-agweb", "sg-atweb"}, {"sg-agweb", "sg-atweb"},
			{"sg-agdb", "sg-atdb"}, {"sg-agdb", "sg-atdb"}, {"sg-agidle", "sg-own1"}, {"sg-atidle"},
		} {
			r.Instances[i].Interfaces[0].Groups = groups
		}
	})
	return e
}

// isolated returns s with VMs as Nephe isolates them.
func isolated(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		c := *w
		c.Isolation = policy.IsolateBoth
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// What no policy here governs keeps Nephe's groups, with all that they name.
func TestTakeOverHolds(t *testing.T) {
	e := nepheShop(t)
	s := isolated(shopVPC.States()["three"])
	before := e.passes()
	e.sync(t, e.account(t, aws.Options{}), s)
	e.sync(t, e.account(t, aws.Options{}), shop())
	if err := differ(e.flows(), e.passes(), before); err != nil {
		t.Errorf("Nephe's groups do not come back when nobody asks to take over: %v", err)
	}

	report := one(t, e.sync(t, e.account(t, aws.Options{}, takeOver), s))
	if err := differ(e.flows(), e.passes(), before); err != nil {
		t.Errorf("taken over, it lets pass something else: %v", err)
	}
	if want := "[sg-agweb sg-atidle]"; fmt.Sprint(e.nephes()) != want {
		t.Errorf("of Nephe's are left %v; want %v: they enforce on a VM that no policy governs", e.nephes(), want)
	}
	if got := e.nic(t, "eni-60").Groups; !slices.Equal(got, []string{"sg-atidle"}) {
		t.Errorf("a VM that no policy governs has %v", got)
	}
	if got := e.nic(t, "eni-50").Groups; !slices.Equal(got, []string{"sg-own1"}) {
		t.Errorf("a peer that nobody names has %v; want its own group alone", got)
	}
	report = one(t, e.sync(t, e.account(t, aws.Options{}, takeOver), s))
	if len(report.Changes) > 0 || !strings.Contains(fmt.Sprint(report.Notes), "{nic/eni-60 Nephe's") {
		t.Errorf("then: %v, notes %v", report.Changes, report.Notes)
	}

	// Peers of ours keep Nephe's groups alone where these are all that they have.
	e.edit(t, func(r *sim.Region) {
		r.Instances[5].Interfaces[0].Groups = []string{"sg-agidle2"}
		r.Groups = append(r.Groups, &sim.Group{ID: "sg-agidle2", VPC: "vpc-1", Name: "nephe-ag-idle2", Description: "Managed by nephe controller"})
	})
	both := app("batch")
	both.Selections[0].Labels[0].Values = []string{"batch", "idle"} // one group of peers
	more := &policy.Policy{Name: "more", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{Set: both}, tcp(22))}}
	e.sync(t, e.account(t, aws.Options{}, takeOver), with(s, more))
	for id, want := range map[string]string{"eni-50": "sg-agidle2", "eni-60": "sg-atidle"} {
		if got := e.nic(t, id).Groups; !slices.Equal(got, []string{want}) {
			t.Errorf("%s has %v; want %s alone", id, got, want)
		}
	}
	e.edit(t, func(r *sim.Region) { r.Instances[5].Interfaces[0].Groups = []string{"sg-own1"} })

	// A policy comes for it, and then all policies go.
	idle := &policy.Policy{Name: "idle", AppliedTo: app("idle"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(22))}}
	e.sync(t, e.account(t, aws.Options{}, takeOver), with(s, idle))
	if err := differ(e.flows(), e.passes(), before); err != nil || len(e.nephes()) > 0 {
		t.Errorf("with a policy for it: %v is left; %v", e.nephes(), err)
	}
	e.sync(t, e.account(t, aws.Options{}, takeOver), shop())
	for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
		if slices.Contains(e.nic(t, "eni-60").Groups, g.ID) && g.Name != "default" {
			t.Errorf("what it had before Nephe is not known, and it gets %s; want the VPC's default group", g.ID)
		}
	}
}

// A group that has a user's rules or is named by a user's group is not deleted.
func TestTakeOverSparesUsers(t *testing.T) {
	e := nepheShop(t)
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			switch g.ID {
			case "sg-atdb":
				g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 9999, To: 9999, CIDR: netip.MustParsePrefix("198.51.100.0/24"), Description: "mine"})
			case "sg-own1":
				g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 8443, To: 8443, Group: "sg-agdb"})
			}
		}
		r.Instances[6].Interfaces[0].Groups = []string{"sg-own1"}
		r.Groups = slices.DeleteFunc(r.Groups, func(g *sim.Group) bool { return g.ID == "sg-atidle" })
	})
	s := isolated(shopVPC.States()["three"])
	for range 2 {
		report := one(t, e.sync(t, e.account(t, aws.Options{}, takeOver), s))
		if want := "[sg-agdb sg-agweb sg-atdb]"; fmt.Sprint(e.nephes()) != want {
			t.Fatalf("of Nephe's are left %v; want %v", e.nephes(), want)
		}
		if !strings.Contains(fmt.Sprint(report.Notes), "rule tcp 9999 198.51.100.0/24 of sg-atdb is not Nephe's") {
			t.Errorf("notes: %v", report.Notes)
		}
	}
	if got := e.nic(t, "eni-30").Groups; !slices.Contains(got, "sg-agdb") || slices.Contains(got, "sg-atdb") {
		t.Errorf("a database has %v; want sg-agdb still, which a user's rule names, and not sg-atdb", got)
	}
	e.sync(t, e.account(t, aws.Options{}, takeOver, func(c *aws.Config) { c.Quotas.GroupsPerNIC = 1 }), s)
	if got := e.nic(t, "eni-30").Groups; len(got) != 1 || strings.HasPrefix(got[0], "sg-a") {
		t.Errorf("with a place for one group a database has %v; want ours", got)
	}
}

// While a group of Nephe's in a peered VPC names one here, it stays, so that its
// members are let in there until that VPC is taken over too.
func TestTakeOverOfPeeredVPCs(t *testing.T) {
	e, s := peeredByNephe(t)
	peers := policy.Peers{Set: app("all")}
	s = with(s, &policy.Policy{Name: "all", AppliedTo: app("all"), Ingress: []policy.Rule{allow(peers, tcp(22))}, Egress: []policy.Rule{allow(peers, tcp(22))}})
	open := func() {
		t.Helper()
		for _, f := range []sim.Flow{{From: "eni-1", To: "eni-2"}, {From: "eni-2", To: "eni-1"}} {
			f.Protocol, f.Port, f.Family = "tcp", 22, "ipv4"
			if v := e.Reach(f); v.Egress.Result != sim.Allowed || v.Ingress.Result != sim.Allowed {
				t.Errorf("%s to %s: %+v", f.From, f.To, v)
			}
		}
	}
	open()
	e.OnChange(open)
	for range 2 {
		e.sync(t, e.account(t, aws.Options{}, takeOver), s)
	}
	if left := e.nephes(); len(left) > 0 {
		t.Errorf("left of Nephe's: %v\n%s", left, text(e.Estate()))
	}
}

// What only Nephe's groups enforce on gets none of ours beside them for the sake of
// another VPC's rules: with it, it would get the VPC's default group.
func TestTakeOverLeavesPeersAlone(t *testing.T) {
	e, s := peeredByNephe(t)
	w, _ := s.Workloads.Get(policy.WorkloadID(policy.KindExternal, "n", "eni-2"))
	c := *w
	c.Labels = policy.LabelsOf(map[string]string{"app": "two"})
	s.Workloads = s.Workloads.Put(c.ID, &c)
	s = with(s, &policy.Policy{Name: "two", AppliedTo: app("two"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("all")}, tcp(22))}})
	before := e.nic(t, "eni-1").Groups
	for range 3 {
		e.sync(t, e.account(t, aws.Options{ManyPeers: 1}, takeOver), s)
		if got := e.nic(t, "eni-1").Groups; !slices.Equal(got, before) {
			t.Fatalf("eni-1 has %v; before it had %v", got, before)
		}
	}
}

// peeredByNephe are two VPCs, each with a machine that lets the other in.
func peeredByNephe(t *testing.T) (*ec2, policy.Snapshot) {
	t.Helper()
	var s policy.Snapshot
	r := &sim.Region{Name: regionID}
	for i := 1; i <= 2; i++ {
		vpc, nic, addr := fmt.Sprint("vpc-", i), fmt.Sprint("eni-", i), netip.MustParseAddr(fmt.Sprintf("10.%d.0.9", i))
		cidrs := []netip.Prefix{netip.PrefixFrom(addr, 16).Masked()}
		r.VPCs = append(r.VPCs, &sim.VPC{ID: vpc, CIDRs: cidrs})
		r.Subnets = append(r.Subnets, &sim.Subnet{ID: subnetOf(vpc), VPC: vpc, CIDRs: cidrs})
		peer := fmt.Sprint("sg-ag", 3-i)
		both := func(egress bool) *sim.Rule {
			return &sim.Rule{Egress: egress, Protocol: "tcp", From: 22, To: 22, Group: peer, Description: "Name:p, Ns:n"}
		}
		r.Groups = append(r.Groups,
			&sim.Group{ID: fmt.Sprint("sg-ag", i), VPC: vpc, Name: "nephe-ag-all", Description: "Managed by nephe controller"},
			&sim.Group{ID: fmt.Sprint("sg-at", i), VPC: vpc, Name: "nephe-at-all", Description: "Managed by nephe controller", Rules: []*sim.Rule{both(false), both(true)}})
		r.Instances = append(r.Instances, &sim.Instance{ID: fmt.Sprint("i-", i), Interfaces: []*sim.Interface{{
			ID: nic, Subnet: subnetOf(vpc), PrivateIPs: []netip.Addr{addr}, Groups: []string{fmt.Sprint("sg-ag", i), fmt.Sprint("sg-at", i)}}}})
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, "n", nic), Kind: policy.KindExternal, Namespace: "n", Name: nic,
			Labels: policy.LabelsOf(map[string]string{"app": "all"}), Addrs: []netip.Addr{addr}, Isolation: policy.IsolateBoth,
			Network: vpc, Target: "aws/n/a/" + regionID + "/" + vpc, Interfaces: []policy.Interface{{ID: nic, Addrs: []netip.Addr{addr}}}}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return serve(t, sim.Estate{
		Accounts: []*sim.Account{{ID: accountID, Keys: []*sim.AccessKey{{ID: keyID, Secret: keySecret}}, Regions: []*sim.Region{r}}},
		Peerings: []*sim.Peering{{ID: "pcx-1", Requester: sim.End{Account: accountID, Region: regionID, VPC: "vpc-1"}, Accepter: sim.End{Account: accountID, Region: regionID, VPC: "vpc-2"}}},
	}, sim.Options{NoThrottle: true}), s
}
