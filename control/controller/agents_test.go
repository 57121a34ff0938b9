package controller_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/control/apiserver"
)

// agented is everything, with agents on the VMs.
var agented = cloudv1alpha1.VirtualMachineSelector{VpcMatch: &cloudv1alpha1.EntityMatch{}, Agented: true}

func (e *env) setEntries(name string, entries ...cloudv1alpha1.VirtualMachineSelector) {
	e.t.Helper()
	update[cloudv1alpha1.CloudEntitySelector](e, name, func(ces *cloudv1alpha1.CloudEntitySelector) { ces.Spec.VMSelector = entries })
}

// node is a check that a VM has an ExternalNode with these interfaces, each "name: ips".
func (e *env) node(network string, n int, want ...string) func() string {
	return func() string {
		en, err := get[antreav1alpha1.ExternalNode](e, entityName(network, n))
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, i := range en.Spec.Interfaces {
			got = append(got, i.Name+": "+strings.Join(i.IPs, " "))
		}
		if !slices.Equal(got, want) || en.Labels[cloudv1alpha1.LabelOwnerVM] != fmt.Sprintf("i-%s%d", network, n) {
			return fmt.Sprintf("interfaces %q, labels %v; want %q", got, en.Labels, want)
		}
		return ""
	}
}

func (e *env) noNode(network string, n int) func() string {
	return func() string {
		if _, err := get[antreav1alpha1.ExternalNode](e, entityName(network, n)); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("ExternalNode %s is there: %v", entityName(network, n), err)
		}
		return ""
	}
}

// take does what an agent's controller does of an ExternalNode: an ExternalEntity for
// the first interface, with its labels.
func (e *env) take(network string, n int) *antreav1alpha2.ExternalEntity {
	e.t.Helper()
	var en *antreav1alpha1.ExternalNode
	e.eventually("there is an ExternalNode to take", func() (wrong string) {
		var err error
		if en, err = get[antreav1alpha1.ExternalNode](e, entityName(network, n)); err != nil {
			return err.Error()
		}
		return ""
	})
	ee := &antreav1alpha2.ExternalEntity{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: en.Name + "-0a1b2", Labels: en.Labels},
		Spec:       antreav1alpha2.ExternalEntitySpec{ExternalNode: en.Name, Endpoints: []antreav1alpha2.Endpoint{{IP: en.Spec.Interfaces[0].IPs[0]}}},
	}
	e.create(ee)
	return ee
}

func (e *env) conditionOf(selector, condition, want string) func() string {
	return func() string {
		ces, err := get[cloudv1alpha1.CloudEntitySelector](e, selector)
		if err != nil {
			return err.Error()
		}
		return conditionIs(ces.Status.Conditions, condition, want)
	}
}

