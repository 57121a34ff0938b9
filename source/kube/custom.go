package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	"isobar.dev/policy"
)

// customKinds returns the kinds that definitions add to an API server.
func customKinds() []*kind {
	antrea := antreav1beta1.GroupVersion
	return []*kind{
		{
			name: "Tier", at: "tier", gvr: antrea.WithResource("tiers"), custom: true,
			table: tiers, key: plain,
			convert: custom(func(t *antreav1beta1.Tier) (any, []convert.Problem) { return two(convert.Tier(t)) }),
		},
		{
			name: "Group", at: "group", gvr: antrea.WithResource("groups"), custom: true,
			table: groups, prefix: "group/", key: policy.GroupID,
			convert: custom(func(g *antreav1beta1.Group) (any, []convert.Problem) { return two(convert.Group(g)) }),
			unread:  unreadGroup,
		},
		{
			name: "ClusterGroup", at: "cgroup", gvr: antrea.WithResource("clustergroups"), custom: true,
			table: groups, prefix: "clustergroup/", key: policy.GroupID,
			convert: custom(func(g *antreav1beta1.ClusterGroup) (any, []convert.Problem) { return two(convert.ClusterGroup(g)) }),
			unread:  unreadGroup,
		},
		{
			name: "NetworkPolicy", at: "annp", gvr: antrea.WithResource("networkpolicies"), custom: true,
			table: policies, prefix: "annp/", key: dialect(policy.AntreaNetworkPolicy),
			convert: custom(func(p *antreav1beta1.NetworkPolicy) (any, []convert.Problem) {
				return two(convert.AntreaNetworkPolicy(p))
			}),
		},
		{
			name: "ClusterNetworkPolicy", at: "acnp", gvr: antrea.WithResource("clusternetworkpolicies"), custom: true,
			table: policies, prefix: "acnp/", key: dialect(policy.AntreaClusterNetworkPolicy),
			convert: custom(func(p *antreav1beta1.ClusterNetworkPolicy) (any, []convert.Problem) {
				return two(convert.AntreaClusterNetworkPolicy(p))
			}),
		},
		{
			name: "ExternalEntity", at: "ee", gvr: antreav1alpha2.GroupVersion.WithResource("externalentities"), custom: true,
			table: workloads, prefix: "ee/", key: workload(policy.KindExternal),
			convert: custom(func(e *antreav1alpha2.ExternalEntity) (any, []convert.Problem) { return two(convert.ExternalEntity(e)) }),
		},
		{
			name: "ClusterNetworkPolicy", at: "cnp", gvr: netpolv1alpha2.GroupVersion.WithResource("clusternetworkpolicies"), custom: true,
			table: policies, prefix: "cnp/", key: dialect(policy.ClusterNetworkPolicy),
			convert: custom(func(p *netpolv1alpha2.ClusterNetworkPolicy) (any, []convert.Problem) {
				return two(convert.ClusterNetworkPolicy(p))
			}),
		},
		{
			name: "AdminNetworkPolicy", at: "anp", gvr: netpolv1alpha1.GroupVersion.WithResource("adminnetworkpolicies"), custom: true,
			table: policies, prefix: "anp/", key: dialect(policy.AdminNetworkPolicy),
			convert: custom(func(p *netpolv1alpha1.AdminNetworkPolicy) (any, []convert.Problem) {
				return two(convert.AdminNetworkPolicy(p))
			}),
		},
		{
			name: "BaselineAdminNetworkPolicy", at: "banp", gvr: netpolv1alpha1.GroupVersion.WithResource("baselineadminnetworkpolicies"), custom: true,
			table: policies, prefix: "banp/", key: dialect(policy.BaselineAdminNetworkPolicy),
			convert: custom(func(p *netpolv1alpha1.BaselineAdminNetworkPolicy) (any, []convert.Problem) {
				return two(convert.BaselineAdminNetworkPolicy(p))
			}),
		},
	}
}

// unreadGroup stands for a group of which nothing is known: what denies it closes.
func unreadGroup(o Object) any {
	return &policy.Group{ID: policy.GroupID(o.Namespace, o.Name), Namespace: o.Namespace, Unread: true}
}

// custom converts objects that are still text.
func custom[T any](f func(*T) (any, []convert.Problem)) func(runtime.Object) (any, []convert.Problem, error) {
	return func(obj runtime.Object) (any, []convert.Problem, error) {
		r, ok := obj.(*raw)
		if !ok {
			return nil, nil, fmt.Errorf("got a %T", obj)
		}
		t := new(T)
		unknown, err := r.decode(t)
		if err != nil {
			return nil, nil, err
		}
		v, ps := f(t)
		more := unknownFields(unknown)
		// A group of which all that it says is unknown is not an empty one.
		if g, ok := v.(*policy.Group); ok && len(more) > 0 && len(g.Selections)+len(g.Blocks)+len(g.Children) == 0 && g.Service == "" {
			g.Unread = true
		}
		return v, append(ps, more...), nil
	}
}

// unknownFields reports what the API server admits and our types do not have,
// as when its definitions are newer than we are. What is outside of the
// specification, such as the status that another controller writes, says nothing
// about what the object means.
func unknownFields(errs []error) []convert.Problem {
	var ps []convert.Problem
	for _, err := range errs {
		field := strings.TrimSuffix(strings.TrimPrefix(err.Error(), `unknown field "`), `"`)
		if strings.HasPrefix(field, "spec.") {
			ps = append(ps, convert.Problem{Field: field, Message: "unknown field"})
		}
	}
	return ps
}
