package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

// TestOddRequests: what cannot be heeded is an error, and what is of no account changes nothing.
func TestOddRequests(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	config := s.env.Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		watching = "/networkpolicies?watch=1&timeoutSeconds=1"
		report   = `{"metadata":{"name":"n1"},"antreaClusterNetworkPolicies":[{"networkPolicy":{"name":"all"},"trafficStats":{"packets":1}}]}`
		status   = `{"nodes":[{"nodeName":"n1","generation":1}]}`
	)
	for _, tt := range []struct {
		method, path, accept, body string
		want                       int
		has                        string // in the answer
	}{
		{"GET", "/networkpolicies?limit=-1", "", "", 200, `"name":"u4"`},
		{"GET", "/networkpolicies?limit=x", "", "", 400, ""},
		{"GET", "/networkpolicies?limit=99999999999999999999", "", "", 400, ""},
		{"GET", "/networkpolicies?continue=abc", "", "", 400, "no list was of pages"},
		{"GET", "/networkpolicies?resourceVersion=nonsense", "", "", 200, `"name":"u4"`},
		{"GET", "/networkpolicies?resourceVersion=5&resourceVersionMatch=Exact", "", "", 200, `"name":"u4"`},
		{"GET", "/networkpolicies?resourceVersionMatch=Bogus", "", "", 422, ""},
		{"GET", "/networkpolicies?unknown=1&unknown=2", "", "", 200, `"name":"u4"`},
		{"GET", "/networkpolicies?timeoutSeconds=-5", "", "", 400, "timeoutSeconds"},
		{"GET", watching, "", "", 200, `"type":"BOOKMARK"`},
		{"GET", watching + "&resourceVersion=nonsense", "", "", 200, `"type":"BOOKMARK"`},
		{"GET", watching + "&sendInitialEvents=true", "", "", 422, "resourceVersionMatch"},
		{"GET", "/networkpolicies?watch=1&timeoutSeconds=-5", "", "", 400, "timeoutSeconds"},
		{"GET", "/networkpolicies?watch=1&timeoutSeconds=9223372036854775807", "", "", 400, "timeoutSeconds"},
		{"GET", "/networkpolicies?watch=1&timeoutSeconds=99999999999999999999", "", "", 400, ""},
		{"GET", "/egressgroups?watch=1&timeoutSeconds=-5", "", "", 400, "timeoutSeconds"},
		{"GET", "/networkpolicies?fieldSelector=nodeName", "", "", 400, ""},
		{"GET", "/networkpolicies?fieldSelector=nodeName%3Dn1,nodeName%3Dn2", "", "", 400, "twice"},
		{"GET", "/networkpolicies?fieldSelector=nodeName%3D", "", "", 400, "empty"},
		{"GET", "/networkpolicies?labelSelector=%21%21", "", "", 400, ""},
		{"GET", "/networkpolicies/" + strings.Repeat("a", 10_000), "", "", 404, ""},
		{"GET", "/networkpolicies/%2e%2e%2f", "", "", 404, ""},
		{"GET", "/networkpolicies/u1%00", "", "", 404, ""},
		{"GET", "/networkpolicies/u1/status", "", "", 405, ""},
		{"PUT", "/networkpolicies/u1", "", "{}", 405, ""},
		{"PATCH", "/networkpolicies/u1", "", "{}", 405, ""},
		{"DELETE", "/networkpolicies", "", "", 405, ""},
		{"POST", "/networkpolicies", "", "{}", 405, ""},
		{"BREW", "/networkpolicies", "", "", 405, ""},
		{"GET", "/networkpolicies", "text/html", "", 406, ""},
		{"GET", "/networkpolicies", "application/json;as=Table;v=v9;g=meta.k8s.io", "", 406, ""},
		{"GET", "/groupmembers/web", "", "", 404, ""}, // it is of a namespace
		{"GET", "/namespaces/NS/groupmembers/web?limit=9223372036854775807&page=9223372036854775807", "", "", 200, `"effectiveMembers":[]`},
		{"GET", "/ipgroupassociations/10.0.0.1%2f8", "", "", 404, ""},
		{"GET", "/supportbundlecollections/x", "", "", 404, ""},
		{"POST", "/supportbundlecollections/x/status", "", "{}", 404, ""}, // nobody collects
		{"POST", "/networkpolicyevaluation", "", "", 400, ""},
		// What is only tried does not count.
		{"POST", "/nodestatssummaries?dryRun=All", "", report, 201, ""},
		{"POST", "/nodestatssummaries?dryRun=Some", "", report, 422, ""},
		{"POST", "/networkpolicies/u2/status?dryRun=All", "", status, 201, ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, tt.method, config.Host+base+strings.ReplaceAll(tt.path, "NS", s.ns), strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", tt.accept)
		req.Header.Set("Content-Type", jsonType)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s %.100s: %v", tt.method, tt.path, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.want || !strings.Contains(string(text), tt.has) || err != nil {
			t.Errorf("%s %.100s %s = %d %.300s, %v; want %d with %s", tt.method, tt.path, tt.accept, resp.StatusCode, text, err, tt.want, tt.has)
		}
	}
	if got, want := s.table("/apis/stats.antrea.io/v1alpha1/antreaclusternetworkpolicystats"), "NAME|SESSIONS|PACKETS|BYTES|CREATED AT\nall|0|0|0|NOW"; got != want {
		t.Errorf("after trials the counts are %s, want %s", got, want)
	}
	if ids := s.told.On("n1"); len(ids) > 0 {
		t.Errorf("after trials n1 has said something of %q", ids)
	}
}

