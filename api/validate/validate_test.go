package validate_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/validate"
)

// check compares the fields of errs with want; "" means that nothing is wrong.
func check(t *testing.T, call string, errs field.ErrorList, want string) {
	t.Helper()
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("%s: errors in %q, want in %q\n%v", call, got, want, errs.ToAggregate())
	}
}

// The rules of a cluster policy that upstream's record does not have.
func TestRules(t *testing.T) {
	for _, tt := range []struct{ direction, rule, want string }{
		{"ingress", `{action: Allow}`, ""},
		{"ingress", `{action: Deny}`, "action"},

		{"ingress", `{action: Allow, ports: [{port: 0}]}`, "ports[0].port"},
		{"ingress", `{action: Allow, ports: [{port: 65535}]}`, ""},
		{"ingress", `{action: Allow, ports: [{port: 65536}]}`, "ports[0].port"},
		{"ingress", `{action: Allow, ports: [{port: -1}]}`, "ports[0].port"},
		{"ingress", `{action: Allow, ports: [{port: 1, endPort: 65536}]}`, "ports[0].endPort"},
		{"ingress", `{action: Allow, ports: [{port: 80, endPort: 80}]}`, ""},
		{"ingress", `{action: Allow, ports: [{port: ""}]}`, "ports[0].port"},
		{"ingress", `{action: Allow, ports: [{sourcePort: 0}]}`, "ports[0].sourcePort"},
		{"ingress", `{action: Allow, ports: [{sourcePort: 1, sourceEndPort: 70000}]}`, "ports[0].sourceEndPort"},
		{"ingress", `{action: Allow, ports: [{protocol: tcp}]}`, "ports[0].protocol"},
		{"ingress", `{action: Allow, ports: [{protocol: ICMP}]}`, "ports[0].protocol"},

		{"ingress", `{action: Allow, protocols: [{}]}`, "protocols[0]"},
		{"ingress", `{action: Allow, protocols: [{icmp: {icmpType: 256}}]}`, "protocols[0].icmp.icmpType"},
		{"ingress", `{action: Allow, protocols: [{icmp: {icmpType: 0, icmpCode: -1}}]}`, "protocols[0].icmp.icmpCode"},
		{"ingress", `{action: Drop, protocols: [{igmp: {igmpType: 17}}]}`, ""},
		{"ingress", `{action: Drop, protocols: [{igmp: {igmpType: 18}}]}`, "protocols[0].igmp.igmpType"},
		{"egress", `{action: Drop, protocols: [{igmp: {igmpType: 17}}]}`, "protocols[0].igmp.igmpType"},
		{"egress", `{action: Drop, protocols: [{igmp: {groupAddress: 10.0.0.1}}]}`, "protocols[0].igmp.groupAddress"},
		{"egress", `{action: Drop, protocols: [{igmp: {}}, {icmp: {}}]}`, "protocols"},
		{"egress", `{action: Drop, protocols: [{igmp: {}}], to: [{podSelector: {}}]}`, "protocols"},
		{"egress", `{action: Reject, protocols: [{igmp: {}}]}`, "action"},

		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "10.0.0.0/33"}}]}`, "from[0].ipBlock.cidr"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "fd00::/129"}}]}`, "from[0].ipBlock.cidr"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}]}`, "from[0].ipBlock.cidr"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: ""}}]}`, "from[0].ipBlock.cidr"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "10.1.2.3/8"}}]}`, ""}, // bits beyond the length do not count
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "10.0.0.0/8", except: ["10.0.0.0/8"]}}]}`, "from[0].ipBlock.except[0]"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "10.0.0.0/8", except: ["0.0.0.0/0"]}}]}`, "from[0].ipBlock.except[0]"},
		{"ingress", `{action: Allow, from: [{ipBlock: {cidr: "0.0.0.0/0", except: ["::1/128"]}}]}`, "from[0].ipBlock.except[0]"},

		{"ingress", `{action: Allow, from: [{}]}`, ""}, // a warning
		{"ingress", `{action: Allow, from: [{podSelector: {}, externalEntitySelector: {}}]}`, "from[0].externalEntitySelector"},
		{"ingress", `{action: Allow, from: [{namespaces: {}}]}`, "from[0].namespaces"},
		{"ingress", `{action: Allow, from: [{namespaces: {match: Other}}]}`, "from[0].namespaces.match"},
		{"ingress", `{action: Allow, from: [{serviceAccount: {name: x}}]}`, "from[0].serviceAccount.namespace"},
		{"ingress", `{action: Allow, from: [{podSelector: {}, scope: World}]}`, "from[0].scope"},
		{"ingress", `{action: Allow, from: [{fqdn: example.com}]}`, "from[0].fqdn"},
		{"ingress", `{action: Allow, from: [{podSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}]}`, "from[0].podSelector.matchExpressions[0].operator"},
		{"ingress", `{action: Allow, from: [{podSelector: {matchExpressions: [{key: a, operator: In}]}}]}`, "from[0].podSelector.matchExpressions[0].values"},
		{"ingress", `{action: Allow, from: [{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]}`, "from[0].podSelector.matchExpressions[0].values"},
		{"ingress", `{action: Allow, from: [{podSelector: {matchExpressions: [{key: a b, operator: Exists}]}}]}`, "from[0].podSelector.matchExpressions[0].key"},

		{"ingress", `{action: Allow, to: [{podSelector: {}}]}`, "to"},
		{"egress", `{action: Allow, from: [{podSelector: {}}]}`, "from"},
		{"ingress", `{action: Allow, toServices: [{name: x, namespace: other}]}`, "toServices"},
		{"egress", `{action: Allow, toServices: [{name: x}]}`, "toServices[0].namespace"},
		{"egress", `{action: Allow, toServices: [{namespace: other}]}`, "toServices[0].name"},

		{"egress", `{action: Allow, to: [{ipBlock: {cidr: 224.0.0.0/24}}]}`, ""},
		{"egress", `{action: Pass, to: [{ipBlock: {cidr: 224.0.0.0/24}}]}`, "action"},
		{"egress", `{action: Allow, to: [{ipBlock: {cidr: 224.0.0.0/24}}, {ipBlock: {cidr: 10.0.0.0/8}}]}`, "to[0]"},
		{"egress", `{action: Allow, to: [{podSelector: {}}, {ipBlock: {cidr: 224.0.0.0/24}}]}`, "to[1]"},

		{"ingress", `{action: Allow, l7Protocols: [{tls: {sni: x}}], ports: [{protocol: TCP}]}`, ""},
		{"ingress", `{action: Allow, l7Protocols: [{tls: {}, http: {}}]}`, "l7Protocols[0]"},
		{"ingress", `{action: Drop, l7Protocols: [{http: {}}]}`, "l7Protocols"},
		{"ingress", `{action: Allow, logLabel: "a b"}`, "logLabel"},
		{"ingress", `{action: Allow, logLabel: "` + strings.Repeat("a", 64) + `"}`, "logLabel"},
	} {
		p := read(t, fmt.Sprintf(`{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy,
			spec: {priority: 5, appliedTo: [{podSelector: {}}], %s: [%s]}}`, tt.direction, tt.rule))
		want := tt.want
		if want != "" {
			want = "spec." + tt.direction + "[0]." + want
		}
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: p}, world{})
		check(t, tt.direction+" "+tt.rule, errs, want)
	}
}

func TestAppliedTo(t *testing.T) {
	for _, tt := range []struct{ kind, entries, want string }{
		{"ClusterNetworkPolicy", `[{externalEntitySelector: {}, namespaceSelector: {}}]`, ""},
		{"ClusterNetworkPolicy", `[{externalEntitySelector: {}, podSelector: {}}]`, "spec.appliedTo[0].externalEntitySelector"},
		{"ClusterNetworkPolicy", `[{}]`, ""}, // a warning
		{"ClusterNetworkPolicy", `[{serviceAccount: {name: x}}]`, "spec.appliedTo[0].serviceAccount.namespace"},
		{"ClusterNetworkPolicy", `[{service: {namespace: x}}]`, "spec.appliedTo[0].service.name"},
		{"ClusterNetworkPolicy", `[{group: g, service: {name: x, namespace: other}}]`, "spec.appliedTo[0]"},
		{"NetworkPolicy", `[{externalEntitySelector: {}}, {podSelector: {}}, {group: g}]`, ""},
		{"NetworkPolicy", `[{namespaceSelector: {}}]`, "spec.appliedTo[0].namespaceSelector"},
		{"NetworkPolicy", `[{nodeSelector: {}}]`, "spec.appliedTo[0].nodeSelector"},
		{"NetworkPolicy", `[]`, "spec.appliedTo"},
	} {
		p := read(t, fmt.Sprintf(`{apiVersion: crd.antrea.io/v1beta1, kind: %s, spec: {priority: 5, appliedTo: %s}}`, tt.kind, tt.entries))
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: p}, world{})
		check(t, tt.kind+" "+tt.entries, errs, tt.want)
	}
}

func TestGroups(t *testing.T) {
	w := world{objects: []runtime.Object{
		&antreav1beta1.Group{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "parent"}, Spec: antreav1beta1.GroupSpec{ChildGroups: []string{"child"}}},
	}}
	for _, tt := range []struct{ kind, namespace, spec, want string }{
		{"Group", "x", `{}`, ""}, // a warning
		{"Group", "x", `{nodeSelector: {}}`, "spec.nodeSelector"},
		{"ClusterGroup", "", `{nodeSelector: {}}`, ""},
		{"ClusterGroup", "", `{ipBlock: {cidr: 10.0.0.0/8}}`, ""},
		{"ClusterGroup", "", `{ipBlock: {cidr: 10.0.0.0/8}, ipBlocks: [{cidr: 10.0.0.0/8}]}`, "spec.ipBlocks"},
		{"ClusterGroup", "", `{ipBlocks: [{cidr: 10.0.0.0/8, except: [11.0.0.0/16]}]}`, "spec.ipBlocks[0].except[0]"},
		{"ClusterGroup", "", `{nodeSelector: {}, namespaceSelector: {}}`, "spec.namespaceSelector"},
		{"ClusterGroup", "", `{serviceReference: {name: s}}`, "spec.serviceReference.namespace"},
		{"Group", "x", `{serviceReference: {name: s}}`, ""},
		{"Group", "x", `{serviceReference: {name: s, namespace: other}}`, "spec.serviceReference.namespace"},
		{"Group", "x", `{childGroups: [g]}`, "spec.childGroups[0]"},
		{"Group", "x", `{childGroups: [parent]}`, "spec.childGroups[0]"},
		{"Group", "y", `{childGroups: [parent]}`, ""}, // of another namespace
		{"ClusterGroup", "", `{childGroups: [parent]}`, ""},
		{"Group", "x", `{childGroups: [""]}`, "spec.childGroups[0]"},
	} {
		g := read(t, fmt.Sprintf(`{apiVersion: crd.antrea.io/v1beta1, kind: %s, metadata: {name: g, namespace: %q}, spec: %s}`, tt.kind, tt.namespace, tt.spec))
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: g}, w)
		check(t, tt.kind+" "+tt.spec, errs, tt.want)
	}
}

func TestTiers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		priority int32
		want     string
	}{
		{"mine", 0, ""},
		{"mine", 249, ""},
		{"mine", 50, "spec.priority"},  // emergency
		{"mine", 220, "spec.priority"}, // ClusterNetworkPolicy
		{"mine", -1, "spec.priority"},
		{"mine", 256, "spec.priority"},
		{"baseline", 253, ""},
		{"baseline", 3, "spec.priority"},
	} {
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: tier(tt.name, tt.priority)}, world{})
		check(t, fmt.Sprintf("tier %s %d", tt.name, tt.priority), errs, tt.want)
	}
}

func TestOtherKinds(t *testing.T) {
	const cnp, subject = "policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy", "subject: {namespaces: {}}"
	for _, tt := range []struct{ kind, spec, want string }{
		{"crd.antrea.io/v1alpha2, kind: ExternalEntity", `{endpoints: [{ip: 10.0.0.1}], ports: [{protocol: TCP, port: 80, name: web}]}`, ""},
		{"crd.antrea.io/v1alpha2, kind: ExternalEntity", `{endpoints: [{ip: 10.0.0.256}]}`, "spec.endpoints[0].ip"},
		{"crd.antrea.io/v1alpha2, kind: ExternalEntity", `{ports: [{name: web}]}`, "spec.ports[0].port"},
		{"crd.antrea.io/v1alpha1, kind: ExternalNode", `{interfaces: [{ips: [10.0.0.1, "fe80::1%eth0"]}]}`, "spec.interfaces[0].ips[1]"},
		{cnp, `{priority: 1001, ` + subject + `}`, "spec.priority"},
		{cnp, `{subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {a b: c}}}}}`, "spec.subject.pods.podSelector.matchLabels"},
		{cnp, `{` + subject + `, egress: [{action: Deny, to: [{networks: [10.0.0.0/8, ten]}]}]}`, "spec.egress[0].to[0].networks[1]"},
		{cnp, `{` + subject + `, egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 5, end: 4}}}}]}]}`, "spec.egress[0].protocols[0].tcp.destinationPort.range.end"},
		{"policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy", `{` + subject + `, ingress: [{action: Deny, from: [{namespaces: {}}], ports: [{portNumber: {protocol: TCP, port: 0}}]}]}`, "spec.ingress[0].ports[0].portNumber.port"},
		{"policy.networking.k8s.io/v1alpha1, kind: BaselineAdminNetworkPolicy", `{` + subject + `, egress: [{action: Deny, to: [{networks: ["1::/200"]}]}]}`, "spec.egress[0].to[0].networks[0]"},
	} {
		o := read(t, fmt.Sprintf(`{apiVersion: %s, metadata: {name: x}, spec: %s}`, tt.kind, tt.spec))
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: o}, world{})
		check(t, tt.kind+" "+tt.spec, errs, tt.want)
	}
}

// An object that became invalid by what happened elsewhere can still be
// labelled, and let go.
func TestUpdateOfTheRest(t *testing.T) {
	const lost = `{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, spec: {priority: 5, tier: gone, appliedTo: [{podSelector: {}}]}}`
	old := read(t, lost)
	labelled := read(t, lost).(*antreav1beta1.NetworkPolicy)
	labelled.Labels = map[string]string{"a": "b"}
	errs, _ := validate.Validate(validate.Request{Operation: validate.Update, Object: labelled, Old: old}, world{})
	check(t, "same spec", errs, "")

	changed := read(t, lost).(*antreav1beta1.NetworkPolicy)
	changed.Spec.Priority = 6
	errs, _ = validate.Validate(validate.Request{Operation: validate.Update, Object: changed, Old: old}, world{})
	check(t, "another spec", errs, "spec.tier")

	now := metav1.Now()
	changed.DeletionTimestamp = &now
	errs, _ = validate.Validate(validate.Request{Operation: validate.Update, Object: changed, Old: old}, world{})
	check(t, "leaving", errs, "")
}

func TestManyErrors(t *testing.T) {
	p := &antreav1beta1.NetworkPolicy{}
	p.Spec.AppliedTo = []antreav1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}
	action := antreav1beta1.RuleActionAllow
	for range 100 {
		zero := int32(0)
		p.Spec.Ingress = append(p.Spec.Ingress, antreav1beta1.Rule{
			Action: &action, From: []antreav1beta1.NetworkPolicyPeer{{}},
			Ports: []antreav1beta1.NetworkPolicyPort{{SourcePort: &zero}},
		})
	}
	errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: p}, nil)
	if len(errs) != validate.MaxErrors+1 || !strings.Contains(errs[validate.MaxErrors].Error(), "and 68 more") {
		t.Errorf("%d errors, want %d and how many more: %v", len(errs), validate.MaxErrors, errs)
	}
	if len(warnings) != validate.MaxErrors+1 || warnings[validate.MaxErrors] != "and 68 more" {
		t.Errorf("%d warnings, want %d and how many more: %v", len(warnings), validate.MaxErrors, warnings)
	}
}

func TestNothingToDecide(t *testing.T) {
	for _, r := range []validate.Request{
		{},
		{Operation: validate.Create, Object: (*antreav1beta1.Tier)(nil)},
		{Operation: validate.Update, Object: (*cloudv1alpha1.CloudProviderAccount)(nil), Old: (*antreav1beta1.Tier)(nil)},
		{Operation: validate.Delete, Old: (*antreav1beta1.Tier)(nil)},
		{Operation: validate.Delete},
	} {
		errs, _ := validate.Validate(r, nil)
		check(t, fmt.Sprintf("%+v", r), errs, "")
	}
}

// What is admitted, as upstream does, but closes or does nothing, is said.
func TestWarnings(t *testing.T) {
	const (
		acnp  = `apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy`
		annp  = `apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy`
		group = `apiVersion: crd.antrea.io/v1beta1, kind: Group`
		ces   = `apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector`
	)
	for _, tt := range []struct{ in, want string }{
		{`{` + annp + `, spec: {priority: 1, appliedTo: [{}]}}`, "spec.appliedTo[0]"},
		{`{` + acnp + `, spec: {priority: 1, appliedTo: [{}]}}`, "spec.appliedTo[0]"},
		{`{` + acnp + `, spec: {priority: 1, appliedTo: [{group: g}], ingress: [{action: Allow, from: [{group: g}, {}]}]}}`, "spec.ingress[0].from[1]"},
		{`{` + acnp + `, spec: {priority: 1, appliedTo: [{group: g}], egress: [{action: Allow, to: [{podSelector: {}, scope: ClusterSet}]}]}}`, "spec.egress[0].to[0].scope"},
		{`{` + acnp + `, spec: {priority: 1, appliedTo: [{group: g}], egress: [{action: Allow, toServices: []}]}}`, "spec.egress[0].toServices"},
		{`{` + acnp + `, spec: {priority: 1, appliedTo: [{group: g}], egress: [{action: Allow, l7Protocols: []}]}}`, "spec.egress[0].l7Protocols"},
		{`{` + group + `, spec: {}}`, "spec"},
		{`{` + ces + `, spec: {accountName: a, accountNamespace: b, vmSelector: [{vpcMatch: {}}]}}`, "spec.vmSelector[0].vpcMatch"},
		{`{` + ces + `, spec: {accountName: a, accountNamespace: b, vmSelector: [{vmMatch: [{}]}]}}`, "spec.vmSelector[0].vmMatch[0]"},
		{`{` + ces + `, spec: {accountName: a, accountNamespace: b, vmSelector: [{vpcMatch: {matchID: a}, agented: true}]}}`, "spec.vmSelector[0].agented"},
	} {
		errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: read(t, tt.in)}, nil)
		check(t, tt.in, errs, "")
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], tt.want+": ") {
			t.Errorf("Validate(%s) warns %q, want once about %s", tt.in, warnings, tt.want)
		}
	}
}
