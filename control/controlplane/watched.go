package controlplane

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/feed"
)

// What field selectors may ask for.
const (
	fieldName = "metadata.name"
	fieldNode = "nodeName"
)

// watchedKind is what differs between the watched resources.
type watchedKind struct {
	storage
	resource feed.Resource
	list     func([]runtime.Object) (runtime.Object, error)
}

// watchedPolicies is the resource with whose watch agents begin to report.
const watchedPolicies = "networkpolicies"

// watchedKinds are the watched resources by their names.
var watchedKinds = map[string]watchedKind{
	watchedPolicies: {
		resource: feed.NetworkPolicies,
		list: listOf(func(items []controlplanev1beta2.NetworkPolicy) runtime.Object {
			return &controlplanev1beta2.NetworkPolicyList{Items: items}
		}),
		storage: storage{
			singular: "networkpolicy", make: func() runtime.Object { return &controlplanev1beta2.NetworkPolicy{} },
			columns: []metav1.TableColumnDefinition{
				{Name: "NAME", Type: "string", Format: "name", Description: "UID of the policy"},
				{Name: "SOURCE", Type: "string", Description: "What it was written as"},
				{Name: "TIER", Type: "string", Description: "Number of its tier"},
				{Name: "PRIORITY", Type: "string", Description: "Priority in its tier"},
				{Name: "RULES", Type: "integer", Description: "Number of its rules"},
				{Name: "APPLIED-TO", Type: "string", Priority: 1, Description: "AppliedToGroups of the policy or its rules"},
			},
			cells: cellsOf(policyCells),
		},
	},
	"appliedtogroups": {
		resource: feed.AppliedToGroups,
		list: listOf(func(items []controlplanev1beta2.AppliedToGroup) runtime.Object {
			return &controlplanev1beta2.AppliedToGroupList{Items: items}
		}),
		storage: storage{
			singular: "appliedtogroup", make: func() runtime.Object { return &controlplanev1beta2.AppliedToGroup{} }, columns: groupColumns,
			cells: func(o runtime.Object) ([]any, error) {
				switch x := o.(type) {
				case *controlplanev1beta2.AppliedToGroup:
					return []any{x.Name, int64(len(x.GroupMembers)), memberNames(x.GroupMembers)}, nil
				case *controlplanev1beta2.AppliedToGroupPatch:
					return patchCells(x.Name, x.AddedGroupMembers, x.RemovedGroupMembers), nil
				}
				return nil, apiserver.ErrNoTable(o)
			},
		},
	},
	"addressgroups": {
		resource: feed.AddressGroups,
		list: listOf(func(items []controlplanev1beta2.AddressGroup) runtime.Object {
			return &controlplanev1beta2.AddressGroupList{Items: items}
		}),
		storage: storage{
			singular: "addressgroup", make: func() runtime.Object { return &controlplanev1beta2.AddressGroup{} }, columns: groupColumns,
			cells: func(o runtime.Object) ([]any, error) {
				switch x := o.(type) {
				case *controlplanev1beta2.AddressGroup:
					return []any{x.Name, int64(len(x.GroupMembers)), memberNames(x.GroupMembers)}, nil
				case *controlplanev1beta2.AddressGroupPatch:
					return patchCells(x.Name, x.AddedGroupMembers, x.RemovedGroupMembers), nil
				}
				return nil, apiserver.ErrNoTable(o)
			},
		},
	},
}

var groupColumns = []metav1.TableColumnDefinition{
	{Name: "NAME", Type: "string", Format: "name", Description: "Name of the group"},
	{Name: "MEMBERS", Type: "string", Description: "Number of its members; in a watch, what has come and gone"},
	{Name: "FIRST MEMBERS", Type: "string", Description: "Who they are"},
}

// patchCells are the cells of what a watch tells of a group.
func patchCells(name string, added, removed []controlplanev1beta2.GroupMember) []any {
	return []any{name, fmt.Sprintf("+%d -%d", len(added), len(removed)), memberNames(append(added[:len(added):len(added)], removed...))}
}

func policyCells(p *controlplanev1beta2.NetworkPolicy) []any {
	source, tier, priority := "", "", ""
	if p.SourceRef != nil {
		source = referenceText(*p.SourceRef)
	}
	if p.TierPriority != nil {
		tier = fmt.Sprint(*p.TierPriority)
	}
	if p.Priority != nil {
		priority = fmt.Sprint(*p.Priority)
	}
	applied := p.AppliedToGroups
	for _, r := range p.Rules {
		applied = append(applied[:len(applied):len(applied)], r.AppliedToGroups...)
	}
	return []any{p.Name, source, tier, priority, int64(len(p.Rules)), list(applied, func(s string) string { return s })}
}

// listOf makes a list of objects of one kind.
func listOf[T any](list func([]T) runtime.Object) func([]runtime.Object) (runtime.Object, error) {
	return func(objects []runtime.Object) (runtime.Object, error) {
		items := make([]T, 0, len(objects))
		for _, o := range objects {
			if c, ok := o.(runtime.CacheableObject); ok {
				o = c.GetObject()
			}
			x, ok := any(o).(*T)
			if !ok {
				return nil, apierrors.NewInternalError(fmt.Errorf("a %T in a list of %T", o, items))
			}
			items = append(items, *x)
		}
		return list(items), nil
	}
}

// watched serves one of the resources that agents watch.
type watched struct {
	watchedKind
	name    string
	feed    Feed
	world   worldFunc
	gate    gate
	watches *watches
}

