package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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

// SetTags makes tags be the user's tags of a VM: labels of its ExternalEntity or,
// where an agent enforces, of its ExternalNode. Those that others have set there are its user's tags too.
func (r *Runtime) SetTags(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, tags map[string]string) error {
	key := types.NamespacedName{Namespace: seen.Namespace, Name: cloudv1alpha1.ExternalEntityName(seen.Name)}
	kind := externalEntity
	if seen.Status.Agented {
		kind = externalNode
	}
	var err error
	for range userTagsTries {
		if err = r.setTags(ctx, kind, key, seen.Spec.Tags, tags); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", apiserver.ErrConflict, err)
}

// setTags returns a conflict when the object changes meanwhile.
func (r *Runtime) setTags(ctx context.Context, kind entityKind, key types.NamespacedName, seen, tags map[string]string) error {
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
	case !maps.Equal(have.userTags(), seen):
		return apiserver.ErrConflict
	}
	labels := map[string]any{}
	for k, v := range tags {
		labels[cloudv1alpha1.LabelTagPrefix+k] = v
	}
	force := true // a user's tag wins
	now, err := kind.patchLabels(ctx, client, key, types.ApplyPatchType, have.version, labels, &force)
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
		_, err = kind.patchLabels(ctx, client, key, types.MergePatchType, "", left, nil)
	}
	return err
}

// read reads an object from the API server.
func (k entityKind) read(ctx context.Context, client rest.Interface, key types.NamespacedName) (entity, error) {
	return k.into(client.Get().Namespace(key.Namespace).Resource(k.resource()).Name(key.Name).Do(ctx), "read", key)
}

// patchLabels writes labels of an object, while it has a version if one is given,
// and returns what has become of it.
func (k entityKind) patchLabels(ctx context.Context, client rest.Interface, key types.NamespacedName, patch types.PatchType, version string, labels map[string]any, force *bool) (entity, error) {
	metadata := map[string]any{"namespace": key.Namespace, "name": key.Name, "labels": labels}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"apiVersion": client.APIVersion().String(), "kind": k.String(), "metadata": metadata})
	if err != nil {
		return entity{}, fmt.Errorf("write tags of %v %s: %w", k, key, err)
	}
	return k.into(client.Patch(patch).Namespace(key.Namespace).Resource(k.resource()).Name(key.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: userTagsManager, Force: force}, metav1.ParameterCodec).Body(body).Do(ctx), "write tags of", key)
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
