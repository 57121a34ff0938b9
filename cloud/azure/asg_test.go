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
	"isobar.dev/compile"
	"isobar.dev/policy"
	sim "isobar.dev/sim/azure"
)

// openASGs is a subscription that enforces a world of the shop with ASGs.
func openASGs(t *testing.T, s policy.Snapshot) (*arm, *azure.Account) {
	t.Helper()
	e := serve(t, addASGs(estate(shop.Shop(), sim.Quotas{})), sim.Options{NoThrottle: true, Settle: -1})
	a := e.eager(t, azure.Quotas{})
	e.sync(t, a, s)
	e.ResetCalls()
	return e, a
}

// only returns the only one of our ASGs, and its members.
func (e *arm) only(t *testing.T) (string, []string) {
	t.Helper()
	all := e.ourASGs()
	if len(all) != 1 {
		t.Fatalf("ASGs of ours: %v; want one", all)
	}
	for name, members := range all {
		return name, members
	}
	return "", nil
}

// moveTo gives a VM of the shop another app.
func moveTo(s policy.Snapshot, vm int, app string) policy.Snapshot {
	w, _ := s.Workloads.Get(fmt.Sprint("ee/shop/vm-", vm))
	c := *w
	c.Labels = policy.LabelsOf(map[string]string{"app": app})
	s.Workloads = s.Workloads.Put(c.ID, &c)
	return s
}

// A member more or less is one write of its interface, and none of any NSG, also where
// nothing but its membership is ours.
func TestMemberIsOneWrite(t *testing.T) {
	db := shop.States()["db"]
	e, a := openASGs(t, db)
	if _, members := e.only(t); !slices.Equal(members, []string{"nic-0", "nic-1", "nic-2"}) {
		t.Errorf("members %v; want the web VMs", members)
	}
	const write = "NetworkInterfaces_CreateOrUpdate nic-6"
	for _, step := range []struct {
		app          string
		want, writes []string
	}{
		{"web", []string{"nic-0", "nic-1", "nic-2", "nic-6"}, []string{write}},
		{"idle", []string{"nic-0", "nic-1", "nic-2"}, []string{write, write}}, // the tag that says so goes when it has left
	} {
		db = moveTo(db, 6, step.app)
		e.ResetCalls()
		e.sync(t, a, db)
		if got := e.operations(0); !slices.Equal(got, step.writes) {
			t.Errorf("vm-6 becomes %s: writes %v; want %v", step.app, got, step.writes)
		}
		if _, members := e.only(t); !slices.Equal(members, step.want) {
			t.Errorf("members %v, want %v", members, step.want)
		}
	}
	if tags, _ := e.resources(nicType)["nic-6"]["tags"].(map[string]any); len(tags) > 0 {
		t.Errorf("an interface that has left has tags %v", tags)
	}
}

// Where nothing depends on it, an interface joins its ASG in the call that attaches its
// NSG: each interface is written once.
func TestJoinsAsItMoves(t *testing.T) {
	e, _ := openASGs(t, shop.States()["nothing"])
	e.sync(t, e.eager(t, azure.Quotas{}), cloudtest.With(shop.Shop(),
		&policy.Policy{Name: "web", AppliedTo: cloudtest.App("web"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(80))}},
		&policy.Policy{Name: "db", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App("web")}, cloudtest.TCP(5432))}},
		&policy.Policy{Name: "batch", AppliedTo: cloudtest.App("batch"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App("db")}, cloudtest.TCP(22))}},
	))
	written := map[string]int{}
	for _, op := range e.operations(0) {
		written[op]++
	}
	for nic := range 6 {
		if n := written[fmt.Sprintf("NetworkInterfaces_CreateOrUpdate nic-%d", nic)]; n != 1 {
			t.Errorf("nic-%d is written %d times, want once", nic, n)
		}
	}
	if all := slices.Concat(slices.Collect(maps.Values(e.ourASGs()))...); len(all) != 5 {
		t.Errorf("members %v; want those of web and db", all)
	}
}

