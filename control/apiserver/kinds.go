package apiserver

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// The names of the columns are what scripts around kubectl look for.

func virtualMachines() kind[*runtimev1alpha1.VirtualMachine] {
	type T = *runtimev1alpha1.VirtualMachine
	return kind[T]{
		resource: runtimev1alpha1.ResourceVirtualMachine, shortNames: []string{"vm"},
		make:     func() T { return &runtimev1alpha1.VirtualMachine{} },
		makeList: func() runtime.Object { return &runtimev1alpha1.VirtualMachineList{} },
		list: func(items []T, meta metav1.ListMeta) runtime.Object {
			out := &runtimev1alpha1.VirtualMachineList{ListMeta: meta, Items: make([]runtimev1alpha1.VirtualMachine, len(items))}
			for i, x := range items {
				out.Items[i] = *x
			}
			return out
		},
		copy: func(x T) T { y := *x; return &y },
		fields: func(x T) fields.Set {
			return fields.Set{"status.cloudId": x.Status.CloudID, "status.cloudVpcId": x.Status.CloudVpcID, "status.region": x.Status.Region}
		},
		columns: []metav1.TableColumnDefinition{
			{Name: "NAME", Type: "string", Format: "name", Description: "Name of the VM"},
			{Name: "CLOUD-PROVIDER", Type: "string", Description: "Cloud that the VM is in"},
			{Name: "REGION", Type: "string", Description: "Region of the cloud"},
			{Name: "VIRTUAL-PRIVATE-CLOUD", Type: "string", Description: "Name of the Vpc that the VM is in"},
			{Name: "STATE", Type: "string", Description: "State in the cloud's own words"},
			{Name: "AGENTED", Type: "boolean", Description: "Whether an agent on the VM enforces its policies"},
		},
		cells: func(x T) []any {
			return []any{x.Name, string(x.Status.Provider), x.Status.Region, x.Labels[cloudv1alpha1.LabelVpcName], string(x.Status.State), x.Status.Agented}
		},
	}
}

func vpcs() kind[*runtimev1alpha1.Vpc] {
	type T = *runtimev1alpha1.Vpc
	return kind[T]{
		resource: runtimev1alpha1.ResourceVpc,
		make:     func() T { return &runtimev1alpha1.Vpc{} },
		makeList: func() runtime.Object { return &runtimev1alpha1.VpcList{} },
		list: func(items []T, meta metav1.ListMeta) runtime.Object {
			out := &runtimev1alpha1.VpcList{ListMeta: meta, Items: make([]runtimev1alpha1.Vpc, len(items))}
			for i, x := range items {
				out.Items[i] = *x
			}
			return out
		},
		copy: func(x T) T { y := *x; return &y },
		fields: func(x T) fields.Set {
			return fields.Set{"status.cloudId": x.Status.CloudID, "status.region": x.Status.Region}
		},
		columns: []metav1.TableColumnDefinition{
			{Name: "NAME", Type: "string", Format: "name", Description: "Name of the VPC"},
			{Name: "CLOUD PROVIDER", Type: "string", Description: "Cloud that the VPC is in"},
			{Name: "REGION", Type: "string", Description: "Region of the cloud"},
			{Name: "MANAGED", Type: "boolean", Description: "Whether a VM of the VPC is imported"},
		},
		cells: func(x T) []any {
			return []any{x.Name, string(x.Status.Provider), x.Status.Region, x.Status.Managed}
		},
	}
}

// eachOf calls add for each item of a list, and gives table the list's metadata.
func eachOf(list runtime.Object, table *metav1.Table, add func(runtime.Object) error) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return errWrongType(list)
	}
	table.ResourceVersion, table.Continue, table.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	return meta.EachListItem(list, add)
}

func errWrongType(o runtime.Object) error { return fmt.Errorf("make a table of a %T", o) }

// newScheme knows the kinds of the group and what a request of an API server
// may carry. Each kind stands for its internal version too: there is only one.
func newScheme() (*runtime.Scheme, serializer.CodecFactory, error) {
	s := runtime.NewScheme()
	if err := errors.Join(runtimev1alpha1.AddToScheme(s), isobarv1alpha1.AddToScheme(s)); err != nil {
		return nil, serializer.CodecFactory{}, err
	}
	s.AddKnownTypes(schema.GroupVersion{Group: isobarv1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal}, &isobarv1alpha1.Plan{})
	internal := schema.GroupVersion{Group: runtimev1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal}
	s.AddKnownTypes(internal,
		&runtimev1alpha1.VirtualMachine{}, &runtimev1alpha1.VirtualMachineList{},
		&runtimev1alpha1.Vpc{}, &runtimev1alpha1.VpcList{},
	)
	if err := errors.Join(s.SetVersionPriority(runtimev1alpha1.GroupVersion), s.SetVersionPriority(isobarv1alpha1.GroupVersion)); err != nil {
		return nil, serializer.CodecFactory{}, err
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for kind, sample := range map[string][]string{
		"VirtualMachine": {"status.cloudId", "status.cloudVpcId", "status.region"},
		"Vpc":            {"status.cloudId", "status.region"},
	} {
		if err := s.AddFieldLabelConversionFunc(runtimev1alpha1.GroupVersion.WithKind(kind), func(label, value string) (string, string, error) {
			for _, known := range append(sample, "metadata.name", "metadata.namespace") {
				if label == known {
					return label, value, nil
				}
			}
			return "", "", fmt.Errorf("no field selector %q: there are metadata.name, metadata.namespace and %q", label, sample)
		}); err != nil {
			return nil, serializer.CodecFactory{}, err
		}
	}
	return s, serializer.NewCodecFactory(s), nil
}
