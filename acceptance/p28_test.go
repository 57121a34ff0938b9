package acceptance_test

import (
	"slices"
	"strings"
	"testing"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	"isobar.dev/policy"
)

func TestP28_PodsToVMs(t *testing.T)      { podsToVMs(t, onAWS) }
func TestP28_AzurePodsToVMs(t *testing.T) { podsToVMs(t, onAzure) }

// What an agent on a Node needs to let Pods out to VMs is there: each VM's ExternalEntity with
// all its addresses, in the namespace of its selector. A policy of Pods alone writes nothing
// to the cloud.
func podsToVMs(t *testing.T, on provider) {
	w := on.world(t, features())
	other := w.namespace()
	w.start()
	w.account()
	w.importAll()
	w.settle()
	w.cloud.ResetCalls()
	w.pod(w.ns, "here", "10.66.0.1", map[string]string{"app": "report"})
	w.pod(other, "there", "10.66.0.2", map[string]string{"app": "report"})
	out := "appliedTo: [{podSelector: {matchLabels: {app: report}}}]\negress: [" + allow("egress", byRole("db"), 5432) + ", {action: Drop}]"
	w.policy("out", out)
	elsewhere := strings.Replace(policyText("out", out), "{name: out}", "{name: out, namespace: "+other+"}", 1)
	elsewhere = strings.Replace(elsewhere, "{externalEntitySelector:", "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}, externalEntitySelector:", 1)
	w.apply(elsewhere)
	w.settle()
	w.mustNotWrite()
	ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+w.object("db"))
	if err != nil {
		t.Fatal(err)
	}
	var ips []string
	for _, e := range ee.Spec.Endpoints {
		ips = append(ips, e.IP)
	}
	if !slices.Equal(ips, []string{"10.0.0.6", "198.18.0.12"}) || ee.Spec.ExternalNode != "nephe-controller" {
		t.Errorf("the ExternalEntity of db has the addresses %v and the node %q", ips, ee.Spec.ExternalNode)
	}
	compiled := w.run.World()
	for _, ns := range []string{w.ns, other} {
		if _, ok := compiled.Policies.Get(policy.PolicyID(policy.AntreaNetworkPolicy, ns, "out")); !ok {
			t.Errorf("the policy of %s is not known", ns)
		}
	}
}