// Where an interface cannot leave an ASG, those whose rules name it hear of it.
func TestWhomMembersConcern(t *testing.T) {
	db := shop.States()["db"]
	e, a := openASGs(t, moveTo(db, 6, "web"))
	if _, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Operation: "NetworkInterfaces_CreateOrUpdate", Resource: "nic-6", Status: 403, Code: "ScopeLocked"}); err != nil {
		t.Fatal(err)
	}
	report, err := a.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, db))
	if err == nil || len(report.Failed) != 1 {
		t.Fatalf("sync: %v, failed %v; want one failure", err, report.Failed)
	}
	if d := cmp.Diff([]string{"ee/shop/vm-3", "ee/shop/vm-4", "ee/shop/vm-6"}, report.Failed[0].Workloads.IDs); d != "" {
		t.Errorf("whom it concerns: %s", d)
	}
}

// When a group of peers is worth an ASG, and when no more: not at one number.
func TestASGIsStable(t *testing.T) {
	states := shop.States()
	e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	in := func(peers, classes int) *azure.Account { return e.choosy(t, azure.Quotas{}, peers, classes) }
	for _, tt := range []struct {
		why            string
		peers, classes int
		state          string
		want           int
	}{
		{"too few members", 4, 1, "db", 0},
		{"too few classes", 3, 2, "db", 0},
		{"enough", 3, 1, "db", 1},
		{"half of the members and one class keep it", 6, 2, "db", 1},
		{"fewer do not", 7, 1, "db", 0},
		{"and it is not made again", 6, 1, "db", 0},
	} {
		e.sync(t, in(tt.peers, tt.classes), states[tt.state])
		if got := len(e.ourASGs()); got != tt.want {
			t.Errorf("%s: %d ASGs, want %d", tt.why, got, tt.want)
		}
		e.verify(t, tt.state)
	}
}

// apart is a VNet of n VMs whose addresses do not join, of which all may call the first:
// in IPv6, too.
func apart(n int) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i := range n + 1 {
		name, app := fmt.Sprint("vm-", i), "web"
		if i == 0 {
			app = "db"
		}
		a := netip.AddrFrom4([4]byte{172, 16, byte((2*i + 16) >> 8), byte(2*i + 16)})
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
			Labels: policy.LabelsOf(map[string]string{"app": app}), Addrs: []netip.Addr{a}, Network: shop.ID, Target: shop.Target,
			Interfaces: []policy.Interface{{ID: shop.NIC(i), Addrs: []netip.Addr{a}}},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return cloudtest.With(s, &policy.Policy{Name: "db", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App("web")}, cloudtest.TCP(5432))}})
}

// 4,001 addresses fit into an NSG as ASGs, each of 4,000 at most.
func TestAddressesThatDoNotFit(t *testing.T) {
	for _, tt := range []struct {
		n, asgs int
		refused bool
		place   azure.Place
	}{
		{3999, 0, false, azure.Place{}}, // the closing rule counts, too
		{4001, 1, false, azure.Place{}}, // and one address
		{8100, 3, false, azure.Place{}},
		{4001, 0, true, azure.Place{NoASGs: true}},
		{4001, 0, true, azure.Place{ForeignASGs: 2999}},
	} {
		rs := compile.Rulesets(apart(tt.n))[0]
		objects, refusals := azure.Lower(tt.place, rs)
		asgs := 0
		for _, o := range objects {
			if o.ASG != nil {
				asgs++
			}
		}
		if tt.n == 4001 && asgs == 2 {
			asgs = 1 // the one that is over may have an ASG or be an address
		}
		if asgs != tt.asgs || len(refusals) > 0 != tt.refused {
			t.Errorf("%d members: %d ASGs, refusals %v; want %d, %t", tt.n, asgs, refusals, tt.asgs, tt.refused)
		}
		if err := checkObjects(&vnet{place: tt.place, objects: objects}); err != nil {
			t.Errorf("%d members: %v", tt.n, err)
		}
		for _, a := range []string{"172.16.0.18", "172.16.31.78"} {
			f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr(a)}, To: policy.Endpoint{Addr: netip.MustParseAddr("172.16.0.16")}, Protocol: policy.TCP, Port: 5432}
			if allowed, _, err := azure.Answer(objects, rs.Workloads[0].Workload, policy.Ingress, f); err != nil || allowed == tt.refused {
				t.Errorf("%d members: from %s passes: %t, %v", tt.n, a, allowed, err)
			}
		}
	}
}

