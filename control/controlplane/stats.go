package controlplane

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/policy"
)

// stats sum up what agents have counted in one term of office: counts of others have gaps.
type stats struct {
	mu    sync.Mutex
	term  string
	since time.Time          // when the counting began
	of    map[string]*counts // by Policy.ID
}

// counts are those of one policy. They are of the object with that UID.
type counts struct {
	uid   string
	total statsv1alpha1.TrafficStats
	rules map[string]statsv1alpha1.TrafficStats // by the names that the policy has
}

// add counts what a Node has counted of a policy. Rules that p does not have are left
// out: nobody makes room here by names of their own.
func (s *stats) add(p *policy.Policy, x controlplanev1beta2.NetworkPolicyStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[p.ID]
	if c == nil || c.uid != p.UID {
		c = &counts{uid: p.UID, rules: map[string]statsv1alpha1.TrafficStats{}}
		s.of[p.ID] = c
	}
	c.total = plus(c.total, x.TrafficStats)
	for _, r := range x.RuleTrafficStats {
		if hasRule(p, r.Name) {
			c.rules[r.Name] = plus(c.rules[r.Name], r.TrafficStats)
		}
	}
}

// keep forgets the policies that are not there any more, and what was counted in another
// term.
func (s *stats) keep(w policy.Snapshot, term string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(term)
	for id := range s.of {
		if _, ok := w.Policies.Get(id); !ok {
			delete(s.of, id)
		}
	}
}

// begin forgets what was counted in another term. The caller holds s.mu.
func (s *stats) begin(term string) {
	if s.of == nil || s.term != term {
		s.term, s.since, s.of = term, time.Now(), map[string]*counts{}
	}
}

// get returns the counts of a policy and of its rules in a term, in their order, and
// since when they are counted.
func (s *stats) get(p *policy.Policy, term string) (since time.Time, total statsv1alpha1.TrafficStats, rules []statsv1alpha1.RuleTrafficStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(term)
	c := s.of[p.ID]
	if c == nil || c.uid != p.UID {
		return s.since, total, nil
	}
	for _, list := range [][]policy.Rule{p.Ingress, p.Egress} {
		for _, r := range list {
			if n, ok := c.rules[r.Name]; ok {
				rules = append(rules, statsv1alpha1.RuleTrafficStats{Name: r.Name, TrafficStats: n})
			}
		}
	}
	return s.since, c.total, rules
}

// Counted returns what agents have counted of a policy, and of its rules. ok is false where nobody has told anything of
// it, or not to this replica.
func (s *Service) Counted(p *policy.Policy) (total statsv1alpha1.TrafficStats, rules []statsv1alpha1.RuleTrafficStats, ok bool) {
	if s.o.Office.Check() != nil {
		return total, nil, false
	}
	_, total, rules = s.stats.get(p, s.o.Office.Term())
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	c := s.stats.of[p.ID]
	return total, rules, c != nil && c.uid == p.UID
}

func hasRule(p *policy.Policy, name string) bool {
	for _, list := range [][]policy.Rule{p.Ingress, p.Egress} {
		for _, r := range list {
			if r.Name == name && name != "" {
				return true
			}
		}
	}
	return false
}

func plus(a, b statsv1alpha1.TrafficStats) statsv1alpha1.TrafficStats {
	return statsv1alpha1.TrafficStats{Packets: sum(a.Packets, b.Packets), Bytes: sum(a.Bytes, b.Bytes), Sessions: sum(a.Sessions, b.Sessions)}
}

