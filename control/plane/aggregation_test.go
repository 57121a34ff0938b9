package plane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane/planetest"
)

// An API server of our own answers under the control plane's address, and
// learns by the front proxy's certificate who asks.
func TestAggregation(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	c := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)

	auth, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := serveExtension(t, auth.Data["requestheader-client-ca-file"])

	// EndpointSlices may not have loopback addresses; a Service by name has none.
	if _, err := c.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "extension"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	services := dynamic.NewForConfigOrDie(e.Config()).Resource(
		schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	const name = "v1.weather.isobar.dev"
	if _, err := services.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "weather.isobar.dev", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": ns, "name": "extension", "port": port},
		},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // else discovery is broken for the tests after this one
		if err := services.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	planetest.Eventually(t, "answer of the extension", func(ctx context.Context) error {
		body, err := c.RESTClient().Get().AbsPath("/apis/weather.isobar.dev/v1/whoami").DoRaw(ctx)
		if err == nil && string(body) != "isobar-admin" {
			err = fmt.Errorf("asked by %q, want isobar-admin", body)
		}
		return err
	})
}

// serveExtension serves the least that is an aggregated API, to the front proxy alone.
func serveExtension(t *testing.T, frontProxyCA string) (port int64) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(frontProxyCA)) {
		t.Fatalf("no authority of the front proxy in %q", frontProxyCA)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/weather.isobar.dev/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "weather.isobar.dev/v1",
		})
	})
	mux.HandleFunc("/apis/weather.isobar.dev/v1/whoami", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Remote-User"))
	})
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err = strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
