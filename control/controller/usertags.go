package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// SetTags makes tags be the user's tags of a VM: labels of its ExternalEntity.
// Those that others have set there are its user's tags too.
func (r *Runtime) SetTags(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, tags map[string]string) error {
	key := types.NamespacedName{Namespace: seen.Namespace, Name: cloudv1alpha1.ExternalEntityName(seen.Name)}
	if seen.Status.Agented {
		return fmt.Errorf("%w: an agent enforces its policies, and no ExternalEntity stands for it", apiserver.ErrNoTags)
	}
	var err error
	for range userTagsTries {
		if err = r.setTags(ctx, key, seen.Spec.Tags, tags); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", apiserver.ErrConflict, err)
}

// setTags returns a conflict when the ExternalEntity changes meanwhile.
func (r *Runtime) setTags(ctx context.Context, key types.NamespacedName, seen, tags map[string]string) error {
	have, err := r.readEntity(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: its ExternalEntity is about to be made", apiserver.ErrNotReady)
	case err != nil:
		return err
	case !have.applied:
		return fmt.Errorf("%w: the ExternalEntity of its name is not ours", apiserver.ErrNotReady)
	case !maps.Equal(have.userTags(), seen):
		return apiserver.ErrConflict
	}
	labels := map[string]any{}
	for k, v := range tags {
		labels[cloudv1alpha1.LabelTagPrefix+k] = v
	}
	force := true // a user's tag wins
	now, err := r.patchLabels(ctx, key, types.ApplyPatchType, have.version, labels, &force)
	if err != nil {
		return err
	}
	// An apply takes away only what its manager has set. What others have set goes
	// whatever else has become of the object: our own loops write to it too, now
	// that they may.
	left := map[string]any{}
	for k := range now.userTags() {
		_, stays := tags[k]
		if _, was := seen[k]; was && !stays {
			left[cloudv1alpha1.LabelTagPrefix+k] = nil
		}
	}
	if len(left) > 0 {
		_, err = r.patchLabels(ctx, key, types.MergePatchType, "", left, nil)
	}
	return err
}

func (r *Runtime) readEntity(ctx context.Context, key types.NamespacedName) (entity, error) {
	var out antreav1alpha2.ExternalEntity
	err := r.c.clients.tags.Get().Namespace(key.Namespace).Resource(entitiesResource).Name(key.Name).Do(ctx).Into(&out)
	if err != nil {
		return entity{}, fmt.Errorf("read ExternalEntity %s: %w", key, err)
	}
	return readEntity(&out), nil
}

// patchLabels writes labels of an ExternalEntity, while it has a version if one
// is given, and returns what has become of it.
func (r *Runtime) patchLabels(ctx context.Context, key types.NamespacedName, kind types.PatchType, version string, labels map[string]any, force *bool) (entity, error) {
	metadata := map[string]any{"namespace": key.Namespace, "name": key.Name, "labels": labels}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"apiVersion": antreav1alpha2.GroupVersion.String(), "kind": "ExternalEntity", "metadata": metadata})
	if err != nil {
		return entity{}, fmt.Errorf("write tags of ExternalEntity %s: %w", key, err)
	}
	var out antreav1alpha2.ExternalEntity
	err = r.c.clients.tags.Patch(kind).Namespace(key.Namespace).Resource(entitiesResource).Name(key.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: userTagsManager, Force: force}, metav1.ParameterCodec).Body(body).Do(ctx).Into(&out)
	if err != nil {
		return entity{}, fmt.Errorf("write tags of ExternalEntity %s: %w", key, err)
	}
	return readEntity(&out), nil
}
