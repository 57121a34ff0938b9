package azure_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/policy"
	sim "isobar.dev/sim/azure"
)

// open is a subscription that enforces a state of the shop.
func open(t *testing.T, state string) *arm {
	t.Helper()
	e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	e.sync(t, e.account(t), shop.States()[state])
	return e
}

// resources returns the resources of a type, by name.
func (e *arm) resources(kind string) map[string]sim.Document {
	out := map[string]sim.Document{}
	for _, r := range e.Estate().Subscriptions[0].Resources {
		if strings.EqualFold(fmt.Sprint(r["type"]), kind) {
			id := fmt.Sprint(r["id"])
			out[id[strings.LastIndexByte(id, '/')+1:]] = r
		}
	}
	return out
}

const nicType = "Microsoft.Network/networkInterfaces"

// ours returns the names of our NSGs.
func (e *arm) ours() []string {
	var out []string
	for name, r := range e.resources(nsgType) {
		if tags, _ := r["tags"].(map[string]any); tags["isobar.dev-cluster"] == "test" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// nsgOf returns the name of the NSG of an interface, or "".
func (e *arm) nsgOf(nic string) string {
	properties := e.resources(nicType)[nic]["properties"].(map[string]any)
	group, _ := properties["networkSecurityGroup"].(map[string]any)
	id := fmt.Sprint(group["id"])
	return strings.TrimPrefix(id[strings.LastIndexByte(id, '/')+1:], "<nil>")
}

// rules returns the priorities of the rules of an NSG, by direction and name.
func (e *arm) rules(name string) map[string]int {
	out := map[string]int{}
	properties, _ := e.resources(nsgType)[name]["properties"].(map[string]any)
	list, _ := properties["securityRules"].([]any)
	for _, x := range list {
		r := x.(map[string]any)
		p := r["properties"].(map[string]any)
		var n int
		fmt.Sscan(fmt.Sprint(p["priority"]), &n)
		out[fmt.Sprint(p["direction"], " ", r["name"])] = n
	}
	return out
}

// change edits the properties of a resource by another's hand.
func (e *arm) change(t *testing.T, name string, f func(r sim.Document, properties map[string]any)) {
	t.Helper()
	found := false
	e.edit(t, func(s *sim.Subscription) {
		for _, r := range s.Resources {
			if strings.HasSuffix(fmt.Sprint(r["id"]), "/"+name) {
				f(r, r["properties"].(map[string]any))
				found = true
			}
		}
	})
	if !found {
		t.Fatalf("there is no %s", name)
	}
}

func (e *arm) verify(t *testing.T, state string) {
	t.Helper()
	want := verdicts(t, map[string]policy.Snapshot{state: shop.States()[state]})[state]
	flows := shopFlows()
	for i, got := range e.ask(flows) {
		if got != want[i] {
			t.Fatalf("in %q %s to %s:%d passes: %+v, want %+v", state, flows[i].From, flows[i].To, flows[i].Port, got, want[i])
		}
	}
}

// What others change in what is ours is put right by the next one who reads, and
// nothing else is touched.
func TestDrift(t *testing.T) {
	first := func(e *arm) string { return e.nsgOf("nic-0") }
	for name, drift := range map[string]func(*testing.T, *arm){
		"a rule gone": func(t *testing.T, e *arm) {
			e.change(t, first(e), func(_ sim.Document, p map[string]any) { p["securityRules"] = p["securityRules"].([]any)[1:] })
		},
		"a rule turned": func(t *testing.T, e *arm) {
			e.change(t, first(e), func(_ sim.Document, p map[string]any) {
				p["securityRules"].([]any)[0].(map[string]any)["properties"].(map[string]any)["access"] = "Deny"
			})
		},
		"a rule narrowed": func(t *testing.T, e *arm) {
			e.change(t, first(e), func(_ sim.Document, p map[string]any) {
				p["securityRules"].([]any)[0].(map[string]any)["properties"].(map[string]any)["sourcePortRange"] = "1024"
			})
		},
		"rules in another order": func(t *testing.T, e *arm) {
			e.change(t, first(e), func(_ sim.Document, p map[string]any) {
				a := p["securityRules"].([]any)[0].(map[string]any)["properties"].(map[string]any)
				a["priority"] = 4096 - 1
				b := p["securityRules"].([]any)[1].(map[string]any)["properties"].(map[string]any)
				b["priority"] = 100
			})
		},
		"another NSG on an interface": func(t *testing.T, e *arm) {
			e.change(t, "nic-1", func(_ sim.Document, p map[string]any) {
				p["networkSecurityGroup"] = map[string]any{"id": networkID + "networkSecurityGroups/own"}
			})
		},
		"no NSG on an interface": func(t *testing.T, e *arm) {
			e.change(t, "nic-1", func(_ sim.Document, p map[string]any) { delete(p, "networkSecurityGroup") })
		},
		"no tags on an interface": func(t *testing.T, e *arm) {
			e.change(t, "nic-1", func(r sim.Document, _ map[string]any) { delete(r, "tags") })
		},
		"no tags on an NSG": func(t *testing.T, e *arm) {
			e.change(t, first(e), func(r sim.Document, _ map[string]any) { delete(r, "tags") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, "three")
			drift(t, e)
			e.sync(t, e.account(t), shop.States()["three"])
			e.verify(t, "three")
			writes := e.writes()
			e.sync(t, e.account(t), shop.States()["three"])
			if n := e.writes() - writes; n != 0 {
				t.Errorf("%d writes when all is right again", n)
			}
		})
	}
}

// A rule of a user in an NSG of ours stays, with its priority, is told, and counts
// against the quota. When the NSG is no longer needed it is left to him, without
// anything of ours.
func TestRulesOfOthers(t *testing.T) {
	e := open(t, "db")
	name := e.nsgOf("nic-3")
	theirs := object{"name": "mine", "properties": object{"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 4000, "description": "the auditor's",
		"sourceAddressPrefix": "198.51.100.0/24", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "5432"}}
	e.change(t, name, func(_ sim.Document, p map[string]any) {
		p["securityRules"] = append(p["securityRules"].([]any), theirs)
	})
	a := e.account(t)
	report := e.sync(t, a, shop.States()["db"])[shop.Target]
	if len(report.Changes) != 0 || len(report.Notes) != 1 || !strings.Contains(report.Notes[0].Text, `"mine"`) || !strings.Contains(report.Notes[0].Text, "allowed") {
		t.Errorf("changes %v, notes %v; want no change and a note of the rule", report.Changes, report.Notes)
	}
	for _, state := range []string{"edited", "deny", "nothing"} {
		e.sync(t, a, shop.States()[state])
		if got := e.rules(name)["Inbound mine"]; got != 4000 {
			t.Fatalf("in %q the rule of others has priority %d, want 4000: %v", state, got, e.rules(name))
		}
	}
	if d := cmp.Diff(map[string]int{"Inbound mine": 4000}, e.rules(name)); d != "" {
		t.Errorf("what is left of the NSG: %s", d)
	}
	if ours := e.ours(); len(ours) != 0 {
		t.Errorf("%v are ours, want none", ours)
	}
	// Its name is taken, and another NSG does.
	e.sync(t, e.account(t), shop.States()["db"])
	e.verify(t, "db")
	if got := e.nsgOf("nic-3"); got == name {
		t.Errorf("the interface has %s, which is not ours any more", got)
	}
}

// Rules of others that leave no place are a quota like any other.
func TestRulesOfOthersTakePlace(t *testing.T) {
	e := open(t, "deny")
	name := e.nsgOf("nic-0")
	e.change(t, name, func(_ sim.Document, p map[string]any) {
		p["securityRules"] = append(p["securityRules"].([]any), object{"name": "mine", "properties": object{"protocol": "Tcp", "access": "Deny", "direction": "Outbound", "priority": 100,
			"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "25"}})
	})
	room := len(e.rules(name)) - 1
	a := e.account(t, func(c *azure.Config) { c.Quotas.RulesPerNSG = room })
	report := e.sync(t, a, shop.States()["deny"])[shop.Target]
	if len(report.Refusals) == 0 || report.Refusals[0].Reason != policy.RefusedQuota {
		t.Errorf("refusals %v; want the quota", report.Refusals)
	}
	for _, u := range report.Usage {
		if u.Used > u.Limit {
			t.Errorf("over the quota: %+v", u)
		}
	}
}

// While there is a gap, a rule more changes the priority of no other, and every NSG has
// each priority once, from 100 to 4096.
func TestPrioritiesStay(t *testing.T) {
	e := open(t, "nothing")
	a := e.account(t)
	state := func(ports ...uint16) policy.Snapshot {
		var rules []policy.Rule
		for i, p := range ports {
			rules = append(rules, policy.Rule{Action: []policy.Action{policy.Allow, policy.Drop}[i%2], Peers: policy.Peers{All: true}, Traffic: cloudtest.TCP(p)})
		}
		return cloudtest.With(shop.Shop(), &policy.Policy{Name: "p", Priority: 5, AppliedTo: cloudtest.App("db"), Ingress: rules})
	}
	e.sync(t, a, state(1, 2, 3, 4, 5))
	name := e.nsgOf("nic-3")
	before := e.rules(name)
	for _, s := range []policy.Snapshot{state(1, 2, 3, 4, 5, 6, 7), state(1, 2, 9, 4, 5), state(1, 2, 3, 4, 5)} {
		e.sync(t, a, s)
		now := e.rules(name)
		seen := map[string]bool{}
		for rule, n := range now {
			dir, _, _ := strings.Cut(rule, " ")
			if at := fmt.Sprint(dir, n); n < 100 || n > 4096 || seen[at] {
				t.Errorf("%s has priority %d, which another one has or nobody can: %v", rule, n, now)
			} else {
				seen[at] = true
			}
			if was, ok := before[rule]; ok && was != n {
				t.Errorf("%s had priority %d and has %d", rule, was, n)
			}
		}
	}
	if e.nsgOf("nic-3") != name {
		t.Error("the interface has another NSG")
	}
}

// A class keeps its NSG when its policies change: no interface is written.
func TestMembershipIsStable(t *testing.T) {
	e := open(t, "db")
	a := e.account(t)
	e.sync(t, a, shop.States()["db"])
	e.ResetCalls()
	more := cloudtest.With(shop.States()["db"], &policy.Policy{Name: "more", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(22))}})
	e.sync(t, a, more)
	if w := e.Calls().Writes; len(w) != 1 || w[0].Operation != "NetworkSecurityGroups_CreateOrUpdate" || w[0].IfMatch == "" {
		t.Errorf("writes %+v; want one of the NSG, with If-Match", w)
	}
}

// Interfaces that change places between NSGs that get other rules: nobody has another's
// rules for a moment, however the calls fall.
func TestChangingPlaces(t *testing.T) {
	relabelled := func(s policy.Snapshot, apps map[int]string) policy.Snapshot {
		for vm, app := range apps {
			w, _ := s.Workloads.Get(fmt.Sprint("ee/shop/vm-", vm))
			c := *w
			c.Labels = policy.LabelsOf(map[string]string{"app": app})
			s.Workloads = s.Workloads.Put(c.ID, &c)
		}
		return s
	}
	policies := func(webPort, dbPort uint16) []*policy.Policy {
		return []*policy.Policy{
			{Name: "web", AppliedTo: cloudtest.App("web"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(webPort))}},
			{Name: "db", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App("web")}, cloudtest.TCP(dbPort))}},
		}
	}
	from := cloudtest.With(shop.Shop(), policies(80, 5432)...)
	for name, to := range map[string]policy.Snapshot{
		"one goes":    cloudtest.With(relabelled(shop.Shop(), map[int]string{0: "db"}), policies(443, 8443)...),
		"two swap":    cloudtest.With(relabelled(shop.Shop(), map[int]string{0: "db", 3: "web"}), policies(443, 8443)...),
		"all swap":    cloudtest.With(relabelled(shop.Shop(), map[int]string{0: "db", 1: "db", 2: "db", 3: "web", 4: "web"}), policies(443, 8443)...),
		"one class":   cloudtest.With(relabelled(shop.Shop(), map[int]string{3: "web", 4: "web"}), policies(443, 8443)...),
		"three rings": cloudtest.With(relabelled(shop.Shop(), map[int]string{0: "db", 3: "batch", 5: "web"}), append(policies(443, 22), &policy.Policy{Name: "batch", AppliedTo: cloudtest.App("batch"), Egress: []policy.Rule{cloudtest.Allow(policy.Peers{}, nil)}})...),
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
			a := e.account(t)
			e.sync(t, a, from)
			end := e.record(shopFlows())
			e.sync(t, a, to)
			if err := end(); err != nil {
				t.Error(err)
			}
			fresh := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
			fresh.sync(t, fresh.account(t), to)
			if d := cmp.Diff(fresh.ask(shopFlows()), e.ask(shopFlows()), cmp.AllowUnexported(sides{})); d != "" {
				t.Errorf("not what a new cloud lets pass: %s", d)
			}
		})
	}
}

