// Package announce tells agents of Antrea where their controller is and whom to believe, and
// people how it is: by the ConfigMap and the endpoints that upstream's agents look for, and an
// AntreaControllerInfo. What others have made under these names is theirs.
package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// What upstream's agents look for, in the namespace that they are in.
const (
	serviceName = "antrea"
	caConfigMap = "antrea-ca"
	caKey       = "ca.crt"
)

// The mark is a label: what has it is ours. The chart's objects have it too.
const (
	markKey   = "app.kubernetes.io/name"
	markValue = "isobar"
)

func isOurs(o metav1.Object) bool { return o.GetLabels()[markKey] == markValue }

// mark makes an object ours.
func mark(o metav1.Object) {
	labels := map[string]string{markKey: markValue}
	for k, v := range o.GetLabels() {
		if k != markKey {
			labels[k] = v
		}
	}
	o.SetLabels(labels)
}

// Place is where agents look for their controller, and what they are to find there.
type Place struct {
	// Namespace is that of the agents: kube-system with upstream's manifests.
	Namespace string
	// Replicas is the Service whose endpoints agents are to find.
	Replicas types.NamespacedName
	// Bundle is the PEM of the authorities of the replicas' certificates.
	Bundle []byte
	// TakeOver: a ConfigMap that somebody else has made becomes ours.
	TakeOver bool
}

// Hosts are the names that agents in a namespace verify the replicas' certificates by.
func Hosts(namespace string) []string {
	name := serviceName + "." + namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// Agents makes agents find the replicas and believe them. It writes nothing when all is as
// it should be, and nothing that somebody else has made: that is an error, which names it.
func Agents(ctx context.Context, client kubernetes.Interface, p Place) error {
	if p.Namespace == "" || p.Replicas.Name == "" || p.Replicas.Namespace == "" || len(p.Bundle) == 0 {
		return errors.New("announce the replicas to agents: set Namespace, Replicas and Bundle")
	}
	// Whom to believe comes first: where an agent finds nobody, it waits.
	return errors.Join(p.believe(ctx, client), p.find(ctx, client))
}

// errOthers says that an object is another's.
func (p Place) errOthers(kind, name, remedy string) error {
	return fmt.Errorf("announce the replicas to agents: the %s %s/%s is somebody else's: %s", kind, p.Namespace, name, remedy)
}

func (p Place) believe(ctx context.Context, client kubernetes.Interface) error {
	return p.tell(ctx, client, caConfigMap, map[string]string{caKey: string(p.Bundle)})
}

// tell keeps what a ConfigMap says.
func (p Place) tell(ctx context.Context, client kubernetes.Interface, name string, data map[string]string) error {
	all := client.CoreV1().ConfigMaps(p.Namespace)
	have, err := all.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		mark(m)
		_, err = all.Create(ctx, m, metav1.CreateOptions{})
		return wrap(err, "create ConfigMap %s/%s", p.Namespace, name)
	}
	switch {
	case err != nil:
		return wrap(err, "read ConfigMap %s/%s", p.Namespace, name)
	case !isOurs(have) && !p.TakeOver:
		return p.errOthers("ConfigMap", name, "delete it, or set takeOver, where no antrea-controller runs any more")
	case isOurs(have) && maps.Equal(have.Data, data):
		return nil
	}
	mark(have)
	have.Data = data
	_, err = all.Update(ctx, have, metav1.UpdateOptions{})
	return wrap(err, "update ConfigMap %s/%s", p.Namespace, name)
}

// find gives the Service that agents look for the endpoints of the replicas. A Service that
// selects Pods by itself, as the chart's does in the replicas' own namespace, has them.
func (p Place) find(ctx context.Context, client kubernetes.Interface) error {
	service, err := client.CoreV1().Services(p.Namespace).Get(ctx, serviceName, metav1.GetOptions{})
	switch {
	case err != nil:
		return wrap(err, "read Service %s/%s", p.Namespace, serviceName)
	case !isOurs(service):
		return p.errOthers("Service", serviceName, "delete it, and have the chart make its own")
	case len(service.Spec.Selector) > 0:
		return nil
	}
	from, err := client.DiscoveryV1().EndpointSlices(p.Replicas.Namespace).List(ctx, metav1.ListOptions{LabelSelector: SliceSelector(p.Replicas.Name)})
	if err != nil {
		return wrap(err, "read the endpoints of %s", p.Replicas)
	}
	var errs []error
	for _, t := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		errs = append(errs, p.point(ctx, client, t, from.Items))
	}
	return errors.Join(errs...)
}

// SliceSelector selects the EndpointSlices of a Service.
func SliceSelector(service string) string { return discoveryv1.LabelServiceName + "=" + service }

// sliceName is the EndpointSlice that has the replicas' addresses of a family. There is one,
// so that the right to write it can be a right to that name.
func sliceName(t discoveryv1.AddressType) string {
	return serviceName + "-isobar-" + strings.ToLower(string(t))
}

// point writes the endpoints of one family.
func (p Place) point(ctx context.Context, client kubernetes.Interface, t discoveryv1.AddressType, from []discoveryv1.EndpointSlice) error {
	name, api := sliceName(t), client.DiscoveryV1().EndpointSlices(p.Namespace)
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: "isobar.dev", markKey: markValue,
		}},
		AddressType: t,
	}
	want.Endpoints, want.Ports = joined(t, from)
	have, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if len(want.Endpoints) == 0 {
			return nil
		}
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		return wrap(err, "create EndpointSlice %s/%s", p.Namespace, name)
	}
	switch {
	case err != nil:
		return wrap(err, "read EndpointSlice %s/%s", p.Namespace, name)
	case !isOurs(have):
		return p.errOthers("EndpointSlice", name, "delete it")
	case apiequality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && apiequality.Semantic.DeepEqual(have.Ports, want.Ports) && has(have.Labels, want.Labels):
		return nil
	}
	next := have.DeepCopy()
	for k, v := range want.Labels {
		next.Labels[k] = v
	}
	next.Endpoints, next.Ports = want.Endpoints, want.Ports
	_, err = api.Update(ctx, next, metav1.UpdateOptions{})
	return wrap(err, "update EndpointSlice %s/%s", p.Namespace, name)
}

func has(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// joined returns the endpoints of a family in slices of one Service, by address, and their ports:
// those of the replicas are all the same.
func joined(t discoveryv1.AddressType, from []discoveryv1.EndpointSlice) ([]discoveryv1.Endpoint, []discoveryv1.EndpointPort) {
	byName := slices.SortedFunc(slices.Values(from), func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	seen := map[string]bool{}
	var endpoints []discoveryv1.Endpoint
	var ports []discoveryv1.EndpointPort
	for _, s := range byName {
		if s.AddressType != t {
			continue
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 || seen[e.Addresses[0]] {
				continue
			}
			seen[e.Addresses[0]] = true
			if ports == nil {
				ports = unnamed(s.Ports)
			}
			endpoints = append(endpoints, e)
		}
	}
	slices.SortFunc(endpoints, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	return endpoints, ports
}

// unnamed returns ports without names: the port of the Service has none, and an endpoint is
// found by it.
func unnamed(ports []discoveryv1.EndpointPort) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range ports {
		p.Name = new("")
		out = append(out, p)
	}
	return out
}

// wrap says what was tried; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("announce the replicas to agents: %s: %w", fmt.Sprintf(format, args...), err)
}