// The same over the wire, with small quotas that Azure has too: what does not fit as
// addresses does as an ASG, and goes back only when there is place to spare.
func TestQuotaOfASGs(t *testing.T) {
	simQuotas := sim.Quotas{AddressesPerGroup: 12, ConfigsPerApplicationGroup: 10}
	quotas := azure.Quotas{AddressesPerNSG: 12, ConfigsPerASG: 10}
	all := apart(16)
	e := serve(t, estate(all, simQuotas), sim.Options{NoThrottle: true, Settle: -1})
	first := func(n int) policy.Snapshot {
		s := all
		for i := n + 1; i <= 16; i++ {
			s = moveTo(s, i, "idle")
		}
		return s
	}
	for _, tt := range []struct{ members, asgs int }{{11, 0}, {12, 2}, {16, 2}, {9, 2}, {8, 0}, {11, 0}} {
		end := e.record(nil)
		report := e.sync(t, e.choosy(t, quotas, 1000, 1000), first(tt.members))[shop.Target]
		if err := end(); err != nil {
			t.Error(err)
		}
		got := 0
		for _, members := range e.ourASGs() {
			got++
			if len(members) > 10 {
				t.Errorf("%d members in an ASG", len(members))
			}
		}
		if got != tt.asgs || len(report.Refusals) > 0 {
			t.Errorf("%d members: %d ASGs, refusals %v; want %d and none", tt.members, got, report.Refusals, tt.asgs)
		}
		for i := 1; i <= 16; i++ {
			v := e.Reach(sim.Flow{From: shop.NIC(i), To: shop.NIC(0), Protocol: "tcp", Port: 5432, Family: "ipv4"})
			if passes := v.Ingress.Result == sim.Allowed; passes != (i <= tt.members) {
				t.Errorf("%d members: from vm-%d passes: %t", tt.members, i, passes)
			}
		}
	}
}

// An ASG that is gone, and an interface that has been taken out of one, are put right.
func TestDriftOfASGs(t *testing.T) {
	e, _ := openASGs(t, shop.States()["db"])
	name, _ := e.only(t)
	id := networkID + "applicationSecurityGroups/" + name
	e.change(t, "nic-1", func(_ sim.Document, p map[string]any) { setASGs(p) })
	e.change(t, "nic-6", func(_ sim.Document, p map[string]any) { setASGs(p, id) })
	if v := e.Reach(sim.Flow{From: shop.NIC(6), To: shop.NIC(3), Protocol: "tcp", Port: 5432}); v.Ingress.Result != sim.Allowed {
		t.Fatal("who is put into the ASG is not let pass")
	}
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	e.verify(t, "db")
	if _, members := e.only(t); !slices.Equal(members, []string{"nic-0", "nic-1", "nic-2"}) {
		t.Errorf("members %v; want the web VMs", members)
	}
	e.edit(t, func(s *sim.Subscription) { // by force: all that names it, and it
		s.Resources = slices.DeleteFunc(s.Resources, func(r sim.Document) bool { return strings.EqualFold(fmt.Sprint(r["id"]), id) })
		for _, r := range s.Resources {
			p, _ := r["properties"].(map[string]any)
			switch r["type"] {
			case nicType:
				setASGs(p)
			case nsgType:
				p["securityRules"] = slices.DeleteFunc(p["securityRules"].([]any), func(x any) bool {
					_, names := x.(map[string]any)["properties"].(map[string]any)["sourceApplicationSecurityGroups"]
					return names
				})
			}
		}
	})
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	e.verify(t, "db")
}

// setASGs gives an interface those ASGs.
func setASGs(properties map[string]any, ids ...string) {
	for _, c := range properties["ipConfigurations"].([]any) {
		p := c.(map[string]any)["properties"].(map[string]any)
		delete(p, "applicationSecurityGroups")
		var list []any
		for _, id := range ids {
			list = append(list, object{"id": id})
		}
		if len(list) > 0 {
			p["applicationSecurityGroups"] = list
		}
	}
}

