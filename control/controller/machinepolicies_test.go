package controller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// told returns what the runtime API tells of a VM's policies: the sum, then each
// policy with its realization and reason.
func (e *env) told(network string, n int) []string {
	x, ok := e.running.Runtime().VirtualMachinePolicies().Get(fmt.Sprintf("%s/i-%s%d", e.ns, network, n))
	if !ok {
		return nil
	}
	out := []string{string(x.Status.Realization)}
	for _, p := range slices.Sorted(maps.Keys(x.Status.NetworkPolicyStatus)) {
		s := x.Status.NetworkPolicyStatus[p]
		out = append(out, strings.TrimSpace(p+" "+string(s.Realization)+" "+s.Reason))
	}
	return out
}

// tells is a check of what is told, each line by its beginning.
func (e *env) tells(network string, n int, want ...string) func() string {
	return func() string {
		got := e.told(network, n)
		if len(got) == len(want) && !slices.ContainsFunc(want, func(w string) bool {
			return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
		}) {
			return ""
		}
		return fmt.Sprintf("i-%s%d: %q, want %q", network, n, got, want)
	}
}

func (e *env) policiesSynced() {
	e.t.Helper()
	e.eventually("policies are known", func() string {
		e.running.Runtime().VirtualMachines()
		e.running.Runtime().VirtualMachinePolicies()
		select {
		case <-e.running.Runtime().PoliciesSynced():
			return ""
		default:
			return "not yet"
		}
	})
}

// clusterPolicy makes a policy of the cluster that concerns the test's namespace.
func (e *env) clusterPolicy(name, spec string) *antreav1beta1.ClusterNetworkPolicy {
	e.t.Helper()
	p := &antreav1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + e.ns}}
	if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
		e.t.Fatal(err)
	}
	for i := range p.Spec.AppliedTo {
		p.Spec.AppliedTo[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.ns}}
	}
	return p
}

