package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

const (
	// maxTags is how many tags users may set on one VM, besides those that it has in its cloud.
	maxTags = 100
	// visibleTimeout is how long an update waits to see what it has written.
	visibleTimeout = 5 * time.Second
)

// vmResource serves VMs, whose tags users may write.
type vmResource struct {
	resource[*runtimev1alpha1.VirtualMachine]
	setTags func(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, to Tagging) error
	// writing lets one write at a time decide on what the one before has written.
	writing sync.Mutex
}

var _ rest.Patcher = (*vmResource)(nil)

// Update sets the tags of a VM. As with every kind whose status is not its
// users', what a request says of status is ignored. Labels and annotations are
// the cloud's too: a request that adds or changes one is refused, one that
// leaves them out is not.
func (r *vmResource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, _ bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	got, err := r.Get(ctx, name, nil)
	if err != nil {
		return nil, false, err
	}
	have, ok := got.(*runtimev1alpha1.VirtualMachine)
	if !ok {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("update %s: got a %T", name, got))
	}
	updated, err := info.UpdatedObject(ctx, have.DeepCopy())
	if err != nil {
		return nil, false, err
	}
	want, ok := updated.(*runtimev1alpha1.VirtualMachine)
	if !ok {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("not a VirtualMachine: %T", updated))
	}
	if err := checkUpdate(info.Preconditions(), have, want); err != nil {
		return nil, false, err
	}
	if validate != nil {
		if err := validate(ctx, want, have); err != nil {
			return nil, false, err
		}
	}
	to, isNews := tagging(have, want, o)
	if !isNews {
		return have, false, nil
	}
	have.Spec.Tags = to.Tags // have is a copy of its own
	if o != nil && slices.Contains(o.DryRun, metav1.DryRunAll) {
		return have, false, nil
	}
	seen, _ := r.store.get(have.Namespace + "/" + name)
	if seen == nil || seen.ResourceVersion != have.ResourceVersion {
		return nil, false, r.conflict(name)
	}
	if err := r.setTags(ctx, seen, to); err != nil {
		return nil, false, r.refusal(name, err)
	}
	return r.visible(ctx, have, to), false, nil
}

// tagging says what an update is to make of the tags, and whether that is anything.
// Only a server-side apply sets tags that its manager has applied, or changes which
// these are.
func tagging(have, want *runtimev1alpha1.VirtualMachine, o *metav1.UpdateOptions) (to Tagging, isNews bool) {
	to = Tagging{Tags: maps.Clone(want.Spec.Tags)}
	isNews = !maps.Equal(have.Spec.Tags, want.Spec.Tags)
	if o == nil || o.FieldManager == "" {
		return to, isNews
	}
	applied := appliedTags(want, o.FieldManager)
	isApply := !slices.Equal(applied, appliedTags(have, o.FieldManager))
	for key, value := range want.Spec.Tags {
		if was, ok := have.Spec.Tags[key]; ok && was == value {
			continue
		}
		if _, ok := slices.BinarySearch(applied, key); !ok {
			return to, true // set in another way
		}
		isApply = true
	}
	if isApply {
		to.Manager, to.Applied = o.FieldManager, applied
	}
	return to, isNews || isApply
}

// appliedTags returns the keys of the tags that a manager has applied, sorted.
func appliedTags(vm *runtimev1alpha1.VirtualMachine, manager string) (out []string) {
	for _, m := range vm.ManagedFields {
		if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply {
			out = append(out, ManagedKeys(m, "f:spec", "f:tags")...)
		}
	}
	slices.Sort(out)
	return out
}

// ManagedKeys returns the keys of the map at a path of fields that a manager owns.
// Fields that cannot be read own nothing.
func ManagedKeys(m metav1.ManagedFieldsEntry, path ...string) (out []string) {
	if m.FieldsV1 == nil {
		return nil
	}
	at := fieldsBelow(m.FieldsV1.GetRawBytes())
	for _, field := range path {
		at = fieldsBelow(at[field])
	}
	for field := range at {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			out = append(out, key)
		}
	}
	return out
}