// An ASG that others have come to rely on is told, and is theirs in the end.
func TestASGLeftToOthers(t *testing.T) {
	e, a := openASGs(t, shop.States()["db"])
	name, _ := e.only(t)
	id := networkID + "applicationSecurityGroups/" + name
	e.change(t, "own", func(_ sim.Document, p map[string]any) {
		p["securityRules"] = append(p["securityRules"].([]any), object{"name": "mine", "properties": object{"protocol": "Tcp", "access": "Deny", "direction": "Inbound", "priority": 200,
			"sourceApplicationSecurityGroups": []any{object{"id": id}}, "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "1"}})
	})
	report := e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])[shop.Target]
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0].Text, `rule "mine" of NSG own`) {
		t.Errorf("notes %v; want the rule of others", report.Notes)
	}
	a.Enforcer(location, shop.ID).Forget()
	e.sync(t, a, shop.States()["nothing"])
	left := e.resources(asgType)[name]
	if tags, _ := left["tags"].(map[string]any); left == nil || len(tags) > 0 {
		t.Errorf("the ASG has become %v; want it without tags", left)
	}
	// The next one has another name, since this one is taken.
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	if other, members := e.only(t); other == name || len(members) != 3 {
		t.Errorf("ASG %s has %v; want another than %s, with the web VMs", other, members, name)
	}
	e.verify(t, "db")
}

// Without the right to list ASGs there are none; where some are in use nothing is done.
func TestNoRightToASGs(t *testing.T) {
	may := func(e *arm, may bool) {
		now := e.Estate()
		now.Tenants[0].Applications[0].Deny = nil
		if !may {
			now.Tenants[0].Applications[0].Deny = []string{asgType + "/read"}
		}
		if err := e.Restore(now); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := openASGs(t, shop.States()["nothing"])
	may(e, false)
	report := e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])[shop.Target]
	if len(e.ourASGs()) != 0 || len(report.Notes) != 1 || !strings.Contains(report.Notes[0].Text, "application security groups may not be read") {
		t.Errorf("ASGs %v, notes %v; want none and one", e.ourASGs(), report.Notes)
	}
	e.verify(t, "db")
	may(e, true)
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	e.only(t)
	may(e, false)
	writes := e.writes()
	if _, err := e.eager(t, azure.Quotas{}).Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, shop.States()["edited"])); err == nil || e.writes() != writes {
		t.Errorf("sync where ASGs in use cannot be read: %v, %d writes", err, e.writes()-writes)
	}
	e.verify(t, "db")
}

// While an interface cannot be written, no rule changes that would mean something else by
// it, and those whose rules these are hear of it.
func TestRulesWaitForMembers(t *testing.T) {
	for _, tt := range []struct{ from, to string }{{"nothing", "db"}, {"few", "db"}, {"mesh", "db"}, {"db", "mesh"}, {"three", "mesh"}, {"deny", "three"}} {
		for nic := range cloudtest.VMs {
			e, _ := openASGs(t, shop.States()[tt.from])
			want := e.ask(shopFlows())
			fresh, _ := openASGs(t, shop.States()[tt.to])
			then := fresh.ask(shopFlows())
			end := e.watch(shopFlows(), want, then)
			id, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Operation: "NetworkInterfaces_CreateOrUpdate", Resource: fmt.Sprintf("*/nic-%d", nic), Status: 403, Code: "ScopeLocked"})
			if err != nil {
				t.Fatal(err)
			}
			rs := rulesetOf(t, shop.States()[tt.to])
			report, err := e.eager(t, azure.Quotas{}).Enforcer(location, shop.ID).Sync(t.Context(), rs)
			if seen := end(); seen != nil {
				t.Errorf("%s to %s without nic-%d: %v", tt.from, tt.to, nic, seen)
			}
			concerned := map[string]bool{}
			for _, f := range report.Failed {
				for _, w := range f.Workloads.IDs {
					concerned[w] = true
				}
			}
			for i, now := range e.ask(shopFlows()) {
				f := shopFlows()[i]
				if now != then[i] && !concerned[vmOf(f.From)] && !concerned[vmOf(f.To)] {
					t.Errorf("%s to %s without nic-%d: %s to %s:%d passes: %+v, want %+v, and nothing says so: %v", tt.from, tt.to, nic, f.From, f.To, f.Port, now, then[i], err)
				}
			}
			e.ClearFaults(id)
			e.sync(t, e.eager(t, azure.Quotas{}), shop.States()[tt.to])
			e.verify(t, tt.to)
		}
	}
}

// vmOf returns the ID of the workload with an interface of the shop.
func vmOf(nic string) string { return "ee/shop/vm-" + nic[strings.LastIndexByte(nic, '-')+1:] }