// What an interface has that we know nothing of is there after, and so is its own NSG;
// one that has been deleted meanwhile cannot come back.
func TestOriginals(t *testing.T) {
	e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	e.change(t, "nic-0", func(r sim.Document, p map[string]any) {
		r["tags"] = map[string]any{"team": "shop", "Isobar": "theirs"}
		p["enableIPForwarding"] = true
		p["networkSecurityGroup"] = map[string]any{"id": networkID + "networkSecurityGroups/own"}
	})
	e.edit(t, func(s *sim.Subscription) {
		s.Resources = append(s.Resources, sim.Document{"id": networkID + "networkSecurityGroups/brief", "type": nsgType, "location": location, "properties": object{}})
	})
	e.change(t, "nic-1", func(_ sim.Document, p map[string]any) {
		p["networkSecurityGroup"] = map[string]any{"id": networkID + "networkSecurityGroups/brief"}
	})
	before := text(e.Estate(), anything)
	e.sync(t, e.account(t), shop.States()["three"])
	e.sync(t, e.account(t), shop.States()["nothing"])
	if d := cmp.Diff(before, text(e.Estate(), anything)); d != "" {
		t.Errorf("not as before: %s", d)
	}
	e.sync(t, e.account(t), shop.States()["three"])
	e.edit(t, func(s *sim.Subscription) {
		s.Resources = slices.DeleteFunc(s.Resources, func(r sim.Document) bool { return strings.HasSuffix(fmt.Sprint(r["id"]), "/brief") })
		s.Resources = append(s.Resources, sim.Document{"id": networkID + "networkSecurityGroups/late", "type": nsgType, "location": location, "properties": object{}})
	})
	// What a user attaches while we enforce is his wish from then on.
	e.change(t, "nic-2", func(_ sim.Document, p map[string]any) {
		p["networkSecurityGroup"] = map[string]any{"id": networkID + "networkSecurityGroups/late"}
	})
	e.sync(t, e.account(t), shop.States()["three"])
	e.verify(t, "three")
	e.sync(t, e.account(t), shop.States()["nothing"])
	for nic, want := range map[string]string{"nic-0": "own", "nic-1": "", "nic-2": "late"} {
		if got := e.nsgOf(nic); got != want {
			t.Errorf("%s has NSG %q, want %q", nic, got, want)
		}
	}
}

