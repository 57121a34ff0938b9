package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "isobar.dev", Version: "v1alpha1"}

// The resources of Plan, Target and AgentCertificate.
const (
	ResourcePlans             = "plans"
	ResourceTargets           = "targets"
	ResourceAgentCertificates = "agentcertificates"
)

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Plan{}, &Target{}, &TargetList{}, &AgentCertificate{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
