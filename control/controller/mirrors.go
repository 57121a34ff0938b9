package controller

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/policy"
)

// mirrors makes what reads the API server, and says which loops each change concerns.
func (c *Controller) mirrors() {
	c.accountMirror = newMirror(c.clients.accounts, accountsResource, readAccount, func(key types.NamespacedName, old, now **cloudv1alpha1.CloudProviderAccount) {
		// Our own status is no news.
		if old == nil || now == nil || (*old).Generation != (*now).Generation || (*old).UID != (*now).UID ||
			((*old).DeletionTimestamp == nil) != ((*now).DeletionTimestamp == nil) || len((*old).Finalizers) != len((*now).Finalizers) ||
			!slices.Equal((*old).Status.Regions, (*now).Status.Regions) || !slices.Equal((*old).Status.LeftBehind, (*now).Status.LeftBehind) {
			c.accountQueue.add(key)
		}
	})
	c.selectorMirror = newMirror(c.clients.accounts, selectorsResource, readCES, func(key types.NamespacedName, old, now **cloudv1alpha1.CloudEntitySelector) {
		if old != nil && now != nil && (*old).Generation == (*now).Generation && (*old).UID == (*now).UID {
			return
		}
		for _, x := range []**cloudv1alpha1.CloudEntitySelector{old, now} {
			if x != nil {
				c.accountQueue.add(accountOf(*x))
			}
		}
		if now == nil {
			c.mu.Lock()
			delete(c.valid, key)
			c.mu.Unlock()
		}
		c.selectorQueue.add(key)
	})
	c.entityMirror = newMirror(c.clients.entities, entitiesResource, func(o runtime.Object) (entity, error) {
		in, ok := o.(*antreav1alpha2.ExternalEntity)
		if !ok {
			return entity{}, fmt.Errorf("got a %T", o)
		}
		return readEntity(in), nil
	}, func(key types.NamespacedName, old, now *entity) {
		c.entityChanged(key, old, now)
		c.noteDerived(key, old, now)
	})
	c.nodeMirror = newMirror(c.clients.nodes, nodesResource, func(o runtime.Object) (entity, error) {
		in, ok := o.(*antreav1alpha1.ExternalNode)
		if !ok {
			return entity{}, fmt.Errorf("got a %T", o)
		}
		return readNode(in), nil
	}, func(key types.NamespacedName, old, now *entity) {
		c.entityChanged(key, old, now)
		c.nodeQueue.add(key)
		c.world.nodeChanged(key) // it may have tags of users
		c.pokeWorld()
	})
	c.secrets = newSecrets(c.clients.core, c.accountQueue.add)
	c.policyMirrors = []*policyMirror{
		{policy.AntreaNetworkPolicy, c.mirrorPolicies(policy.AntreaNetworkPolicy, "networkpolicies", func(o runtime.Object) (policyStatus, bool) {
			in, ok := o.(*antreav1beta1.NetworkPolicy)
			if !ok {
				return policyStatus{}, false
			}
			return policyStatus{in.UID, in.ResourceVersion, in.Status}, true
		})},
		{policy.AntreaClusterNetworkPolicy, c.mirrorPolicies(policy.AntreaClusterNetworkPolicy, "clusternetworkpolicies", func(o runtime.Object) (policyStatus, bool) {
			in, ok := o.(*antreav1beta1.ClusterNetworkPolicy)
			if !ok {
				return policyStatus{}, false
			}
			return policyStatus{in.UID, in.ResourceVersion, in.Status}, true
		})},
	}
	c.entityMirror.failed = c.onRecovery
	c.accountMirror.namespaces, c.selectorMirror.namespaces = c.o.Namespaces, c.o.Namespaces
}

// entityChanged is told of ExternalEntities and ExternalNodes.
func (c *Controller) entityChanged(key types.NamespacedName, old, now *entity) {
	c.entityQueue.add(key)
	c.runtime.entityChanged(key)
	if now != nil {
		return
	}
	for _, a := range c.accountMirror.keys() {
		if a.String() == old.account { // it may wait for that
			c.accountQueue.add(a)
		}
	}
}

// onRecovery has everything looked at when the API server is back, rather than
// when the wait after the last failure is over.
func (c *Controller) onRecovery(err error) {
	wasAway := c.away.Swap(err != nil)
	if err != nil || !wasAway {
		return
	}
	c.o.Log.Info("the API server answers again")
	c.lookAgain()
}

// lookAgain has everything looked at that may have to be written to.
func (c *Controller) lookAgain() {
	for _, key := range c.accountMirror.keys() {
		c.accountQueue.add(key)
	}
	for _, key := range c.selectorMirror.keys() {
		c.selectorQueue.add(key)
	}
	c.mu.Lock()
	imports := c.imports
	c.mu.Unlock()
	for id := range imports.All() {
		c.entityQueue.add(entityKey(id))
	}
	for _, key := range c.nodeMirror.keys() {
		c.nodeQueue.add(key)
	}
	c.mu.Lock()
	for key := range c.derived { // also those without an ExternalNode
		c.nodeQueue.add(key)
	}
	c.mu.Unlock()
	for id := range c.World().WithStaged().Policies.All() {
		c.policyQueue.add(id)
	}
}

func (c *Controller) mirrorPolicies(dialect policy.Dialect, resource string, of func(runtime.Object) (policyStatus, bool)) *mirror[policyStatus] {
	return newMirror(c.clients.policies, resource, func(o runtime.Object) (policyStatus, error) {
		s, ok := of(o)
		if !ok {
			return s, fmt.Errorf("got a %T", o)
		}
		return s, nil
	}, func(key types.NamespacedName, _, _ *policyStatus) {
		c.policyQueue.add(policy.PolicyID(dialect, key.Namespace, key.Name))
	})
}

func readAccount(o runtime.Object) (*cloudv1alpha1.CloudProviderAccount, error) {
	in, ok := o.(*cloudv1alpha1.CloudProviderAccount)
	if !ok {
		return nil, fmt.Errorf("got a %T", o)
	}
	out := in.DeepCopy()
	out.ManagedFields = nil
	return out, nil
}

func readCES(o runtime.Object) (*cloudv1alpha1.CloudEntitySelector, error) {
	in, ok := o.(*cloudv1alpha1.CloudEntitySelector)
	if !ok {
		return nil, fmt.Errorf("got a %T", o)
	}
	out := in.DeepCopy()
	out.ManagedFields = nil
	return out, nil
}
