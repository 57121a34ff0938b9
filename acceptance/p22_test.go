package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	sim "isobar.dev/sim/aws"
)

// While rules change, no flow is refused that both the old and the new rules allow, and none
// passes that both refuse: asked between every two writes, of all pairs of VMs.
func TestP22_NoFlowBlinks(t *testing.T) {
	t.Run("aws", func(t *testing.T) {
		w := newWorld(t, tiers(), sim.Options{GroupHiddenCalls: 1})
		w.start()
		w.account()
		w.importAll()
		noFlowBlinks(t, w)
	})
	t.Run("azure", func(t *testing.T) {
		front, back := manyInAzure("web", "web", 12), manyInAzure("db", "db", 2)
		front.vms = append(front.vms, manyInAzure("app", "app", 6).vms...)
		noFlowBlinks(t, inAzure(t, atOnce, [][2]vnet{{front, back}}, front, back))
	})
}

func noFlowBlinks(t *testing.T, w *world) {
	w.settle()
	p := w.watch(w.flows("22", "80", "443", "5432"))
	web, app, db := byRole("web"), byRole("app"), byRole("db")
	anybody, office := "", "{ipBlock: {cidr: 198.51.100.0/24}}"
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"the first policy", func() { w.policy("db", onRole("db", "ingress", allow("ingress", app, 5432))) }},
		{"a second peer", func() { w.policy("db", onRole("db", "ingress", allow("ingress", app+", "+web, 5432))) }},
		{"peers as a membership group", func() {
			w.policy("db", onRole("db", "ingress", allow("ingress", byLabel("kind", "virtualmachine"), 5432)))
		}},
		{"another port", func() {
			w.policy("db", onRole("db", "ingress", allow("ingress", byLabel("kind", "virtualmachine"), 5432, 22)))
		}},
		{"a policy for everyone", func() {
			w.policy("ssh", "appliedTo: ["+byLabel("kind", "virtualmachine")+"]\ningress: ["+allow("ingress", byLabel("kind", "virtualmachine"), 22)+"]")
		}},
		{"an exception before it", func() {
			w.policy("not-web", onRole("app", "ingress", "{action: Drop, from: ["+web+"]}", allow("ingress", office, 443)))
		}},
		{"egress, too", func() { w.policy("out", onRole("app", "egress", allow("egress", db, 5432), allow("egress", app))) }},
		{"the exception widens", func() {
			w.policy("not-web", onRole("app", "ingress", "{action: Drop, from: ["+db+"]}", allow("ingress", anybody, 443)))
		}},
		{"a VM is another", func() {
			w.patch(entities, w.entityOf(t, "web0"), `{"metadata": {"labels": {"nephe.antrea.io/tag-Role": "app"}}}`)
		}},
		{"and itself again", func() {
			w.patch(entities, w.entityOf(t, "web0"), `{"metadata": {"labels": {"nephe.antrea.io/tag-Role": null}}}`)
		}},
		{"back to one peer", func() { w.policy("db", onRole("db", "ingress", allow("ingress", app, 5432))) }},
		{"a block", func() {
			w.policy("db", onRole("db", "ingress", allow("ingress", "{ipBlock: {cidr: 10.0.0.0/24}}", 5432)))
		}},
		{"a hole in it", func() {
			w.policy("db", onRole("db", "ingress", allow("ingress", "{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.4/32]}}", 5432)))
		}},
		{"no hole", func() {
			w.policy("db", onRole("db", "ingress", allow("ingress", "{ipBlock: {cidr: 10.0.0.0/24}}", 5432)))
		}},
		{"a policy goes", func() { w.removeNamed(policies, "ssh") }},
		{"two policies go", func() { w.removeNamed(policies, "not-web"); w.removeNamed(policies, "out") }},
		{"the last one goes", func() { w.removeNamed(policies, "db") }},
	} {
		p.change(step.what, func() {
			step.change()
			w.settle()
		})
	}
}

// entityOf returns the name of the ExternalEntity of a VM.
func (w *world) entityOf(t *testing.T, vm string) string {
	t.Helper()
	for _, name := range w.list(entities) {
		if of := strings.TrimPrefix(name, "virtualmachine-"); of == "i-"+vm || strings.HasPrefix(of, vm+"-") {
			return name
		}
	}
	t.Fatalf("no ExternalEntity of %s", vm)
	return ""
}

// tiers are two peered networks with twelve web VMs, six app VMs and two databases.
func tiers() sim.Estate {
	many := func(role string, n int) (out []vm) {
		for i := range n {
			out = append(out, vm{name: fmt.Sprint(role, i), role: role})
		}
		return out
	}
	front := wide(network{id: "vpc-1", vms: append(many("web", 12), many("app", 6)...)})
	back := wide(network{id: "vpc-2", vms: many("db", 2)})
	return peer(estate(front, back), "pcx-1", front, back)
}

// The same while a rule of a full group changes, where the old and the new rules have no
// place together.
func TestP22_NoFlowBlinksWhenFull(t *testing.T) {
	w := newWorld(t, estate(features()))
	w.start()
	w.account()
	w.importAll()
	ports := func(from, n int) string {
		var rules []string
		for i := range n {
			rules = append(rules, allow("ingress", "{ipBlock: {cidr: 10.0.0.4/32}}", from+2*i))
		}
		return onRole("db", "ingress", strings.Join(rules, ", "))
	}
	w.policy("db", ports(1000, 60))
	w.settle()
	w.realized("db")
	p := w.watch(w.flows("1000", "1058", "1118", "1120", "1178"))
	p.change("half of the rules change", func() {
		w.policy("db", ports(1060, 60))
		w.settle()
	})
	w.realized("db")
	p.change("and back", func() {
		w.policy("db", ports(1000, 60))
		w.settle()
	})
	w.realized("db")
}
