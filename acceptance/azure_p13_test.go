package acceptance_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	azuresim "isobar.dev/sim/azure"
)

const (
	azureNSG = "Microsoft.Network/networkSecurityGroups"
	azureNIC = "Microsoft.Network/networkInterfaces"

	anotherCluster = "another-cluster.0123456789abcdef" // in the tags of what is not ours
)

// byHandInAzure changes the resources of the sample's subscription as somebody else would,
// with the portal.
func (w *world) byHandInAzure(f func(s *azuresim.Subscription)) {
	w.t.Helper()
	if err := w.azure.Edit(func(e *azuresim.Estate) { f(e.Subscriptions[0]) }); err != nil {
		w.t.Fatal(err)
	}
}

// azureEnforcing returns the NSG of ours that is by itself there.
func azureEnforcing(t *testing.T, s *azuresim.Subscription) azuresim.Document {
	t.Helper()
	at := slices.IndexFunc(s.Resources, func(d azuresim.Document) bool {
		tags, _ := d["tags"].(map[string]any)
		return d["type"] == azureNSG && tags["isobar.dev-cluster"] != nil && tags["isobar.dev-cluster"] != anotherCluster
	})
	if at < 0 {
		t.Fatal("there is no NSG of ours")
	}
	return s.Resources[at]
}

func propertiesOf(d azuresim.Document) map[string]any { return d["properties"].(map[string]any) }

func rulesOf(d azuresim.Document) []any {
	list, _ := propertiesOf(d)["securityRules"].([]any)
	return list
}

// azureInterface returns an interface by its name.
func azureInterface(s *azuresim.Subscription, name string) azuresim.Document {
	for _, d := range s.Resources {
		if d["type"] == azureNIC && strings.HasSuffix(d["id"].(string), "/"+name) {
			return d
		}
	}
	return nil
}

// attachInAzure gives db's interface another NSG of its group, or none.
func attachInAzure(s *azuresim.Subscription, nsg string) {
	p := propertiesOf(azureInterface(s, "db-0"))
	if nsg == "" {
		delete(p, "networkSecurityGroup")
		return
	}
	p["networkSecurityGroup"] = map[string]any{"id": vnet{name: "vpc-1"}.id(azureNSG, nsg)}
}

// azureRule is a rule that lets TCP in.
func azureRule(name, from, port, description string, priority int) map[string]any {
	return map[string]any{"name": name, "properties": map[string]any{"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": priority, "description": description,
		"sourceAddressPrefix": from, "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": port}}
}

func addRule(d azuresim.Document, rule map[string]any) {
	propertiesOf(d)["securityRules"] = append(rulesOf(d), rule)
}

// emptyNSG is an NSG without rules.
func emptyNSG(name string, tags map[string]any) azuresim.Document {
	return azuresim.Document{"id": vnet{name: "vpc-1"}.id(azureNSG, name), "type": azureNSG, "location": location1, "tags": tags, "properties": map[string]any{}}
}

func TestP13_AzureDrift(t *testing.T) {
	var all []drift
	for _, x := range []struct {
		name   string
		change func(*testing.T, *azuresim.Subscription)
	}{
		{"the rules are removed", func(t *testing.T, s *azuresim.Subscription) {
			delete(propertiesOf(azureEnforcing(t, s)), "securityRules")
		}},
		{"a rule is removed", func(t *testing.T, s *azuresim.Subscription) {
			p := propertiesOf(azureEnforcing(t, s))
			p["securityRules"] = p["securityRules"].([]any)[1:]
		}},
		{"each rule is turned around", func(t *testing.T, s *azuresim.Subscription) {
			for _, r := range rulesOf(azureEnforcing(t, s)) {
				p := r.(map[string]any)["properties"].(map[string]any)
				p["access"] = map[any]string{"Allow": "Deny", "Deny": "Allow"}[p["access"]]
			}
		}},
		{"a rule of ours is added", func(t *testing.T, s *azuresim.Subscription) {
			d := azureEnforcing(t, s)
			ours := rulesOf(d)[0].(map[string]any)["properties"].(map[string]any)
			addRule(d, azureRule("more", "*", "22", fmt.Sprint(ours["description"]), 1001))
		}},
		{"the NSG is taken off", func(_ *testing.T, s *azuresim.Subscription) { attachInAzure(s, "") }},
		{"another NSG is attached", func(_ *testing.T, s *azuresim.Subscription) { attachInAzure(s, "wide") }},
		{"the NSG is deleted", func(t *testing.T, s *azuresim.Subscription) {
			id := azureEnforcing(t, s)["id"]
			attachInAzure(s, "wide")
			s.Resources = slices.DeleteFunc(s.Resources, func(d azuresim.Document) bool { return d["id"] == id })
		}},
		{"an orphan of ours appears", func(t *testing.T, s *azuresim.Subscription) {
			tags := maps.Clone(azureEnforcing(t, s)["tags"].(map[string]any))
			tags["isobar.dev-class"] = "e-0123456789abcdef"
			s.Resources = append(s.Resources, emptyNSG("isobar-e-0123456789abcdef-ffffffff", tags))
		}},
	} {
		all = append(all, drift{x.name, func(w *world) { w.byHandInAzure(func(s *azuresim.Subscription) { x.change(t, s) }) }})
	}
	driftIsMended(t, onAzure, all...)
}

