package acceptance_test

import (
	"fmt"
	"testing"
	"time"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	sim "isobar.dev/sim/aws"
)

// manyOf is VMs of one role in a VPC.
func manyOf(id, role string, n int) network {
	out := network{id: "vpc-" + id}
	for i := range n {
		out.vms = append(out.vms, vm{name: fmt.Sprint(id, i), role: role})
	}
	return wide(out)
}

// references counts the rules of ours that name a group of another VPC, and those
// that name an address.
func (w *world) references() (byGroup, byAddress int) {
	vpcOf := map[string]string{}
	for _, g := range w.securityGroups() {
		vpcOf[g.ID] = g.VPC
	}
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/kind"] != "enforcement" {
			continue
		}
		for _, r := range g.Rules {
			switch {
			case r.Group != "" && vpcOf[r.Group] != g.VPC:
				byGroup++
			case r.CIDR.IsValid() && r.CIDR.Bits() == 32:
				byAddress++
			}
		}
	}
	return byGroup, byAddress
}

const webServesDB = `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}], ports: [{protocol: TCP, port: 5432}]}]`

// Members in a peered VPC are named by one group, wherever they are else by their
// addresses; VMs come and go meanwhile, and the peering goes.
func TestP20_PeeredVPCs(t *testing.T) {
	db, web := manyOf("db", "db", 1), network{id: "vpc-web"}
	for i := range 11 { // every other address is of another, so that no prefix has two
		web.vms = append(web.vms, vm{name: fmt.Sprint("web", i), role: "web"}, vm{name: fmt.Sprint("other", i), role: "other"})
	}
	web = wide(web)
	w := newWorld(t, peer(estate(db, web), "pcx-1", db, web))
	w.start()
	w.account()
	w.importAll()
	p := w.watch(w.flows("5432"))
	p.change("a policy", func() {
		w.policy("db", webServesDB)
		w.settle()
	})
	const matrix = `
		FROM \ TO  db0:5432
		web0       .
		web10      .
		other3     X
	`
	w.mustReach(matrix)
	if byGroup, byAddress := w.references(); byGroup != 1 || byAddress > 11 {
		t.Errorf("%d rules by group and %d by address; want one by group, and the public addresses", byGroup, byAddress)
	}
	w.realized("db")
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()

	p.change("a VM comes, and one goes", func() {
		w.retag(map[string]string{"i-web0": "other", "i-other3": "web"})
		w.settle()
	})
	w.mustReach(`
		FROM \ TO  db0:5432
		web0       X
		web10      .
		other3     .
	`)
	if byGroup, _ := w.references(); byGroup != 1 {
		t.Errorf("%d rules by group; want one", byGroup)
	}
	w.deletePeering("pcx-1")
	w.settle()
	if byGroup, byAddress := w.references(); byGroup != 0 || byAddress == 0 {
		t.Errorf("without the peering %d rules by group, %d by address; want none that is stale", byGroup, byAddress)
	}
	w.removeNamed(policies, "db")
	w.settle()
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/kind"] != "" {
			t.Errorf("%s is left", g.Name)
		}
	}
}