var (
	_ rest.Getter         = (*watched)(nil)
	_ rest.Lister         = (*watched)(nil)
	_ rest.Watcher        = (*watched)(nil)
	_ rest.TableConvertor = (*watched)(nil)
)

// NewList returns an empty list.
func (w *watched) NewList() runtime.Object {
	list, err := w.list(nil)
	if err != nil {
		panic(err) // of nothing, nothing is of another kind
	}
	return list
}

// isReady returns an error until all has been computed: an empty list would say that
// there is nothing to enforce.
func (w *watched) isReady() error {
	if _, ok := w.world(); !ok {
		return errNotKnown()
	}
	return nil
}

// Get returns one object, as all Nodes together see it.
func (w *watched) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := w.gate.check(ctx, "get", ""); err != nil {
		return nil, err
	}
	if err := w.isReady(); err != nil {
		return nil, err
	}
	o, ok := w.feed.Get(w.resource, everything, name)
	if !ok {
		return nil, apierrors.NewNotFound(controlplanev1beta2.Resource(w.name), name)
	}
	// Who writes it sets its kind; it is everybody's.
	list, err := w.list([]runtime.Object{o})
	if err != nil {
		return nil, err
	}
	return firstOf(list), nil
}

// firstOf returns the only object of a list.
func firstOf(list runtime.Object) runtime.Object {
	switch x := list.(type) {
	case *controlplanev1beta2.NetworkPolicyList:
		return &x.Items[0]
	case *controlplanev1beta2.AppliedToGroupList:
		return &x.Items[0]
	case *controlplanev1beta2.AddressGroupList:
		return &x.Items[0]
	}
	return nil
}

// List returns the objects as all Nodes together see them; as upstream does, whatever
// Node a selector names. All at once: a list is not of pages.
func (w *watched) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	x, err := asked(o)
	if err != nil {
		return nil, err
	}
	if err := w.gate.check(ctx, "list", ""); err != nil {
		return nil, err
	}
	if err := w.isReady(); err != nil {
		return nil, err
	}
	if x.name == "" {
		all, _ := w.feed.List(w.resource, everything)
		return w.list(all)
	}
	if one, ok := w.feed.Get(w.resource, everything, x.name); ok {
		return w.list([]runtime.Object{one})
	}
	return w.NewList(), nil
}

// Watch sends what a Node sees, from the beginning: the version that a client has is
// of no account.
func (w *watched) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	x, err := asked(o)
	if err != nil {
		return nil, err
	}
	if err := w.gate.check(ctx, "watch", x.node); err != nil {
		return nil, err
	}
	if err := w.isReady(); err != nil {
		return nil, err
	}
	return w.watches.begin(ctx, w.name, x, func() watch.Interface {
		return w.feed.Watch(ctx, w.resource, feed.WatchOptions{Span: feed.SpanOf(x.node), Name: x.name, NamesInitialEnd: x.marksEnd, Marks: x.marks})
	})
}

// everything is what all Nodes together see.
var everything = feed.SpanOf("")

// begin opens a watch, unless its user has many already.
func (w *watches) begin(ctx context.Context, resource string, x selected, open func() watch.Interface) (watch.Interface, error) {
	who := whoWatches(resource) + x.node
	if u, ok := genericapirequest.UserFrom(ctx); ok {
		who += "\x00" + u.GetName() + "\x00" + strings.Join(u.GetExtra()[serviceaccount.NodeNameKey], ",")
	}
	events, err := w.add(who, open)
	if err != nil {
		return nil, apierrors.NewTooManyRequests(err.Error(), 30)
	}
	return events, nil
}

// selected is what the options of a request ask for.
type selected struct {
	node, name string
	marksEnd   bool // asks that the bookmark after what there is says so
	marks      bool // asks for more bookmarks
}

// maxTimeout is the longest watch that can be asked for, in seconds: a year. One that is longer
// than a Duration would end at once.
const maxTimeout = 365 * 24 * 60 * 60

// asked reads the options of a request. What cannot be heeded is an error: what a
// selector leaves out would be there, or the other way round.
func asked(o *internalversion.ListOptions) (x selected, err error) {
	if o == nil {
		return x, nil
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return x, apierrors.NewBadRequest("these objects have no labels to select by")
	}
	x.marks = o.AllowWatchBookmarks
	if o.Continue != "" {
		return x, apierrors.NewBadRequest("continue: no list was of pages")
	}
	if t := o.TimeoutSeconds; t != nil && (*t < 0 || *t > maxTimeout) {
		return x, apierrors.NewBadRequest(fmt.Sprintf("timeoutSeconds: %d, want 0 to %d", *t, maxTimeout))
	}
	x.marksEnd = o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks
	if o.FieldSelector == nil {
		return x, nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		if err := x.take(r); err != nil {
			return x, apierrors.NewBadRequest(err.Error())
		}
	}
	return x, nil
}

func (x *selected) take(r fields.Requirement) error {
	to := &x.name
	switch r.Field {
	case fieldName:
	case fieldNode:
		to = &x.node
	default:
		return fmt.Errorf("no field selector %q: there are %s and %s", r.Field, fieldName, fieldNode)
	}
	switch {
	case r.Operator != selection.Equals && r.Operator != selection.DoubleEquals:
		return fmt.Errorf("field selector %s: only = is known", r.Field)
	case r.Value == "":
		return fmt.Errorf("field selector %s: the value is empty", r.Field)
	case *to != "" && *to != r.Value:
		return fmt.Errorf("field selector %s: it is there twice", r.Field)
	}
	*to = r.Value
	return nil
}