func fieldsBelow(text []byte) (out map[string]json.RawMessage) {
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// checkUpdate says what is wrong with an update.
func checkUpdate(p *metav1.Preconditions, have, want *runtimev1alpha1.VirtualMachine) error {
	conflict := func(what string) error {
		return apierrors.NewConflict(runtimev1alpha1.Resource(runtimev1alpha1.ResourceVirtualMachine), have.Name, errors.New(what))
	}
	switch {
	case want.Name != have.Name || want.Namespace != have.Namespace:
		return apierrors.NewBadRequest("the name or namespace is not that of the request")
	case want.UID != "" && want.UID != have.UID, p != nil && p.UID != nil && *p.UID != have.UID:
		return conflict("it is another VM than that of the UID")
	case want.ResourceVersion != "" && want.ResourceVersion != have.ResourceVersion,
		p != nil && p.ResourceVersion != nil && *p.ResourceVersion != have.ResourceVersion:
		return conflict("it has changed; read it again")
	}
	errs := checkTags(field.NewPath("spec", "tags"), have.Spec.Tags, want.Spec.Tags)
	errs = append(errs, checkMap(field.NewPath("metadata", "labels"), have.Labels, want.Labels)...)
	annotations := maps.Clone(want.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation) // of kubectl apply; not kept
	errs = append(errs, checkMap(field.NewPath("metadata", "annotations"), have.Annotations, annotations)...)
	if len(want.Finalizers) > 0 || len(want.OwnerReferences) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("metadata"), "a VM has no finalizers and no owners: the cloud decides how long it is there"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(runtimev1alpha1.GroupVersion.WithKind("VirtualMachine").GroupKind(), have.Name, errs)
	}
	return nil
}

func checkMap(path *field.Path, have, want map[string]string) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if was, ok := have[key]; !ok || was != want[key] {
			errs = append(errs, field.Forbidden(path.Key(key), "only spec.tags can be changed"))
		}
	}
	return errs
}

// checkTags says which tags cannot be. Each becomes a label that policies
// select by, so it must make a valid one. What was there may stay.
func checkTags(path *field.Path, have, want map[string]string) (errs field.ErrorList) {
	if len(want) > maxTags && len(want) > len(have) {
		errs = append(errs, field.TooMany(path, len(want), maxTags))
		return errs
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		for _, text := range validation.IsQualifiedName(cloudv1alpha1.LabelTagPrefix + key) {
			errs = append(errs, field.Invalid(path, key, "the key makes no label "+cloudv1alpha1.LabelTagPrefix+key+": "+text))
		}
		for _, text := range validation.IsValidLabelValue(want[key]) {
			errs = append(errs, field.Invalid(path.Key(key), want[key], text))
		}
	}
	return errs
}

func (r *vmResource) conflict(name string) error {
	return apierrors.NewConflict(runtimev1alpha1.Resource(r.resource.resource), name, ErrConflict)
}

// refusal is what a client gets of an Inventory's error. Its own words stay
// inside only when they are about our rights, not the client's.
func (r *vmResource) refusal(name string, err error) error {
	group := runtimev1alpha1.Resource(r.resource.resource)
	switch {
	case errors.Is(err, ErrConflict):
		return r.conflict(name)
	case errors.Is(err, ErrManager):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, ErrNotReady):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewServerTimeout(group, "update", 1)
	}
	return apierrors.NewInternalError(fmt.Errorf("set tags of %s: %w", name, err))
}

// visible waits until the store has the tags that were written, and whose they are, so
// that a read after a write sees it. They are kept in any case.
func (r *vmResource) visible(ctx context.Context, written *runtimev1alpha1.VirtualMachine, to Tagging) runtime.Object {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	for {
		items, now := r.store.now()
		if x, ok := items.Get(written.Namespace + "/" + written.Name); ok && maps.Equal(x.Spec.Tags, to.Tags) && (to.Manager == "" || slices.Equal(appliedTags(x, to.Manager), to.Applied)) {
			return r.copy(x)
		}
		_, _, changed, ok := r.store.after(now)
		if !ok {
			continue // it has changed meanwhile
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return written
		}
	}
}
