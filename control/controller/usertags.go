package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
)

const (
	// userTagsManager owns the labels of tags that users set on VirtualMachines.
	// It is not fieldManager, so to the loops these are tags of others.
	userTagsManager = "isobar-user-tags"
	// userTagsTries bounds how often a write is tried while the ExternalEntity
	// keeps changing in other ways.
	userTagsTries = 5
)

// SetTags writes the tags of a VM as labels of its ExternalEntity or, where an agent
// enforces, of its ExternalNode. Those that others have set there are its user's tags too.
func (r *Runtime) SetTags(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, to apiserver.Tagging) error {
	if m := to.Manager; m == fieldManager || m == userTagsManager || m == nephesManager {
		return fmt.Errorf("%w: %s", apiserver.ErrManager, m)
	}
	key := types.NamespacedName{Namespace: seen.Namespace, Name: cloudv1alpha1.ExternalEntityName(seen.Name)}
	kind := externalEntity
	if seen.Status.Agented {
		kind = externalNode
	}
	var err error
	for range userTagsTries {
		if err = r.setTags(ctx, kind, key, seen, to); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", apiserver.ErrConflict, err)
}

// setTags returns a conflict when the object changes meanwhile.
func (r *Runtime) setTags(ctx context.Context, kind entityKind, key types.NamespacedName, seen *runtimev1alpha1.VirtualMachine, to apiserver.Tagging) error {
	client := r.c.clients.tags
	if kind == externalNode {
		client = r.c.clients.nodeTags
	}
	have, err := kind.read(ctx, client, key)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: its %v is about to be made", apiserver.ErrNotReady, kind)
	case err != nil:
		return err
	case !have.applied:
		return fmt.Errorf("%w: the %v of its name is not ours", apiserver.ErrNotReady, kind)
	case !maps.Equal(have.userTags(), seen.Spec.Tags), !apiequality.Semantic.DeepEqual(have.tagManagers(), seen.ManagedFields):
		return apiserver.ErrConflict
	}
	now, err := kind.applyLabels(ctx, client, key, have.version, have.applying(to))
	if err != nil {
		return err
	}
	// An apply takes away only what its manager alone has set. What else is to go goes
	// whatever has become of the object: our own loops write to it too, now that they may.
	left := map[string]any{}
	for k := range now.userTags() {
		_, stays := to.Tags[k]
		if _, was := seen.Spec.Tags[k]; was && !stays {
			left[cloudv1alpha1.LabelTagPrefix+k] = nil
		}
	}
	if len(left) > 0 {
		_, err = kind.patchLabels(ctx, client, key, labelPatch{manager: userTagsManager, labels: left})
	}
	return err
}

// labelPatch is a change of an object's labels.
type labelPatch struct {
	manager string
	labels  map[string]any
}

// applying returns what is applied to an object, so that its tags become those of a
// Tagging. Those that others have set and that stay as they are stay theirs.
func (e entity) applying(to apiserver.Tagging) labelPatch {
	p := labelPatch{manager: userTagsManager, labels: map[string]any{}}
	if to.Manager != "" {
		p.manager = to.Manager
		for _, k := range to.Applied {
			p.labels[cloudv1alpha1.LabelTagPrefix+k] = to.Tags[k]
		}
		return p
	}
	have := e.userTags()
	for k, v := range to.Tags {
		label := cloudv1alpha1.LabelTagPrefix + k
		was, ok := have[k]
		if !ok || was != v || slices.Contains(e.theirs[userTagsManager], label) {
			p.labels[label] = v
		}
	}
	return p
}

// userTags returns the tags that others have set on an object.
func (e entity) userTags() map[string]string {
	var out map[string]string
	for _, keys := range e.theirs {
		for _, key := range keys {
			if value, ok := e.labels[key]; ok {
				if out == nil {
					out = map[string]string{}
				}
				out[strings.TrimPrefix(key, cloudv1alpha1.LabelTagPrefix)] = value
			}
		}
	}
	return out
}

// tagManagers returns who has set userTags, as the fields of a VirtualMachine.
func (e entity) tagManagers() []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, manager := range slices.Sorted(maps.Keys(e.theirs)) {
		tags := map[string]struct{}{}
		for _, key := range e.theirs[manager] {
			tags["f:"+strings.TrimPrefix(key, cloudv1alpha1.LabelTagPrefix)] = struct{}{}
		}
		fields, err := json.Marshal(map[string]any{"f:spec": map[string]any{"f:tags": tags}})
		if err != nil {
			continue // strings can always be written
		}
		m := metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: runtimev1alpha1.GroupVersion.String(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
		}
		if manager == userTagsManager {
			m.Operation = metav1.ManagedFieldsOperationUpdate
		}
		out = append(out, m)
	}
	return out
}

// read reads an object from the API server.
func (k entityKind) read(ctx context.Context, client rest.Interface, key types.NamespacedName) (entity, error) {
	return k.into(client.Get().Namespace(key.Namespace).Resource(k.resource()).Name(key.Name).Do(ctx), "read", key)
}

// applyLabels makes the labels of a manager be those of p and no others, while the
// object has a version if one is given, and returns what has become of it.
func (k entityKind) applyLabels(ctx context.Context, client rest.Interface, key types.NamespacedName, version string, p labelPatch) (entity, error) {
	force := true // a user's tag wins
	return k.writeLabels(ctx, client, key, p, types.ApplyPatchType, version, &force)
}

// patchLabels sets labels, or takes them away where they are nil, likewise.
func (k entityKind) patchLabels(ctx context.Context, client rest.Interface, key types.NamespacedName, p labelPatch) (entity, error) {
	return k.writeLabels(ctx, client, key, p, types.MergePatchType, "", nil)
}

func (k entityKind) writeLabels(ctx context.Context, client rest.Interface, key types.NamespacedName, p labelPatch, how types.PatchType, version string, force *bool) (entity, error) {
	metadata := map[string]any{"namespace": key.Namespace, "name": key.Name}
	if len(p.labels) > 0 { // an empty map would be a field of its own
		metadata["labels"] = p.labels
	}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"apiVersion": client.APIVersion().String(), "kind": k.String(), "metadata": metadata})
	if err != nil {
		return entity{}, fmt.Errorf("write tags of %v %s: %w", k, key, err)
	}
	return k.into(client.Patch(how).Namespace(key.Namespace).Resource(k.resource()).Name(key.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: p.manager, Force: force}, metav1.ParameterCodec).Body(body).Do(ctx), "write tags of", key)
}

// into reads the answer to a request about one object.
func (k entityKind) into(answer rest.Result, what string, key types.NamespacedName) (out entity, err error) {
	if k == externalNode {
		var node antreav1alpha1.ExternalNode
		if err = answer.Into(&node); err == nil {
			out = readNode(&node)
		}
	} else {
		var ee antreav1alpha2.ExternalEntity
		if err = answer.Into(&ee); err == nil {
			out = readEntity(&ee)
		}
	}
	if err != nil {
		return entity{}, fmt.Errorf("%s %v %s: %w", what, k, key, err)
	}
	return out, nil
}
