package acceptance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/controlplane"
	heard "isobar.dev/control/machines"
)

var infos = runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachineRuntimeInfos)

// Agents of machines that are in no cloud say how they are, each of itself alone, and their
// ExternalNodes become ExternalEntities with the addresses that nobody else has.
func TestRuntimeInfos(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}}})))
	w.o.Reports = controlplane.NewReports(nil)
	w.o.Machines = heard.New(heard.Options{Lost: time.Second, Recall: 500 * time.Millisecond})
	w.start()
	w.runtimeAPI()
	ctx := t.Context()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "agents"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{infos.Group}, Resources: []string{infos.Resource}, Verbs: []string{"create"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "agents"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "agents"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "system:serviceaccounts:" + w.ns}}}
	if _, err := w.core.RbacV1().Roles(w.ns).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.core.RbacV1().RoleBindings(w.ns).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	say := func(as, of string, status runtimev1alpha1.VirtualMachineRuntimeInfoStatus) error {
		config := rest.CopyConfig(w.run.runtime)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + w.ns + ":" + as, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + w.ns, "system:authenticated"}}
		body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&runtimev1alpha1.VirtualMachineRuntimeInfo{ObjectMeta: metav1.ObjectMeta{Name: of}, Status: status})
		if err != nil {
			t.Fatal(err)
		}
		body["apiVersion"], body["kind"] = infos.GroupVersion().String(), "VirtualMachineRuntimeInfo"
		_, err = dynamic.NewForConfigOrDie(config).Resource(infos).Namespace(w.ns).Create(context.Background(), &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
		return err
	}
	on := func(ips ...string) runtimev1alpha1.VirtualMachineRuntimeInfoStatus {
		return runtimev1alpha1.VirtualMachineRuntimeInfoStatus{State: runtimev1alpha1.AgentEnforcing, MachineID: "m", Interfaces: []runtimev1alpha1.VirtualMachineInterface{{Name: "eth0", IPs: ips}}}
	}
	info := func(name, condition string) string {
		o, err := w.runtimeAPI().Resource(infos).Namespace(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var x runtimev1alpha1.VirtualMachineRuntimeInfo
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &x); err != nil {
			return err.Error()
		}
		for _, c := range x.Status.Conditions {
			if c.Type == condition {
				return string(c.Status) + " " + c.Message
			}
		}
		return "no " + condition
	}
	says := func(name, condition, want string) {
		t.Helper()
		w.eventually(name+" "+condition, func() error {
			if got := info(name, condition); !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	has := func(name, want string) {
		t.Helper()
		w.eventually(name+" has "+want, func() error {
			ee, err := read[antreav1alpha2.ExternalEntity](w, entities, name)
			if err != nil {
				return err
			}
			var got []string
			for _, e := range ee.Spec.Endpoints {
				got = append(got, e.IP)
			}
			if ee.Spec.ExternalNode != strings.TrimSuffix(name, "-83c5e") || strings.Join(got, " ") != want {
				return fmt.Errorf("%+v", ee.Spec)
			}
			return nil
		})
	}

	w.eventually("there is no ExternalNode", func() error { // once the server knows whom to believe
		if err := say("a", "a", on()); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	w.apply(`
apiVersion: crd.antrea.io/v1alpha1
kind: ExternalNode
metadata: {name: a, labels: {role: db}}
---
apiVersion: crd.antrea.io/v1alpha1
kind: ExternalNode
metadata: {name: b}
spec: {interfaces: [{name: eth0}, {name: eth1, ips: ["192.0.2.9"]}]}`)
	has("a", "")
	w.eventually("a is heard", func() error { return say("a", "a", on("192.0.2.1", "2001:db8::1", "fe80::1", "127.0.0.1")) })
	has("a", "192.0.2.1 2001:db8::1")
	if err := say("b", "a", on()); !apierrors.IsForbidden(err) {
		t.Errorf("one speaks for another: %v", err)
	}
	many := on()
	many.Interfaces = make([]runtimev1alpha1.VirtualMachineInterface, heard.MaxInterfaces+1)
	for what, s := range map[string]runtimev1alpha1.VirtualMachineRuntimeInfoStatus{"no state": {}, "no address": on("192.0.2.256"), "a zone": on("fe80::1%eth0"), "too many": many} {
		if err := say("a", "a", s); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", what, err)
		}
	}

	if err := say("b", "b", on("192.0.2.1", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	has("a", "2001:db8::1")
	w.eventually("b has a name of its own", func() error {
		list := strings.Join(w.list(entities), " ")
		if !strings.Contains(list, "b-") {
			return fmt.Errorf("%s", list)
		}
		return nil
	})
	says("a", runtimev1alpha1.ConditionAddressesAccepted, "False 192.0.2.1 is not taken for its address: the ExternalNode "+w.ns+"/b")
	says("b", runtimev1alpha1.ConditionAddressesAccepted, "False 192.0.2.1 is not taken for its address: the ExternalNode "+w.ns+"/a")
	if err := say("b", "b", on("192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	has("a", "192.0.2.1 2001:db8::1")
	version := func() string {
		ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "a")
		if err != nil {
			t.Fatal(err)
		}
		return ee.ResourceVersion
	}
	before := version()
	for range 20 {
		if err := say("a", "a", on("192.0.2.1", "2001:db8::1")); err != nil {
			t.Fatal(err)
		}
	}
	if now := version(); now != before {
		t.Error("an equal report was written")
	}
	says("a", runtimev1alpha1.ConditionConnected, "False")
	has("a", "192.0.2.1 2001:db8::1") // silence takes no address

	for _, id := range []string{"x", "y", "x"} {
		s := on("192.0.2.1", "2001:db8::1")
		s.MachineID = id
		if err := say("a", "a", s); err != nil {
			t.Fatal(err)
		}
	}
	says("a", runtimev1alpha1.ConditionOneMachine, "False two machines")
	w.stop()
	w.o.Reports, w.o.Machines = controlplane.NewReports(nil), heard.New(heard.Options{Recall: time.Hour})
	w.start()
	w.runtimeAPI()
	w.eventually("the list waits for all", func() error {
		_, err := w.runtimeAPI().Resource(infos).Namespace(w.ns).List(ctx, metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("List = %v", err)
		}
		return nil
	})
	has("a", "192.0.2.1 2001:db8::1")
	if now := version(); now != before {
		t.Error("a restart wrote an address")
	}
	w.eventually("a is heard again", func() error { return say("a", "a", on("192.0.2.7")) })
	has("a", "192.0.2.7")

	w.apply(`
apiVersion: crd.antrea.io/v1alpha2
kind: ExternalEntity
metadata: {name: c, labels: {by: hand}}
spec: {externalNode: c}
---
apiVersion: crd.antrea.io/v1alpha1
kind: ExternalNode
metadata: {name: c}
spec: {interfaces: [{ips: ["192.0.2.30"]}]}`)
	w.eventually("it is told that it stands in the way", func() error {
		if told := strings.Join(w.events("c"), " "); !strings.Contains(told, "somebody else's") {
			return fmt.Errorf("%s", told)
		}
		return nil
	})
	has("c", "")
	for _, name := range []string{"a", "b", "c"} {
		if err := w.client.Resource(nodes).Namespace(w.ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("gone with the ExternalNodes", func() error {
		if list := strings.Join(w.list(entities), " "); list != "c" {
			return fmt.Errorf("%s", list)
		}
		if _, ok := w.o.Machines.Get(namespaced(w.ns, "a")); ok {
			return fmt.Errorf("a is still heard of")
		}
		return nil
	})
}

func namespaced(ns, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: name}
}