// A rule that a user writes into an NSG of ours stays, and so does an NSG that only looks
// like one of ours, or is another cluster's.
func TestP13_AzureUsersOwn(t *testing.T) {
	w := provider(onAzure).world(t, network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})
	ready(w)
	alike, other := "isobar-e-aaaaaaaaaaaaaaaa-bbbbbbbb", "isobar-e-cccccccccccccccc-dddddddd"
	w.byHandInAzure(func(s *azuresim.Subscription) {
		d := azureEnforcing(t, s)
		addRule(d, azureRule("monitoring", "10.9.0.0/16", "9100", "monitoring", 200))
		tags := maps.Clone(d["tags"].(map[string]any))
		tags["isobar.dev-cluster"] = anotherCluster
		s.Resources = append(s.Resources, emptyNSG(alike, nil), emptyNSG(other, tags))
	})
	w.settle()
	w.mustNotWrite()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5433)))
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:5433
		web        X        .
	`)
	names := w.azure.groups()
	for _, name := range []string{alike, other} {
		if !slices.ContainsFunc(names, func(id string) bool { return strings.HasSuffix(id, "/"+name) }) {
			t.Errorf("%s has gone: left are %v", name, names)
		}
	}
	w.byHandInAzure(func(s *azuresim.Subscription) { // only to look
		if left := fmt.Sprint(rulesOf(azureEnforcing(t, s))); !strings.Contains(left, "monitoring") {
			t.Errorf("the user's rule has gone: left are %s", left)
		}
	})
}

// A user's rule in an NSG of ours that is just as one that is wanted is no conflict. It stays
// when the policy no longer wants it, and with it the NSG when we no longer need that, without
// anything of ours.
func TestP14_AzureUsersRuleIsTheSame(t *testing.T) {
	w := provider(onAzure).world(t, network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	rules := func(ports ...int) string {
		var all []string
		for _, p := range ports {
			all = append(all, allow("ingress", byRole("web"), p))
		}
		return onRole("db", "ingress", all...)
	}
	w.policy("db", rules(22))
	w.settle()
	users := func() string {
		var id string
		w.byHandInAzure(func(s *azuresim.Subscription) {
			d := azureEnforcing(t, s)
			addRule(d, azureRule("user", "10.0.0.4/32", "5432", "user", 3000))
			id = d["id"].(string)
		})
		return id
	}
	left := []string{users()}
	w.settle()
	w.policy("db", rules(22, 5432))
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            .        .
		198.51.100.77  X        X
	`)
	w.policy("db", rules(22))
	w.settle()
	w.realized("db")
	w.byHandInAzure(func(s *azuresim.Subscription) { // only to look
		if got := fmt.Sprint(rulesOf(azureEnforcing(t, s))); !strings.Contains(got, "name:user") {
			t.Errorf("the user's rule has gone from our NSG: %s", got)
		}
	})
	stays := func() {
		t.Helper()
		for _, id := range left {
			at := slices.IndexFunc(w.azure.of("networkSecurityGroups"), func(d azuresim.Document) bool { return d["id"] == id })
			if at < 0 {
				t.Errorf("the user's rule has gone with %s, which was ours", id)
				continue
			}
			d := w.azure.of("networkSecurityGroups")[at]
			list, tags := rulesOf(d), d["tags"].(map[string]any)
			if len(list) != 1 || list[0].(map[string]any)["name"] != "user" || len(tags) > 0 {
				t.Errorf("the NSG with the user's rule has the rules %v and the tags %v; want that rule alone", list, tags)
			}
		}
	}
	w.removeNamed(policies, "db")
	w.settle()
	stays()
	if ours := w.ours(); len(ours) > 0 {
		t.Errorf("%v are ours still", ours)
	}
	// The same policy again: the name is the user's now, and our NSG has another.
	w.policy("db", rules(22))
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        X        .
	`)
	stays()
	w.cloud.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()
	// With the account all goes that is ours, and what is the user's stays.
	left = append(left, users())
	w.removeNamed(accounts, "azure")
	w.mustList(accounts, w.ns)
	stays()
	if ours := w.ours(); len(ours) > 0 {
		t.Errorf("%v are ours still", ours)
	}
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}