// Two clusters in a VNet: what one enforces on the other one leaves alone, and says so.
func TestTwoClusters(t *testing.T) {
	e := open(t, "db")
	before := text(e.Estate(), anything)
	other := e.account(t, func(c *azure.Config) { c.Cluster = "other" })
	writes := e.writes()
	if _, err := other.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, shop.States()["nothing"])); err != nil || e.writes() != writes {
		t.Errorf("sync of nothing by another cluster: %v, %d writes", err, e.writes()-writes)
	}
	report, err := other.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, shop.States()["three"]))
	if err == nil || !strings.Contains(err.Error(), `the cluster "test" enforces on it`) {
		t.Errorf("sync by another cluster: %v", err)
	}
	var failed []string
	for _, f := range report.Failed {
		failed = append(failed, f.Workloads.IDs...)
	}
	slices.Sort(failed)
	if d := cmp.Diff([]string{"ee/shop/vm-3", "ee/shop/vm-4"}, slices.Compact(failed)); d != "" {
		t.Errorf("whom the failures concern: %s", d)
	}
	if _, err := other.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, shop.States()["nothing"])); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, text(e.Estate(), anything)); d != "" {
		t.Errorf("not as before: %s", d)
	}
}

// The NSG of a subnet that is not ours is told, and so is what cannot be known.
func TestNotes(t *testing.T) {
	e := open(t, "db")
	e.change(t, "virtualNetworks/shop", func(_ sim.Document, p map[string]any) {
		p["subnets"].([]any)[0].(map[string]any)["properties"].(map[string]any)["networkSecurityGroup"] = map[string]any{"id": networkID + "networkSecurityGroups/own"}
	})
	report := e.sync(t, e.account(t), shop.States()["db"])[shop.Target]
	if len(report.Changes) != 0 || len(report.Notes) != 1 || report.Notes[0].Key != "subnet/main" || !strings.Contains(report.Notes[0].Text, "NSG own") {
		t.Errorf("changes %v, notes %v; want a note of the subnet", report.Changes, report.Notes)
	}
}