// dial opens a connection to the Server itself.
func (s *site) dial() *tls.Conn {
	s.t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.direct, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// TestEndlessHeaders: who sends headers without end is answered, and cut off.
func TestEndlessHeaders(t *testing.T) {
	s := newSite(t)
	c := s.dial()
	go func() {
		_, err := fmt.Fprintf(c, "GET %s/networkpolicies HTTP/1.1\r\nHost: x\r\n", base)
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("endless headers: %+v, %v", resp, err)
	}
}

// token is that of an account that may watch everything.
func (s *site) token() string {
	s.t.Helper()
	if _, err := s.core.CoreV1().ServiceAccounts(s.ns).Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "slow"}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	rules := append(agentRules[:1:1], agentRules[0])
	rules[1].Resources = []string{"nodes"}
	s.grant(s.account("slow"), rules...)
	token, err := s.core.CoreV1().ServiceAccounts(s.ns).CreateToken(s.t.Context(), "slow", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return token.Status.Token
}

// largeWorld has a group of so many Pods, which are all on n1, as peers of a policy.
func largeWorld(ns string, pods int) policy.Snapshot {
	w := smallWorld(ns)
	for i := range pods {
		p := pod(ns, fmt.Sprintf("web-%d", i), "n1", 0)
		p.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
		w.Workloads = w.Workloads.Put(p.ID, p)
	}
	return w
}

// TestSlowReader: who reads next to nothing holds up nobody, takes no more room for each change, and
// has missed nothing when it reads on.
func TestSlowReader(t *testing.T) {
	s := newSite(t)
	const pods, changes = 30_000, 300
	world := largeWorld(s.ns, pods)
	s.know(world)
	token := s.token()
	var slow *http.Response
	planetest.Eventually(t, "the slow one may watch", func(context.Context) error {
		c := s.dial()
		if _, err := fmt.Fprintf(c, "GET %s/addressgroups?watch=1 HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nAuthorization: Bearer %s\r\n\r\n", base, token); err != nil {
			return err
		}
		var err error
		if slow, err = http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err == nil && slow.StatusCode != http.StatusOK {
			err = errors.New(slow.Status)
		}
		return err
	})
	if _, err := io.CopyN(io.Discard, slow.Body, 100); err != nil { // the first few bytes of megabytes
		t.Fatal(err)
	}
	quick, err := s.admin(protobufType).Get().Resource("addressgroups").VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	web := groupOf(s.ns, "web")
	expect(t, "quick", quick, "ADDED AddressGroup "+web, "BOOKMARK AddressGroup")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	// All Pods change their addresses, over and over: each change would be megabytes in a queue.
	for i := range changes {
		p := pod(s.ns, "web-0", "n1", 0)
		p.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})}
		world.Workloads = world.Workloads.Put(p.ID, p)
		s.know(world)
	}
	last := netip.AddrFrom4([4]byte{10, 9, (changes - 1) >> 8, (changes - 1) & 0xff}).As16()
	for end := time.Now().Add(time.Minute); ; {
		select {
		case e := <-quick.ResultChan():
			p, ok := e.Object.(*controlplanev1beta2.AddressGroupPatch)
			if ok && len(p.AddedGroupMembers) == 1 && bytes.Equal(p.AddedGroupMembers[0].IPs[0], last[:]) {
				goto told
			}
		case <-time.After(time.Until(end)):
			t.Fatal("the quick one is not told of the last change")
		}
	}
told:
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapInuse-before.HeapInuse) >> 20; more > 32 {
		t.Errorf("%d changes take %d MB while somebody does not read", changes, more)
	}
	quick.Stop()
	// It reads on: the group as it was, and then what has become of it.
	found := make(chan error, 1)
	go func() {
		in := bufio.NewReaderSize(slow.Body, 1<<20)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				found <- err
				return
			}
			if strings.Contains(line, "AddressGroupPatch") && strings.Contains(line, base64.StdEncoding.EncodeToString(last[:])) {
				found <- nil
				return
			}
		}
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Errorf("the slow one is not told of the last change: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the slow one is not told of the last change")
	}
}
