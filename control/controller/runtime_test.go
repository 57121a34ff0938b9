package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/control/apiserver"
)

// machine returns a VM as the runtime API shows it; nil when it does not.
func (e *env) machine(network string, n int) *runtimev1alpha1.VirtualMachine {
	x, _ := e.running.Runtime().VirtualMachines().Get(fmt.Sprintf("%s/i-%s%d", e.ns, network, n))
	return x
}

func (e *env) machineHas(network string, n int, tags map[string]string) func() string {
	return func() string {
		x := e.machine(network, n)
		if x == nil {
			return "there is no such VM"
		}
		return cmp.Diff(tags, x.Spec.Tags)
	}
}

// synced waits until the runtime API would serve.
func (e *env) synced() {
	e.t.Helper()
	e.eventually("the inventory is read", func() string {
		e.running.Runtime().VirtualMachines()
		select {
		case <-e.running.Runtime().Synced():
			return ""
		default:
			return "not yet"
		}
	})
}

func (e *env) setTags(network string, n int, tags map[string]string) error {
	e.t.Helper()
	return e.running.Runtime().SetTags(context.Background(), e.machine(network, n), apiserver.Tagging{Tags: tags})
}

func TestRuntime(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.cloud.with(func(f *fakeCloud) {
		f.networks["us-east-1"] = append(f.networks["us-east-1"], cloud.Network{
			ID: "vpcz", Name: "Other", Region: "us-east-1", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, Tags: map[string]string{"any tag": "yes"},
		})
		f.vms["us-east-1"][0].Interfaces[0].Groups = []string{"sg-2", "sg-1"}
		f.vms["us-east-1"][0].Tags["bad tag"] = "x"
		f.down["us-west-2"] = errors.New("no answer")
	})
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything))
	e.start()
	e.synced() // although a region is down
	if n := e.running.Runtime().VirtualMachines().Len(); n != 2 {
		t.Errorf("once it is read, there are %d VMs, want 2", n)
	}
	got := e.machine("vpca", 1)
	ces, err := get[cloudv1alpha1.CloudEntitySelector](e, "all")
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimev1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.ns, Name: "i-vpca1", UID: got.UID, CreationTimestamp: ces.CreationTimestamp,
			Labels: map[string]string{
				"nephe.antrea.io/cpa-name": "acct", "nephe.antrea.io/cpa-namespace": e.ns, "nephe.antrea.io/ces-name": "all", "nephe.antrea.io/ces-namespace": e.ns,
				"nephe.antrea.io/vpc-name": "vpca", "nephe.antrea.io/cloud-vm-uid": "i-vpca1", "nephe.antrea.io/cloud-vpc-uid": "vpca",
			},
		},
		Status: runtimev1alpha1.VirtualMachineStatus{
			Provider: "AWS", State: "running", Region: "us-east-1", CloudID: "i-vpca1", CloudName: "web1", CloudVpcID: "vpca", CloudVpcName: "net vpca",
			Tags: map[string]string{"Name": "web1", "Role": "web"},
			NetworkInterfaces: []runtimev1alpha1.NetworkInterface{{
				Name: "eni-vpca-1", MAC: "02:00:00:00:00:01", SecurityGroupIDs: []string{"sg-1", "sg-2"},
				IPs: []runtimev1alpha1.IPAddress{{AddressType: "InternalIP", Address: "10.0.0.1"}, {AddressType: "ExternalIP", Address: "203.0.113.1"}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a VM (-want +got):\n%s", diff)
	}
	vpcs := e.running.Runtime().Vpcs()
	for name, managed := range map[string]bool{"vpca": true, "vpcz": false} {
		if x, ok := vpcs.Get(e.ns + "/" + name); !ok || x.Status.Managed != managed || x.UID == "" || x.CreationTimestamp.IsZero() {
			t.Errorf("%s is %+v, want managed %t", name, x, managed)
		}
	}
	if x, _ := vpcs.Get(e.ns + "/vpcz"); x == nil || !cmp.Equal(x.Status, runtimev1alpha1.VpcStatus{
		CloudName: "other", CloudID: "vpcz", Provider: "AWS", Region: "us-east-1", Tags: map[string]string{"any tag": "yes"}, CIDRs: []string{"10.9.0.0/16"},
	}) {
		t.Errorf("vpcz is %+v", x)
	}

	e.eventually("the ExternalEntity", e.entityHas("vpca", 1, cloudv1alpha1.LabelTagPrefix+"Role", "web"))
	same := e.machine("vpca", 1)
	e.quietly("listing again changes nothing", func() string {
		if e.machine("vpca", 1) != same {
			return "it is another pointer"
		}
		return ""
	})
	e.cloud.with(func(f *fakeCloud) { f.vms["us-east-1"][0].State = "stopped" })
	e.eventually("a state", func() string { return cmp.Diff("stopped", string(e.machine("vpca", 1).Status.State)) })
	e.stop()
	e.start()
	e.synced()
	if again := e.machine("vpca", 1); again.UID != want.UID || !again.CreationTimestamp.Equal(&want.CreationTimestamp) {
		t.Errorf("after a restart the VM has UID %s and was made at %v; want %s, %v", again.UID, again.CreationTimestamp, want.UID, want.CreationTimestamp)
	}
	e.delete(ces)
	e.eventually("no VMs", func() string {
		if n := e.running.Runtime().VirtualMachines().Len(); n > 0 {
			return fmt.Sprintf("%d VMs", n)
		}
		if x, ok := e.running.Runtime().Vpcs().Get(e.ns + "/vpca"); !ok || x.Status.Managed {
			return fmt.Sprintf("vpca: %+v", x)
		}
		return ""
	})
}

// Tags of users are theirs through changes of the VM and restarts.
func TestUserTags(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything))
	e.start()
	role, env := cloudv1alpha1.LabelTagPrefix+"Role", cloudv1alpha1.LabelTagPrefix+"Env"
	e.eventually("before", all(e.entityHas("vpca", 1, role, "web"), e.machineHas("vpca", 1, nil)))

	set := func(tags map[string]string) {
		t.Helper()
		if err := e.setTags("vpca", 1, tags); err != nil {
			t.Fatalf("SetTags(%v) = %v", tags, err)
		}
		e.eventually("the tags show", e.machineHas("vpca", 1, tags))
	}
	set(map[string]string{"Role": "web", "Env": "test"}) // Role is the cloud's own word, and the user's from now on
	e.eventually("labels", all(e.entityHas("vpca", 1, role, "web"), e.entityHas("vpca", 1, env, "test")))
	e.cloud.with(func(f *fakeCloud) {
		f.vms["us-east-1"][0].State, f.vms["us-east-1"][0].Tags = "stopped", map[string]string{"Name": "web1", "Role": "frontend"}
	})
	e.eventually("the VM changes", func() string { return cmp.Diff("frontend", e.machine("vpca", 1).Status.Tags["Role"]) })
	e.quietly("the tags stay", all(e.entityHas("vpca", 1, role, "web"), e.machineHas("vpca", 1, map[string]string{"Role": "web", "Env": "test"})))
	e.stop()
	e.start()
	e.synced()
	e.quietly("also through a restart", e.machineHas("vpca", 1, map[string]string{"Role": "web", "Env": "test"}))

	e.label(entityName("vpca", 1), cloudv1alpha1.LabelTagPrefix+"Team", "a") // with kubectl label, past the runtime API
	e.eventually("a label of others", e.machineHas("vpca", 1, map[string]string{"Role": "web", "Env": "test", "Team": "a"}))
	set(map[string]string{"Env": "prod"}) // takes theirs away too
	e.eventually("the cloud's tag is back", all(e.entityHas("vpca", 1, role, "frontend"), e.entityHas("vpca", 1, env, "prod"),
		e.entityLacks("vpca", 1, cloudv1alpha1.LabelTagPrefix+"Team")))
	set(nil)
	e.eventually("none is left", e.entityLacks("vpca", 1, env))

	stale := e.machine("vpca", 1).DeepCopy()
	set(map[string]string{"a": "1"})
	if err := e.running.Runtime().SetTags(t.Context(), stale, apiserver.Tagging{Tags: map[string]string{"b": "1"}}); !errors.Is(err, apiserver.ErrConflict) {
		t.Errorf("SetTags of what was seen before the last change = %v, want a conflict", err)
	}
	for _, name := range []string{"isobar", "isobar-user-tags", "nephe-controller"} {
		to := apiserver.Tagging{Tags: map[string]string{"a": "2"}, Manager: name, Applied: []string{"a"}}
		if err := e.running.Runtime().SetTags(t.Context(), e.machine("vpca", 1), to); !errors.Is(err, apiserver.ErrManager) {
			t.Errorf("SetTags of %s = %v, want that it is not its name", name, err)
		}
	}
	stale.Name = "i-none"
	if err := e.running.Runtime().SetTags(t.Context(), stale, apiserver.Tagging{Tags: map[string]string{"b": "1"}}); !errors.Is(err, apiserver.ErrNotReady) {
		t.Errorf("SetTags of a VM without ExternalEntity = %v, want that it is not ready", err)
	}
}
