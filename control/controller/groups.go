package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// groupView is what is known of the security groups of a region.
type groupView struct {
	isTried   bool
	err       error                            // why they could not be read the last time
	byNetwork map[string][]cloud.SecurityGroup // as last read
}

// listGroups reads the security groups of the region's networks that have VMs
// which selectors pick. When they cannot be read, what was known before stays.
func (c *Controller) listGroups(ctx context.Context, a *account, r *region, client cloud.Account) {
	a.mu.Lock()
	networks := map[string]bool{}
	for _, vm := range r.view.vms {
		networks[vm.NetworkID] = true
	}
	a.mu.Unlock()
	next := groupView{isTried: true, byNetwork: map[string][]cloud.SecurityGroup{}}
	if len(networks) > 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, c.o.PollTimeout, fmt.Errorf("no answer in %v", c.o.PollTimeout))
		defer cancel()
		groups, err := client.SecurityGroups(ctx, r.name, slices.Sorted(maps.Keys(networks)))
		next.err = err
		for _, g := range groups {
			next.byNetwork[g.NetworkID] = append(next.byNetwork[g.NetworkID], g)
		}
	}
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	was := r.groups
	if next.err != nil {
		next.byNetwork = was.byNetwork
	}
	isNews := a.client == client && (!was.isTried || !reflect.DeepEqual(was.byNetwork, next.byNetwork))
	isError := errText(was.err) != errText(next.err)
	if a.client == client {
		r.groups = next
	}
	a.mu.Unlock()
	if isNews {
		c.runtime.groupsChanged()
	}
	if isError {
		c.accountQueue.add(a.key)
	}
}

// shownGroups is what the runtime API tells of security groups.
type shownGroups struct {
	isSynced bool
	isStale  bool
	managed  map[managed]int // VMs
	table    policy.Table[*runtimev1alpha1.SecurityGroup]
}

// managed is a network that has VMs imported by a selector.
type managed struct {
	account, selector types.NamespacedName
	network           string
}

// count notes that n VMs more are imported as i is.
func (g *shownGroups) count(i *imported, n int) {
	key := managed{i.account, i.selector, i.vm.NetworkID}
	was := g.managed[key]
	if g.managed[key] += n; g.managed[key] == 0 {
		delete(g.managed, key)
	}
	g.isStale = g.isStale || (was == 0) != (g.managed[key] == 0)
}

func (r *Runtime) groupsChanged() {
	r.dirtyMu.Lock()
	r.dirtyGroups = true
	r.dirtyMu.Unlock()
	r.poke()
}

// SecurityGroupsSynced is closed when the security groups have been listed, or
// cannot be. Where they are not shown there are none.
func (r *Runtime) SecurityGroupsSynced() <-chan struct{} { return r.groupsSynced }

// SecurityGroups returns all security groups of networks with imported VMs, in the
// namespaces of their selectors. Where several have VMs of one network, its groups
// are shown as those of the first account by name and its oldest selector.
func (r *Runtime) SecurityGroups() policy.Table[*runtimev1alpha1.SecurityGroup] {
	r.mu.Lock()
	defer r.mu.Unlock()
	isKnown := r.isSynced && r.c.hasTriedGroups()
	r.update()
	g := &r.groups
	r.dirtyMu.Lock()
	g.isStale, r.dirtyGroups = g.isStale || r.dirtyGroups, false
	r.dirtyMu.Unlock()
	if g.isStale {
		g.isStale = false
		g.table = keepEqual(g.table, r.allGroups())
	}
	if isKnown && !g.isSynced {
		g.isSynced = true
		close(r.groupsSynced)
	}
	return g.table
}

// keepEqual returns a table of what next has, with the pointers of have for what is equal.
func keepEqual[T any](have policy.Table[*T], next map[string]*T) policy.Table[*T] {
	out := have
	for id := range have.All() {
		if next[id] == nil {
			out = out.Delete(id)
		}
	}
	for id, x := range next {
		if was, ok := have.Get(id); !ok || !apiequality.Semantic.DeepEqual(was, x) {
			out = out.Put(id, x)
		}
	}
	return out
}

