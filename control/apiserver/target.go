package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// targetResource lists Targets as they are now. It cannot be watched, and selects
// nothing: there are as many Targets as networks.
type targetResource struct{ planner Planner }

var (
	_ rest.Storage              = targetResource{}
	_ rest.Scoper               = targetResource{}
	_ rest.SingularNameProvider = targetResource{}
	_ rest.Getter               = targetResource{}
	_ rest.Lister               = targetResource{}
)

// New returns an empty Target.
func (targetResource) New() runtime.Object { return &isobarv1alpha1.Target{} }

// NewList returns an empty list.
func (targetResource) NewList() runtime.Object { return &isobarv1alpha1.TargetList{} }

// Destroy does nothing: there is nothing to close.
func (targetResource) Destroy() {}

// NamespaceScoped is false.
func (targetResource) NamespaceScoped() bool { return false }

// GetSingularName is what kubectl takes for the resource's name too.
func (targetResource) GetSingularName() string { return "target" }

// Get returns one Target.
func (r targetResource) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	for _, s := range r.planner.TargetStatuses() {
		if targetName(s) == name {
			return targetOf(s), nil
		}
	}
	return nil, apierrors.NewNotFound(isobarv1alpha1.GroupVersion.WithResource(isobarv1alpha1.ResourceTargets).GroupResource(), name)
}

// List returns all Targets, by name.
func (r targetResource) List(_ context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if o != nil && (o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty()) {
		return nil, apierrors.NewBadRequest("targets cannot be selected")
	}
	out := &isobarv1alpha1.TargetList{}
	for _, s := range r.planner.TargetStatuses() {
		out.Items = append(out.Items, *targetOf(s))
	}
	slices.SortFunc(out.Items, func(a, b isobarv1alpha1.Target) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func targetName(s isobarv1alpha1.TargetStatus) string {
	return strings.ReplaceAll(s.Target, "/", ".")
}

func targetOf(s isobarv1alpha1.TargetStatus) *isobarv1alpha1.Target {
	return &isobarv1alpha1.Target{ObjectMeta: metav1.ObjectMeta{Name: targetName(s)}, Status: s}
}

// ConvertToTable makes the table that kubectl prints.
func (targetResource) ConvertToTable(_ context.Context, in, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "NAME", Type: "string", Format: "name", Description: "Place that enforces"},
		{Name: "STATE", Type: "string", Description: "Held, Pending, Failed or Synced"},
		{Name: "OBJECTS", Type: "integer", Description: "What it has of ours"},
		{Name: "REFUSALS", Type: "integer", Description: "What it does not enforce exactly"},
		{Name: "LAST-SYNC", Type: "string", Description: "Time since it was found as it should be"},
		{Name: "ERROR", Type: "string", Priority: 1, Description: "How the last try ended"},
	}}
	items := []isobarv1alpha1.Target{}
	switch o := in.(type) {
	case *isobarv1alpha1.Target:
		items = append(items, *o)
	case *isobarv1alpha1.TargetList:
		items = o.Items
	default:
		return nil, apierrors.NewInternalError(fmt.Errorf("make a table of a %T", in))
	}
	for i := range items {
		s, since := items[i].Status, "never"
		if s.LastSync != nil {
			since = duration.HumanDuration(time.Since(s.LastSync.Time))
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{items[i].Name, string(s.State), int64(s.Objects), int64(s.Refusals), since, s.Error},
			Object: runtime.RawExtension{Object: &items[i]},
		})
	}
	return table, nil
}
