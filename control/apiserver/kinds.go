package apiserver

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		resource: runtimev1alpha1.ResourceVirtualMachine, shortNames: []string{"vm"}, notRead: notRead,
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
		resource: runtimev1alpha1.ResourceVpc, notRead: notRead,
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

func securityGroups() kind[*runtimev1alpha1.SecurityGroup] {
	type T = *runtimev1alpha1.SecurityGroup
	return kind[T]{
		resource: runtimev1alpha1.ResourceSecurityGroup, notRead: "the security groups have not been read yet",
		make:     func() T { return &runtimev1alpha1.SecurityGroup{} },
		makeList: func() runtime.Object { return &runtimev1alpha1.SecurityGroupList{} },
		list: func(items []T, meta metav1.ListMeta) runtime.Object {
			out := &runtimev1alpha1.SecurityGroupList{ListMeta: meta, Items: make([]runtimev1alpha1.SecurityGroup, len(items))}
			for i, x := range items {
				out.Items[i] = *x
			}
			return out
		},
		copy:   func(x T) T { y := *x; return &y },
		fields: func(x T) fields.Set { return fields.Set{"status.cloudId": x.Status.CloudID} },
		columns: []metav1.TableColumnDefinition{
			{Name: "NAME", Type: "string", Format: "name", Description: "Name of the security group"},
			{Name: "CLOUD-PROVIDER", Type: "string", Description: "Cloud that the security group is in"},
			{Name: "REGION", Type: "string", Description: "Region of the cloud"},
			{Name: "VIRTUAL-PRIVATE-CLOUD", Type: "string", Description: "Name of the Vpc that the security group is in"},
			{Name: "INGRESS-RULES", Type: "integer", Description: "Number of its ingress rules"},
			{Name: "EGRESS-RULES", Type: "integer", Description: "Number of its egress rules"},
		},
		cells: func(x T) []any {
			ingress := 0
			for _, r := range x.Status.Rules {
				if r.Ingress {
					ingress++
				}
			}
			return []any{x.Name, string(x.Status.Provider), x.Status.Region, x.Labels[cloudv1alpha1.LabelVpcName], int64(ingress), int64(len(x.Status.Rules) - ingress)}
		},
	}
}

func machinePolicies() kind[*runtimev1alpha1.VirtualMachinePolicy] {
	type T = *runtimev1alpha1.VirtualMachinePolicy
	return kind[T]{
		resource: runtimev1alpha1.ResourceVirtualMachinePolicy, shortNames: []string{"vmp"}, notRead: "it is not known yet which policies there are",
		make:     func() T { return &runtimev1alpha1.VirtualMachinePolicy{} },
		makeList: func() runtime.Object { return &runtimev1alpha1.VirtualMachinePolicyList{} },
		list: func(items []T, meta metav1.ListMeta) runtime.Object {
			out := &runtimev1alpha1.VirtualMachinePolicyList{ListMeta: meta, Items: make([]runtimev1alpha1.VirtualMachinePolicy, len(items))}
			for i, x := range items {
				out.Items[i] = *x
			}
			return out
		},
		copy:   func(x T) T { y := *x; return &y },
		fields: func(x T) fields.Set { return fields.Set{"status.realization": string(x.Status.Realization)} },
		columns: []metav1.TableColumnDefinition{
			{Name: "VM Name", Type: "string", Format: "name", Description: "Name of the VM"},
			{Name: "Realization", Type: "string", Description: "How far its policies are enforced: the worst of all"},
			{Name: "Count", Type: "integer", Description: "Number of its policies"},
		},
		cells: func(x T) []any {
			return []any{x.Name, string(x.Status.Realization), int64(len(x.Status.NetworkPolicyStatus))}
		},
	}
}

