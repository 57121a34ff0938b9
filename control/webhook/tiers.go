package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// patience is how long EnsureTiers tries again while the webhooks cannot be asked:
// 6 s. An API server needs a moment to learn where they are after Install.
var patience = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 8}

// EnsureTiers makes the built-in tiers that are missing and puts their
// priorities right; it writes nothing when all is well. Where webhooks are
// installed, client must be that of Options.Controller to repair a priority. An
// error leaves the rest undone: call it again.
func EnsureTiers(ctx context.Context, client dynamic.Interface) error {
	tiers := client.Resource(antreav1beta1.GroupVersion.WithResource("tiers"))
	builtin := antreav1beta1.BuiltinTiers()
	for _, name := range slices.Sorted(maps.Keys(builtin)) {
		var last error
		err := wait.ExponentialBackoffWithContext(ctx, patience, func(ctx context.Context) (bool, error) {
			last = ensureTier(ctx, tiers, name, int64(builtin[name]))
			if apierrors.IsInternalError(last) {
				return false, nil
			}
			return true, last
		})
		if wait.Interrupted(err) && last != nil {
			err = last // says more than that we waited
		}
		if err != nil {
			return fmt.Errorf("ensure tier %s: %w", name, err)
		}
	}
	return nil
}

func ensureTier(ctx context.Context, tiers dynamic.ResourceInterface, name string, priority int64) error {
	have, err := tiers.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		t := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": antreav1beta1.GroupVersion.String(), "kind": "Tier",
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"priority": priority, "description": "built in"},
		}}
		_, err = tiers.Create(ctx, t, metav1.CreateOptions{FieldManager: owner})
		if apierrors.IsAlreadyExists(err) {
			return nil // another replica was faster
		}
		return err
	}
	if err != nil {
		return err
	}
	if got, ok, err := unstructured.NestedInt64(have.Object, "spec", "priority"); err == nil && ok && got == priority {
		return nil
	}
	patch := fmt.Appendf(nil, `{"spec":{"priority":%d}}`, priority)
	_, err = tiers.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: owner})
	return err
}
