package acceptance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	sim "isobar.dev/sim/aws"
)

// shop is a VPC of three web machines, two databases and one without a policy.
func shop() network {
	own := &sim.Group{ID: "sg-own", VPC: "vpc-1", Name: "own", Rules: []*sim.Rule{{Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: anywhere}}}
	return network{id: "vpc-1", groups: []*sim.Group{own}, vms: []vm{
		{name: "web1", role: "web"}, {name: "web2", role: "web", groups: []string{"sg-own"}}, {name: "web3", role: "web"},
		{name: "db1", role: "db", groups: []string{"sg-own"}}, {name: "db2", role: "db"}, {name: "other"},
	}}
}

// The shop's policies, and what they come to, for two states of "db".
const (
	webPolicy = `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 443}]}]`
	dbPolicy = `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress:
- {action: Allow, from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}], ports: [{protocol: TCP, port: 5432}]}`
	dbPolicyWithAdmin = dbPolicy + `
- {action: Allow, from: [{ipBlock: {cidr: 198.51.100.0/24}}], ports: [{protocol: TCP, port: 22}]}`
	otherPolicy = `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Name: other}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 5432}]}]`
	otherMatrix = `
		FROM \ TO      other:5432  other:443
		web2           .           X
		198.51.100.77  .           X
	`
	shopMatrix = `
		FROM \ TO      web1:443  web1:22  db1:5432  db1:22  db2:5432
		web2           .         X        .         X       .
		198.51.100.77  .         X        X         X       X
	`
	shopMatrixWithAdmin = `
		FROM \ TO      web1:443  web1:22  db1:5432  db1:22  db2:22
		web2           .         X        .         X       X
		198.51.100.77  .         X        X         .       .
	`
)

// A controller killed after any number of writes, with the answer of the last one arrived
// or lost, leaves a state from which the next one gets to the right end, and no flow blinks.
func TestKilledAtEveryWrite(t *testing.T) {
	w := newWorld(t, estate(shop()))
	w.start()
	w.account()
	w.importAll()
	w.policy("web", webPolicy)
	w.settle()
	p := w.watch(w.flows("443", "5432", "22"))
	for _, lost := range []bool{false, true} {
		for n, more := 0, true; more; n++ {
			if n > 60 {
				t.Fatal("there is no end of writes")
			}
			// There and back, so that every round has the same writes.
			for _, there := range []bool{true, false} {
				p.change(fmt.Sprintf("killed at write %d, answer lost %t, there %t", n, lost, there), func() {
					more = w.killAtWrite(n, lost, func() {
						if there {
							w.policy("db", dbPolicyWithAdmin)
						} else {
							w.removeNamed(policies, "db")
						}
					}) || more && !there
					w.settle()
				})
				if there {
					w.mustReach(shopMatrixWithAdmin)
				}
			}
		}
	}
	w.removeNamed(policies, "web")
	w.settle()
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/cluster"] != "" {
			t.Errorf("%s is left when no policy is", g.Name)
		}
	}
}