// TableOf makes the table that kubectl prints of an object or a list: a row for each
// object, of cells, one for each column. The bookmark of a watch, which has a version and no
// name, has no row: kubectl get -w would print an empty line.
func TableOf(in, options runtime.Object, columns []metav1.TableColumnDefinition, cells func(runtime.Object) ([]any, error)) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = columns
	}
	add := func(o runtime.Object) error {
		row, err := cells(o)
		table.Rows = append(table.Rows, metav1.TableRow{Cells: row, Object: runtime.RawExtension{Object: o}})
		return err
	}
	if !meta.IsListType(in) {
		if m, err := meta.Accessor(in); err == nil {
			table.ResourceVersion = m.GetResourceVersion()
			if m.GetName() == "" && table.ResourceVersion != "" {
				return table, nil
			}
		}
		return table, add(in)
	}
	m, err := meta.ListAccessor(in)
	if err != nil {
		return nil, ErrNoTable(in)
	}
	table.ResourceVersion, table.Continue, table.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	return table, meta.EachListItem(in, add)
}

// ErrNoTable is that an object is of none of the kinds that a table is made of.
func ErrNoTable(o runtime.Object) error {
	return apierrors.NewInternalError(fmt.Errorf("make a table of a %T", o))
}

// newScheme knows the kinds of the groups and what a request of an API server
// may carry. Each kind stands for its internal version too: there is only one.
func newScheme(more []Group) (*runtime.Scheme, serializer.CodecFactory, error) {
	s := runtime.NewScheme()
	for _, g := range more {
		if err := errors.Join(g.AddToScheme(s), g.internal(s), s.SetVersionPriority(g.Version)); err != nil {
			return nil, serializer.CodecFactory{}, fmt.Errorf("kinds of %s: %w", g.Version, err)
		}
	}
	if err := errors.Join(runtimev1alpha1.AddToScheme(s), isobarv1alpha1.AddToScheme(s)); err != nil {
		return nil, serializer.CodecFactory{}, err
	}
	s.AddKnownTypes(schema.GroupVersion{Group: isobarv1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal},
		&isobarv1alpha1.Plan{}, &isobarv1alpha1.Target{}, &isobarv1alpha1.TargetList{}, &isobarv1alpha1.AgentCertificate{})
	internal := schema.GroupVersion{Group: runtimev1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal}
	s.AddKnownTypes(internal,
		&runtimev1alpha1.VirtualMachine{}, &runtimev1alpha1.VirtualMachineList{},
		&runtimev1alpha1.Vpc{}, &runtimev1alpha1.VpcList{},
		&runtimev1alpha1.SecurityGroup{}, &runtimev1alpha1.SecurityGroupList{},
		&runtimev1alpha1.VirtualMachinePolicy{}, &runtimev1alpha1.VirtualMachinePolicyList{},
		&runtimev1alpha1.VirtualMachineRuntimeInfo{}, &runtimev1alpha1.VirtualMachineRuntimeInfoList{},
	)
	if err := errors.Join(s.SetVersionPriority(runtimev1alpha1.GroupVersion), s.SetVersionPriority(isobarv1alpha1.GroupVersion)); err != nil {
		return nil, serializer.CodecFactory{}, err
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for kind, sample := range map[string][]string{
		"VirtualMachine":            {"status.cloudId", "status.cloudVpcId", "status.region"},
		"Vpc":                       {"status.cloudId", "status.region"},
		"SecurityGroup":             {"status.cloudId"},
		"VirtualMachinePolicy":      {"status.realization"},
		"VirtualMachineRuntimeInfo": {"status.state"},
	} {
		if err := s.AddFieldLabelConversionFunc(runtimev1alpha1.GroupVersion.WithKind(kind), func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(sample, label) {
				return label, value, nil
			}
			return "", "", fmt.Errorf("no field selector %q: there are metadata.name, metadata.namespace and %q", label, sample)
		}); err != nil {
			return nil, serializer.CodecFactory{}, err
		}
	}
	return s, serializer.NewCodecFactory(s), nil
}
