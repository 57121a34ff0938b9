package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// owner is the field manager of what this package applies.
const owner = "isobar-runtime-api"

var (
	services    = corev1.SchemeGroupVersion.WithResource("services")
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// nameOf is how the API server calls a group and version.
func nameOf(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// groups are what the Server at t serves.
func (t Target) groups() []schema.GroupVersion {
	out := []schema.GroupVersion{runtimev1alpha1.GroupVersion}
	if t.Plans {
		out = append(out, isobarv1alpha1.GroupVersion)
	}
	return append(out, t.Groups...)
}

// priority orders groups that have resources of the same name, such as
// networkpolicies: what users write comes before what is computed from it.
func (t Target) priority(gv schema.GroupVersion) int64 {
	if slices.Contains(t.Groups, gv) {
		return 100
	}
	return 1000
}

// Target is where the API server finds a Server: a Service and a port of it.
type Target struct {
	Namespace, Service string
	Port               int32
	// ExternalName makes the Service one that stands for that name, such as
	// localhost, for a Server that is no Pod. Empty means that the Service is
	// somebody else's.
	ExternalName string
	// CABundle is that of the Server.
	CABundle []byte
	// Plans: the Server has a Planner, and Plans are sent to it too.
	Plans bool
	// Groups are those of the Server's Options. Users' own kinds go before theirs
	// where only the name of a resource is given.
	Groups []schema.GroupVersion
}

// DefaultTarget is for a Server on the machine of its API server; it lacks the
// port and the bundle.
var DefaultTarget = Target{Namespace: metav1.NamespaceSystem, Service: "isobar-runtime-api", ExternalName: "localhost"}

// Host is the name that the Server's certificate must have.
func (t Target) Host() string { return t.Service + "." + t.Namespace + ".svc" }

// Install makes the API server send requests for the groups on to the Server at
// t, instead of where it sent them before, and waits until it does. That takes
// about a second; ctx bounds it.
func Install(ctx context.Context, client dynamic.Interface, t Target) error {
	if err := Register(ctx, client, t); err != nil {
		return err
	}
	for _, gv := range t.groups() {
		if err := waitServed(ctx, client, gv); err != nil {
			return err
		}
	}
	return nil
}

// Register is Install without the wait. It writes nothing when all is as it
// should be.
func Register(ctx context.Context, client dynamic.Interface, t Target) error {
	if t.Namespace == "" || t.Service == "" || t.Port == 0 || len(t.CABundle) == 0 {
		return errors.New("install the runtime API: set Namespace, Service, Port and CABundle")
	}
	if t.ExternalName != "" {
		if err := apply(ctx, client.Resource(services).Namespace(t.Namespace), t.Service, map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": t.Service, "namespace": t.Namespace},
			"spec": map[string]any{"type": string(corev1.ServiceTypeExternalName), "externalName": t.ExternalName},
		}); err != nil {
			return err
		}
	}
	for _, gv := range t.groups() {
		if err := t.isFree(ctx, client, gv); err != nil {
			return err
		}
		if err := apply(ctx, client.Resource(apiServices), nameOf(gv), map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": nameOf(gv)},
			"spec": map[string]any{
				"group": gv.Group, "version": gv.Version,
				"groupPriorityMinimum": t.priority(gv), "versionPriority": 100, "caBundle": t.CABundle,
				"service": map[string]any{"namespace": t.Namespace, "name": t.Service, "port": t.Port},
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// Reference is by what an object that is to go with the APIService of a group names it as its owner.
func Reference(ctx context.Context, client dynamic.Interface, gv schema.GroupVersion) (metav1.OwnerReference, error) {
	o, err := client.Resource(apiServices).Get(ctx, nameOf(gv), metav1.GetOptions{})
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("read APIService %s: %w", nameOf(gv), err)
	}
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}, nil
}

// isFree returns an error when a group of others is served by somebody else: agents
// would lose whom they ask.
func (t Target) isFree(ctx context.Context, client dynamic.Interface, gv schema.GroupVersion) error {
	if !slices.Contains(t.Groups, gv) {
		return nil
	}
	o, err := client.Resource(apiServices).Get(ctx, nameOf(gv), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", gv, err)
	}
	namespace, _, errNS := unstructured.NestedString(o.Object, "spec", "service", "namespace")
	name, _, errName := unstructured.NestedString(o.Object, "spec", "service", "name")
	if err := errors.Join(errNS, errName); err != nil {
		return fmt.Errorf("install %s: %w", gv, err)
	}
	if namespace != t.Namespace || name != t.Service {
		return fmt.Errorf("install %s: the Service %s/%s serves it; delete the APIService %s to have it served here", gv, namespace, name, nameOf(gv))
	}
	return nil
}

func apply(ctx context.Context, r dynamic.ResourceInterface, name string, object map[string]any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("install %s %s: %w", object["kind"], name, err)
	}
	force := true
	if _, err := r.Patch(ctx, name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: owner, Force: &force}); err != nil {
		return fmt.Errorf("install %s %s: %w", object["kind"], name, err)
	}
	return nil
}

// waitServed returns when a group is served through the API server. The
// condition of the APIService alone may still be that of before, so it is asked
// for the resources themselves too.
func waitServed(ctx context.Context, client dynamic.Interface, gv schema.GroupVersion) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := isServed(ctx, client, gv)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", gv, err)
		}
	}
}

func isServed(ctx context.Context, client dynamic.Interface, gv schema.GroupVersion) error {
	o, err := client.Resource(apiServices).Get(ctx, nameOf(gv), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := isAvailable(o); err != nil {
		return err
	}
	if gv == isobarv1alpha1.GroupVersion {
		_, err = client.Resource(gv.WithResource(isobarv1alpha1.ResourcePlans)).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gv.String(), "kind": "Plan", "spec": map[string]any{}}}, metav1.CreateOptions{})
		return err
	}
	if gv != runtimev1alpha1.GroupVersion {
		// What resources there are is answered by the Server, and to everybody.
		_, err = client.Resource(gv.WithResource("")).List(ctx, metav1.ListOptions{})
		return err
	}
	_, err = client.Resource(runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVpc)).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=-"})
	if err != nil && strings.Contains(err.Error(), notRead) {
		return nil // it is the Server that says so
	}
	return err
}

func isAvailable(o *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, x := range conditions {
		if c, ok := x.(map[string]any); ok && c["type"] == "Available" {
			if c["status"] == string(metav1.ConditionTrue) {
				return nil
			}
			return fmt.Errorf("%v: %v", c["reason"], c["message"])
		}
	}
	return errors.New("the API server has not tried yet")
}

// Uninstall takes back what Install did with t. It is no error that nothing is there.
func Uninstall(ctx context.Context, client dynamic.Interface, t Target) error {
	for _, gv := range t.groups() {
		if t.isFree(ctx, client, gv) != nil {
			continue // it is not ours
		}
		if err := client.Resource(apiServices).Delete(ctx, nameOf(gv), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("uninstall %s: %w", gv, err)
		}
	}
	if t.ExternalName == "" {
		return nil
	}
	if err := client.Resource(services).Namespace(t.Namespace).Delete(ctx, t.Service, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("uninstall Service %s/%s: %w", t.Namespace, t.Service, err)
	}
	return nil
}
