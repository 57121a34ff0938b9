package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/policy"
)

// inventory is an Inventory that a test changes. Like the real one it shows
// tags some time after they were set.
type inventory struct {
	mu                                   sync.Mutex
	vms                                  policy.Table[*runtimev1alpha1.VirtualMachine]
	vpcs                                 policy.Table[*runtimev1alpha1.Vpc]
	groups                               policy.Table[*runtimev1alpha1.SecurityGroup]
	enforced                             policy.Table[*runtimev1alpha1.VirtualMachinePolicy]
	synced, groupsSynced, policiesSynced chan struct{}
	changed                              chan struct{}
	err                                  error         // what SetTags returns
	delay                                time.Duration // until tags show
}

func newInventory() *inventory {
	return &inventory{synced: make(chan struct{}), groupsSynced: make(chan struct{}), policiesSynced: make(chan struct{}), changed: make(chan struct{}, 1)}
}

var _ apiserver.Inventory = (*inventory)(nil)

func (i *inventory) VirtualMachines() policy.Table[*runtimev1alpha1.VirtualMachine] {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.vms
}

func (i *inventory) Vpcs() policy.Table[*runtimev1alpha1.Vpc] {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.vpcs
}

func (i *inventory) SecurityGroups() policy.Table[*runtimev1alpha1.SecurityGroup] {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.groups
}

func (i *inventory) VirtualMachinePolicies() policy.Table[*runtimev1alpha1.VirtualMachinePolicy] {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.enforced
}

func (i *inventory) Synced() <-chan struct{}               { return i.synced }
func (i *inventory) SecurityGroupsSynced() <-chan struct{} { return i.groupsSynced }
func (i *inventory) PoliciesSynced() <-chan struct{}       { return i.policiesSynced }
func (i *inventory) Changed() <-chan struct{}              { return i.changed }

func (i *inventory) poke() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

func (i *inventory) SetTags(_ context.Context, seen *runtimev1alpha1.VirtualMachine, to apiserver.Tagging) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return i.err
	}
	key := seen.Namespace + "/" + seen.Name
	have, ok := i.vms.Get(key)
	if !ok {
		return apiserver.ErrNotReady
	}
	if !maps.Equal(have.Spec.Tags, seen.Spec.Tags) || !apiequality.Semantic.DeepEqual(have.ManagedFields, seen.ManagedFields) {
		return apiserver.ErrConflict
	}
	next := have.DeepCopy()
	next.Spec.Tags, next.ManagedFields = maps.Clone(to.Tags), managers(have, to)
	go func() {
		time.Sleep(i.delay)
		i.mu.Lock()
		i.vms = i.vms.Put(key, next)
		i.mu.Unlock()
		i.poke()
	}()
	return nil
}

// managers returns who has set which tag: what a request changes or takes away is
// nobody's else.
func managers(have *runtimev1alpha1.VirtualMachine, to apiserver.Tagging) (out []metav1.ManagedFieldsEntry) {
	by := map[string]map[string]struct{}{to.Manager: {}}
	for _, m := range have.ManagedFields {
		name := m.Manager
		if m.Operation == metav1.ManagedFieldsOperationUpdate {
			name = ""
		}
		if by[name] = map[string]struct{}{}; name != "" && name == to.Manager {
			continue
		}
		for _, k := range apiserver.ManagedKeys(m, "f:spec", "f:tags") {
			if v, ok := to.Tags[k]; ok && v == have.Spec.Tags[k] {
				by[name]["f:"+k] = struct{}{}
			}
		}
	}
	for _, k := range to.Applied {
		by[to.Manager]["f:"+k] = struct{}{}
	}
	for k, v := range to.Tags {
		if to.Manager == "" && v != have.Spec.Tags[k] {
			by[""]["f:"+k] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fields, err := json.Marshal(map[string]any{"f:spec": map[string]any{"f:tags": by[name]}})
		if err != nil {
			panic(err)
		}
		m := metav1.ManagedFieldsEntry{Manager: name, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
			APIVersion: runtimev1alpha1.GroupVersion.String(), FieldsV1: metav1.NewFieldsV1(string(fields))}
		if name == "" {
			m.Manager, m.Operation = "others", metav1.ManagedFieldsOperationUpdate
		}
		if len(by[name]) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// put sets VMs, and drop takes one away.
func (i *inventory) put(vms ...*runtimev1alpha1.VirtualMachine) {
	i.mu.Lock()
	for _, x := range vms {
		i.vms = i.vms.Put(x.Namespace+"/"+x.Name, x)
	}
	i.mu.Unlock()
	i.poke()
}

func (i *inventory) drop(namespace, name string) {
	i.mu.Lock()
	i.vms = i.vms.Delete(namespace + "/" + name)
	i.mu.Unlock()
	i.poke()
}

func (i *inventory) putVpc(vpcs ...*runtimev1alpha1.Vpc) {
	i.mu.Lock()
	for _, x := range vpcs {
		i.vpcs = i.vpcs.Put(x.Namespace+"/"+x.Name, x)
	}
	i.mu.Unlock()
	i.poke()
}

var created = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// vm makes a VM that is in a state.
func vm(namespace, name, vpc, region, state string) *runtimev1alpha1.VirtualMachine {
	return &runtimev1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("uid-%s-%s", namespace, name)), CreationTimestamp: created,
			Labels: map[string]string{cloudv1alpha1.LabelVpcName: vpc, cloudv1alpha1.LabelAccountName: "acct"},
		},
		Status: runtimev1alpha1.VirtualMachineStatus{
			Provider: runtimev1alpha1.ProviderAWS, Region: region, State: runtimev1alpha1.VirtualMachineState(state),
			CloudID: name, CloudVpcID: vpc, Tags: map[string]string{"Env": "prod"},
		},
	}
}

func vpc(namespace, name, region string, managed bool) *runtimev1alpha1.Vpc {
	return &runtimev1alpha1.Vpc{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: created},
		Status:     runtimev1alpha1.VpcStatus{Provider: runtimev1alpha1.ProviderAWS, CloudID: name, Region: region, Managed: managed, CIDRs: []string{"10.0.0.0/16"}},
	}
}
