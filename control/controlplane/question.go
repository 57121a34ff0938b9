package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"isobar.dev/api/answer"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

type worldFunc func() (policy.Snapshot, bool)

// members tells who is in a group.
type members struct {
	storage
	world worldFunc
	of    func(namespace, name string, m answer.Membership) runtime.Object
}

var _ rest.GetterWithOptions = members{}

func newMembers(world worldFunc, namespaced bool) members {
	m := members{world: world, storage: storage{namespaced: namespaced, columns: []metav1.TableColumnDefinition{
		{Name: "NAME", Type: "string", Format: "name", Description: "Name of the group"},
		{Name: "MEMBERS", Type: "integer", Description: "Number of its members, on all pages"},
		{Name: "IP-BLOCKS", Type: "integer", Description: "Number of its prefixes"},
		{Name: "FIRST MEMBERS", Type: "string", Description: "Who they are"},
	}}}
	if !namespaced {
		m.singular, m.shortNames = "clustergroupmembers", []string{"cgmbr"}
		m.make = func() runtime.Object { return &controlplanev1beta2.ClusterGroupMembers{} }
		m.of = func(_, name string, x answer.Membership) runtime.Object {
			return &controlplanev1beta2.ClusterGroupMembers{ObjectMeta: metav1.ObjectMeta{Name: name}, EffectiveMembers: x.Members, EffectiveIPBlocks: x.Prefixes,
				TotalMembers: x.Total, TotalPages: x.Pages, CurrentPage: x.Page}
		}
		m.cells = cellsOf(func(x *controlplanev1beta2.ClusterGroupMembers) []any {
			return []any{x.Name, x.TotalMembers, int64(len(x.EffectiveIPBlocks)), memberNames(x.EffectiveMembers)}
		})
		return m
	}
	m.singular, m.shortNames = "groupmembers", []string{"grpmbr"}
	m.make = func() runtime.Object { return &controlplanev1beta2.GroupMembers{} }
	m.of = func(namespace, name string, x answer.Membership) runtime.Object {
		return &controlplanev1beta2.GroupMembers{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, EffectiveMembers: x.Members, EffectiveIPBlocks: x.Prefixes,
			TotalMembers: x.Total, TotalPages: x.Pages, CurrentPage: x.Page}
	}
	m.cells = cellsOf(func(x *controlplanev1beta2.GroupMembers) []any {
		return []any{x.Name, x.TotalMembers, int64(len(x.EffectiveIPBlocks)), memberNames(x.EffectiveMembers)}
	})
	return m
}

// NewGetOptions returns the options of a Get; there is no path after the name.
func (members) NewGetOptions() (runtime.Object, bool, string) {
	return &controlplanev1beta2.PaginationGetOptions{}, false, ""
}

// Get returns the members of the group of that name.
func (m members) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	s, ok := m.world()
	if !ok {
		return nil, errNotKnown()
	}
	o, ok := options.(*controlplanev1beta2.PaginationGetOptions)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T says no page", options))
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	x, err := answer.Members(s, policy.GroupID(namespace, name), o.Page, o.Limit)
	if err != nil {
		return nil, answerError(err)
	}
	return m.of(namespace, name, x), nil
}

var groupAssociations = storage{
	make:     func() runtime.Object { return &controlplanev1beta2.GroupAssociation{} },
	singular: "groupassociation", namespaced: true, columns: associationColumns,
	cells: cellsOf(func(x *controlplanev1beta2.GroupAssociation) []any {
		return []any{x.Name, groupNames(x.AssociatedGroups)}
	}),
}

var ipGroupAssociations = storage{
	make:     func() runtime.Object { return &controlplanev1beta2.IPGroupAssociation{} },
	singular: "ipgroupassociation", columns: associationColumns,
	cells: cellsOf(func(x *controlplanev1beta2.IPGroupAssociation) []any {
		return []any{x.Name, groupNames(x.AssociatedGroups)}
	}),
}

var associationColumns = []metav1.TableColumnDefinition{
	{Name: "NAME", Type: "string", Format: "name", Description: "Name of the Pod or ExternalEntity, or the address"},
	{Name: "GROUPS", Type: "string", Description: "Groups that have it"},
}

// associations tells which groups a workload is in.
type associations struct {
	storage
	world worldFunc
}

var _ rest.Getter = associations{}

