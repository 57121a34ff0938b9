package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "runtime.cloud.antrea.io", Version: "v1alpha1"}

// Resource returns the group resource of a plural name of this group.
func Resource(plural string) schema.GroupResource {
	return GroupVersion.WithResource(plural).GroupResource()
}

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VirtualMachine{}, &VirtualMachineList{},
		&Vpc{}, &VpcList{},
		&SecurityGroup{}, &SecurityGroupList{},
		&VirtualMachinePolicy{}, &VirtualMachinePolicyList{},
		&VirtualMachineRuntimeInfo{}, &VirtualMachineRuntimeInfoList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
