package antrea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Where the controller of a cluster publishes the authority of its certificates, and
// its Service.
const (
	caConfigMap = "antrea-ca"
	caKey       = "ca.crt"
	serviceName = "antrea"
)

// InCluster is the Endpoint of the controller that runs in a namespace of the cluster
// that kube reaches, "kube-system" for upstream's. It reads the ConfigMap antrea-ca and
// the EndpointSlices of the Service antrea, and reaches one of its Pods by address, so
// that it needs no cluster DNS and no Service network. The user is that of kube.
func InCluster(kube *rest.Config, namespace string) Endpoint {
	return func(ctx context.Context) (*rest.Config, error) {
		h, err := rest.HTTPClientFor(kube)
		if err != nil {
			return nil, err
		}
		base, _, err := rest.DefaultServerURL(kube.Host, "", corev1.SchemeGroupVersion, len(kube.CAData) > 0 || kube.CAFile != "")
		if err != nil {
			return nil, err
		}
		base.Path = ""
		var authority corev1.ConfigMap
		if err := get(ctx, h, base.JoinPath("api/v1/namespaces", namespace, "configmaps", caConfigMap), &authority); err != nil {
			return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, caConfigMap, err)
		}
		if authority.Data[caKey] == "" {
			return nil, fmt.Errorf("ConfigMap %s/%s: %s is empty", namespace, caConfigMap, caKey)
		}
		var slices discoveryv1.EndpointSliceList
		u := base.JoinPath("apis/discovery.k8s.io/v1/namespaces", namespace, "endpointslices")
		u.RawQuery = url.Values{"labelSelector": {discoveryv1.LabelServiceName + "=" + serviceName}}.Encode()
		if err := get(ctx, h, u, &slices); err != nil {
			return nil, fmt.Errorf("read the endpoints of Service %s/%s: %w", namespace, serviceName, err)
		}
		hosts := ready(slices.Items)
		if len(hosts) == 0 {
			return nil, fmt.Errorf("Service %s/%s has no endpoint that is ready", namespace, serviceName)
		}
		out := rest.CopyConfig(kube)
		out.Host = "https://" + hosts[rand.N(len(hosts))]
		out.TLSClientConfig.Insecure = false
		out.TLSClientConfig.CAFile, out.TLSClientConfig.CAData = "", []byte(authority.Data[caKey])
		out.TLSClientConfig.ServerName = serviceName + "." + namespace + ".svc"
		return out, nil
	}
}

// ready returns the addresses with ports of the endpoints that are.
func ready(slices []discoveryv1.EndpointSlice) []string {
	var out []string
	for _, s := range slices {
		if len(s.Ports) == 0 || s.Ports[0].Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*s.Ports[0].Port))))
		}
	}
	return out
}

// maxObject bounds what is read of the API server.
const maxObject = 4 << 20

func get(ctx context.Context, h *http.Client, u *url.URL, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	answer, err := h.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxObject+1))
	if err != nil {
		return err
	}
	if len(text) > maxObject {
		return errors.New("the answer is too long")
	}
	return json.Unmarshal(text, into)
}