// A VM whose selector says that it has an agent has an ExternalNode in place of its
// ExternalEntity, and is enforced by the cloud until an agent's controller takes it,
// and from the moment on that it has none any more. As a peer it counts throughout.
func TestAgented(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("web", "web", 80), e.allow("db", "db", 5432))
	enforced := all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"))
	e.eventually("enforced by the cloud", enforced)
	isPeer := e.has("vpca", 2, "[10.0.0.1 203.0.113.1]") // web1 of the database's rule
	e.eventually("web1 is a peer", isPeer)
	role := cloudv1alpha1.LabelTagPrefix + "Team"
	e.label(entityName("vpca", 1), role, "users")

	web := cloudv1alpha1.VirtualMachineSelector{VMMatch: []cloudv1alpha1.EntityMatch{{MatchName: "web1"}}, Agented: true}
	e.setEntries("all", everything, web)
	e.eventually("swapped", all(e.node("vpca", 1, "eni-vpca-1: 10.0.0.1 203.0.113.1"), e.noEntity("vpca", 1), e.noNode("vpca", 2), e.entityHas("vpca", 2, cloudv1alpha1.LabelOwnerVM, "i-vpca2")))
	e.eventually("it is told that nobody has taken it", all(e.conditionOf("all", "Agents", "False Awaited"), e.hasEvent("all", "Awaited")))
	e.quietly("the cloud goes on", all(enforced, isPeer))
	e.synced()
	if got := e.machine("vpca", 1); !got.Status.Agented || got.Spec.Tags["Team"] != "users" {
		t.Errorf("the VM is shown as %+v %+v; want that it has an agent, and its user's tags", got.Spec, got.Status)
	}

	derived := e.take("vpca", 1)
	e.eventually("taken: the cloud lets go", all(e.has("vpca", 1, ""), e.has("vpcb", 1, "80"), e.conditionOf("all", "Agents", "True Taken")))
	e.quietly("it is a peer, once", isPeer)
	en, err := get[antreav1alpha1.ExternalNode](e, entityName("vpca", 1))
	if err != nil {
		t.Fatal(err)
	}
	versions := e.quiet()
	e.stop()
	e.start()
	e.eventually("as before after a restart", all(e.has("vpca", 1, ""), e.has("vpcb", 1, "80"), isPeer, e.conditionOf("all", "Agents", "True Taken")))
	e.quietly("and nothing is written", func() string {
		if now := e.versions(); now != versions {
			return now + " was " + versions
		}
		return ""
	})

	update[antreav1alpha1.ExternalNode](e, en.Name, func(n *antreav1alpha1.ExternalNode) {
		n.Spec.Interfaces[0].IPs, n.Labels[cloudv1alpha1.LabelOwnerVM] = []string{"10.9.9.9"}, "somebody-else"
	})
	e.eventually("put right", e.node("vpca", 1, "eni-vpca-1: 10.0.0.1 203.0.113.1"))
	e.delete(derived) // as its controller does of an ExternalNode that is deleted
	e.delete(en)
	e.eventually("made again", e.node("vpca", 1, "eni-vpca-1: 10.0.0.1 203.0.113.1"))
	e.eventually("the cloud enforces meanwhile", all(enforced, isPeer, e.conditionOf("all", "Agents", "False Awaited")))

	derived = e.take("vpca", 1)
	e.eventually("taken again", e.has("vpca", 1, ""))
	e.eventually("its user's tags can be set", func() string { // those of before went with the object
		if err := e.setTags("vpca", 1, map[string]string{"Team": "users"}); err != nil {
			return err.Error()
		}
		return ""
	})
	e.eventually("and applied", func() string {
		to := apiserver.Tagging{Tags: map[string]string{"Team": "users", "Role": "web"}, Manager: "gitops", Applied: []string{"Role"}} // the cloud's own word
		if err := e.running.Runtime().SetTags(t.Context(), e.machine("vpca", 1), to); err != nil {
			return err.Error()
		}
		return ""
	})
	e.setEntries("all", everything)
	e.eventually("back: the cloud enforces before the agent's side has gone", all(enforced, isPeer, e.noNode("vpca", 1),
		e.entityHas("vpca", 1, cloudv1alpha1.LabelOwnerVM, "i-vpca1"), e.entityHas("vpca", 1, role, "users")))
	e.eventually("with its user's tags, and who has applied them", func() string {
		vm := e.machine("vpca", 1)
		var managers []string
		for _, m := range vm.ManagedFields {
			managers = append(managers, fmt.Sprint(m.Manager, apiserver.ManagedKeys(m, "f:spec", "f:tags")))
		}
		return cmp.Diff("gitops[Role] isobar-user-tags[Team] map[Role:web Team:users]", fmt.Sprint(strings.Join(managers, " "), " ", vm.Spec.Tags))
	})
	e.delete(derived)
	e.eventually("no condition is left", func() string {
		if e.conditionOf("all", "Agents", "False Awaited")() == "" || e.conditionOf("all", "Agents", "True Taken")() == "" {
			return "there is one"
		}
		return ""
	})
	e.quietly("the cloud enforces", all(enforced, isPeer))

	e.setEntries("all", agented)
	e.eventually("all have agents", all(e.node("vpca", 2, "eni-vpca-2: 10.0.0.2 203.0.113.2"), e.noEntity("vpca", 2)))
	ces, err := get[cloudv1alpha1.CloudEntitySelector](e, "all")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(ces)
	e.eventually("gone with the selector", all(e.noNode("vpca", 1), e.noNode("vpca", 2), e.noNode("vpcb", 1), e.has("vpca", 1, "")))
}