// The admin rules that decide before any NSG are told, also that they cannot be read.
func TestAdminRules(t *testing.T) {
	e := open(t, "db")
	now := e.Estate()
	s := now.Subscriptions[0]
	for i, access := range []string{"Deny", "AlwaysAllow", "Allow"} {
		s.AdminRules = append(s.AdminRules, sim.AdminRule{Name: access, VirtualNetworks: []string{shop.ID}, Priority: 10 + i, Direction: "Inbound", Access: access, Protocol: "Tcp"})
	}
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
	told := func() (out []string) {
		report := e.sync(t, e.account(t), shop.States()["db"])[shop.Target]
		for _, n := range report.Notes {
			out = append(out, n.Key+": "+n.Text)
		}
		return out
	}
	want := []string{
		`vnet/shop: the admin rule "AlwaysAllow" of Virtual Network Manager, inbound, priority 11, always allows what it matches, whatever policies deny`,
		`vnet/shop: the admin rule "Deny" of Virtual Network Manager, inbound, priority 10, denies what it matches, whatever policies allow`,
	}
	if d := cmp.Diff(want, told()); d != "" {
		t.Error(d)
	}
	now = e.Estate()
	now.Tenants[0].Applications[0].Deny = []string{"*/" + "listNetworkManagerEffectiveSecurityAdminRules/action"}
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
	if got := told(); len(got) != 1 || !strings.Contains(got[0], "could not be read (denied)") {
		t.Errorf("%v; want that the rules cannot be read", got)
	}
}