// Two VNets in a resource group have ASGs of their own, and what of another VNet has been
// put into one makes it one that no rule names.
func TestSpoiledASG(t *testing.T) {
	e, _ := openASGs(t, shop.States()["nothing"])
	e.edit(t, func(s *sim.Subscription) {
		prefixes := []any{"172.17.0.0/16"}
		s.Resources = append(s.Resources,
			sim.Document{"id": networkID + "virtualNetworks/other", "type": "Microsoft.Network/virtualNetworks", "location": location, "properties": object{
				"addressSpace": object{"addressPrefixes": prefixes}, "subnets": []any{object{"name": "main", "properties": object{"addressPrefixes": prefixes}}}}},
			sim.Document{"id": networkID + "networkInterfaces/stranger", "type": nicType, "location": location, "properties": object{"ipConfigurations": []any{
				object{"name": "ip0", "properties": object{"primary": true, "privateIPAddressVersion": "IPv4", "subnet": object{"id": networkID + "virtualNetworks/other/subnets/main"}}}}}})
	})
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	name, _ := e.only(t)
	id := networkID + "applicationSecurityGroups/" + name
	for _, nic := range []string{"nic-0", "nic-1", "nic-2"} { // its first member decides of which VNet it is
		e.change(t, nic, func(_ sim.Document, p map[string]any) { setASGs(p) })
	}
	e.change(t, "stranger", func(_ sim.Document, p map[string]any) { setASGs(p, id) })
	report := e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])[shop.Target]
	e.verify(t, "db")
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0].Text, "stranger has it") {
		t.Errorf("notes %v; want one of the stranger", report.Notes)
	}
	all := e.ourASGs()
	if len(all) != 1 || all[name] != nil {
		t.Errorf("ASGs %v; want another one than %s, which is left to others", all, name)
	}
	if _, there := e.resources(asgType)[name]; !there {
		t.Error("the ASG is gone, and others have it")
	}
}

// The interfaces of uniform scale sets are not seen one by one: a set whose machines are
// made with an ASG of ours makes it one that no rule names.
func TestScaleSetInASG(t *testing.T) {
	e, _ := openASGs(t, shop.States()["db"])
	name, _ := e.only(t)
	e.edit(t, func(s *sim.Subscription) {
		s.Resources = append(s.Resources, sim.Document{
			"id": groupID + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool", "type": "Microsoft.Compute/virtualMachineScaleSets", "location": location,
			"sku": object{"name": "Standard_B2s", "capacity": 0}, "properties": object{
				"upgradePolicy": object{"mode": "Manual"}, "orchestrationMode": "Uniform",
				"virtualMachineProfile": object{"networkProfile": object{"networkInterfaceConfigurations": []any{object{"name": "nic", "properties": object{"primary": true,
					"ipConfigurations": []any{object{"name": "ip", "properties": object{"subnet": object{"id": shop.ID + "/subnets/main"},
						"applicationSecurityGroups": []any{object{"id": networkID + "applicationSecurityGroups/" + name}}}}}}}}}},
			}})
	})
	before := e.ask(shopFlows())
	end := e.watch(shopFlows(), before, before)
	report := e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])[shop.Target]
	if err := end(); err != nil {
		t.Error(err)
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0].Text, "/pool has it") {
		t.Errorf("notes %v; want one of the scale set", report.Notes)
	}
	if other, members := e.only(t); other == name || len(members) != 3 {
		t.Errorf("ASG %s has %v; want another than %s, with the web VMs", other, members, name)
	}
	e.verify(t, "db")
}

