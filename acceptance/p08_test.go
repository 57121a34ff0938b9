package acceptance_test

import (
	"slices"
	"testing"
)

func TestP08_ChangesWhileAway(t *testing.T)      { changesWhileAway(t, onAWS) }
func TestP08_AzureChangesWhileAway(t *testing.T) { changesWhileAway(t, onAzure) }

// What is written while the controller is away counts when it is back; what was deleted
// leaves nothing behind.
func changesWhileAway(t *testing.T, on provider) {
	w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "db", role: "db"}}}))
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
		198.51.100.77  X      X        X        .        .
	`)
	w.stop()
	w.policy("changed", onRole("db", "ingress", allow("ingress", byRole("app"), 5433)))
	w.removeNamed(policies, "deleted")
	w.policy("created", onRole("app", "ingress", allow("ingress", byRole("web"), 8080)))
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
	if ports := w.cloud.ports(); slices.Contains(ports, "3389") || slices.Contains(ports, "5432") || !slices.Contains(ports, "5433") {
		t.Errorf("the rules in the cloud are of the ports %v; want none of what was deleted", ports)
	}
}
