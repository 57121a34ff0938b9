package controller

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// nephesManager is what the fields that a Nephe has written carry: the name of
// its binary.
const nephesManager = "nephe-controller"

// takeOver makes what a Nephe has written to an object be as if we had, so that it
// goes when it is no longer wanted. A label of a tag that the cloud does not have
// was a user's; one that the cloud has with another value is taken for old. The
// object's change brings us back to write what is still to be written.
func (c *Controller) takeOver(ctx context.Context, key types.NamespacedName, want entity) error {
	_, client := c.kindOf(want.kind)
	var o object = &antreav1alpha2.ExternalEntity{}
	if want.kind == externalNode {
		o = &antreav1alpha1.ExternalNode{}
	}
	read := func() error {
		if err := client.Get().Namespace(key.Namespace).Resource(want.kind.resource()).Name(key.Name).Do(ctx).Into(o); err != nil {
			return fmt.Errorf("take over %v %s: %w", want.kind, key, err)
		}
		return nil
	}
	if err := read(); err != nil {
		return err
	}
	if tags := nephesTags(want, o); len(tags) > 0 {
		c.stats.EntityWrites.Add(1)
		if _, err := want.kind.applyLabels(ctx, client, key, "", labelPatch{userTagsManager, tags}); err != nil { // it shares them with the Nephe
			return err
		}
		if err := read(); err != nil {
			return err
		}
	}
	body, err := csaupgrade.UpgradeManagedFieldsPatch(o, sets.New(nephesManager), fieldManager)
	if err != nil || body == nil {
		return err
	}
	c.stats.EntityWrites.Add(1)
	if err := client.Patch(types.JSONPatchType).Namespace(key.Namespace).Resource(want.kind.resource()).Name(key.Name).Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("take over %v %s: %w", want.kind, key, err)
	}
	return nil
}

// nephesTags returns the labels of tags that a Nephe has written and the cloud does
// not have.
func nephesTags(want entity, have metav1.Object) map[string]any {
	labels := map[string]any{}
	for _, m := range have.GetManagedFields() {
		for _, label := range managedLabels(m) {
			_, isClouds := want.labels[label]
			if m.Manager == nephesManager && strings.HasPrefix(label, cloudv1alpha1.LabelTagPrefix) && !isClouds {
				labels[label] = have.GetLabels()[label]
			}
		}
	}
	return labels
}
