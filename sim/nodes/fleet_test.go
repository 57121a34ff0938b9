package nodes_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/sim/nodes"
)

// server sends what a test says, and keeps watches open.
type server struct {
	t    *testing.T
	http *httptest.Server

	mu    sync.Mutex
	first map[string][]event // what a watch begins with, by resource
	more  chan event         // sent to each watch of networkpolicies that is open, or of addressgroups
	open  map[chan event]string
	asked []string // who has asked for which Node
	end   chan struct{}
}

type event struct {
	kind   watch.EventType
	object runtime.Object
}

// raw is an object of which the bytes of the event are set.
type raw struct {
	runtime.Object
	bytes []byte
}

func serve(t *testing.T) *server {
	s := &server{t: t, first: map[string][]event{}, open: map[chan event]string{}, end: make(chan struct{})}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.http.Config.ErrorLog = nil
	s.http.StartTLS()
	t.Cleanup(func() { close(s.end); s.http.Close() })
	return s
}

// config is that of an administrator, who has a token in a file and a certificate, which here is the server's.
func (s *server) config() *rest.Config {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("admin"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	key, err := x509.MarshalPKCS8PrivateKey(s.http.TLS.Certificates[0].PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	return &rest.Config{Host: s.http.URL, BearerTokenFile: file, TLSClientConfig: rest.TLSClientConfig{
		CAData: certificate, CertData: certificate, KeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	q := r.URL.Query()
	if r.ProtoMajor != 2 || q.Get("watch") != "true" || r.URL.Path != "/apis/controlplane.antrea.io/v1beta2/"+resource {
		s.t.Errorf("%s %v", r.Proto, r.URL)
	}
	ch := make(chan event, 100)
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprint(q.Get("fieldSelector"), " ", r.Header.Get("Authorization"), " ", len(r.TLS.PeerCertificates), " ", r.Header.Get("Impersonate-User")))
	first, ok := s.first[resource], s.first["refused"] == nil
	s.open[ch] = resource
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, ch)
	}()
	if !ok {
		w.WriteHeader(http.StatusForbidden)
		_ = encoder().Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Message: "not you"}, w)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	for _, e := range append(first[:len(first):len(first)], event{watch.Bookmark, &controlplanev1beta2.NetworkPolicy{}}) {
		s.send(w, e)
	}
	for {
		select {
		case e := <-ch:
			if e.object == nil {
				return
			}
			s.send(w, e)
		case <-r.Context().Done():
			return
		case <-s.end:
			return
		}
	}
}

func encoder() runtime.Encoder {
	scheme := runtime.NewScheme()
	if err := controlplanev1beta2.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return protobuf.NewSerializer(scheme, scheme)
}

func (s *server) send(w http.ResponseWriter, e event) {
	if x, ok := e.object.(raw); ok {
		_, _ = w.Write(x.bytes)
		w.(http.Flusher).Flush()
		return
	}
	var object strings.Builder
	e.object.GetObjectKind().SetGroupVersionKind(controlplanev1beta2.GroupVersion.WithKind(strings.TrimPrefix(fmt.Sprintf("%T", e.object), "*v1beta2.")))
	if status, ok := e.object.(*metav1.Status); ok {
		status.APIVersion, status.Kind = "v1", "Status"
	}
	if err := encoder().Encode(e.object, &object); err != nil {
		s.t.Error(err)
	}
	out := metav1.WatchEvent{Type: string(e.kind), Object: runtime.RawExtension{Raw: []byte(object.String())}}
	raw, err := out.Marshal()
	if err != nil {
		s.t.Error(err)
	}
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	w.(http.Flusher).Flush()
}

// begin sets what watches of a resource begin with.
func (s *server) begin(resource string, first ...event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first[resource] = first
}

// tell sends an event to all watches of a resource; one without an object ends them.
func (s *server) tell(resource string, e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch, of := range s.open {
		if of == resource {
			ch <- e
		}
	}
}