// Whether a VM has an agent is decided by the oldest selector that picks it, and by
// its entry that names it most closely: not by the selector that was seen last.
func TestAgentedOfSelectors(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("agents", agented))
	first := e.node("vpca", 1, "eni-vpca-1: 10.0.0.1 203.0.113.1")
	e.eventually("with an agent", all(first, e.selectorIs("agents", "", "True Imported")))
	e.create(e.selector("none", everything))
	e.eventually("told", e.conditionOf("none", "Overlapping", "True Overlapping"))
	e.quietly("a younger one changes nothing", all(first, e.noEntity("vpca", 1)))
	e.stop()
	ces, err := get[cloudv1alpha1.CloudEntitySelector](e, "agents")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(ces)
	e.start()
	e.eventually("one that was deleted while nobody looked does not count", all(e.noNode("vpca", 1), e.entityHas("vpca", 1, cloudv1alpha1.LabelOwnerVM, "i-vpca1")))
}

// What a Nephe has left is taken over, tags of its users with it; what stands for no
// VM any more goes.
func TestLeftByNephe(t *testing.T) {
	e := newEnv(t)
	e.estate()
	tag := func(k string) string { return cloudv1alpha1.LabelTagPrefix + k }
	left := func(name, vpc string, more map[string]string) *antreav1alpha2.ExternalEntity {
		labels := map[string]string{
			cloudv1alpha1.LabelKind: "virtualmachine", cloudv1alpha1.LabelOwnerVM: strings.TrimPrefix(name, "virtualmachine-"),
			cloudv1alpha1.LabelCloudRegion: "us-east-1", cloudv1alpha1.LabelCloudVpcUID: vpc,
		}
		for k, v := range more {
			labels[tag(k)] = v
		}
		ee := &antreav1alpha2.ExternalEntity{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name, Labels: labels},
			Spec:       antreav1alpha2.ExternalEntitySpec{ExternalNode: cloudv1alpha1.ExternalNodeController, Endpoints: []antreav1alpha2.Endpoint{{IP: "10.0.0.1"}}},
		}
		if err := e.client.Create(t.Context(), ee, client.FieldOwner("nephe-controller")); err != nil {
			t.Fatal(err)
		}
		return ee
	}
	left(entityName("vpca", 1), "vpca", map[string]string{"Name": "web1", "Role": "old", "Mine": "yes"})
	left("virtualmachine-i-gone", "vpca", nil)
	left("virtualmachine-i-foreign", "vpcq", nil)
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("web", "web", 80))
	name := entityName("vpca", 1)
	e.eventually("taken over", all(e.entityHas("vpca", 1, tag("Role"), "web"), e.entityHas("vpca", 1, tag("Mine"), "yes"), e.has("vpca", 1, "80"), func() string {
		ee, err := get[antreav1alpha2.ExternalEntity](e, name)
		if err != nil {
			return err.Error()
		}
		if text, _ := json.Marshal(ee.ManagedFields); strings.Contains(string(text), "nephe-controller") {
			return string(text)
		}
		return ""
	}))
	e.eventually("what stands for no VM goes", func() string {
		if _, err := get[antreav1alpha2.ExternalEntity](e, "virtualmachine-i-gone"); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	if _, err := get[antreav1alpha2.ExternalEntity](e, "virtualmachine-i-foreign"); err != nil {
		t.Errorf("one of a network that nobody here has: %v", err)
	}
	e.cloud.with(func(f *fakeCloud) { f.vms["us-east-1"][0].Tags = map[string]string{"Role": "web"} })
	e.eventually("it follows the cloud, and keeps its user's tags", all(e.entityLacks("vpca", 1, tag("Name")), e.entityHas("vpca", 1, tag("Mine"), "yes")))
}