// What cannot be read says so, and is never empty.
func TestUnreadablePlaces(t *testing.T) {
	e := open(t, "db")
	rs := rulesetOf(t, shop.States()["nothing"])
	writes := e.writes()
	a := e.account(t)
	for _, tt := range []struct{ region, vnet, want string }{
		{"nowhere", shop.ID, "does not have it"},
		{location, vnetID("gone"), "ResourceNotFound"},
		{location, networkID + "networkSecurityGroups/own", "not the ID of a VNet"},
		{location, "vpc-1", "resource ID"},
	} {
		if _, err := a.Enforcer(tt.region, tt.vnet).Sync(t.Context(), rs); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("sync of %s in %s: %v; want %q", tt.vnet, tt.region, err, tt.want)
		}
	}
	for _, f := range []sim.Fault{
		{Kind: sim.FaultError, Operation: "VirtualNetworks_Get"}, {Kind: sim.FaultError, Operation: "NetworkSecurityGroups_ListAll"}, {Kind: sim.FaultError, Operation: "NetworkInterfaces_ListAll"},
	} {
		id, err := e.AddFault(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.account(t).Enforcer(location, shop.ID).Sync(t.Context(), rs); err == nil {
			t.Errorf("%s of %s: no error", f.Kind, f.Operation)
		}
		e.ClearFaults(id)
	}
	if n := e.writes() - writes; n != 0 {
		t.Errorf("%d writes to what cannot be read", n)
	}
}

// Somebody who writes at the same time loses nothing, and neither do we.
func TestConflicts(t *testing.T) {
	e := open(t, "db")
	for state, faults := range map[string][]sim.Fault{
		"three": {
			{Kind: sim.FaultError, Operation: "NetworkInterfaces_CreateOrUpdate", Code: "PreconditionFailed", Status: 412, Count: 2},
			{Kind: sim.FaultError, Operation: "*_CreateOrUpdate", Code: "TooManyRequests", Status: 429, Count: 1},
		},
		"few": {{Kind: sim.FaultError, Operation: "NetworkSecurityGroups_CreateOrUpdate", Code: "PreconditionFailed", Status: 412, Count: 2}},
	} {
		e.sync(t, e.account(t), shop.States()["db"])
		for _, f := range faults {
			if _, err := e.AddFault(f); err != nil {
				t.Fatal(err)
			}
		}
		e.sync(t, e.account(t), shop.States()[state])
		e.verify(t, state)
		if left := e.Faults(); len(left) > 0 {
			t.Errorf("on the way to %q not all faults have hit: %+v", state, left)
		}
	}
}

