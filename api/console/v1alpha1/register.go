package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "console.isobar.dev", Version: "v1alpha1"}

// ResourceViews is the resource of View.
const ResourceViews = "views"

// ConsoleName is the name of the one View that a list and a watch have.
const ConsoleName = "console"

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &View{}, &ViewList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