func TestVirtualMachinePolicies(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything))
	e.start()
	e.policiesSynced()
	const a, b = "us-east-1/vpca=", "us-west-2/vpcb="
	e.eventually("VMs without policies", all(e.tells("vpca", 1), e.tells("vpca", 2), e.tells("vpcb", 1)))

	e.create(e.allow("web", "web", 80), e.allow("db", "db", 5432))
	cluster := e.clusterPolicy("web", `{"priority": 3, "appliedTo": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "web"}}}],
		"egress": [{"action": "Drop", "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]}`)
	e.create(cluster)
	t.Cleanup(func() { _ = e.client.Delete(t.Context(), cluster) })
	acnp := "acnp/" + cluster.Name
	e.eventually("each VM has its own", all(
		e.tells("vpca", 1, "SUCCESS", "web SUCCESS "+a+"Applied", acnp+" SUCCESS "+a+"Applied"),
		e.tells("vpca", 2, "SUCCESS", "db SUCCESS "+a+"Applied"),
		e.tells("vpcb", 1, "SUCCESS", "web SUCCESS "+b+"Applied", acnp+" SUCCESS "+b+"Applied")))
	x, _ := e.running.Runtime().VirtualMachinePolicies().Get(e.ns + "/i-vpca1")
	if vm := e.machine("vpca", 1); x.Name != vm.Name || x.UID == "" || x.UID == vm.UID || !x.CreationTimestamp.Equal(&vm.CreationTimestamp) || !maps.Equal(x.Labels, vm.Labels) {
		t.Errorf("metadata %+v of the VM %+v", x.ObjectMeta, vm.ObjectMeta)
	}
	e.quietly("nothing changes", func() string {
		if again, _ := e.running.Runtime().VirtualMachinePolicies().Get(e.ns + "/i-vpca1"); again != x {
			return "it is another pointer"
		}
		return ""
	})

	// One VPC refuses a rule of one policy: nothing is said of others.
	e.cloud.with(func(f *fakeCloud) {
		f.refusals = []policy.Refusal{
			{Policy: policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, "web"), Workloads: []string{policy.WorkloadID(policy.KindExternal, e.ns, entityName("vpca", 1))}, Reason: policy.RefusedQuota, Message: "too many", Need: 61, Limit: 60},
			{Policy: policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, "db"), Workloads: []string{policy.WorkloadID(policy.KindExternal, e.ns, entityName("vpca", 2))}, Reason: policy.RefusedReject, Message: "dropped"},
		}
	})
	e.eventually("refused", all(
		e.tells("vpca", 1, "FAILED", "web FAILED "+a+"QuotaExceeded: too many (needs 61 of 60)", acnp+" SUCCESS"),
		e.tells("vpca", 2, "FAILED", "db FAILED "+a+"RejectIsDrop: dropped"),
		e.tells("vpcb", 1, "SUCCESS", "web SUCCESS", acnp+" SUCCESS"),
		e.phaseIs("web", antreav1beta1.PolicyFailed), e.phaseIs("db", antreav1beta1.PolicyFailed)))
	e.cloud.with(func(f *fakeCloud) { f.refusals = nil; f.refuse["vpcb"] = errors.New("Denied") })
	e.setPort("web", 81)
	e.eventually("a cloud that refuses to write", all(
		e.tells("vpca", 1, "SUCCESS", "web SUCCESS", acnp+" SUCCESS"), e.tells("vpcb", 1, "FAILED", "web FAILED "+b, acnp+" "),
		e.phaseIs("web", antreav1beta1.PolicyFailed), e.phaseIs("db", antreav1beta1.PolicyRealized)))
	e.cloud.with(func(f *fakeCloud) { f.refuse = map[string]error{} })
	e.eventually("it writes again", e.tells("vpcb", 1, "SUCCESS", "web SUCCESS", acnp+" SUCCESS"))

	// What a policy has no place or no words for.
	update[antreav1beta1.NetworkPolicy](e, "db", func(p *antreav1beta1.NetworkPolicy) { p.Spec.Tier = "nowhere" })
	e.eventually("a tier that is missing", all(e.tells("vpca", 2, "FAILED", "db FAILED "+a+"TierMissing: "), e.phaseIs("db", antreav1beta1.PolicyFailed)))
	update[antreav1beta1.NetworkPolicy](e, "db", func(p *antreav1beta1.NetworkPolicy) {
		p.Spec.Tier, p.Spec.Ingress[0].From[0] = "", antreav1beta1.NetworkPolicyPeer{IPBlock: &antreav1beta1.IPBlock{CIDR: "10.0.0.0/99"}}
	})
	e.eventually("one that cannot be read", all(e.tells("vpca", 2, "FAILED", "db FAILED "+a+"Unreadable: "), e.phaseIs("db", antreav1beta1.PolicyFailed)))
	update[antreav1beta1.NetworkPolicy](e, "db", func(p *antreav1beta1.NetworkPolicy) { p.Spec.Ingress, p.Spec.Egress = nil, nil })
	e.eventually("one without rules", all(e.tells("vpca", 2, "SUCCESS", "db SUCCESS"), e.phaseIs("db", antreav1beta1.PolicyRealized)))

	before := e.told("vpca", 1)
	e.stop()
	e.start()
	e.policiesSynced()
	e.eventually("after a restart it is the same", func() string { return cmp.Diff(before, e.told("vpca", 1)) })
	e.cloud.with(func(f *fakeCloud) { f.vms["us-west-2"] = nil })
	e.eventually("a VM that is gone", e.tells("vpcb", 1))
}

// The status of a policy is right where several targets, groups and rules have to
// do with it.
func TestPolicyStatusOfSeveral(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything))
	e.start()
	role := func(role string) []antreav1beta1.AppliedTo {
		return []antreav1beta1.AppliedTo{{ExternalEntitySelector: &metav1.LabelSelector{MatchLabels: map[string]string{"nephe.antrea.io/tag-Role": role}}}}
	}
	several := e.allow("several", "web", 80) // VMs of two VPCs, in two groups
	several.Spec.AppliedTo = append(role("web"), role("db")...)
	rules := e.allow("rules", "web", 81)
	rules.Spec.AppliedTo = nil
	rules.Spec.Ingress = append(rules.Spec.Ingress, *rules.Spec.Ingress[0].DeepCopy())
	rules.Spec.Ingress[0].AppliedTo, rules.Spec.Ingress[1].AppliedTo = role("web"), role("db")
	nobody := e.allow("nobody", "web", 82)
	nobody.Spec.Ingress[0].From[0].ExternalEntitySelector.MatchLabels["nephe.antrea.io/tag-Role"] = "nobody"
	e.create(several, rules, nobody)
	e.eventually("all hold", all(e.phaseIs("several", antreav1beta1.PolicyRealized), e.phaseIs("rules", antreav1beta1.PolicyRealized), e.phaseIs("nobody", antreav1beta1.PolicyRealized)))
	e.eventually("and say so", all(e.tells("vpca", 1, "SUCCESS", "several S", "rules S", "nobody S"), e.tells("vpca", 2, "SUCCESS", "several S", "rules S")))

	p, err := get[antreav1beta1.NetworkPolicy](e, "several")
	if err != nil || p.Status.DesiredNodesRealized != 2 || p.Status.CurrentNodesRealized != 2 {
		t.Errorf("%+v, %v; want two targets", p.Status, err)
	}
}

