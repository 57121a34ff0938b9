package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// describe makes config serve the schemas that kubectl explain reads.
func describe(config *genericapiserver.Config, more []Group) error {
	// Without the internal version, which is no GVK that a client may ask for.
	scheme := runtime.NewScheme()
	if err := errors.Join(runtimev1alpha1.AddToScheme(scheme), isobarv1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("describe the kinds: %w", err)
	}
	ours := []common.GetOpenAPIDefinitions{GetOpenAPIDefinitions}
	for _, g := range more {
		if err := g.AddToScheme(scheme); err != nil {
			return fmt.Errorf("describe the kinds of %s: %w", g.Version, err)
		}
		ours = append(ours, g.Definitions)
	}
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition { return definitions(ref, ours) }
	namer := openapinamer.NewDefinitionNamer(scheme)
	name := func(goName string) (string, spec.Extensions) {
		if strings.HasPrefix(goName, "isobar.dev/") {
			goName = util.ToRESTFriendlyName(goName) // as the namer knows it
		}
		return namer.GetDefinitionName(goName)
	}
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIConfig.GetDefinitionName, config.OpenAPIV3Config.GetDefinitionName = name, name
	config.OpenAPIV3Config.Definitions = nil // made with the namer's names; nil has them made with ours
	config.OpenAPIConfig.Info.Title, config.OpenAPIV3Config.Info.Title = "Isobar", "Isobar"
	return nil
}

// definitions are the schemas of our kinds and of the metadata around them. The
// latter are those that came with the library of CRDs: generated once more they
// would be 3000 lines of ours.
func definitions(ref common.ReferenceCallback, ours []common.GetOpenAPIDefinitions) map[string]common.OpenAPIDefinition {
	out := apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	maps.DeleteFunc(out, func(name string, _ common.OpenAPIDefinition) bool {
		return strings.Contains(name, "apiextensions") || strings.Contains(name, "autoscaling")
	})
	for _, definitionsOf := range ours {
		for name, d := range definitionsOf(func(name string) spec.Ref { return ref(modelName(name)) }) {
			for i, other := range d.Dependencies {
				d.Dependencies[i] = modelName(other)
			}
			out[modelName(name)] = d
		}
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