func run(t *testing.T, s *server, o nodes.Options, list ...nodes.Node) *nodes.Fleet {
	t.Helper()
	f, err := nodes.New(s.config(), list, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func live(t *testing.T, f *nodes.Fleet, n int) nodes.Gap {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, err := f.WaitLive(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func policy(name string, generation int64) runtime.Object {
	return &controlplanev1beta2.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
}

func group(name string, pods ...string) runtime.Object {
	return &controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, GroupMembers: members(pods)}
}

func patch(name string, added, removed []string) runtime.Object {
	return &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: name}, AddedGroupMembers: members(added), RemovedGroupMembers: members(removed)}
}

func members(pods []string) []controlplanev1beta2.GroupMember {
	var out []controlplanev1beta2.GroupMember
	for _, p := range pods {
		out = append(out, controlplanev1beta2.GroupMember{Pod: &controlplanev1beta2.PodReference{Namespace: "ns", Name: p}})
	}
	return out
}

// What agents have been told is what they have, over patches and a new beginning, and each is itself.
func TestFleet(t *testing.T) {
	s := serve(t)
	s.first["networkpolicies"] = []event{{watch.Added, policy("p", 1)}}
	s.first["addressgroups"] = []event{{watch.Added, group("g", "a", "b")}}
	f := run(t, s, nodes.Options{PerConnection: 2}, nodes.Node{Name: "n1", Token: "t1"}, nodes.Node{Name: "n2", Token: "t2"}, nodes.Node{Name: "n3"},
		nodes.Impersonating([]string{"ns/vm"}, "kube-system", "agent")[0])
	if g := live(t, f, 1); len(g.Live) != 4 || g.Lost != 0 || g.Took < g.Live[3] {
		t.Errorf("the first gap: %+v", g)
	}
	if _, _, connections := f.Wire(); connections != 2 {
		t.Errorf("%d connections", connections)
	}
	want := []string{"nodeName=n1 Bearer t1 0 ", "nodeName=n2 Bearer t2 0 ", "nodeName=n3 Bearer admin 1 ", "nodeName=ns/vm Bearer admin 1 system:serviceaccount:kube-system:agent"}
	s.mu.Lock()
	if got := slices.Compact(slices.Sorted(slices.Values(s.asked))); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	s.mu.Unlock()

	seen := f.Expect(nodes.Subject{Namespace: "ns", Pod: "c"})
	s.tell("addressgroups", event{watch.Modified, patch("g", []string{"d"}, nil)})
	s.tell("addressgroups", event{watch.Modified, patch("g", []string{"c"}, []string{"a", "d"})})
	waitSeen(t, seen, 4)
	seen = f.Expect(nodes.Subject{Policy: "p", Generation: 2})
	s.tell("networkpolicies", event{watch.Modified, policy("p", 1)})
	s.tell("networkpolicies", event{watch.Bookmark, policy("", 1)})
	s.tell("networkpolicies", event{watch.Modified, policy("p", 2)})
	waitSeen(t, seen, 4)
	if d := seen.Seen(); len(d) != 4 || d[0] <= 0 {
		t.Errorf("seen after %v", d)
	}
	s.begin("networkpolicies", event{watch.Added, policy("p", 2)})
	s.begin("addressgroups", event{watch.Added, group("g", "c", "b")})
	wrong(t, f)
	if n := seen.Events(); n != 4 {
		t.Errorf("%d events were of the second generation", n)
	}

	again := f.Cut()
	if g := live(t, f, again); len(g.Live) != 4 || g.Lost != 12 {
		t.Errorf("cut: %+v", g)
	}
	if c := f.Counts(); c.Equal != 12 || c.Unequal != 0 || c.Lost != 12 || c.Odd != 0 || c.Initial != 16 || c.Events != 16 || c.Marks != 4 {
		t.Errorf("counts %+v", c)
	}
	wrong(t, f)

	s.begin("addressgroups", event{watch.Added, group("g", "c", "x")})
	ofAll := func(what string) (out []string) {
		for _, n := range []string{"n1", "n2", "n3", "ns/vm"} {
			out = append(out, n+" addressgroups "+what)
		}
		return out
	}
	wrong(t, f, ofAll("g has 2 members, and should have others, 2")...)
	s.tell("addressgroups", event{})
	live(t, f, again+1)
	if c := f.Counts(); c.Unequal != 4 {
		t.Errorf("counts %+v", c)
	}
	wrong(t, f)
	s.begin("addressgroups", event{watch.Added, group("h")})
	wrong(t, f, ofAll("g is not there any more;h is missing")...)
	errs := f.Errors()
	if errs["addressgroups: the server has ended the watch"] != 4 {
		t.Errorf("errors %v", errs)
	}
	for text := range errs {
		if strings.Contains(text, "127.0.0.1") {
			t.Errorf("an error has an address: %s", text)
		}
	}
}

func waitSeen(t *testing.T, s *nodes.Sighting, events int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Wait(ctx, events); err != nil {
		t.Fatal(err)
	}
}

// wrong checks the agents.
func wrong(t *testing.T, f *nodes.Fleet, want ...string) {
	t.Helper()
	list, err := f.Check(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range list {
		got = append(got, w.Node+" "+w.Resource+" "+strings.Join(w.What, ";"))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("wrong (-want +got):\n%s", d)
	}
}

// What does not follow from what was told is counted, and the watch begins anew.
func TestOdd(t *testing.T) {
	for _, tt := range []struct {
		resource string
		event
		want string
	}{
		{"networkpolicies", event{watch.Modified, policy("q", 1)}, "networkpolicies: odd: NetworkPolicy q is modified and was not there"},
		{"networkpolicies", event{watch.Deleted, policy("q", 1)}, "networkpolicies: odd: NetworkPolicy q is deleted and was not there"},
		{"networkpolicies", event{watch.Added, policy("p", 1)}, "networkpolicies: odd: NetworkPolicy p is added and was there, or is a Patch"},
		{"addressgroups", event{watch.Modified, patch("h", nil, nil)}, "addressgroups: odd: AddressGroupPatch h is modified and was not there"},
		{"addressgroups", event{watch.Modified, patch("g", nil, []string{"a", "b"})}, "addressgroups: odd: AddressGroupPatch g removes more members than there are"},
		{"addressgroups", event{watch.Added, patch("h", []string{"a"}, nil)}, "addressgroups: odd: AddressGroupPatch h is added and was there, or is a Patch"},
	} {
		s := serve(t)
		s.first["networkpolicies"] = []event{{watch.Added, policy("p", 1)}}
		s.first["addressgroups"] = []event{{watch.Added, group("g", "a")}}
		f := run(t, s, nodes.Options{}, nodes.Node{Name: "n1"})
		live(t, f, 1)
		s.tell(tt.resource, tt.event)
		live(t, f, 2)
		if got := slices.Collect(maps.Keys(f.Errors())); !slices.Equal(got, []string{tt.want}) || f.Counts().Odd != 1 {
			t.Errorf("%s %T: %q, %d; want %q", tt.kind, tt.object, got, f.Counts().Odd, tt.want)
		}
	}
}

// What cannot be read ends the watch, and is told.
func TestUnreadable(t *testing.T) {
	for _, tt := range []struct {
		event
		want string
	}{
		{event{watch.Added, &controlplanev1beta2.NetworkPolicyStatus{}}, "networkpolicies: a NetworkPolicyStatus"},
		{event{watch.Added, policy("", 1)}, "networkpolicies: a NetworkPolicy without a name"},
		{event{watch.Error, &metav1.Status{Code: 410, Reason: "Gone", Message: "too old"}}, "networkpolicies: the server ends the watch: 410 Gone: too old"},
		{event{"NEWS", policy("p", 1)}, `networkpolicies: odd: event "NEWS"`},
		{event{watch.Added, raw{bytes: []byte{255, 255, 255, 255}}}, "networkpolicies: an event of 4294967295 bytes"},
		{event{watch.Added, raw{bytes: []byte{0, 0, 0, 2, 18, 0}}}, "networkpolicies: an object that is not in Kubernetes' envelope"},
	} {
		s := serve(t)
		s.first["networkpolicies"] = []event{tt.event}
		f := run(t, s, nodes.Options{}, nodes.Node{Name: "n1"})
		until(t, f, tt.want)
	}
	s := serve(t)
	s.first["refused"] = []event{}
	f := run(t, s, nodes.Options{}, nodes.Node{Name: "n1"})
	until(t, f, "networkpolicies: 403 Forbidden: not you")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := f.WaitLive(ctx, 1); err == nil || !strings.Contains(err.Error(), "0 of 3 watches have all there is") || !strings.Contains(err.Error(), "not you") {
		t.Errorf("WaitLive = %v", err)
	}
}

func until(t *testing.T, f *nodes.Fleet, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); f.Errors()[want] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("errors %v, want %q", f.Errors(), want)
		}
	}
}

// A server that has a connection for each request alone is told of, rather than waited for.
func TestHTTP1(t *testing.T) {
	s := serve(t)
	plain := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer plain.Close()
	s.http = plain
	f := run(t, s, nodes.Options{}, nodes.Node{Name: "n1", Token: "t"})
	until(t, f, "networkpolicies: the server speaks HTTP/1.1, want HTTP/2")
}

func TestNothingWasTold(t *testing.T) {
	s := serve(t)
	f, err := nodes.New(s.config(), []nodes.Node{{Name: "n1"}}, nodes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wrong(t, f, "n1 addressgroups nothing was told", "n1 appliedtogroups nothing was told", "n1 networkpolicies nothing was told")
}

func TestNewRefuses(t *testing.T) {
	if _, err := nodes.New(&rest.Config{Host: "https://127.0.0.1:1"}, []nodes.Node{{Token: "t"}}, nodes.Options{}); err == nil {
		t.Error("a Node without a name would be told everything")
	}
}