// Rules and members change at once, so that an interface has a right moment to change
// its ASGs only before, after or around the rules, or none: then another ASG is needed.
// Nothing is cut or opened meanwhile, wherever the way is interrupted.
func TestRulesAndMembersAtOnce(t *testing.T) {
	either := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces,
		Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{"batch", "web"}}}}}}
	db := func(s policy.Snapshot, rules ...policy.Rule) policy.Snapshot {
		return cloudtest.With(s, &policy.Policy{Name: "db", AppliedTo: cloudtest.App("db"), Ingress: rules})
	}
	from := func(set policy.Set, port uint16) policy.Rule {
		return cloudtest.Allow(policy.Peers{Set: set}, cloudtest.TCP(port))
	}
	deny := func(set policy.Set, port uint16) policy.Rule {
		return policy.Rule{Action: policy.Drop, Peers: policy.Peers{Set: set}, Traffic: cloudtest.TCP(port)}
	}
	web, batch, all := cloudtest.App("web"), cloudtest.App("batch"), cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(80, 443, 5432))
	plain, moved := shop.Shop(), moveTo(shop.Shop(), 5, "web")
	for name, states := range map[string][2]policy.Snapshot{
		"another group of the same":     {db(plain, from(web, 80)), db(plain, from(either, 80))},
		"named by address before":       {db(plain, from(web, 80), from(batch, 443)), db(moved, from(web, 443))},
		"a port changes":                {db(plain, from(web, 80)), db(moved, from(web, 443))},
		"a group is denied":             {db(plain, all), db(moved, deny(web, 80), all)},
		"another is denied":             {db(plain, deny(web, 80), all), db(moved, deny(either, 80), all)},
		"denied at one port, then more": {db(plain, deny(web, 80), deny(batch, 443), all), db(moved, deny(web, 443), all)},
	} {
		for _, back := range []bool{false, true} {
			a, b := states[0], states[1]
			if back {
				a, b = b, a
			}
			for crash := -1; ; crash++ {
				e, account := openASGs(t, a)
				fresh := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
				fresh.sync(t, fresh.account(t), b)
				end := e.watch(shopFlows(), e.ask(shopFlows()), fresh.ask(shopFlows()))
				var err error
				if crash >= 0 {
					id, _ := e.AddFault(sim.Fault{Kind: sim.FaultError, Operation: mutations, Skip: crash})
					_, err = account.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, b))
					e.ClearFaults(id)
				}
				e.sync(t, e.eager(t, azure.Quotas{}), b)
				if seen := end(); seen != nil {
					t.Errorf("%s, back %t, crash %d: %v", name, back, crash, seen)
				}
				if d := cmp.Diff(fresh.ask(shopFlows()), e.ask(shopFlows()), cmp.AllowUnexported(sides{})); d != "" {
					t.Errorf("%s, back %t: not what a new cloud lets pass: %s", name, back, d)
				}
				if crash >= 0 && err == nil || testing.Short() {
					break
				}
			}
		}
	}
}

// In a mesh, whose rules name all whom they are for, interfaces join before they move.
func TestMeshJoinsFirst(t *testing.T) {
	e, _ := openASGs(t, shop.States()["nothing"])
	end := e.record(shopFlows())
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["mesh"])
	if err := end(); err != nil {
		t.Error(err)
	}
	e.verify(t, "mesh")
	if all := slices.Concat(slices.Collect(maps.Values(e.ourASGs()))...); len(all) != 5 {
		t.Errorf("members %v; want all that are in the mesh", all)
	}
}

// An interface with many ASGs of others keeps them, and is an address where there is no
// place for ours.
func TestFullInterface(t *testing.T) {
	e, _ := openASGs(t, shop.States()["nothing"])
	var ids []string
	e.edit(t, func(s *sim.Subscription) {
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("%sapplicationSecurityGroups/many-%d", networkID, i))
			s.Resources = append(s.Resources, sim.Document{"id": ids[i], "type": asgType, "location": location, "properties": object{}})
		}
	})
	e.change(t, "nic-0", func(_ sim.Document, p map[string]any) { setASGs(p, ids[:19]...) })
	e.change(t, "nic-1", func(_ sim.Document, p map[string]any) { setASGs(p, ids[:18]...) })
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["db"])
	e.verify(t, "db")
	if _, members := e.only(t); !slices.Equal(members, []string{"nic-1", "nic-2"}) {
		t.Errorf("members %v; want those that have a place for two", members)
	}
	e.sync(t, e.eager(t, azure.Quotas{}), shop.States()["nothing"])
	if got := slices.Collect(maps.Keys(e.ourASGs())); len(got) > 0 {
		t.Errorf("ASGs %v are left", got)
	}
}

