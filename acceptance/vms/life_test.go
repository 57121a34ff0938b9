package vms_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	simlab "isobar.dev/sim/lab"
)

// What policies mean for VMs is what their packets meet, at each address of each interface: with
// random policies, each round of which follows the one before.
func TestPoliciesOfVMs(t *testing.T) {
	e := newEstate(t, fleet(6))
	e.awaitEntities()
	r := rand.New(rand.NewPCG(7, 7))
	all := map[simlab.Verdict]int{}
	for round := range 6 {
		for i := range 1 + r.IntN(4) {
			e.apply(clusterPolicies, randomPolicy(r, fmt.Sprint("policy-", i)))
		}
		e.awaitRealized()
		for v, n := range e.compare(fmt.Sprint("round ", round)) {
			all[v] += n
		}
	}
	e.deletePolicies()
	eventually(t, "no policies", func() string {
		for _, v := range e.vms {
			if x, err := v.report(); err != nil || x.Status.Policies != 0 {
				return fmt.Sprint(v.name, " has ", x.Status.Policies, " policies ", err)
			}
		}
		return ""
	})
	e.compare("without policies")
	t.Logf("flows by packets and by meaning: %v", all)
	if all[simlab.Allow] == 0 || all[simlab.Drop] == 0 || all[simlab.Reject] == 0 {
		t.Error("a verdict never came up")
	}
}

