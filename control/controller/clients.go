package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/control/leader"
)

// fieldManager is the name that our fields of other objects carry.
const fieldManager = "isobar"

// clients are one client for each group and version that the loops use. They do
// not ask the API server what it has, so none of it need be there at the start.
type clients struct {
	core     rest.Interface
	accounts rest.Interface // crd.cloud.antrea.io/v1alpha1
	entities rest.Interface // crd.antrea.io/v1alpha2
	nodes    rest.Interface // crd.antrea.io/v1alpha1
	policies rest.Interface // crd.antrea.io/v1beta1
	// tags and nodeTags write to crd.antrea.io/v1alpha2 and v1alpha1 what users ask
	// for, whoever leads.
	tags, nodeTags rest.Interface
}

// newClients returns clients of the API server that config reaches; all but two
// write only while the office is held.
func newClients(config *rest.Config, office *leader.Office) (*clients, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cloudv1alpha1.AddToScheme, antreav1alpha1.AddToScheme, antreav1alpha2.AddToScheme, antreav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	guarded := rest.CopyConfig(config)
	if office != nil {
		guarded.Wrap(office.Guard)
	}
	client := func(config *rest.Config, path string, gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.APIPath, c.GroupVersion, c.NegotiatedSerializer = path, &gv, codecs
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if c.RateLimiter == nil && c.QPS == 0 {
			c.QPS, c.Burst = 200, 400 // a retagged fleet must not take minutes
		}
		return rest.RESTClientFor(c)
	}
	var out clients
	for _, x := range []struct {
		to     *rest.Interface
		config *rest.Config
		path   string
		gv     schema.GroupVersion
	}{
		{&out.core, guarded, "/api", corev1.SchemeGroupVersion},
		{&out.accounts, guarded, "/apis", cloudv1alpha1.GroupVersion},
		{&out.entities, guarded, "/apis", antreav1alpha2.GroupVersion},
		{&out.nodes, guarded, "/apis", antreav1alpha1.GroupVersion},
		{&out.policies, guarded, "/apis", antreav1beta1.GroupVersion},
		{&out.tags, config, "/apis", antreav1alpha2.GroupVersion},
		{&out.nodeTags, config, "/apis", antreav1alpha1.GroupVersion},
	} {
		c, err := client(x.config, x.path, x.gv)
		if err != nil {
			return nil, fmt.Errorf("client of %v: %w", x.gv, err)
		}
		*x.to = c
	}
	return &out, nil
}

// patch merges a document into an object, or into a subresource of it.
func patch(ctx context.Context, c rest.Interface, resource string, key types.NamespacedName, document any, subresources ...string) error {
	body, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", resource, key, err)
	}
	err = c.Patch(types.MergePatchType).NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(resource).Name(key.Name).SubResource(subresources...).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", resource, key, err)
	}
	return nil
}
