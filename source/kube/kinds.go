package kube

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// kind is one kind of object that a Source reads.
type kind struct {
	name string // such as Pod
	at   string // its name in Positions
	gvr  schema.GroupVersionResource
	// custom: defined by a CustomResourceDefinition, which may not be installed,
	// and spoken in JSON rather than protobuf.
	custom bool

	table  table
	prefix string // of the kind's keys in the table, which others share
	// key is that of the object in the table.
	key func(namespace, name string) string
	// convert returns a pointer to a policy value that is safe to enforce. An
	// error means that nothing of the object can be read.
	convert func(runtime.Object) (value any, problems []convert.Problem, err error)
	// unread returns what stands for an object that was never read, where none at
	// all would mean less than is written; nil means none.
	unread func(Object) any
}

func (k *kind) String() string { return k.name + "." + k.gvr.GroupVersion().String() }

// The tables of a Snapshot.
var (
	namespaces = of[policy.Namespace](func(s *policy.Snapshot) *policy.Table[*policy.Namespace] { return &s.Namespaces })
	workloads  = of[policy.Workload](func(s *policy.Snapshot) *policy.Table[*policy.Workload] { return &s.Workloads })
	services   = of[policy.Service](func(s *policy.Snapshot) *policy.Table[*policy.Service] { return &s.Services })
	groups     = of[policy.Group](func(s *policy.Snapshot) *policy.Table[*policy.Group] { return &s.Groups })
	tiers      = of[policy.Tier](func(s *policy.Snapshot) *policy.Table[*policy.Tier] { return &s.Tiers })
	policies   = byMode{
		of[policy.Policy](func(s *policy.Snapshot) *policy.Table[*policy.Policy] { return &s.Policies }),
		of[policy.Policy](func(s *policy.Snapshot) *policy.Table[*policy.Policy] { return &s.Staged }),
	}
)

// kinds returns all kinds that a Source reads, built-in ones first.
func kinds(n Networks) []*kind {
	core := func(resource string) schema.GroupVersionResource {
		return corev1.SchemeGroupVersion.WithResource(resource)
	}
	return append([]*kind{
		{
			name: "Namespace", at: "namespace", gvr: core("namespaces"),
			table: namespaces, key: plain,
			convert: builtIn(func(n *corev1.Namespace) (any, []convert.Problem) { return convert.Namespace(n), nil }),
		},
		{
			name: "Pod", at: "pod", gvr: core("pods"),
			table: workloads, prefix: "pod/", key: workload(policy.KindPod),
			convert: builtIn(func(p *corev1.Pod) (any, []convert.Problem) {
				w, problems := convert.Pod(p)
				return n.place(w), problems
			}),
		},
		{
			name: "Node", at: "node", gvr: core("nodes"),
			table: workloads, prefix: "node/", key: workload(policy.KindNode),
			convert: builtIn(func(o *corev1.Node) (any, []convert.Problem) { return n.place(convert.Node(o)), nil }),
		},
		{
			name: "Service", at: "service", gvr: core("services"),
			table: services, key: policy.ServiceID,
			convert: builtIn(func(s *corev1.Service) (any, []convert.Problem) { return convert.Service(s), nil }),
		},
		{
			name: "NetworkPolicy", at: "np", gvr: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
			table: policies, prefix: "networkpolicy/", key: dialect(policy.KubernetesNetworkPolicy),
			convert: builtIn(func(p *networkingv1.NetworkPolicy) (any, []convert.Problem) { return two(convert.NetworkPolicy(p)) }),
		},
	}, customKinds()...)
}

func plain(_, name string) string { return name }

func workload(k policy.Kind) func(namespace, name string) string {
	return func(namespace, name string) string { return policy.WorkloadID(k, namespace, name) }
}

func dialect(d policy.Dialect) func(namespace, name string) string {
	return func(namespace, name string) string { return policy.PolicyID(d, namespace, name) }
}

func two[V any](v *V, ps []convert.Problem) (any, []convert.Problem) { return v, ps }

// builtIn converts objects that the client has decoded.
func builtIn[T runtime.Object](f func(T) (any, []convert.Problem)) func(runtime.Object) (any, []convert.Problem, error) {
	return func(obj runtime.Object) (any, []convert.Problem, error) {
		t, ok := obj.(T)
		if !ok {
			return nil, nil, fmt.Errorf("got a %T", obj)
		}
		v, ps := f(t)
		return v, ps, nil
	}
}

// newScheme returns a scheme that decodes the kinds: built-in ones into their types,
// custom ones into raw.
func newScheme(all []*kind) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), networkingv1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("make scheme: %w", err)
	}
	var added []schema.GroupVersion
	for _, k := range all {
		if !k.custom {
			continue
		}
		gv := k.gvr.GroupVersion()
		s.AddKnownTypeWithName(gv.WithKind(k.name), &raw{})
		s.AddKnownTypeWithName(gv.WithKind(k.name+"List"), &rawList{})
		if !slices.Contains(added, gv) {
			metav1.AddToGroupVersion(s, gv)
			added = append(added, gv)
		}
	}
	return s, nil
}