// onlyWeb lets TCP/5432 of databases be reached by web servers alone.
func onlyWeb(name string, ports ...int64) map[string]any {
	var list []any
	for _, p := range ports {
		list = append(list, map[string]any{"protocol": "TCP", "port": p})
	}
	web := []any{map[string]any{"externalEntitySelector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}}
	return map[string]any{
		"apiVersion": clusterPolicies.GroupVersion().String(), "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"priority": float64(5), "tier": "securityops",
			"appliedTo": []any{map[string]any{"externalEntitySelector": map[string]any{"matchLabels": map[string]any{"app": "db"}}}},
			"ingress": []any{
				map[string]any{"name": "web", "action": "Allow", "from": web, "ports": list},
				map[string]any{"name": "others", "action": "Drop", "ports": list},
			},
		},
	}
}

// A server that is killed, and one that is restored elsewhere from a backup, have the same agents, who enforce on meanwhile.
func TestServerGoesAndComesBack(t *testing.T) {
	e := newEstate(t, fleet(3))
	e.awaitEntities()
	e.apply(clusterPolicies, onlyWeb("db", 5432))
	e.awaitRealized()
	e.compare("at first")

	e.server.Kill()
	e.compareAgain("while the server is away")
	e.vms[1].kill()
	e.vms[1].start()
	e.compareAgain("after a restart of an agent without a server")
	e.startServer()
	e.awaitBack()
	e.apply(clusterPolicies, onlyWeb("db", 5432, 80))
	e.awaitRealized()
	e.compare("after the server came back")

	backup := filepath.Join(e.dir, "backup.tar")
	e.run(e.hub, "", e.paths["isobar"], "server", "backup", backup, "--data-dir", e.dataDir)
	e.apply(clusterPolicies, onlyWeb("db", 5432))
	e.awaitRealized()
	e.compare("after the backup")
	e.server.Kill()
	e.dataDir = filepath.Join(e.dir, "restored")
	e.run(e.hub, "", e.paths["isobar"], "server", "restore", backup, "--data-dir", e.dataDir)
	e.startServer()
	e.awaitBack()
	e.awaitRealized()
	// The statuses may be those of the backup, and what agents say of themselves is no word of policies.
	e.awaitVerdict("what was backed up is enforced", e.vms[2], e.vms[1], 80, simlab.Drop)
	e.compare("restored")
	e.apply(clusterPolicies, onlyWeb("db", 80))
	e.awaitRealized()
	e.compare("changed after a restore")
}

// awaitBack returns when all agents have reported to this server.
func (e *estate) awaitBack() {
	e.t.Helper()
	for _, v := range e.vms {
		e.awaitState(v, runtimev1alpha1.AgentEnforcing)
	}
}

// An agent that is switched off on its machine leaves it as it was, and says so, until it is switched on again,
// over restarts. One whose identity is revoked keeps what it enforces, is told nothing more, and may join anew.
func TestOffAndRevoked(t *testing.T) {
	e := newEstate(t, fleet(3))
	e.awaitEntities()
	e.apply(clusterPolicies, onlyWeb("db", 5432))
	e.awaitRealized()
	e.compare("at first")

	db := e.vms[1]
	db.say("off")
	e.awaitState(db, runtimev1alpha1.AgentOff)
	e.passes("while the agent is off", e.vms[2], db, 5432)
	db.kill()
	db.start()
	e.awaitState(db, runtimev1alpha1.AgentOff)
	e.passes("after a restart that was off", e.vms[2], db, 5432)
	db.say("on")
	e.awaitState(db, runtimev1alpha1.AgentEnforcing)
	e.compareAgain("switched on again")

	e.isobar("agent", "revoke", namespace+"/"+db.name)
	eventually(t, "the agent to be refused", func() string {
		r, err := db.report()
		if err != nil {
			return err.Error()
		}
		for _, c := range r.Status.Conditions {
			if c.Type == runtimev1alpha1.ConditionConnected && c.Status == metav1.ConditionFalse {
				return ""
			}
		}
		return fmt.Sprint(r.Status.Conditions)
	})
	e.compareAgain("revoked")
	db.kill()
	again := e.newToken(db.name, nil)
	e.run(db.machine, again.Token, e.paths["isobar-agent"], again.joining(db, "--again")...)
	db.start()
	e.awaitState(db, runtimev1alpha1.AgentEnforcing)
	e.apply(clusterPolicies, onlyWeb("db", 80))
	e.awaitRealized()
	e.compare("joined anew")
}

// awaitVerdict returns when a connection meets that at each address.
func (e *estate) awaitVerdict(what string, from, to *vm, port uint16, want simlab.Verdict) {
	e.t.Helper()
	eventually(e.t, what, func() string {
		for _, a := range to.addrs() {
			got, err := simlab.Ask(e.t.Context(), []simlab.Probe{{From: from.space, To: to.space, Addr: a, Protocol: "TCP", Port: port}})
			if err != nil || got[0] != want {
				return fmt.Sprintf("%s to %s (%s) TCP/%d: %v %v", from.name, to.name, a, port, got, err)
			}
		}
		return ""
	})
}

// passes says that a connection is taken.
func (e *estate) passes(when string, from, to *vm, port uint16) {
	e.t.Helper()
	for _, a := range to.addrs() {
		got, err := simlab.Ask(e.t.Context(), []simlab.Probe{{From: from.space, To: to.space, Addr: a, Protocol: "TCP", Port: port}})
		if err != nil || got[0] != simlab.Allow {
			e.t.Errorf("%s: %s to %s (%s) TCP/%d: %v %v", when, from.name, to.name, a, port, got, err)
		}
	}
}

// Certificates are renewed, again and again, with new keys, and nobody notices.
func TestIdentitiesAreRenewed(t *testing.T) {
	e := newEstateWith(t, 30*time.Second, fleet(3))
	e.awaitEntities()
	e.apply(clusterPolicies, onlyWeb("db", 5432))
	e.awaitRealized()
	first := map[string]string{}
	for round := range 3 {
		for _, v := range e.vms {
			eventually(t, "renewal of "+v.name, func() string {
				u, err := e.client.Resource(identities).Namespace(namespace).Get(t.Context(), v.name, metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}
				keys, _, _ := unstructured.NestedSlice(u.Object, "status", "keys")
				if len(keys) != 1 { // the next one is used soon
					return fmt.Sprint(len(keys), " keys")
				}
				key := fmt.Sprint(keys[0].(map[string]any)["fingerprint"])
				if key == first[v.name] {
					return "it has the key of before"
				}
				first[v.name] = key
				return ""
			})
		}
		e.apply(clusterPolicies, onlyWeb("db", 80+int64(round)))
		e.awaitRealized()
		e.compare(fmt.Sprint("after ", round, " renewals"))
	}
}
