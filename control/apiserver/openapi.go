package apiserver

import (
	"maps"
	"strings"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// definitions are the schemas of our kinds and of the metadata around them. The
// latter are those that came with the library of CRDs: generated once more they
// would be 3000 lines of ours.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	out := apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	maps.DeleteFunc(out, func(name string, _ common.OpenAPIDefinition) bool {
		return strings.Contains(name, "apiextensions") || strings.Contains(name, "autoscaling")
	})
	ours := GetOpenAPIDefinitions(func(name string) spec.Ref { return ref(modelName(name)) })
	for name, d := range ours {
		for i, other := range d.Dependencies {
			d.Dependencies[i] = modelName(other)
		}
		out[name] = d
	}
	return out
}

// modelName returns what a type's schema is called. The generator calls those of
// other modules by their Go path, and they go by another name.
func modelName(name string) string {
	if rest, ok := strings.CutPrefix(name, "k8s.io/"); ok {
		return "io.k8s." + strings.ReplaceAll(rest, "/", ".")
	}
	return name
}