// While Azure has not done what was asked for, an interface does not have what it says:
// one that could not join is no member for rules, and one that could not leave leaves.
func TestUnsettledMembers(t *testing.T) {
	db := shop.States()["db"]
	for _, tt := range []struct {
		name     string
		from, to policy.Snapshot
		nic      string
	}{
		{"joins", shop.States()["few"], db, "nic-1"},
		{"leaves", moveTo(db, 6, "web"), db, "nic-6"},
		{"leaves for good", db, shop.States()["nothing"], "nic-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, a := openASGs(t, tt.from)
			before := e.ask(shopFlows())
			if _, err := e.AddFault(sim.Fault{Kind: sim.FaultOperation, Operation: "NetworkInterfaces_CreateOrUpdate", Resource: tt.nic, Count: 1}); err != nil {
				t.Fatal(err)
			}
			fresh := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
			fresh.sync(t, fresh.account(t), tt.to)
			after := fresh.ask(shopFlows())
			end := e.watch(shopFlows(), before, after)
			if _, err := a.Enforcer(location, shop.ID).Sync(t.Context(), rulesetOf(t, tt.to)); err == nil {
				t.Error("an operation fails, and the sync does not")
			}
			e.sync(t, e.eager(t, azure.Quotas{}), tt.to)
			if err := end(); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(after, e.ask(shopFlows()), cmp.AllowUnexported(sides{})); d != "" {
				t.Errorf("not what a new cloud lets pass: %s", d)
			}
		})
	}
}

// Another cluster's interface is not written for a peer.
func TestASGsOfTwoClusters(t *testing.T) {
	e, _ := openASGs(t, shop.States()["nothing"])
	web := cloudtest.With(shop.Shop(), &policy.Policy{Name: "web", AppliedTo: cloudtest.App("web"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{All: true}, cloudtest.TCP(80))}})
	e.sync(t, e.account(t, func(c *azure.Config) { c.Cluster = "other" }), web)
	before := text(e.Estate(), anything)
	a := e.eager(t, azure.Quotas{})
	e.sync(t, a, shop.States()["db"])
	if got := e.ourASGs(); len(got) > 0 {
		t.Errorf("ASGs %v of interfaces on which another cluster enforces", got)
	}
	e.sync(t, a, shop.States()["nothing"])
	if d := cmp.Diff(before, text(e.Estate(), anything)); d != "" {
		t.Errorf("not as before: %s", d)
	}
}

// What Azure takes for ICMP in IPv6 is not known: members that have both families are no
// ASG where ICMP is allowed, and for TCP they are. An interface without IPv6 has no rules
// for it, and so names none of them.
func TestICMPOfBothFamilies(t *testing.T) {
	dual := func(s policy.Snapshot, vms ...int) policy.Snapshot {
		for _, vm := range vms {
			w, _ := s.Workloads.Get(fmt.Sprint("ee/shop/vm-", vm))
			c := *w
			c.Addrs = append(slices.Clone(w.Addrs), netip.MustParseAddr(fmt.Sprintf("fd01::%d", 10+2*vm)))
			c.Interfaces = []policy.Interface{{ID: shop.NIC(vm), Addrs: c.Addrs}}
			s.Workloads = s.Workloads.Put(c.ID, &c)
		}
		return s
	}
	every := []policy.Traffic{{Protocol: policy.ICMP}, {Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}}
	for _, tt := range []struct {
		peers     string
		batch     bool // has IPv6, as web has
		icmp, tcp bool
	}{{"web", true, false, true}, {"web", false, false, false}, {"db", true, true, true}, {"db", false, true, true}} {
		s := dual(shop.Shop(), 0, 1, 2)
		if tt.batch {
			s = dual(s, 5)
		}
		world := cloudtest.With(s, &policy.Policy{Name: "p", AppliedTo: cloudtest.App("batch"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App(tt.peers)}, every)}})
		objects, _ := azure.Lower(azure.Place{ManyPeers: 2, ManyClasses: 1}, compile.Rulesets(world)[0])
		named := map[string]bool{}
		for _, o := range objects {
			if o.NSG == nil {
				continue
			}
			for _, r := range o.NSG.Ingress {
				if r.Allow {
					named[r.Protocol] = named[r.Protocol] || len(r.Groups) > 0
				}
			}
		}
		if d := cmp.Diff(map[string]bool{"Icmp": tt.icmp, "Tcp": tt.tcp}, named); d != "" {
			t.Errorf("peers %s of one that has IPv6 %t: protocols whose rules name an ASG: %s", tt.peers, tt.batch, d)
		}
	}
}
