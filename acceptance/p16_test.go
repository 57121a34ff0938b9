package acceptance_test

import "testing"

func TestP16_PeersWithoutVMs(t *testing.T)      { peersWithoutVMs(t, onAWS) }
func TestP16_AzurePeersWithoutVMs(t *testing.T) { peersWithoutVMs(t, onAzure) }

// Peers that are nobody now, and peers that are Pods, hold up no other rule; they count as
// soon as they are somebody.
func peersWithoutVMs(t *testing.T, on provider) {
	w := on.world(t, wide(network{id: "vpc-1", pods: "10.66.0.0/16", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	w.start()
	w.account()
	w.importAll()
	w.policy("db", onRole("db", "ingress",
		allow("ingress", byRole("nobody"), 5433),
		allow("ingress", "{podSelector: {matchLabels: {app: report}}}", 5434),
		allow("ingress", "{namespaceSelector: {matchLabels: {no: such}}}", 5435),
		allow("ingress", byRole("web"), 5432)))
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:5433  db:5434  db:5435
		web        .        X        X        X
		10.66.0.9  X        X        X        X
	`)
	w.realized("db")
	w.pod(w.ns, "report", "10.66.0.9", map[string]string{"app": "report"})
	w.patch(entities, "virtualmachine-"+w.object("web"), `{"metadata": {"labels": {"nephe.antrea.io/tag-Role": "nobody"}}}`)
	w.eventuallyReach(`
		FROM \ TO  db:5432  db:5433  db:5434  db:5435
		web        X        .        X        X
		10.66.0.9  X        X        .        X
	`)
	w.settle()
	w.realized("db")
}