// A VM that leaves the peers of a policy still carries their group until its own VPC has
// taken it: until then the policy is not realized where it applies, and when that VPC cannot,
// the group is named no more.
func TestP20_MemberLeavesPeeredVPC(t *testing.T) {
	db, web := manyOf("db", "db", 1), network{id: "vpc-web"}
	for i := range 12 {
		web.vms = append(web.vms, vm{name: fmt.Sprint("web", i), role: "web"}, vm{name: fmt.Sprint("other", i), role: "other"})
	}
	web = wide(web)
	w := newWorld(t, peer(estate(db, web), "pcx-1", db, web))
	w.start()
	w.account()
	w.importAll()
	w.policy("db", webServesDB)
	w.settle()
	w.realized("db")
	if byGroup, _ := w.references(); byGroup != 1 {
		t.Fatalf("%d rules by group; want one", byGroup)
	}

	w.fault(sim.Fault{Kind: sim.FaultLatency, Action: "ModifyNetworkInterfaceAttribute", Latency: sim.Duration(10 * time.Second)}) // in which all that follows is seen
	w.retag(map[string]string{"i-web0": "other"})
	w.eventually("it waits for the other VPC", func() error { return w.hasPhase("db", antreav1beta1.PolicyRealizing) })
	w.eventually("on its VM too", func() error { return w.vmPolicies(map[string]string{"i-db0": "IN-PROGRESS db"}) })
	w.mustReach(`
		FROM \ TO  db0:5432
		web0       .
		web1       .
	`)
	w.eventuallyReach(`
		FROM \ TO  db0:5432
		web0       X
		web1       .
	`)
	w.sim.ClearFaults()
	w.settle()
	w.realized("db")

	w.fault(sim.Fault{Kind: sim.FaultError, Action: "ModifyNetworkInterfaceAttribute", Code: "UnauthorizedOperation"})
	w.retag(map[string]string{"i-web1": "other"})
	w.eventuallyReach(`
		FROM \ TO  db0:5432
		web0       X
		web1       X
		web2       .
	`)
	w.eventually("whose fault it is", func() error {
		return w.accountSays("Enforced", "False", "Failing", "us-east-1/vpc-web: ", "UnauthorizedOperation")
	})
	w.realized("db")
	if byGroup, _ := w.references(); byGroup != 0 {
		t.Errorf("%d rules by group; want none while the other VPC cannot be written", byGroup)
	}
	w.sim.ClearFaults()
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO  db0:5432
		web0       X
		web1       X
		web2       .
	`)
}

// Where a group cannot be named, every member is by its address: VPCs without a
// peering, another region, another account.
func TestP20_Elsewhere(t *testing.T) {
	const second = "444455556666"
	db, web := manyOf("db", "db", 1), manyOf("web", "web", 10)
	far, foreign := manyOf("far", "web", 10), manyOf("foreign", "web", 10)
	far.region, foreign.account = region2, second
	e := peer(peer(estate(db, web, far, foreign), "pcx-1", db, far), "pcx-2", db, foreign)
	w := newWorld(t, e)
	w.start()
	w.account()
	w.accountOf("second", second)
	w.importAll()
	w.importOf("theirs", "second", "- vpcMatch: {}")
	w.policy("db", webServesDB)
	w.settle()
	w.mustReach(`
		FROM \ TO  db0:5432
		web0       .
		far0       .
		far9       .
		foreign0   .
		foreign9   .
	`)
	if byGroup, _ := w.references(); byGroup != 0 {
		t.Errorf("%d rules by group; want none", byGroup)
	}
	w.realized("db")
}

// An unpeered VPC with the prefix of a peered one does not open the latter.
func TestP20_OverlappingVPCs(t *testing.T) {
	db, peered, unpeered := manyOf("db", "db", 1), manyOf("peered", "other", 1), manyOf("unpeered", "web", 1)
	peered.cidr, unpeered.cidr = "10.77.0.0/16", "10.77.0.0/16"
	w := newWorld(t, peer(estate(db, peered, unpeered), "pcx-1", db, peered))
	w.start()
	w.account()
	w.importAll()
	w.policy("db", webServesDB)
	w.settle()
	w.mustReach(`
		FROM \ TO  db0:5432
		peered0    X
	`)
}

// deletePeering takes a peering away, as its owner does.
func (w *world) deletePeering(id string) {
	w.t.Helper()
	if err := w.sim.Edit(func(e *sim.Estate) {
		for _, p := range e.Peerings {
			if p.ID == id {
				p.State = "deleted"
			}
		}
	}); err != nil {
		w.t.Fatal(err)
	}
}

// retag gives VMs, by ID, another role.
func (w *world) retag(roles map[string]string) {
	w.t.Helper()
	w.byHand(region1, func(r *sim.Region) {
		for _, i := range r.Instances {
			if role, ok := roles[i.ID]; ok {
				i.Tags["Role"] = role
			}
		}
	})
}
