package acceptance_test

import "testing"

// What is written while the controller is away counts when it is back; what was deleted
// leaves nothing behind.
func TestP08_ChangesWhileAway(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "db", role: "db"}}}))
	w.start()
	w.account()
	w.importAll()
	w.policy("kept", onRole("db", "ingress", allow("ingress", byRole("app"), 22)))
	w.policy("changed", onRole("db", "ingress", allow("ingress", byRole("app"), 5432)))
	w.policy("deleted", onRole("db", "ingress", allow("ingress", "", 3389)))
	w.settle()
	w.mustReach(`
		FROM \ TO      db:22  db:5432  db:5433  db:3389  app:8080
		app            .      .        X        .        .
		web            X      X        X        .        .
		198.51.100.77  X      X        X        .        X
	`)
	w.stop()
	w.policy("changed", onRole("db", "ingress", allow("ingress", byRole("app"), 5433)))
	w.removeNamed(policies, "deleted")
	w.policy("created", onRole("app", "ingress", allow("ingress", byRole("web"), 8080)))
	w.sim.ResetCalls()
	w.start()
	w.settle()
	w.mustReach(`
		FROM \ TO      db:22  db:5432  db:5433  db:3389  app:8080  app:22
		app            .      X        .        X        .         .
		web            X      X        X        X        .         X
		db             .      .        .        .        X         X
		198.51.100.77  X      X        X        X        X         X
	`)
	w.realized("kept", "changed", "created")
	for _, g := range w.securityGroups() {
		for _, r := range g.Rules {
			if r.Protocol == "tcp" && (r.From == 3389 || r.From == 5432) {
				t.Errorf("group %s still has the rule %+v", g.Name, r)
			}
		}
	}
}
