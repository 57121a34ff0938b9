package controller

import (
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

type machinePolicyStatus = runtimev1alpha1.VirtualMachinePolicyStatus

// machinePolicies is what the runtime API tells of policies on VMs. A change costs
// what it changes: the VMs of a target of which something has become known, and
// once for all that are alike.
type machinePolicies struct {
	isSynced bool
	views    map[string]*view                // by target, as told
	statuses map[string]*machinePolicyStatus // by workload ID, as told
	table    policy.Table[*runtimev1alpha1.VirtualMachinePolicy]
}

// PoliciesSynced is closed when it is known which policies apply to the VMs.
func (r *Runtime) PoliciesSynced() <-chan struct{} { return r.policiesSynced }

// policyChanged notes that what is wrong with a policy itself may be another thing.
func (r *Runtime) policyChanged(id string) {
	r.dirtyMu.Lock()
	r.dirtyPolicies[id] = struct{}{}
	r.dirtyMu.Unlock()
	r.revision.bump()
	r.poke()
}

// VirtualMachinePolicies returns how far the policies of each VM hold that has
// any. It has the VM's name, namespace and labels.
func (r *Runtime) VirtualMachinePolicies() policy.Table[*runtimev1alpha1.VirtualMachinePolicy] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c.mu.Lock()
	targets := maps.Clone(r.c.targets)
	r.c.mu.Unlock()
	world := r.c.world.current.Load()
	isKnown := r.isSynced && world != nil
	for _, t := range targets {
		isOpen, isHeld := t.isOpen()
		isKnown = isKnown && (isOpen || isHeld)
	}
	r.update()
	p := &r.policies
	dirty := p.dirty(targets, r.takeDirtyPolicies())
	for id := range r.dirtyMachines {
		dirty[id] = struct{}{}
	}
	r.dirtyMachines = map[string]struct{}{}
	pass := statusPass{c: r.c, made: map[*standing]*machinePolicyStatus{}, same: map[[2]*machinePolicyStatus]bool{}, troubles: map[string][]trouble{}}
	if world != nil {
		pass.world = world.Snapshot
	}
	for id := range dirty {
		r.setMachinePolicy(id, &pass)
	}
	if isKnown && !p.isSynced {
		p.isSynced = true
		close(r.policiesSynced)
	}
	return p.table
}

func (r *Runtime) takeDirtyPolicies() map[string]struct{} {
	r.dirtyMu.Lock()
	defer r.dirtyMu.Unlock()
	out := r.dirtyPolicies
	r.dirtyPolicies = map[string]struct{}{}
	return out
}

// dirty brings the views up to date, and returns the workloads of which they say
// something else, or that have a policy that has changed.
func (p *machinePolicies) dirty(targets map[string]*target, policies map[string]struct{}) map[string]struct{} {
	out := map[string]struct{}{}
	add := func(v *view) {
		if v != nil {
			for id := range v.workloads {
				out[id] = struct{}{}
			}
		}
	}
	for name, was := range p.views {
		if targets[name] == nil {
			add(was)
			delete(p.views, name)
		}
	}
	for name, t := range targets {
		was, now := p.views[name], t.view()
		isDirty := was != now
		for id := range policies {
			_, has := now.policies[id]
			isDirty = isDirty || has
		}
		if isDirty {
			add(was)
			add(now)
			p.views[name] = now
		}
	}
	return out
}

// setMachinePolicy brings one workload up to date.
func (r *Runtime) setMachinePolicy(id string, pass *statusPass) {
	p, key := &r.policies, entityKey(id)
	name := key.Namespace + "/" + strings.TrimPrefix(key.Name, cloudv1alpha1.ExternalEntityName(""))
	vm, _ := r.vms.Get(name)
	var s *standing
	where := ""
	if i, ok := r.imports.Get(id); ok && vm != nil {
		if v := p.views[i.target()]; v != nil {
			s, where = v.workloads[id], i.vm.Region+"/"+i.vm.NetworkID
		}
	}
	if s == nil {
		p.table = p.table.Delete(name)
		delete(p.statuses, id)
		return
	}
	status := pass.status(s, where)
	if was := p.statuses[id]; was != nil && pass.isSame(was, status) {
		status = was
	}
	have, ok := p.table.Get(name)
	if ok && p.statuses[id] == status && maps.Equal(have.Labels, vm.Labels) && have.CreationTimestamp.Equal(&vm.CreationTimestamp) {
		return
	}
	p.statuses[id] = status
	p.table = p.table.Put(name, &runtimev1alpha1.VirtualMachinePolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Name, UID: derivedUID(runtimev1alpha1.ResourceVirtualMachinePolicy, vm.Namespace, vm.Name),
			CreationTimestamp: vm.CreationTimestamp, Labels: vm.Labels,
		},
		Status: *status,
	})
}

