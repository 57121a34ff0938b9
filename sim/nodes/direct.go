package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Direct returns how to reach the server of controlplane.antrea.io itself, as agents do, without the API server
// in front of it: where its APIService says, with the authority named there. The credentials are those of config.
func Direct(ctx context.Context, config *rest.Config) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	name := GroupVersion.Version + "." + GroupVersion.Group
	text, err := client.RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", name).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the server of %s: %w", GroupVersion, err)
	}
	var registered struct {
		Spec struct {
			CABundle []byte
			Service  struct {
				Namespace, Name string
				Port            int32
			}
		}
	}
	if err := json.Unmarshal(text, &registered); err != nil {
		return nil, fmt.Errorf("APIService %s: %w", name, err)
	}
	at := registered.Spec.Service
	if at.Name == "" || len(registered.Spec.CABundle) == 0 {
		return nil, fmt.Errorf("APIService %s names no Service with an authority of its certificates", name)
	}
	host, err := address(ctx, client, at.Namespace, at.Name, at.Port)
	if err != nil {
		return nil, fmt.Errorf("find the server of %s: %w", GroupVersion, err)
	}
	out := rest.CopyConfig(config)
	out.Host, out.APIPath = "https://"+host, ""
	out.Insecure, out.CAFile, out.CAData = false, "", registered.Spec.CABundle
	out.ServerName = at.Name + "." + at.Namespace + ".svc"
	return out, nil
}

// address is where a Service with that port answers.
func address(ctx context.Context, client kubernetes.Interface, namespace, name string, port int32) (string, error) {
	service, err := client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))), nil
	}
	portName := ""
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			portName = p.Name
		}
	}
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return "", err
	}
	for _, s := range list.Items {
		for _, p := range s.Ports {
			if p.Port == nil || p.Name == nil || *p.Name != portName {
				continue
			}
			for _, e := range s.Endpoints {
				if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
					return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))), nil
				}
			}
		}
	}
	return "", fmt.Errorf("Service %s/%s has no endpoint that is ready", namespace, name)
}