// killAtWrite makes a change, kills the controller at the n-th write that it causes, and
// starts another. It says whether there was such a write.
func (w *world) killAtWrite(n int, lost bool, change func()) bool {
	w.t.Helper()
	kind := sim.FaultCutBefore
	if lost {
		kind = sim.FaultCutAfter
	}
	before := w.run.Stats().SyncErrors
	id, err := w.sim.AddFault(sim.Fault{Kind: kind, Action: writesOnly, Skip: n, Count: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	// Nothing is written after it until the controller is dead: it is the process that ends there.
	after, err := w.sim.AddFault(sim.Fault{Kind: sim.FaultCutBefore, Action: writesOnly, Skip: n + 1})
	if err != nil {
		w.t.Fatal(err)
	}
	change()
	hit := false
	w.eventually("the write or the end", func() error {
		if hit = w.run.Stats().SyncErrors > before; hit {
			return nil
		}
		if err := w.behind(); err != nil { // first: what is compiled is not enforced yet
			return err
		}
		return unsynced(w.run.Targets())
	})
	w.kill()
	w.sim.ClearFaults(id, after)
	w.start()
	return hit
}

// writesOnly matches every action that changes something: Describe is the only word with
// an s in that place.
const writesOnly = "??[^s]*"

// A cloud in trouble: nothing is opened, nothing that stays allowed is closed, the account or
// the target says so while it lasts, and all is right soon after it.
func TestF21_CloudInTrouble(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults []sim.Fault
		silent bool // it may be over before anybody tells
	}{
		{"throttled", []sim.Fault{{Kind: sim.FaultError, Code: "RequestLimitExceeded"}}, false},
		{"a storm of 5xx", []sim.Fault{{Kind: sim.FaultError, Code: "InternalError", Status: 500, Probability: 0.6}}, true},
		{"unavailable", []sim.Fault{{Kind: sim.FaultError, Code: "Unavailable", Status: 503}}, false},
		{"connections cut before", []sim.Fault{{Kind: sim.FaultCutBefore, Probability: 0.5}}, true},
		{"connections cut after", []sim.Fault{{Kind: sim.FaultCutAfter, Probability: 0.5}}, true},
		{"writes refused", []sim.Fault{{Kind: sim.FaultError, Action: writesOnly, Code: "UnauthorizedOperation"}}, false},
		{"interfaces cannot be changed", []sim.Fault{{Kind: sim.FaultError, Action: "ModifyNetworkInterfaceAttribute"}}, false},
		{"rules cannot be added", []sim.Fault{{Kind: sim.FaultError, Action: "Authorize*", Code: "RulesPerSecurityGroupLimitExceeded"}}, false},
		{"no more groups", []sim.Fault{{Kind: sim.FaultError, Action: "CreateSecurityGroup", Code: "SecurityGroupLimitExceeded"}}, false},
		{"groups in use", []sim.Fault{{Kind: sim.FaultError, Action: "DeleteSecurityGroup", Code: "DependencyViolation", Count: 40}}, true},
		{"credentials expired", []sim.Fault{{Kind: sim.FaultError, Code: "RequestExpired"}}, false},
		{"credentials refused", []sim.Fault{{Kind: sim.FaultError, Code: "AuthFailure"}}, false},
		{"pages repeated", []sim.Fault{{Kind: sim.FaultRepeatPage}}, true},
		{"pages missing", []sim.Fault{{Kind: sim.FaultMissPage, Probability: 0.5}}, true},
		{"stale answers", []sim.Fault{{Kind: sim.FaultStale}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, estate(shop()), sim.Options{GroupHiddenCalls: 2, InstanceLag: 50 * time.Millisecond})
			w.start()
			w.account()
			w.importAll()
			w.policy("web", webPolicy)
			w.policy("db", dbPolicyWithAdmin)
			w.settle()
			p := w.watch(w.flows("443", "5432", "22"))
			p.change(tt.name, func() {
				for _, f := range tt.faults {
					w.fault(f)
				}
				errors := w.run.Stats()
				w.policy("db", dbPolicy)
				w.policy("other", otherPolicy)
				if tt.silent {
					time.Sleep(4 * interval)
				} else {
					w.eventually("trouble is told", func() error {
						s := w.run.Stats()
						if s.SyncErrors+s.PollErrors == errors.SyncErrors+errors.PollErrors {
							return fmt.Errorf("no error yet")
						}
						return nil
					})
				}
				w.sim.ClearFaults()
				w.settle()
			})
			w.mustReach(shopMatrix)
			w.mustReach(otherMatrix)
			w.realized("web", "db", "other")
		})
	}
}

