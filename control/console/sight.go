package console

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// resource is one whose objects rows are made of, or a right besides.
type resource uint8

const (
	pods resource = iota + 1
	nodes
	entities
	machines // VirtualMachines
	networkPolicies
	antreaPolicies
	antreaClusterPolicies
	clusterPolicies
	adminPolicies
	baselinePolicies
	accountObjects
	targetObjects
	plans
	namespaceObjects
	serviceObjects
	groupObjects
	clusterGroupObjects
	tierObjects
)

// rights are what is asked of each resource.
var rights = map[resource]Right{
	pods:                  {Verb: "list", Resource: "pods"},
	nodes:                 {Verb: "list", Resource: "nodes"},
	entities:              {Verb: "list", Group: antreav1alpha2.GroupVersion.Group, Resource: "externalentities"},
	machines:              {Verb: "list", Group: runtimev1alpha1.GroupVersion.Group, Resource: runtimev1alpha1.ResourceVirtualMachine},
	networkPolicies:       {Verb: "list", Group: "networking.k8s.io", Resource: "networkpolicies"},
	antreaPolicies:        {Verb: "list", Group: antreav1beta1.GroupVersion.Group, Resource: "networkpolicies"},
	antreaClusterPolicies: {Verb: "list", Group: antreav1beta1.GroupVersion.Group, Resource: "clusternetworkpolicies"},
	clusterPolicies:       {Verb: "list", Group: "policy.networking.k8s.io", Resource: "clusternetworkpolicies"},
	adminPolicies:         {Verb: "list", Group: "policy.networking.k8s.io", Resource: "adminnetworkpolicies"},
	baselinePolicies:      {Verb: "list", Group: "policy.networking.k8s.io", Resource: "baselineadminnetworkpolicies"},
	accountObjects:        {Verb: "list", Group: cloudv1alpha1.GroupVersion.Group, Resource: "cloudprovideraccounts"},
	targetObjects:         {Verb: "list", Group: isobarv1alpha1.GroupVersion.Group, Resource: isobarv1alpha1.ResourceTargets},
	namespaceObjects:      {Verb: "list", Resource: "namespaces"},
	serviceObjects:        {Verb: "list", Resource: "services"},
	groupObjects:          {Verb: "list", Group: antreav1beta1.GroupVersion.Group, Resource: "groups"},
	clusterGroupObjects:   {Verb: "list", Group: antreav1beta1.GroupVersion.Group, Resource: "clustergroups"},
	tierObjects:           {Verb: "list", Group: antreav1beta1.GroupVersion.Group, Resource: "tiers"},
	plans:                 {Verb: "create", Group: isobarv1alpha1.GroupVersion.Group, Resource: isobarv1alpha1.ResourcePlans},
}

// ofDialect are the resources that policies are objects of.
var ofDialect = map[policy.Dialect]resource{
	policy.KubernetesNetworkPolicy: networkPolicies, policy.AntreaNetworkPolicy: antreaPolicies, policy.AntreaClusterNetworkPolicy: antreaClusterPolicies,
	policy.ClusterNetworkPolicy: clusterPolicies, policy.AdminNetworkPolicy: adminPolicies, policy.BaselineAdminNetworkPolicy: baselinePolicies,
}

// place is the objects of a resource in a namespace; empty means of the cluster.
type place struct {
	resource  resource
	namespace string
}

// asked is how many rights a request asks for at a time.
const asked = 16

// sight is what a viewer may see of a world. Several goroutines may read it while none learns.
type sight struct {
	viewer Viewer
	known  map[place]bool // whether the viewer has the right
}

// look asks what a viewer may see of what there is in a world.
func look(ctx context.Context, v Viewer, w *world) (*sight, error) {
	s := &sight{viewer: v, known: map[place]bool{}}
	return s, s.learn(ctx, slices.Collect(maps.Keys(w.places))...)
}

// learn asks for the rights at places: for all namespaces first, and where that is not given, for each.
func (s *sight) learn(ctx context.Context, places ...place) error {
	wide := map[place]bool{}
	for _, p := range places {
		wide[place{resource: p.resource}] = true
	}
	if err := s.ask(ctx, wide); err != nil {
		return err
	}
	narrow := map[place]bool{}
	for _, p := range places {
		if !s.known[place{resource: p.resource}] {
			narrow[p] = true
		}
	}
	return s.ask(ctx, narrow)
}

// ask asks for rights of which nothing is known. One that cannot be said is an error: a row that is missing
// would say that there is nothing.
func (s *sight) ask(ctx context.Context, places map[place]bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, asked)
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[place]bool{}
	for p := range places {
		if _, ok := s.known[p]; ok {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			right := rights[p.resource]
			right.Namespace = p.namespace
			may, err := s.viewer.May(ctx, right)
			if err != nil {
				cancel(apierrors.NewServiceUnavailable(fmt.Sprintf("whether you may %s %s cannot be said now", right.Verb, right.Resource)))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[p] = may
		})
	}
	all.Wait()
	maps.Copy(s.known, answers)
	return context.Cause(ctx)
}

// may says whether the viewer has the right at a place that was asked for.
func (s *sight) may(p place) bool { return s.known[place{resource: p.resource}] || s.known[p] }

// sees says whether the viewer may see a workload of the world.
func (s *sight) sees(w *policy.Workload) bool {
	switch w.Kind {
	case policy.KindPod:
		return s.may(place{pods, w.Namespace})
	case policy.KindNode:
		return s.may(place{resource: nodes})
	case policy.KindExternal:
		return s.may(place{entities, w.Namespace}) || isMachine(w) && s.may(place{machines, w.Namespace})
	}
	return false
}

// placesOf returns the places at which it is asked whether a workload may be seen.
func placesOf(w *policy.Workload) []place {
	switch w.Kind {
	case policy.KindPod:
		return []place{{pods, w.Namespace}}
	case policy.KindNode:
		return []place{{resource: nodes}}
	case policy.KindExternal:
		if isMachine(w) {
			return []place{{entities, w.Namespace}, {machines, w.Namespace}}
		}
		return []place{{entities, w.Namespace}}
	}
	return nil
}

// seesPolicy says whether the viewer may see a policy of the world.
func (s *sight) seesPolicy(p *policy.Policy) bool { return s.may(placeOf(p)) }

func placeOf(p *policy.Policy) place { return place{ofDialect[p.Dialect], p.Namespace} }

// seesAll says whether the viewer may see all that there is.
func (r *request) seesAll() bool {
	for p := range r.places {
		if p.resource != machines && !r.may(p) {
			return false
		}
	}
	return true
}

// seesAllPolicies says whether the viewer may see all policies that there are.
func (r *request) seesAllPolicies() bool {
	for p, c := range r.places {
		if c.policies > 0 && !r.may(p) {
			return false
		}
	}
	return true
}
