package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "isobar.dev", Version: "v1alpha2"}

// ResourceAgentIdentities is the resource of AgentIdentity.
const ResourceAgentIdentities = "agentidentities"

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &AgentIdentity{}, &AgentIdentityList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