// sum is a+b, at most the largest number; neither is less than 0.
func sum(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

var summary = storage{
	make: func() runtime.Object { return &controlplanev1beta2.NodeStatsSummary{} }, singular: "nodestatssummary",
	columns: nameColumn, cells: cellsOf(func(x *controlplanev1beta2.NodeStatsSummary) []any { return []any{x.Name} }),
}

// summaries takes what agents have counted.
type summaries struct {
	storage
	*Service
	gate gate
}

var _ rest.Creater = summaries{}

// Create adds a Node's counts to those of the policies that apply there. All of a
// summary that is not right is refused, so that nothing is counted twice when it is
// sent again; a policy that is not there any more is left out.
func (s summaries) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := o.(*controlplanev1beta2.NodeStatsSummary)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no NodeStatsSummary", o))
	}
	node, err := s.nodeOf(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	w, ok := s.o.World()
	if !ok {
		return nil, errNotKnown()
	}
	s.stats.keep(w, s.o.Office.Term())
	lists := map[policy.Dialect][]controlplanev1beta2.NetworkPolicyStats{
		policy.KubernetesNetworkPolicy: in.NetworkPolicies, policy.AntreaNetworkPolicy: in.AntreaNetworkPolicies, policy.AntreaClusterNetworkPolicy: in.AntreaClusterNetworkPolicies,
	}
	for _, list := range lists {
		for _, x := range list {
			if err := checkCounts(x); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
	}
	if s.o.Office.Check() != nil {
		return nil, errElsewhere()
	}
	if isDry(options) {
		return in, nil
	}
	s.joined.put(w, s.o.Office.Term(), node, in.Multicast)
	for d, list := range lists {
		for _, x := range list {
			r := x.NetworkPolicy
			p, ok := w.Policies.Get(policy.PolicyID(d, r.Namespace, r.Name))
			if ok && (r.UID == "" || string(r.UID) == p.UID) && s.o.Feed.IsAt(node, p.ID) {
				s.stats.add(p, x)
			}
		}
	}
	return in, nil
}

// isDry says whether what is created is not to count.
func isDry(o *metav1.CreateOptions) bool { return o != nil && len(o.DryRun) > 0 }

// nodeOf returns the Node that a summary of that name is of, if its user may speak for
// it. Agents of VMs name their VM without its namespace.
func (s summaries) nodeOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", apierrors.NewBadRequest("metadata.name: the node is missing")
	}
	if u, ok := genericapirequest.UserFrom(ctx); ok {
		for _, n := range nodesOf(u) {
			if n == name || strings.HasSuffix(n, "/"+name) {
				return n, nil
			}
		}
	}
	return name, s.gate.check(ctx, "create", name)
}

func checkCounts(x controlplanev1beta2.NetworkPolicyStats) error {
	all := []statsv1alpha1.TrafficStats{x.TrafficStats}
	for _, r := range x.RuleTrafficStats {
		all = append(all, r.TrafficStats)
	}
	for _, t := range all {
		if t.Packets < 0 || t.Bytes < 0 || t.Sessions < 0 {
			return fmt.Errorf("counts of %s: one is less than 0", referenceText(x.NetworkPolicy))
		}
	}
	return nil
}

// statsStorage serves the sums.
func (s *Service) statsStorage(authorizer.Authorizer, <-chan struct{}) map[string]rest.Storage {
	return map[string]rest.Storage{
		"multicastgroups": multicastGroups{multicastGroup, s},
		"networkpolicystats": newSums(s, policy.KubernetesNetworkPolicy, "networkpolicystats", "netpolstats",
			func(m metav1.ObjectMeta, t statsv1alpha1.TrafficStats, _ []statsv1alpha1.RuleTrafficStats) statsv1alpha1.NetworkPolicyStats {
				return statsv1alpha1.NetworkPolicyStats{ObjectMeta: m, TrafficStats: t}
			},
			func(items []statsv1alpha1.NetworkPolicyStats) runtime.Object {
				return &statsv1alpha1.NetworkPolicyStatsList{Items: items}
			},
			func(o runtime.Object) (metav1.ObjectMeta, statsv1alpha1.TrafficStats, bool) {
				x, ok := o.(*statsv1alpha1.NetworkPolicyStats)
				if !ok {
					return metav1.ObjectMeta{}, statsv1alpha1.TrafficStats{}, false
				}
				return x.ObjectMeta, x.TrafficStats, true
			}),
		"antreanetworkpolicystats": newSums(s, policy.AntreaNetworkPolicy, "antreanetworkpolicystats", "annpstats",
			func(m metav1.ObjectMeta, t statsv1alpha1.TrafficStats, r []statsv1alpha1.RuleTrafficStats) statsv1alpha1.AntreaNetworkPolicyStats {
				return statsv1alpha1.AntreaNetworkPolicyStats{ObjectMeta: m, TrafficStats: t, RuleTrafficStats: r}
			},
			func(items []statsv1alpha1.AntreaNetworkPolicyStats) runtime.Object {
				return &statsv1alpha1.AntreaNetworkPolicyStatsList{Items: items}
			},
			func(o runtime.Object) (metav1.ObjectMeta, statsv1alpha1.TrafficStats, bool) {
				x, ok := o.(*statsv1alpha1.AntreaNetworkPolicyStats)
				if !ok {
					return metav1.ObjectMeta{}, statsv1alpha1.TrafficStats{}, false
				}
				return x.ObjectMeta, x.TrafficStats, true
			}),
		"antreaclusternetworkpolicystats": newSums(s, policy.AntreaClusterNetworkPolicy, "antreaclusternetworkpolicystats", "acnpstats",
			func(m metav1.ObjectMeta, t statsv1alpha1.TrafficStats, r []statsv1alpha1.RuleTrafficStats) statsv1alpha1.AntreaClusterNetworkPolicyStats {
				return statsv1alpha1.AntreaClusterNetworkPolicyStats{ObjectMeta: m, TrafficStats: t, RuleTrafficStats: r}
			},
			func(items []statsv1alpha1.AntreaClusterNetworkPolicyStats) runtime.Object {
				return &statsv1alpha1.AntreaClusterNetworkPolicyStatsList{Items: items}
			},
			func(o runtime.Object) (metav1.ObjectMeta, statsv1alpha1.TrafficStats, bool) {
				x, ok := o.(*statsv1alpha1.AntreaClusterNetworkPolicyStats)
				if !ok {
					return metav1.ObjectMeta{}, statsv1alpha1.TrafficStats{}, false
				}
				return x.ObjectMeta, x.TrafficStats, true
			}),
	}
}

