package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	"isobar.dev/control/apiserver"
)

// accountAnnotation names the account that an ExternalEntity of ours comes from.
const accountAnnotation = "isobar.dev/account"

// entityKind says which of the two kinds stands for a VM.
type entityKind uint8

const (
	externalEntity entityKind = iota + 1 // the cloud enforces
	externalNode                         // an agent on the VM does
)

func (k entityKind) String() string {
	if k == externalNode {
		return "ExternalNode"
	}
	return "ExternalEntity"
}

// entity is what the loops need of an ExternalEntity or an ExternalNode, as it is
// or as it should be.
type entity struct {
	kind       entityKind
	labels     map[string]string
	account    string          // accountAnnotation
	node       string          // spec.externalNode of an ExternalEntity
	endpoints  []string        // of an ExternalEntity
	interfaces []nodeInterface // of an ExternalNode

	// Of one that is there:
	uid     types.UID
	version string
	owned   map[string]struct{} // keys of the labels that we applied
	theirs  map[string][]string // labels of tags that others set, each once, by who has
	applied bool                // we have applied it
	nephes  bool                // a Nephe has written to it
	left    bool                // a Nephe has made it, and nobody has taken it over

	deleting   bool
	finalizers []string
	created    metav1.Time
	// Of an ExternalEntity that is made of an ExternalNode:
	derived  bool                // it is made here
	owner    types.UID           // of that ExternalNode
	isolates string              // cloudv1alpha1.AnnotationIsolation
	made     map[string]struct{} // keys of the labels that came with it
}

type nodeInterface struct {
	name string
	ips  []string
}

func (n nodeInterface) equal(o nodeInterface) bool {
	return n.name == o.name && slices.Equal(n.ips, o.ips)
}

// isOurs says whether it is ours to delete.
func (e entity) isOurs() bool { return e.applied || e.left }

// entityOf returns the ExternalEntity that a VM should have.
func entityOf(i *imported) entity {
	vm := i.vm
	e := entity{
		kind: externalEntity, account: i.account.String(), node: cloudv1alpha1.ExternalNodeController,
		labels: convert.EntityLabels(convert.VMNames{
			Kind: entityKinds[vm.Kind], Namespace: i.selector.Namespace, Object: objectName(vm), NetworkObject: cmp.Or(vm.NetworkObject, vm.NetworkID), Region: vm.Region,
			VM: vm.Name, Network: vm.NetworkName, VMID: cmp.Or(vm.UID, objectName(vm)), NetworkID: cmp.Or(vm.NetworkUID, vm.NetworkID), Tags: vm.Tags,
		}),
	}
	for _, a := range addrs(vm) {
		e.endpoints = append(e.endpoints, a.String())
	}
	return e
}

// readEntity returns what the loops need of an ExternalEntity.
func readEntity(in *antreav1alpha2.ExternalEntity) entity {
	e := readMeta(&in.ObjectMeta)
	e.kind, e.node = externalEntity, in.Spec.ExternalNode
	e.left = e.left && e.node == cloudv1alpha1.ExternalNodeController
	for _, p := range in.Spec.Endpoints {
		e.endpoints = append(e.endpoints, p.IP)
	}
	return e
}

// readMeta reads what both kinds have. What a Nephe has written is not of others:
// it is taken over.
func readMeta(in *metav1.ObjectMeta) entity {
	e := entity{
		labels: in.Labels, account: in.Annotations[accountAnnotation], isolates: in.Annotations[cloudv1alpha1.AnnotationIsolation],
		uid: in.UID, version: in.ResourceVersion, created: in.CreationTimestamp,
		deleting: in.DeletionTimestamp != nil, finalizers: in.Finalizers,
		owned: map[string]struct{}{},
	}
	for _, m := range in.ManagedFields {
		ours := m.Manager == fieldManager && m.Operation == metav1.ManagedFieldsOperationApply
		e.applied = e.applied || ours
		if m.Manager == nodeManager && m.Operation == metav1.ManagedFieldsOperationApply {
			e.readMade(in, m)
			continue
		}
		for _, key := range managedLabels(m) {
			switch {
			case ours:
				e.owned[key] = struct{}{}
			case strings.HasPrefix(key, cloudv1alpha1.LabelTagPrefix) && m.Manager != nephesManager:
				e.addTheirs(m, key)
			}
		}
		e.nephes = e.nephes || m.Manager == nephesManager
	}
	e.left = e.nephes && !e.applied && e.account == "" &&
		in.Labels[cloudv1alpha1.LabelKind] == cloudv1alpha1.KindVirtualMachine && in.Labels[cloudv1alpha1.LabelOwnerVM] != ""
	return e
}

// readMade reads what has been made of an ExternalNode.
func (e *entity) readMade(in *metav1.ObjectMeta, m metav1.ManagedFieldsEntry) {
	e.derived, e.made = true, map[string]struct{}{}
	for _, key := range managedLabels(m) {
		e.made[key] = struct{}{}
	}
	for _, o := range in.OwnerReferences {
		if o.Kind == "ExternalNode" {
			e.owner = o.UID
		}
	}
}

// managedLabels returns the keys of the labels that a manager owns.
func managedLabels(m metav1.ManagedFieldsEntry) []string {
	return apiserver.ManagedKeys(m, "f:metadata", "f:labels")
}

// addTheirs notes who has set a label. Those who have not applied it count as one: to
// set and to take away a label they need not have done so before.
func (e *entity) addTheirs(m metav1.ManagedFieldsEntry, key string) {
	manager := m.Manager
	if m.Operation != metav1.ManagedFieldsOperationApply {
		manager = userTagsManager
	}
	if e.theirs == nil {
		e.theirs = map[string][]string{}
	}
	if !slices.Contains(e.theirs[manager], key) {
		e.theirs[manager] = append(e.theirs[manager], key)
	}
}

// isTheirs says whether others have set a label of a tag.
func (e entity) isTheirs(key string) bool {
	for _, keys := range e.theirs {
		if slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// yielding returns want without the labels of tags that others have set on have:
// their tags win over the cloud's.
func (e entity) yielding(have entity) entity {
	labels := map[string]string{}
	for k, v := range e.labels {
		if !have.isTheirs(k) {
			labels[k] = v
		}
	}
	e.labels = labels
	return e
}

// isMet says whether have is what e wants, and nothing of ours besides.
func (e entity) isMet(have entity) bool {
	if have.account != e.account || have.node != e.node || len(have.owned) != len(e.labels) ||
		!slices.Equal(have.endpoints, e.endpoints) || !slices.EqualFunc(have.interfaces, e.interfaces, nodeInterface.equal) {
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
	metadata := map[string]any{
		"namespace": key.Namespace, "name": key.Name, "labels": e.labels,
		"annotations": map[string]string{accountAnnotation: e.account},
	}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	api, spec := antreav1alpha2.GroupVersion, map[string]any{}
	if e.kind == externalNode {
		interfaces := []map[string]any{}
		for _, n := range e.interfaces {
			interfaces = append(interfaces, map[string]any{"name": n.name, "ips": n.ips})
		}
		api, spec["interfaces"] = antreav1alpha1.GroupVersion, interfaces
	} else {
		endpoints := []map[string]string{}
		for _, ip := range e.endpoints {
			endpoints = append(endpoints, map[string]string{"ip": ip})
		}
		spec["externalNode"], spec["endpoints"] = e.node, endpoints
	}
	body, err := json.Marshal(map[string]any{"apiVersion": api.String(), "kind": e.kind.String(), "metadata": metadata, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("write %v %s: %w", e.kind, key, err)
	}
	return body, nil
}