func (r *Runtime) allGroups() map[string]*runtimev1alpha1.SecurityGroup {
	out := map[string]*runtimev1alpha1.SecurityGroup{}
	keys := slices.SortedFunc(maps.Keys(r.groups.managed), func(a, b managed) int {
		if n := compareKeys(a.account, b.account); n != 0 {
			return n
		}
		x, y := r.selectorAge(a.selector), r.selectorAge(b.selector)
		if n := x.compare(y); n != 0 {
			return n
		}
		return strings.Compare(a.network, b.network)
	})
	for _, key := range keys {
		r.c.mu.Lock()
		a := r.c.accounts[key.account]
		r.c.mu.Unlock()
		cpa, ok := r.c.accountMirror.get(key.account)
		if a == nil || !ok {
			continue
		}
		at, _ := cpa.Spec.Cloud()
		for _, g := range a.groupsOf(key.network) {
			x := r.securityGroup(key, at.Provider, g)
			if id := x.Namespace + "/" + x.Name; out[id] == nil {
				out[id] = x
			}
		}
	}
	return out
}

// selectorAge returns what a selector is ordered by.
func (r *Runtime) selectorAge(key types.NamespacedName) selector {
	s := selector{key: key}
	if ces, ok := r.c.selectorMirror.get(key); ok {
		s.created = ces.CreationTimestamp.Time
	}
	return s
}

// groupsOf returns the security groups of a network.
func (a *account) groupsOf(network string) []cloud.SecurityGroup {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.regions {
		if groups, ok := r.groups.byNetwork[network]; ok {
			return groups
		}
	}
	return nil
}

func (r *Runtime) securityGroup(key managed, provider string, g cloud.SecurityGroup) *runtimev1alpha1.SecurityGroup {
	name := strings.ToLower(cmp.Or(g.Object, g.ID))
	out := &runtimev1alpha1.SecurityGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.selector.Namespace, Name: name, UID: derivedUID(runtimev1alpha1.ResourceSecurityGroup, key.selector.Namespace, name),
			CreationTimestamp: metav1.NewTime(r.selectorAge(key.selector).created),
			Labels: map[string]string{
				cloudv1alpha1.LabelAccountName: key.account.Name, cloudv1alpha1.LabelAccountNamespace: key.account.Namespace,
				cloudv1alpha1.LabelSelectorName: key.selector.Name, cloudv1alpha1.LabelSelectorNamespace: key.selector.Namespace,
				cloudv1alpha1.LabelVpcName: strings.ToLower(cmp.Or(g.NetworkObject, key.network)),
			},
		},
		Status: runtimev1alpha1.SecurityGroupStatus{CloudName: strings.ToLower(g.Name), CloudID: strings.ToLower(g.ID), Provider: runtimev1alpha1.ProviderNamed(provider), Region: g.Region},
	}
	for _, x := range g.Rules {
		out.Status.Rules = append(out.Status.Rules, runtimev1alpha1.SecurityGroupRule{
			Action: x.Action, Description: x.Description, Destination: x.Destination, ID: x.ID, Ingress: x.Ingress,
			Name: x.Name, Port: x.Port, Priority: x.Priority, Protocol: x.Protocol, Source: x.Source,
		})
	}
	return out
}

// hasTriedGroups says whether all security groups that are to be shown have been
// read, or tried.
func (c *Controller) hasTriedGroups() bool {
	if !c.o.ShowSecurityGroups {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.accounts {
		a.mu.Lock()
		isTried := a.client == nil || a.gone
		if !isTried {
			isTried = true
			for _, r := range a.regions {
				isTried = isTried && r.groups.isTried
			}
		}
		a.mu.Unlock()
		if !isTried {
			return false
		}
	}
	return true
}
