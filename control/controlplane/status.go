package controlplane

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// sources find policies by the names under which agents know them.
type sources struct {
	world worldFunc

	mu   sync.Mutex
	have policy.Table[*policy.Policy]
	ids  map[string]string // Policy.IDs by convert.PolicyName
}

// find returns the policy that agents know by a name.
func (s *sources) find(name string) (*policy.Policy, error) {
	w, ok := s.world()
	if !ok {
		return nil, errNotKnown()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	policy.Diff(s.have, w.Policies, func(id string, old, now **policy.Policy) {
		if old != nil && s.ids[convert.PolicyName(*old)] == id {
			delete(s.ids, convert.PolicyName(*old))
		}
		if now != nil {
			s.ids[convert.PolicyName(*now)] = id
		}
	})
	s.have = w.Policies
	p, ok := w.Policies.Get(s.ids[name])
	if !ok {
		return nil, apierrors.NewNotFound(controlplanev1beta2.Resource("networkpolicies"), name)
	}
	return p, nil
}

// isIsolation says whether a name is that of a policy that only agents are told of.
func isIsolation(name string) bool {
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		if p, _ := convert.IsolationPolicy(d); p.Name == name {
			return true
		}
	}
	return false
}

var policyStatus = storage{
	make: func() runtime.Object { return &controlplanev1beta2.NetworkPolicyStatus{} }, singular: "networkpolicy",
	columns: nameColumn, cells: cellsOf(func(x *controlplanev1beta2.NetworkPolicyStatus) []any { return []any{x.Name} }),
}

// policyStatuses takes what agents have made of policies.
type policyStatuses struct {
	storage
	*Service
	gate gate
}

var _ rest.NamedCreater = policyStatuses{}

// maxNodes is how many Nodes one status may be of. An agent speaks for one.
const maxNodes = 100

// Create takes a status of the policy of that name. What a Node says of a policy that it
// does not enforce (any more), or that has no status, is not kept.
func (s policyStatuses) Create(ctx context.Context, name string, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := o.(*controlplanev1beta2.NetworkPolicyStatus)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no NetworkPolicyStatus", o))
	}
	switch {
	case in.Name != "" && in.Name != name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a status of %q, for %q", in.Name, name))
	case len(in.Nodes) == 0:
		return nil, apierrors.NewBadRequest("nodes: there is none")
	case len(in.Nodes) > maxNodes:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("nodes: %d are too many, want at most %d", len(in.Nodes), maxNodes))
	}
	for _, n := range in.Nodes {
		if n.NodeName == "" {
			return nil, apierrors.NewBadRequest("nodes: one has no nodeName")
		}
		if err := s.gate.check(ctx, "create", n.NodeName); err != nil {
			return nil, err
		}
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if isIsolation(name) {
		return in, nil
	}
	p, err := s.sources.find(name)
	if err != nil {
		return nil, err
	}
	if p.Dialect != policy.AntreaNetworkPolicy && p.Dialect != policy.AntreaClusterNetworkPolicy || isDry(options) {
		return in, nil
	}
	for _, n := range in.Nodes {
		if s.o.Feed.IsAt(n.NodeName, p.ID) {
			if err := s.o.Reports.Put(p.ID, n.NodeName, statusOf(n)); err != nil {
				return nil, errElsewhere()
			}
		}
	}
	return in, nil
}