// sums shows what has been counted of the policies of one dialect.
type sums[T any] struct {
	storage
	s       *Service
	dialect policy.Dialect
	one     func(metav1.ObjectMeta, statsv1alpha1.TrafficStats, []statsv1alpha1.RuleTrafficStats) T
	list    func([]T) runtime.Object
}

var (
	_ rest.Getter = (*sums[statsv1alpha1.NetworkPolicyStats])(nil)
	_ rest.Lister = (*sums[statsv1alpha1.NetworkPolicyStats])(nil)
)

func newSums[T any](s *Service, d policy.Dialect, singular, short string, one func(metav1.ObjectMeta, statsv1alpha1.TrafficStats, []statsv1alpha1.RuleTrafficStats) T,
	list func([]T) runtime.Object, of func(runtime.Object) (metav1.ObjectMeta, statsv1alpha1.TrafficStats, bool)) *sums[T] {
	out := &sums[T]{s: s, dialect: d, one: one, list: list}
	out.storage = storage{
		make: func() runtime.Object { return any(new(T)).(runtime.Object) }, singular: singular, shortNames: []string{short}, namespaced: d != policy.AntreaClusterNetworkPolicy,
		columns: []metav1.TableColumnDefinition{
			{Name: "NAME", Type: "string", Format: "name", Description: "Name of the policy"},
			{Name: "SESSIONS", Type: "integer", Description: "Connections that its rules have matched"},
			{Name: "PACKETS", Type: "integer", Description: "Their packets"},
			{Name: "BYTES", Type: "integer", Description: "Their bytes"},
			{Name: "CREATED AT", Type: "date", Description: "Since when they are counted"},
		},
		cells: func(o runtime.Object) ([]any, error) {
			m, t, ok := of(o)
			if !ok {
				return nil, apierrors.NewInternalError(fmt.Errorf("make a table of a %T", o))
			}
			return []any{m.Name, t.Sessions, t.Packets, t.Bytes, m.CreationTimestamp.UTC().Format(time.RFC3339)}, nil
		},
	}
	return out
}

// NewList returns an empty list.
func (x *sums[T]) NewList() runtime.Object { return x.list(nil) }

func (x *sums[T]) of(p *policy.Policy) T {
	since, total, rules := x.s.stats.get(p, x.s.o.Office.Term())
	return x.one(metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), CreationTimestamp: metav1.NewTime(since)}, total, rules)
}

// Get returns the counts of a policy.
func (x *sums[T]) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	w, ok := x.s.o.World()
	if !ok {
		return nil, errNotKnown()
	}
	p, ok := w.Policies.Get(policy.PolicyID(x.dialect, genericapirequest.NamespaceValue(ctx), name))
	if !ok {
		return nil, apierrors.NewNotFound(statsv1alpha1.GroupVersion.WithResource(x.singular).GroupResource(), name)
	}
	out := x.of(p)
	return any(&out).(runtime.Object), nil
}

// List returns the counts of all policies, of one namespace or of all.
func (x *sums[T]) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	name := ""
	if o != nil {
		if o.LabelSelector != nil && !o.LabelSelector.Empty() {
			return nil, apierrors.NewBadRequest("these objects have no labels to select by")
		}
		if o.FieldSelector != nil && !o.FieldSelector.Empty() {
			var ok bool
			if name, ok = o.FieldSelector.RequiresExactMatch(fieldName); !ok || len(o.FieldSelector.Requirements()) > 1 {
				return nil, apierrors.NewBadRequest("the one field selector that there is is " + fieldName + "=")
			}
		}
	}
	w, ok := x.s.o.World()
	if !ok {
		return nil, errNotKnown()
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	items := []T{}
	for _, p := range w.Policies.All() {
		if p.Dialect == x.dialect && (namespace == "" || p.Namespace == namespace) && (name == "" || p.Name == name) {
			items = append(items, x.of(p))
		}
	}
	return x.list(items), nil
}
