package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/control/apiserver"
	"isobar.dev/policy"
)

// Runtime shows the inventory as the kinds of the runtime API.
type Runtime struct {
	c      *Controller
	synced chan struct{}
	// policiesSynced is that of VirtualMachinePolicies.
	policiesSynced chan struct{}
	groupsSynced   chan struct{} // that of SecurityGroups
	changed        chan struct{} // holds one
	revision       *revision

	dirtyMu sync.Mutex
	dirty   map[types.NamespacedName]struct{} // ExternalEntities that have changed since they were looked at
	// dirtyPolicies have changed in what is wrong with them, by ID.
	dirtyPolicies map[string]struct{}
	dirtyGroups   bool // security groups have changed

	mu       sync.Mutex
	isSynced bool
	imports  policy.Table[*imported] // that vms is made of
	vms      policy.Table[*runtimev1alpha1.VirtualMachine]
	managed  map[accountNetwork]int // how many VMs are imported
	vpcs     policy.Table[*runtimev1alpha1.Vpc]
	// dirtyMachines are VMs that have changed since policies looked at them, by workload ID.
	dirtyMachines map[string]struct{}
	policies      machinePolicies
	groups        shownGroups
}

type accountNetwork struct {
	account types.NamespacedName
	id      string
}

var _ apiserver.Inventory = (*Runtime)(nil)

func newRuntime(c *Controller) *Runtime {
	return &Runtime{
		c: c, synced: make(chan struct{}), policiesSynced: make(chan struct{}), groupsSynced: make(chan struct{}), changed: make(chan struct{}, 1), revision: newRevision(),
		dirty: map[types.NamespacedName]struct{}{}, dirtyPolicies: map[string]struct{}{}, dirtyMachines: map[string]struct{}{},
		managed:  map[accountNetwork]int{},
		policies: machinePolicies{views: map[string]*view{}, statuses: map[string]*machinePolicyStatus{}},
		groups:   shownGroups{managed: map[managed]int{}},
	}
}

// Runtime returns the inventory for an API server.
func (c *Controller) Runtime() *Runtime { return c.runtime }

// Synced is closed when every account has been listed, or cannot be, and what
// users have set on VMs has been read.
func (r *Runtime) Synced() <-chan struct{} { return r.synced }

// Changed receives after something has changed.
func (r *Runtime) Changed() <-chan struct{} { return r.changed }

func (r *Runtime) poke() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// entityChanged notes that tags of users may have changed.
func (r *Runtime) entityChanged(key types.NamespacedName) {
	r.dirtyMu.Lock()
	r.dirty[key] = struct{}{}
	r.dirtyMu.Unlock()
	r.revision.bump()
	r.poke()
}

// VirtualMachines returns all imported VMs, in the namespaces of their selectors.
func (r *Runtime) VirtualMachines() policy.Table[*runtimev1alpha1.VirtualMachine] {
	r.mu.Lock()
	defer r.mu.Unlock()
	isRead := r.isSynced || r.c.isRead()
	r.update()
	if isRead && !r.isSynced {
		r.isSynced = true
		close(r.synced)
	}
	return r.vms
}

// update brings vms and managed up to date.
func (r *Runtime) update() {
	r.dirtyMu.Lock()
	dirty := r.dirty
	r.dirty = map[types.NamespacedName]struct{}{}
	r.dirtyMu.Unlock()
	r.c.mu.Lock()
	imports := r.c.imports
	r.c.mu.Unlock()
	policy.Diff(r.imports, imports, func(id string, old, now **imported) {
		dirty[entityKey(id)] = struct{}{}
		if old != nil {
			r.count(*old, -1)
		}
		if now != nil {
			r.count(*now, 1)
		}
	})
	r.imports = imports
	for key := range dirty {
		r.dirtyMachines[workloadID(key)] = struct{}{}
		id := key.Namespace + "/" + strings.TrimPrefix(key.Name, cloudv1alpha1.ExternalEntityName(""))
		i, ok := imports.Get(workloadID(key))
		if !ok || i.vm.Kind != cloud.VirtualMachine {
			r.vms = r.vms.Delete(id)
			continue
		}
		have, _ := r.vms.Get(id)
		if next := r.virtualMachine(i, have); have == nil || !apiequality.Semantic.DeepEqual(have, next) {
			r.vms = r.vms.Put(id, next)
		}
	}
}