// statusPass makes statuses once for all that are alike.
type statusPass struct {
	c        *Controller
	world    policy.Snapshot
	made     map[*standing]*machinePolicyStatus
	same     map[[2]*machinePolicyStatus]bool
	troubles map[string][]trouble // by policy
}

func (p *statusPass) isSame(a, b *machinePolicyStatus) bool {
	pair := [2]*machinePolicyStatus{a, b}
	same, known := p.same[pair]
	if !known {
		same = apiequality.Semantic.DeepEqual(a, b)
		p.same[pair] = same
	}
	return same
}

// status returns what a standing is to users; where is the target's region and network.
func (p *statusPass) status(s *standing, where string) *machinePolicyStatus {
	if out := p.made[s]; out != nil {
		return out
	}
	out := &machinePolicyStatus{Realization: runtimev1alpha1.RealizationSuccess, NetworkPolicyStatus: map[string]*runtimev1alpha1.NetworkPolicyStatus{}}
	for id, v := range s.policies {
		one := realizationOf(v, p.troublesOf(id), where)
		out.NetworkPolicyStatus[machinePolicyKey(id)] = one
		if severity(one.Realization) > severity(out.Realization) {
			out.Realization = one.Realization
		}
	}
	p.made[s] = out
	return out
}

func (p *statusPass) troublesOf(id string) []trouble {
	out, known := p.troubles[id]
	if !known {
		if x, ok := p.world.Policies.Get(id); ok {
			p.c.mu.Lock()
			notice := p.c.notices[id]
			p.c.mu.Unlock()
			out = troublesOf(p.world, x, notice)
		}
		p.troubles[id] = out
	}
	return out
}

func severity(r runtimev1alpha1.Realization) int {
	return slices.Index([]runtimev1alpha1.Realization{runtimev1alpha1.RealizationSuccess, runtimev1alpha1.RealizationInProgress, runtimev1alpha1.RealizationFailed}, r)
}

// realizationOf returns how far a policy is enforced on a VM.
func realizationOf(v verdict, troubles []trouble, where string) *runtimev1alpha1.NetworkPolicyStatus {
	failed := func(why string) *runtimev1alpha1.NetworkPolicyStatus {
		return &runtimev1alpha1.NetworkPolicyStatus{Realization: runtimev1alpha1.RealizationFailed, Reason: bounded(where + "=" + why)}
	}
	switch {
	case len(troubles) > 0:
		return failed(troubles[0].reason + ": " + troubleTexts(troubles))
	case v.err != nil:
		return failed(errText(v.err))
	case len(v.refusals) > 0:
		return failed(refusalTexts(v.refusals))
	case !v.isDone:
		return &runtimev1alpha1.NetworkPolicyStatus{Realization: runtimev1alpha1.RealizationInProgress, Reason: runtimev1alpha1.ReasonNone}
	}
	return &runtimev1alpha1.NetworkPolicyStatus{Realization: runtimev1alpha1.RealizationSuccess, Reason: bounded(where + "=Applied")}
}

// machinePolicyKey returns what a policy is called in a VirtualMachinePolicy: an
// Antrea NetworkPolicy by its name, since it is of the VM's namespace, and others
// by their ID. That has a slash, which no name has.
func machinePolicyKey(id string) string {
	if name, ok := strings.CutPrefix(id, policy.AntreaNetworkPolicy.String()+"/"); ok {
		if _, name, ok = strings.Cut(name, "/"); ok {
			return name
		}
	}
	return id
}