// Get returns the groups of the Pod or ExternalEntity of that name.
func (a associations) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s, ok := a.world()
	if !ok {
		return nil, errNotKnown()
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	groups, err := answer.GroupsOf(s, namespace, name)
	if err != nil {
		return nil, answerError(err)
	}
	return &controlplanev1beta2.GroupAssociation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, AssociatedGroups: groups}, nil
}

// addressAssociations tells which groups have an address.
type addressAssociations struct {
	storage
	world worldFunc
}

var _ rest.Getter = addressAssociations{}

// Get returns the groups of the address that the name is.
func (a addressAssociations) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s, ok := a.world()
	if !ok {
		return nil, errNotKnown()
	}
	addr, err := netip.ParseAddr(name)
	if err != nil || addr.Zone() != "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is no address", name))
	}
	return &controlplanev1beta2.IPGroupAssociation{ObjectMeta: metav1.ObjectMeta{Name: name}, AssociatedGroups: answer.GroupsAt(s, addr)}, nil
}

var evaluation = storage{
	make:     func() runtime.Object { return &controlplanev1beta2.NetworkPolicyEvaluation{} },
	singular: "networkpolicyevaluation",
	columns: []metav1.TableColumnDefinition{
		{Name: "VERDICT", Type: "string", Description: "What happens to the flow"},
		{Name: "POLICY", Type: "string", Description: "Policy that decides"},
		{Name: "DIRECTION", Type: "string", Description: "Direction of its rule"},
		{Name: "RULE", Type: "string", Description: "Name of its rule"},
		{Name: "ACTION", Type: "string", Description: "What its rule does"},
	},
	cells: cellsOf(func(x *controlplanev1beta2.NetworkPolicyEvaluation) []any {
		out := []any{"", "", "", "", ""}
		if r := x.Response; r != nil {
			if r.Answer != nil {
				out[0] = string(r.Answer.Verdict)
			}
			if r.Rule.Direction != "" {
				out[1], out[2], out[3], out[4] = referenceText(r.NetworkPolicy), string(r.Rule.Direction), r.Rule.Name, "Isolate"
			}
			if r.Rule.Action != nil {
				out[4] = string(*r.Rule.Action)
			}
		}
		return out
	}),
}

// evaluations answers which rule decides.
type evaluations struct {
	storage
	world worldFunc
}

var _ rest.Creater = evaluations{}

// answerName is the name of an answer to a question that has none: kubectl says of an object without
// one that <unknown> was created.
const answerName = "answer"

// Create answers a NetworkPolicyEvaluation. Nothing is kept.
func (e evaluations) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := o.(*controlplanev1beta2.NetworkPolicyEvaluation)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no NetworkPolicyEvaluation", o))
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	s, ok := e.world()
	if !ok {
		return nil, errNotKnown()
	}
	response, err := answer.Evaluate(s, in.Request)
	if err != nil {
		return nil, answerError(err)
	}
	out := in.DeepCopy()
	out.Response = response
	if out.Name == "" {
		out.Name = answerName
	}
	return out, nil
}

// fewNames is how many names a cell has.
const fewNames = 4

func list[T any](items []T, name func(T) string) string {
	var names []string
	for i, x := range items {
		if i == fewNames {
			names = append(names, fmt.Sprintf("+%d more", len(items)-i))
			break
		}
		names = append(names, name(x))
	}
	return strings.Join(names, ",")
}

func memberNames(members []controlplanev1beta2.GroupMember) string {
	return list(members, func(m controlplanev1beta2.GroupMember) string {
		switch {
		case m.Pod != nil:
			return m.Pod.Namespace + "/" + m.Pod.Name
		case m.ExternalEntity != nil:
			return m.ExternalEntity.Namespace + "/" + m.ExternalEntity.Name
		case m.Node != nil:
			return m.Node.Name
		case m.Service != nil:
			return m.Service.Namespace + "/" + m.Service.Name
		}
		return "?"
	})
}

func groupNames(groups []controlplanev1beta2.GroupReference) string {
	return list(groups, func(g controlplanev1beta2.GroupReference) string {
		return strings.TrimPrefix(g.Namespace+"/"+g.Name, "/")
	})
}

func referenceText(r controlplanev1beta2.NetworkPolicyReference) string {
	return string(r.Type) + ":" + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}
