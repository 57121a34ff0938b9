package controlplane

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/policy"
)

// joined are the multicast groups that Pods have joined, as their Nodes said last in one
// term of office.
type joined struct {
	mu   sync.Mutex
	term string
	on   map[string]nodeGroups // by Node
}

// nodeGroups are the groups that Pods of one Node have joined: Pod IDs by address.
type nodeGroups struct {
	said time.Time
	of   map[netip.Addr][]string
}

// stale is after what time a Node is taken to be gone: agents report every minute.
const stale = 10 * time.Minute

// put keeps what a Node says of its own Pods, and nothing that it says of others', or of
// what is no multicast group.
func (j *joined) put(w policy.Snapshot, term, node string, in []controlplanev1beta2.MulticastGroupInfo) {
	now := nodeGroups{said: time.Now(), of: map[netip.Addr][]string{}}
	for _, g := range in {
		a, err := netip.ParseAddr(g.Group)
		if err != nil || !a.IsMulticast() {
			continue
		}
		for _, p := range g.Pods {
			id := policy.WorkloadID(policy.KindPod, p.Namespace, p.Name)
			if pod, ok := w.Workloads.Get(id); ok && pod.Target == convert.NodeTarget(node) && !slices.Contains(now.of[a], id) {
				now.of[a] = append(now.of[a], id)
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.on == nil || j.term != term {
		j.term, j.on = term, map[string]nodeGroups{}
	}
	maps.DeleteFunc(j.on, func(_ string, g nodeGroups) bool { return time.Since(g.said) > stale })
	if delete(j.on, node); len(now.of) > 0 {
		j.on[node] = now
	}
}

// all returns the groups that Pods of w have joined, by address.
func (j *joined) all(w policy.Snapshot, term string) []statsv1alpha1.MulticastGroup {
	found := map[netip.Addr][]statsv1alpha1.PodReference{}
	j.mu.Lock()
	if j.term == term {
		for _, g := range j.on {
			if time.Since(g.said) > stale {
				continue
			}
			for a, pods := range g.of {
				for _, id := range pods {
					if p, ok := w.Workloads.Get(id); ok {
						found[a] = append(found[a], statsv1alpha1.PodReference{Namespace: p.Namespace, Name: p.Name})
					}
				}
			}
		}
	}
	j.mu.Unlock()
	out := []statsv1alpha1.MulticastGroup{}
	for _, a := range slices.SortedFunc(maps.Keys(found), netip.Addr.Compare) {
		pods := found[a]
		slices.SortFunc(pods, func(x, y statsv1alpha1.PodReference) int {
			return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
		})
		out = append(out, statsv1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Name: a.String()}, Group: a.String(), Pods: pods})
	}
	return out
}

var multicastGroup = storage{
	make: func() runtime.Object { return &statsv1alpha1.MulticastGroup{} }, singular: "multicastgroup",
	columns: []metav1.TableColumnDefinition{
		{Name: "GROUP", Type: "string", Format: "name", Description: "Address of the group"},
		{Name: "PODS", Type: "string", Description: "Pods that have joined it"},
	},
	cells: cellsOf(func(x *statsv1alpha1.MulticastGroup) []any {
		return []any{x.Group, list(x.Pods, func(p statsv1alpha1.PodReference) string { return p.Namespace + "/" + p.Name })}
	}),
}

// multicastGroups shows who has joined which multicast group.
type multicastGroups struct {
	storage
	s *Service
}

var (
	_ rest.Getter = multicastGroups{}
	_ rest.Lister = multicastGroups{}
)

// NewList returns an empty list.
func (multicastGroups) NewList() runtime.Object { return &statsv1alpha1.MulticastGroupList{} }

func (m multicastGroups) now() ([]statsv1alpha1.MulticastGroup, error) {
	w, ok := m.s.o.World()
	if !ok {
		return nil, errNotKnown()
	}
	return m.s.joined.all(w, m.s.o.Office.Term()), nil
}

// Get returns the group of that address.
func (m multicastGroups) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	all, err := m.now()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, apierrors.NewNotFound(statsv1alpha1.GroupVersion.WithResource(m.singular).GroupResource(), name)
}

// List returns all groups that somebody has joined.
func (m multicastGroups) List(_ context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if o != nil && (o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty()) {
		return nil, apierrors.NewBadRequest("these objects cannot be selected")
	}
	all, err := m.now()
	return &statsv1alpha1.MulticastGroupList{Items: all}, err
}