func (r *Runtime) count(i *imported, n int) {
	r.groups.count(i, n)
	key := accountNetwork{i.account, i.vm.NetworkID}
	if r.managed[key] += n; r.managed[key] == 0 {
		delete(r.managed, key)
	}
}

// virtualMachine returns what an import is to users; have is what it was before.
// It is as old as its selector: clouds do not tell alike when a VM was made, and
// what is derived from objects is the same after a restart.
func (r *Runtime) virtualMachine(i *imported, have *runtimev1alpha1.VirtualMachine) *runtimev1alpha1.VirtualMachine {
	name := objectName(i.vm)
	out := &runtimev1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.selector.Namespace, Name: name, UID: derivedUID(runtimev1alpha1.ResourceVirtualMachine, i.selector.Namespace, name),
			Labels: map[string]string{
				cloudv1alpha1.LabelAccountName: i.account.Name, cloudv1alpha1.LabelAccountNamespace: i.account.Namespace,
				cloudv1alpha1.LabelSelectorName: i.selector.Name, cloudv1alpha1.LabelSelectorNamespace: i.selector.Namespace,
				cloudv1alpha1.LabelVpcName:     strings.ToLower(cmp.Or(i.vm.NetworkObject, i.vm.NetworkID)),
				cloudv1alpha1.LabelCloudVMUID:  strings.ToLower(cmp.Or(i.vm.UID, i.vm.ID)),
				cloudv1alpha1.LabelCloudVpcUID: strings.ToLower(cmp.Or(i.vm.NetworkUID, i.vm.NetworkID)),
			},
		},
		Status: runtimev1alpha1.VirtualMachineStatus{
			Provider: runtimev1alpha1.ProviderNamed(i.provider), State: runtimev1alpha1.VirtualMachineState(i.vm.State), Region: i.vm.Region, Agented: i.agented,
			CloudID: strings.ToLower(i.vm.ID), CloudName: strings.ToLower(i.vm.Name), CloudVpcID: strings.ToLower(i.vm.NetworkID), CloudVpcName: i.vm.NetworkName,
			Tags: importableTags(i.vm.Tags),
		},
	}
	if s, ok := r.c.selectorMirror.get(i.selector); ok {
		out.CreationTimestamp = s.CreationTimestamp
	} else if have != nil {
		out.CreationTimestamp = have.CreationTimestamp // it is about to go, or another one's
	}
	for _, n := range i.vm.Interfaces {
		out.Status.NetworkInterfaces = append(out.Status.NetworkInterfaces, networkInterface(n))
	}
	mirror := r.c.entityMirror
	if i.agented {
		mirror = r.c.nodeMirror
	}
	if e, ok := mirror.get(i.key()); ok {
		out.Spec.Tags, out.ManagedFields = e.userTags(), e.tagManagers()
	}
	return out
}

func networkInterface(n cloud.Interface) runtimev1alpha1.NetworkInterface {
	out := runtimev1alpha1.NetworkInterface{Name: n.ID, MAC: n.MAC, SecurityGroupIDs: slices.Sorted(slices.Values(n.Groups)), Groups: slices.Sorted(slices.Values(n.ApplicationGroups))}
	for _, a := range n.Private {
		out.IPs = append(out.IPs, runtimev1alpha1.IPAddress{AddressType: runtimev1alpha1.AddressInternal, Address: a.Unmap().String()})
	}
	for _, a := range n.Public {
		out.IPs = append(out.IPs, runtimev1alpha1.IPAddress{AddressType: runtimev1alpha1.AddressExternal, Address: a.Unmap().String()})
	}
	return out
}