// The quota is known before anything is written: what does not fit is refused with its
// costs, nothing of it is half there, and Azure, which has the same quota, takes the rest.
func TestQuota(t *testing.T) {
	blocks := func(base byte, n int) policy.Peers {
		var p policy.Peers
		for i := range n {
			p.Blocks = append(p.Blocks, policy.Block{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", base, 2*i))})
		}
		return p
	}
	rule := func(base byte, n int, ports ...uint16) policy.Rule {
		return cloudtest.Allow(blocks(base, n), cloudtest.TCP(ports...))
	}
	s := cloudtest.With(shop.Shop(), &policy.Policy{Name: "p", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{
		rule(1, 3, 1), rule(2, 40, 2), {Action: policy.Drop, Peers: blocks(3, 2), Traffic: policy.AllTraffic}, rule(4, 20, 4), rule(5, 5, 5),
	}})
	quotas := sim.Quotas{RulesPerSecurityGroup: 20, AddressesPerGroup: 50}
	e := serve(t, estate(shop.Shop(), quotas), sim.Options{NoThrottle: true, Settle: -1})
	a := e.account(t, func(c *azure.Config) { c.Quotas = azure.Quotas{RulesPerNSG: 20, AddressesPerNSG: 50} })
	report := e.sync(t, a, s)[shop.Target]
	want := []policy.Refusal{{Target: shop.Target, Policy: "acnp/p", Rule: "acnp/p/ingress/3", Workloads: []string{"ee/shop/vm-3", "ee/shop/vm-4"}, Reason: policy.RefusedQuota, Limit: 50, Need: 69,
		Costs: []policy.RuleCost{{Rule: "acnp/p/ingress/1", Policy: "acnp/p", Need: 40}, {Rule: "acnp/p/ingress/3", Policy: "acnp/p", Need: 20}, {Rule: "acnp/p/ingress/4", Policy: "acnp/p", Need: 5}}}}
	for i := range report.Refusals {
		report.Refusals[i].Message = ""
	}
	if d := cmp.Diff(want, report.Refusals); d != "" {
		t.Errorf("refusals: %s", d)
	}
	for from, port := range map[string]int{"10.1.0.1": 1, "10.2.0.1": 2, "10.5.0.1": 5, "10.4.0.1": 4} {
		v := e.Reach(sim.Flow{From: from, To: shop.NIC(3), Protocol: "tcp", Port: port, Family: "ipv4"})
		if passes := v.Ingress.Result == sim.Allowed; passes != (port != 4) {
			t.Errorf("from %s to %d passes: %t", from, port, passes)
		}
	}
	// Without the quota in its configuration Azure refuses, and the error says so.
	e = serve(t, estate(shop.Shop(), quotas), sim.Options{NoThrottle: true, Settle: -1})
	if _, err := e.once(t, s); err == nil || !strings.Contains(err.Error(), "50") {
		t.Errorf("sync over the quota of Azure: %v", err)
	}
	if got := slices.Sorted(maps.Keys(e.resources(nsgType))); len(got) != 1 || e.nsgOf("nic-3") != "own" {
		t.Errorf("NSGs %v and %q on the interface; want nothing of ours", got, e.nsgOf("nic-3"))
	}
}

// A priority that a rule of others has is left to it, also where ours would have had it.
func TestPrioritiesOfOthers(t *testing.T) {
	nobody := cloudtest.Allow(policy.Peers{}, cloudtest.TCP(1))
	one := cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(1))
	state := func(rules ...policy.Rule) policy.Snapshot {
		return cloudtest.With(shop.Shop(), &policy.Policy{Name: "p", Priority: 5, AppliedTo: cloudtest.App("db"), Ingress: rules})
	}
	e := open(t, "nothing")
	a := e.account(t)
	e.sync(t, a, state(nobody))
	e.sync(t, a, state(nobody, one))
	name := e.nsgOf("nic-3")
	var would int
	for rule, n := range e.rules(name) {
		if strings.HasPrefix(rule, "Inbound") && n != 4096 {
			would = n
		}
	}
	if would == 0 {
		t.Fatalf("no rule between: %v", e.rules(name))
	}
	e.sync(t, a, state(nobody))
	e.change(t, name, func(_ sim.Document, p map[string]any) {
		p["securityRules"] = append(p["securityRules"].([]any), object{"name": "mine", "properties": object{"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": would,
			"sourceAddressPrefix": "198.51.100.9", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "1"}})
	})
	e.sync(t, e.account(t), state(nobody, one))
	now := e.rules(name)
	if now["Inbound mine"] != would || len(now) != 5 {
		t.Errorf("rules %v; want that of others at %d, and four of ours", now, would)
	}
}