// With another controller that writes statuses, ours are told by other means alone.
func TestLeavePolicyStatus(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.o.LeavePolicyStatus = true
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.start()
	e.eventually("enforced", e.tells("vpca", 2, "SUCCESS", "db SUCCESS"))
	e.quietly("no status", func() string {
		p, err := get[antreav1beta1.NetworkPolicy](e, "db")
		if err != nil || p.Status.Phase != "" {
			return fmt.Sprint(p.Status, err)
		}
		return ""
	})
}

// Security groups are shown per selector's namespace while it is asked for, and
// what cannot be read is not gone.
func TestSecurityGroups(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.o.ShowSecurityGroups = true
	rule := cloud.SecurityGroupRule{Ingress: true, Action: "Allow", Description: "of users", Protocol: "tcp", Port: "22", Source: []string{"0.0.0.0/0"}}
	e.cloud.with(func(f *fakeCloud) {
		f.networks["us-east-1"] = append(f.networks["us-east-1"], cloud.Network{ID: "vpcz", Region: "us-east-1"})
		f.groups["vpca"] = []cloud.SecurityGroup{
			{ID: "sg-1", Name: "Default", Region: "us-east-1", NetworkID: "vpca", Rules: []cloud.SecurityGroupRule{rule}},
			{ID: "sg-2", Name: "isobar-e-1", Region: "us-east-1", NetworkID: "vpca"},
		}
		f.groups["vpcz"] = []cloud.SecurityGroup{{ID: "sg-9", Region: "us-east-1", NetworkID: "vpcz"}}
	})
	e.create(e.secret(rightKeys), e.account("us-east-1"))
	e.start()
	shown := func(want ...string) func() string {
		return func() string {
			var got []string
			for id := range e.running.Runtime().SecurityGroups().All() {
				got = append(got, strings.TrimPrefix(id, e.ns+"/"))
			}
			slices.Sort(got)
			return cmp.Diff(want, got)
		}
	}
	e.eventually("they are known", func() string {
		e.running.Runtime().VirtualMachines()
		e.running.Runtime().SecurityGroups()
		select {
		case <-e.running.Runtime().SecurityGroupsSynced():
			return ""
		default:
			return "not yet"
		}
	})
	if wrong := shown()(); wrong != "" {
		t.Errorf("without a selector: %s", wrong)
	}
	ces := e.selector("all", everything)
	e.create(ces)
	e.eventually("those of the VPC with VMs", shown("sg-1", "sg-2"))
	x, _ := e.running.Runtime().SecurityGroups().Get(e.ns + "/sg-1")
	labels := map[string]string{"nephe.antrea.io/cpa-name": "acct", "nephe.antrea.io/cpa-namespace": e.ns, "nephe.antrea.io/ces-name": "all", "nephe.antrea.io/ces-namespace": e.ns, "nephe.antrea.io/vpc-name": "vpca"}
	if diff := cmp.Diff(labels, x.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if s := x.Status; s.CloudName != "default" || s.CloudID != "sg-1" || s.Provider != "AWS" || s.Region != "us-east-1" || len(s.Rules) != 1 || s.Rules[0].Source[0] != "0.0.0.0/0" || x.UID == "" {
		t.Errorf("%+v", x)
	}
	e.cloud.with(func(f *fakeCloud) { f.groupsErr = errors.New("no answer") })
	e.eventually("an error is told", e.accountIs("region us-east-1: no answer", "Inventory", "False ReadFailed"))
	e.quietly("and nothing is gone", shown("sg-1", "sg-2"))
	e.cloud.with(func(f *fakeCloud) { f.groupsErr, f.groups["vpca"] = nil, f.groups["vpca"][:1] })
	e.eventually("one goes", shown("sg-1"))
	e.eventually("the error too", e.accountIs("", "Inventory", "True Listed"))
	e.delete(ces)
	e.eventually("all go with the VMs", shown())
}
