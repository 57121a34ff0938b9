package v1alpha1

// Group is the API group, and the domain of every key below.
const Group = "isobar.dev"

// FinalizerCloud keeps a CloudProviderAccount until its cloud is cleaned up or
// orphaned, as spec.deletionPolicy says.
const FinalizerCloud = Group + "/cloud"

// AnnotationIsolation and AnnotationMode carry a VM's isolation and attach mode
// from its CloudEntitySelector to its ExternalEntity. The values are those of
// cloud/v1alpha1 Isolation and AttachMode.
const (
	AnnotationIsolation = Group + "/isolation"
	AnnotationMode      = Group + "/mode"
)
