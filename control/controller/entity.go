package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
)

// accountAnnotation names the account that an ExternalEntity of ours comes from.
const accountAnnotation = "isobar.dev/account"

// entity is what the loops need of an ExternalEntity, as it is or as it should be.
type entity struct {
	labels    map[string]string
	account   string // accountAnnotation
	node      string // spec.externalNode
	endpoints []string

	// Of one that is there:
	uid     types.UID
	version string
	owned   map[string]struct{} // keys of the labels that we applied
	theirs  map[string]struct{} // keys of the labels of tags that others set
	applied bool                // we have applied it
}

// entityOf returns the ExternalEntity that a VM should have.
func entityOf(i *imported) entity {
	vm := i.vm
	e := entity{
		account: i.account.String(), node: cloudv1alpha1.ExternalNodeController,
		labels: convert.EntityLabels(convert.VMNames{
			Namespace: i.selector.Namespace, Object: vm.ID, NetworkObject: vm.NetworkID, Region: vm.Region,
			VM: vm.Name, Network: vm.NetworkName, VMID: vm.ID, NetworkID: vm.NetworkID, Tags: vm.Tags,
		}),
	}
	for _, a := range addrs(vm) {
		e.endpoints = append(e.endpoints, a.String())
	}
	return e
}

// readEntity returns what the loops need of an ExternalEntity.
func readEntity(in *antreav1alpha2.ExternalEntity) entity {
	e := entity{
		labels: in.Labels, account: in.Annotations[accountAnnotation], node: in.Spec.ExternalNode,
		uid: in.UID, version: in.ResourceVersion,
		owned: map[string]struct{}{}, theirs: map[string]struct{}{},
	}
	for _, p := range in.Spec.Endpoints {
		e.endpoints = append(e.endpoints, p.IP)
	}
	for _, m := range in.ManagedFields {
		ours := m.Manager == fieldManager && m.Operation == metav1.ManagedFieldsOperationApply
		e.applied = e.applied || ours
		for _, key := range managedLabels(m) {
			switch {
			case ours:
				e.owned[key] = struct{}{}
			case strings.HasPrefix(key, cloudv1alpha1.LabelTagPrefix):
				e.theirs[key] = struct{}{}
			}
		}
	}
	return e
}

// managedLabels returns the keys of the labels that a manager owns. Fields that
// cannot be read own nothing.
func managedLabels(m metav1.ManagedFieldsEntry) []string {
	if m.FieldsV1 == nil {
		return nil
	}
	var fields struct {
		Metadata struct {
			Labels map[string]json.RawMessage `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	var out []string
	for field := range fields.Metadata.Labels {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			out = append(out, key)
		}
	}
	return out
}

// yielding returns want without the labels of tags that others have set on have:
// their tags win over the cloud's.
func (e entity) yielding(have entity) entity {
	labels := map[string]string{}
	for k, v := range e.labels {
		if _, ok := have.theirs[k]; !ok {
			labels[k] = v
		}
	}
	e.labels = labels
	return e
}

// isMet says whether have is what e wants, and nothing of ours besides.
func (e entity) isMet(have entity) bool {
	if have.account != e.account || have.node != e.node || !slices.Equal(have.endpoints, e.endpoints) || len(have.owned) != len(e.labels) {
		return false
	}
	for k, v := range e.labels {
		if _, ok := have.owned[k]; !ok || have.labels[k] != v {
			return false
		}
	}
	return true
}

// document returns what is applied to make e. With a version it is only taken
// while the object has that version.
func (e entity) document(key types.NamespacedName, version string) ([]byte, error) {
	endpoints := []map[string]string{}
	for _, ip := range e.endpoints {
		endpoints = append(endpoints, map[string]string{"ip": ip})
	}
	metadata := map[string]any{
		"namespace": key.Namespace, "name": key.Name, "labels": e.labels,
		"annotations": map[string]string{accountAnnotation: e.account},
	}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": antreav1alpha2.GroupVersion.String(), "kind": "ExternalEntity", "metadata": metadata,
		"spec": map[string]any{"externalNode": e.node, "endpoints": endpoints},
	})
	if err != nil {
		return nil, fmt.Errorf("write ExternalEntity %s: %w", key, err)
	}
	return body, nil
}
