package apiserver

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/common"
)

// Group is one version of an API group.
type Group struct {
	Version schema.GroupVersion
	// AddToScheme adds its kinds, and what else is known of them.
	AddToScheme func(*runtime.Scheme) error
	// Storage makes what serves its resources, by their names. who answers what a user
	// may do beyond the request itself; closing is closed when the server ends, upon
	// which watches end.
	Storage func(who authorizer.Authorizer, closing <-chan struct{}) map[string]rest.Storage
	// Elsewhere, when not nil, returns an error for a request that another replica has
	// to answer. The connection is closed, too, so that the next try may reach that one.
	Elsewhere func(*request.RequestInfo) error
	// BoundsItself: its Storage bounds what users may send and have under way. What is posted
	// to other groups are reports of agents, and bounded as such.
	BoundsItself bool
	// Definitions are the schemas of its kinds.
	Definitions common.GetOpenAPIDefinitions
}

// internal has each kind stand for its internal version too: there is only one.
func (g Group) internal(s *runtime.Scheme) error {
	to := schema.GroupVersion{Group: g.Version.Group, Version: runtime.APIVersionInternal}
	for kind, t := range s.KnownTypes(g.Version) {
		if to := to.WithKind(kind); isOurs(t) && !s.Recognizes(to) {
			o, ok := reflect.New(t).Interface().(runtime.Object)
			if !ok {
				continue
			}
			s.AddKnownTypeWithName(to, o)
		}
	}
	return nil
}

// isOurs says whether a type is not one that every group has, such as WatchEvent.
func isOurs(t reflect.Type) bool {
	const module = "isobar.dev/"
	return len(t.PkgPath()) > len(module) && t.PkgPath()[:len(module)] == module
}