// importableTags returns the tags that policies can select by: those that make
// labels of the ExternalEntity.
func importableTags(tags map[string]string) map[string]string {
	var out map[string]string
	for label, value := range convert.EntityLabels(convert.VMNames{Tags: tags}) {
		if key, ok := strings.CutPrefix(label, cloudv1alpha1.LabelTagPrefix); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// Vpcs returns the networks of all accounts, in the accounts' namespaces. Where
// two accounts of a namespace have one network, it is shown as that of the first
// by name.
func (r *Runtime) Vpcs() policy.Table[*runtimev1alpha1.Vpc] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	next := map[string]*runtimev1alpha1.Vpc{}
	r.c.mu.Lock()
	accounts := maps.Clone(r.c.accounts)
	r.c.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(accounts), compareKeys) {
		r.addVpcs(next, key, accounts[key])
	}
	r.vpcs = keepEqual(r.vpcs, next)
	return r.vpcs
}

func (r *Runtime) addVpcs(out map[string]*runtimev1alpha1.Vpc, key types.NamespacedName, a *account) {
	cpa, ok := r.c.accountMirror.get(key)
	if !ok {
		return
	}
	at, _ := cpa.Spec.Cloud()
	a.mu.Lock()
	var networks []cloud.Network
	for _, name := range slices.Sorted(maps.Keys(a.regions)) {
		networks = append(networks, a.regions[name].view.networks...)
	}
	a.mu.Unlock()
	for _, n := range networks {
		name, isManaged := strings.ToLower(cmp.Or(n.Object, n.ID)), r.managed[accountNetwork{key, n.ID}] > 0
		id := key.Namespace + "/" + name
		if first := out[id]; first != nil {
			first.Status.Managed = first.Status.Managed || isManaged
			continue
		}
		x := &runtimev1alpha1.Vpc{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: name, UID: derivedUID(runtimev1alpha1.ResourceVpc, key.Namespace, name), CreationTimestamp: cpa.CreationTimestamp,
				Labels: map[string]string{
					cloudv1alpha1.LabelAccountName: key.Name, cloudv1alpha1.LabelAccountNamespace: key.Namespace, cloudv1alpha1.LabelCloudVpcUID: strings.ToLower(cmp.Or(n.UID, n.ID)),
				},
			},
			Status: runtimev1alpha1.VpcStatus{
				CloudName: strings.ToLower(n.Name), CloudID: strings.ToLower(n.ID), Provider: runtimev1alpha1.ProviderNamed(at.Provider), Region: n.Region, Tags: maps.Clone(n.Tags), Managed: isManaged,
			},
		}
		for _, p := range n.Prefixes {
			x.Status.CIDRs = append(x.Status.CIDRs, p.String())
		}
		out[id] = x
	}
}

// derivedUID is the same for the same object after every restart.
func derivedUID(resource, namespace, name string) types.UID {
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://"+runtimev1alpha1.GroupVersion.Group+"/"+resource+"/"+namespace+"/"+name)).String())
}

// isRead says whether all that the inventory is made of has been read, or tried.
func (c *Controller) isRead() bool {
	if !c.accountMirror.isSynced() || !c.selectorMirror.isSynced() || !c.entityMirror.isSynced() {
		return false
	}
	for _, key := range c.accountMirror.keys() {
		c.mu.Lock()
		a := c.accounts[key]
		c.mu.Unlock()
		if a == nil {
			return false
		}
		cpa, ok := c.accountMirror.get(key)
		isLeaving := !ok || cpa.DeletionTimestamp != nil
		a.mu.Lock()
		done := isLeaving || a.gone || a.isTried(a.connectErr)
		a.mu.Unlock()
		if !done {
			return false
		}
	}
	return true
}