// What others do in the cloud by hand is undone, and nothing opens meanwhile.
func TestF21_ByHand(t *testing.T) {
	w := newWorld(t, estate(shop()))
	w.start()
	w.account()
	w.importAll()
	w.policy("web", webPolicy)
	w.policy("db", dbPolicy)
	w.settle()
	for name, edit := range map[string]func(r *sim.Region){
		"an interface gets other groups": func(r *sim.Region) { interfaceOf(r, "db1").Groups = []string{"sg-own"} },
		"an interface loses its tags":    func(r *sim.Region) { interfaceOf(r, "db1").Tags = nil },
		"rules are taken from a group": func(r *sim.Region) {
			for _, g := range r.Groups {
				if g.Tags["isobar.dev/cluster"] != "" {
					g.Rules = nil
				}
			}
		},
		"a rule of ours is put into a group": func(r *sim.Region) {
			for _, g := range r.Groups {
				if c := g.Tags["isobar.dev/cluster"]; c != "" {
					g.Rules = append(g.Rules, &sim.Rule{Protocol: "-1", From: -1, To: -1, CIDR: anywhere, Description: "isobar.dev/cluster=" + c})
				}
			}
		},
	} {
		if err := w.sim.Edit(func(e *sim.Estate) { edit(e.Accounts[0].Regions[0]) }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w.eventually(name, func() error { return w.reach(shopMatrix) })
		w.settle()
		w.mustReach(shopMatrix)
	}
}

// interfaceOf returns the first interface of a VM.
func interfaceOf(r *sim.Region, name string) *sim.Interface {
	i := slices.IndexFunc(r.Instances, func(i *sim.Instance) bool { return i.Tags["Name"] == name })
	return r.Instances[i].Interfaces[0]
}

// Things that API servers do: the same object again, deleted and made again under its name
// at once, many times a second. The last one counts, and nothing is left of the others.
func TestF07_F13_Flapping(t *testing.T) {
	w := newWorld(t, estate(shop()))
	w.start()
	w.account()
	w.importAll()
	w.policy("web", webPolicy)
	w.settle()
	dice := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		switch dice.IntN(4) {
		case 0:
			w.policy("db", dbPolicy)
		case 1:
			w.policy("db", dbPolicyWithAdmin)
		case 2:
			_ = w.tryApply(policyText("flap", dbPolicyWithAdmin))
		default:
			w.policy("db", dbPolicyWithAdmin)
			w.removeNamed(policies, "db")
		}
	}
	w.policy("flap", dbPolicy)
	w.removeNamed(policies, "flap")
	w.policy("db", dbPolicyWithAdmin)
	w.policy("db", dbPolicy)
	w.settle()
	w.mustReach(shopMatrix)
	groups := 0
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/cluster"] != "" {
			groups++
		}
	}
	if groups > 3 {
		t.Errorf("%d groups are ours; two policies need two, and one of members", groups)
	}
	w.sim.ResetCalls()
	w.policy("db", dbPolicy) // an update without a change
	w.patch(policies, "db", `{"metadata": {"annotations": {"touched": "yes"}}}`)
	w.settle()
	w.mustNotWrite()
	w.realized("web", "db")
}

// A VM changes its address, and two VPCs have the same addresses.
func TestF21_Addresses(t *testing.T) {
	twin := shop()
	twin.id, twin.cidr = "vpc-2", "10.0.0.0/16"
	twin.groups[0].ID, twin.groups[0].VPC = "sg-own2", "vpc-2"
	for i := range twin.vms {
		twin.vms[i].name += "b"
		twin.vms[i].tags, twin.vms[i].role = map[string]string{"Role": twin.vms[i].role, "Side": "twin"}, ""
		if twin.vms[i].groups != nil {
			twin.vms[i].groups = []string{"sg-own2"}
		}
	}
	w := newWorld(t, estate(shop(), twin))
	w.start()
	w.account()
	w.importAll()
	w.policy("web", webPolicy)
	w.policy("db", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}, matchExpressions: [{key: nephe.antrea.io/tag-Side, operator: DoesNotExist}]}}], ports: [{protocol: TCP, port: 5432}]}]`)
	w.settle()
	w.mustReach(`
		FROM \ TO  db1:5432
		web1       .
		other      X
	`)
	// The twin's web machine has web1's address; the twin's databases let nobody in from there.
	w.mustReach(`
		FROM \ TO  db1b:5432
		web1b      X
		otherb     X
	`)
	if err := w.sim.Edit(func(e *sim.Estate) {
		r := e.Accounts[0].Regions[0]
		web1, other := interfaceOf(r, "web1"), interfaceOf(r, "other")
		web1.PrivateIPs, other.PrivateIPs = other.PrivateIPs, web1.PrivateIPs
	}); err != nil {
		t.Fatal(err)
	}
	w.eventuallyReach(`
		FROM \ TO  db1:5432
		web1       .
		other      X
	`)
}
