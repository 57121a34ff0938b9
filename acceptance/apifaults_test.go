package acceptance_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// lagging is an API server that is cut off from its etcd and knows nothing that is newer
// than the start of the test: who is content with any version gets nothing at all, who asks
// for a newer one is told to wait, and who asks for the latest gets an error.
type lagging struct {
	on   *atomic.Bool
	next http.RoundTripper
	hits *atomic.Int64 // requests that were content with any version
}

func (l lagging) RoundTrip(q *http.Request) (*http.Response, error) {
	if !l.on.Load() {
		return l.next.RoundTrip(q)
	}
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Request: q, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	switch version := q.URL.Query().Get("resourceVersion"); {
	case q.Method == http.MethodGet && version == "0":
		l.hits.Add(1)
		return answer(http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case version != "":
		return answer(http.StatusGatewayTimeout, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","message":"Too large resource version","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`)
	}
	return answer(http.StatusServiceUnavailable, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","message":"no leader","code":503}`)
}

// A controller that is started, or reconnects, at an API server that lags behind takes
// nothing back, and goes on from where it was once the API server is well.
func TestF06_APIServerLagsBehind(t *testing.T) {
	w := newWorld(t, estate(shop()))
	var on atomic.Bool
	var hits atomic.Int64
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return lagging{&on, next, &hits} })
	w.start()
	w.account()
	w.importAll()
	w.policy("web", webPolicy)
	w.policy("db", dbPolicy)
	w.settle()
	p := w.watch(w.flows("443", "5432", "22"))
	p.change("an API server that lags behind", func() {
		on.Store(true)
		w.sim.ResetCalls()
		w.restart()
		time.Sleep(5 * interval)
		w.mustNotWrite()
		if got := w.run.World().Policies.Len(); got > 0 {
			t.Errorf("%d policies are known of an API server that tells nothing", got)
		}
		on.Store(false)
		w.settle()
		w.mustNotWrite()
	})
	w.policy("db", dbPolicyWithAdmin)
	w.settle()
	w.mustReach(shopMatrixWithAdmin)
	if n := hits.Load(); n > 0 {
		t.Errorf("%d requests were content with whatever an API server has", n)
	}
}

// A watcher that does not read its answers holds up nobody.
func TestF08_WatcherDoesNotRead(t *testing.T) {
	w := newWorld(t, estate(shop()))
	w.start()
	w.account()
	w.importAll()
	vms := runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachine)
	client := w.runtimeAPI()
	w.eventually("VMs", func() error {
		l, err := client.Resource(vms).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(l.Items) != 6 {
			err = fmt.Errorf("%d VMs", len(l.Items))
		}
		return err
	})
	for range 3 {
		w.deafWatch("/apis/" + runtimev1alpha1.GroupVersion.String() + "/namespaces/" + w.ns + "/" + runtimev1alpha1.ResourceVirtualMachine)
	}
	good, err := client.Resource(vms).Namespace(w.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer good.Stop()
	const rounds = 300
	for i := range rounds {
		w.patch(entities, "virtualmachine-i-web1", fmt.Sprintf(`{"metadata": {"labels": {"nephe.antrea.io/tag-Round": "r%d"}}}`, i))
	}
	want, late := fmt.Sprintf(`"r%d"`, rounds-1), time.After(patience)
	for {
		select {
		case e, ok := <-good.ResultChan():
			if !ok {
				t.Fatal("the watch of one who reads was closed")
			}
			if strings.Contains(fmt.Sprintf("%q", e.Object), want) {
				return
			}
		case <-late:
			t.Fatal("one who reads was not told of the last change")
		}
	}
}

// deafWatch begins a watch of the runtime API and never reads more than its header.
func (w *world) deafWatch(path string) {
	w.t.Helper()
	u, err := url.Parse(w.run.runtime.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	config, err := w.run.runtime.TransportConfig()
	if err != nil {
		w.t.Fatal(err)
	}
	security, err := transport.TLSConfigFor(config)
	if err != nil {
		w.t.Fatal(err)
	}
	security.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{Config: security, NetDialer: &net.Dialer{}}
	conn, err := dialer.DialContext(w.t.Context(), "tcp", u.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	authorization := ""
	if config.BearerToken != "" {
		authorization = "Authorization: Bearer " + config.BearerToken + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET %s?watch=true HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, u.Host, authorization); err != nil {
		w.t.Fatal(err)
	}
	status, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil || !strings.Contains(status, "200") {
		w.t.Fatalf("watch: %q, %v", status, err)
	}
}
