package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

func TestP17_EveryFeature(t *testing.T)      { everyFeature(t, onAWS) }
func TestP17_AzureEveryFeature(t *testing.T) { everyFeature(t, onAzure) }

// Every feature of a rule is enforced as it is written, or the policy says that it is not,
// and why: then nothing is open that the policy does not open. What a cloud cannot tell apart
// is refused there alone.
func everyFeature(t *testing.T, on provider) {
	refused := map[string]struct{ failed, matrix string }{
		"azure SCTP": {"ProtocolUnsupported", `
			FROM \ TO  db:sctp/5432  db:5432
			web        X             X
			app        X             X
			`},
	}
	from := func(fields string) string { return "{" + fields + ", from: [" + byRole("web") + "]}" }
	to := func(fields string) string { return "{action: Allow, " + fields + "}" }
	for _, tt := range []struct{ name, direction, rules, failed, matrix string }{
		{"range of ports", "ingress", from("action: Allow, ports: [{protocol: TCP, port: 8000, endPort: 9000}]"), "", `
			FROM \ TO  db:7999  db:8000  db:8500  db:9000  db:9001
			web        X        .        .        .        X
			app        X        X        X        X        X
			`},
		{"named port", "ingress", from("action: Allow, ports: [{protocol: TCP, port: admin}]"), "", `
			FROM \ TO  db:8443  db:8444
			web        .        X
			app        X        X
			`},
		{"source port", "ingress", from("action: Allow, ports: [{protocol: TCP, port: 5432, sourcePort: 1000}]"), "SourcePortsUnsupported", `
			FROM \ TO  db:5432  db:22
			web        X        X
			`},
		{"layer 7", "ingress", from("action: Allow, ports: [{protocol: TCP, port: 80}], l7Protocols: [{http: {path: /api}}]"), "PayloadNotSeen", `
			FROM \ TO  db:80  db:22
			web        X      X
			`},
		{"SCTP", "ingress", from("action: Allow, ports: [{protocol: SCTP}]"), "", `
			FROM \ TO  db:sctp/5432  db:5432
			web        .             X
			app        X             X
			`},
		{"port of SCTP", "ingress", from("action: Allow, ports: [{protocol: SCTP, port: 5432}]"), "ProtocolUnsupported", `
			FROM \ TO  db:sctp/5432  db:5432
			web        X             X
			`},
		{"IGMP", "ingress", "{action: Allow, protocols: [{igmp: {igmpType: 0x11}}]}", "ProtocolUnsupported", `
			FROM \ TO  db:2/0  db:5432
			web        X       X
			`},
		{"block with exceptions", "ingress", "{action: Allow, from: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.5/32]}}], ports: [{protocol: TCP, port: 5432}]}", "", `
			FROM \ TO      db:5432
			web            .
			app            X
			198.51.100.77  X
			`},
		{"Drop before Allow", "ingress", "{action: Drop, from: [" + byRole("app") + "]}, {action: Allow, ports: [{protocol: TCP, port: 5432}]}", "", `
			FROM \ TO      db:5432  db:22
			web            .        X
			app            X        X
			198.51.100.77  .        X
			`},
		{"Reject before Allow", "ingress", "{action: Reject, from: [" + byRole("app") + "]}, {action: Allow, ports: [{protocol: TCP, port: 5432}]}", "RejectIsDrop", `
			FROM \ TO      db:5432  db:22
			web            .        X
			app            X        X
			`},
		{"Pass before Drop", "ingress", "{action: Pass, from: [" + byRole("app") + "], ports: [{protocol: TCP, port: 22}]}, {action: Drop, from: [" + byRole("app") + "]}, {action: Allow}", "", `
			FROM \ TO  db:5432  db:22
			web        .        .
			app        X        X
			`},
		{"name", "egress", to("to: [{fqdn: '*.example.com'}], ports: [{protocol: TCP, port: 443}]"), "NamesNeedDNS", `
			FROM \ TO  198.51.100.77:443  web:443
			db         X                  X
			`},
		{"Service", "egress", to("toServices: [{name: report}]"), "ServicesUnknown", `
			FROM \ TO  198.51.100.77:443  web:443
			db         X                  X
			`},
		{"logging", "ingress", from("action: Allow, enableLogging: true, ports: [{protocol: TCP, port: 5432}]"), "", `
			FROM \ TO  db:5432  db:22
			web        .        X
			`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, features())
			w.start()
			w.account()
			w.importAll()
			w.apply("apiVersion: v1\nkind: Service\nmetadata: {name: report}\nspec: {selector: {app: report}, ports: [{port: 443}]}")
			w.patch(entities, "virtualmachine-"+w.object("db"), `{"spec": {"ports": [{"name": "admin", "protocol": "TCP", "port": 8443}]}}`)
			w.policy("feature", onRole("db", tt.direction, tt.rules))
			w.settle()
			if here, ok := refused[w.cloud.provider()+" "+tt.name]; ok {
				tt.failed, tt.matrix = here.failed, here.matrix
			}
			w.mustReach(tt.matrix)
			if tt.failed == "" {
				w.realized("feature")
				return
			}
			w.failed("feature", tt.failed)
			if told := strings.Join(w.events("feature"), "\n"); !strings.Contains(told, tt.failed) {
				t.Errorf("Events of the policy: %q; want one of %s", told, tt.failed)
			}
		})
	}
}

func TestP17_ClusterPolicies(t *testing.T)      { clusterPoliciesCount(t, onAWS) }
func TestP17_AzureClusterPolicies(t *testing.T) { clusterPoliciesCount(t, onAzure) }

// Policies of the cluster, in every tier, count as those of a namespace do.
func clusterPoliciesCount(t *testing.T, on provider) {
	w := on.world(t, features())
	w.start()
	w.account()
	w.importAll()
	cluster := func(kind, name, spec string) string {
		return fmt.Sprintf("apiVersion: crd.antrea.io/v1beta1\nkind: %s\nmetadata: {name: %s-%s}\nspec:\n  %s\n---\n", kind, w.ns, name, strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
	}
	here := func(role string) string {
		return "{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: " + role + "}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}"
	}
	w.apply(cluster("ClusterNetworkPolicy", "early", "priority: 1\ntier: securityops\nappliedTo: ["+here("db")+"]\ningress: [{action: Drop, from: ["+here("app")+"]}, {action: Pass, from: ["+here("web")+"], ports: [{protocol: TCP, port: 22}]}]") +
		cluster("ClusterNetworkPolicy", "late", "priority: 1\ntier: baseline\nappliedTo: ["+here("db")+"]\ningress: [{action: Allow, from: ["+here("web")+"], ports: [{protocol: TCP, port: 22}]}, {action: Drop, ports: [{protocol: TCP, port: 22}]}]"))
	w.policy("middle", onRole("db", "ingress", "{action: Drop, ports: [{protocol: TCP, port: 22}]}", allow("ingress", "", 5432)))
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22  db:80
		web            .        .      X
		app            X        X      X
		198.51.100.77  .        X      X
	`)
	w.realized("middle")
	for _, name := range []string{"early", "late"} {
		w.eventually(name, func() error {
			p, err := readCluster[antreav1beta1.ClusterNetworkPolicy](w, clusterPolicies, w.ns+"-"+name)
			if err == nil && (p.Status.Phase != antreav1beta1.PolicyRealized || p.Status.ObservedGeneration != p.Generation) {
				err = fmt.Errorf("%+v", p.Status)
			}
			return err
		})
	}
}

// features are three VMs that nothing guards but policies.
func features() network {
	return wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "db", role: "db"}}})
}
