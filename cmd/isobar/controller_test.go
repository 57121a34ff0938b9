package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"isobar.dev/control/plane"
	"isobar.dev/deploy/chart/charttest"
	"isobar.dev/deploy/crd"
	simaws "isobar.dev/sim/aws"
	"isobar.dev/source/antrea"
)

// site is an API server with the chart in it, and a simulated AWS.
type site struct {
	t      *testing.T
	config *rest.Config
	client dynamic.Interface
	core   kubernetes.Interface
	sim    *simaws.Cloud
	url    string
	token  string
}

const system, shop = "isobar-system", "shop"

func newSite(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	dir, err := os.MkdirTemp("", "isobar-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p, err := plane.Start(t.Context(), plane.Options{DataDir: dir, Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Stop(ctx)
	})
	s := &site{t: t}
	if s.config, err = p.Config(); err != nil {
		t.Fatal(err)
	}
	s.config.QPS = -1
	s.client, s.core = dynamic.NewForConfigOrDie(s.config), kubernetes.NewForConfigOrDie(s.config)
	if err := plane.ApplyCRDs(t.Context(), s.config, crd.FS); err != nil {
		t.Fatal(err)
	}
	if s.sim, err = simaws.New(simaws.Sample(), simaws.Options{}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.sim.Handler())
	t.Cleanup(server.Close)
	s.url = server.URL
	s.install()
	return s
}

// install applies the chart, and stands in for what runs Services.
func (s *site) install() {
	t := s.t
	t.Helper()
	for _, ns := range []string{system, shop} {
		if _, err := s.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.core.Discovery()))
	for _, o := range charttest.Render(t, "../..", system, "{secrets: {namespaces: [shop]}, controlPlane: {enabled: true, agentNamespace: kube-system}}") {
		if o.GetKind() == "CustomResourceDefinition" {
			continue
		}
		if o.GetKind() == "Service" && o.GetNamespace() == system {
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		}
		if err := charttest.Apply(t.Context(), s.client, mapper, o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	life := int64(3600)
	token, err := s.core.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), "isobar-controller", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.token = token.Status.Token
}

// process is a replica, with the rights of the chart's ServiceAccount and no other.
type process struct {
	cmd     *exec.Cmd
	log     output
	metrics string
	health  string
	api     string
	console string
	config  string
	ended   chan struct{}
}

func (s *site) start() *process {
	t := s.t
	t.Helper()
	dir := t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData, TLSServerName: s.config.ServerName}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: s.token}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: system}
	kubeconfig.CurrentContext = "x"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	api, hooks := freePort(t), freePort(t)
	p := &process{metrics: fmt.Sprint("127.0.0.1:", freePort(t)), health: fmt.Sprint("127.0.0.1:", freePort(t)), config: filepath.Join(dir, "config"), ended: make(chan struct{})}
	p.api, p.console = fmt.Sprint("127.0.0.1:", api), fmt.Sprint("127.0.0.1:", freePort(t))
	p.write(t, fmt.Sprintf("cloudSyncInterval: 60\ncloudSecurityGroupVisibility: true\nlogFormat: text\ncontrolPlane: true\nagentNamespace: kube-system\nservice: {port: %d}\nwebhookService: {port: %d}\n", api, hooks))
	p.cmd = exec.Command("isobar", "controller", "--kubeconfig", file, "--config", p.config, "--enable-leader-election",
		"--metrics-addr", p.metrics, "--health-probe-bind-address", p.health,
		"--api-addr", p.api, "--webhook-addr", fmt.Sprint("127.0.0.1:", hooks), "--console-addr", p.console)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.log.String()
			t.Logf("a replica's log ends with:\n%s", text[max(0, len(text)-3000):])
		}
	})
	return p
}

func (p *process) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// freePort is a port that nobody listens on, and none of those that kernels give to whom does not mind: else
// another test might have it before a process listens there.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 15000+rand.N(15000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
}

// get asks a replica; what it answers within a second counts.
func get(url string) (int, string) {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (p *process) leads() bool {
	_, body := get("http://" + p.metrics + "/metrics")
	return strings.Contains(body, "\nisobar_leader 1\n")
}

func (p *process) isReady() error {
	if code, body := get("http://" + p.health + "/readyz"); code != http.StatusOK {
		return fmt.Errorf("readyz: %d %s", code, body)
	}
	return nil
}

// leaderOf waits until exactly one of the replicas leads.
func (s *site) leaderOf(replicas ...*process) (leader, follower *process) {
	s.t.Helper()
	s.eventually("a leader", func() error {
		leader, follower = nil, nil
		for _, p := range replicas {
			if !p.leads() {
				follower = p
				continue
			}
			if leader != nil && leader.leads() && p.leads() { // and it did not pass from one to the other meanwhile
				s.t.Error("two replicas lead")
			}
			leader = p
		}
		if leader == nil {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
	return leader, follower
}

func (s *site) eventually(what string, check func() error) {
	s.t.Helper()
	if err := retry(s.t.Context(), 3*time.Minute, check); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *site) create(kind string, o map[string]any) {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: o}
	gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually(kind, func() error { // webhooks may just have moved
		_, err := s.client.Resource(gv.WithResource(kind)).Namespace(shop).Create(s.t.Context(), u, metav1.CreateOptions{})
		return err
	})
}

var antreaPolicies = schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "networkpolicies"}

func (s *site) sample() {
	keys, err := json.Marshal(map[string]string{"accessKeyId": simaws.SampleKeyID, "accessKeySecret": simaws.SampleKeySecret})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.core.CoreV1().Secrets(shop).Create(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"k": keys}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	named := map[string]any{"namespace": shop, "name": "prod"}
	s.create("cloudprovideraccounts", map[string]any{"apiVersion": "crd.cloud.antrea.io/v1alpha1", "kind": "CloudProviderAccount", "metadata": named, "spec": map[string]any{
		"pollIntervalInSeconds": int64(30),
		"awsConfig":             map[string]any{"region": []any{"us-east-1"}, "endpoint": s.url, "secretRef": map[string]any{"namespace": shop, "name": "keys", "key": "k"}},
	}})
	s.create("cloudentityselectors", map[string]any{"apiVersion": "crd.cloud.antrea.io/v1alpha1", "kind": "CloudEntitySelector", "metadata": named, "spec": map[string]any{
		"accountName": "prod", "accountNamespace": shop, "vmSelector": []any{map[string]any{"vpcMatch": map[string]any{}}},
	}})
	role := func(r string) map[string]any {
		return map[string]any{"externalEntitySelector": map[string]any{"matchLabels": map[string]any{"nephe.antrea.io/tag-Role": r}}}
	}
	s.create("networkpolicies", map[string]any{"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy", "metadata": map[string]any{"namespace": shop, "name": "db"}, "spec": map[string]any{
		"priority": int64(5), "appliedTo": []any{role("db")},
		"ingress": []any{map[string]any{"action": "Allow", "enableLogging": false, "name": "app", "from": []any{role("app")}, "ports": []any{map[string]any{"protocol": "TCP", "port": int64(5432)}}}},
	}})
}

func (s *site) setPort(port int) {
	s.t.Helper()
	s.eventually("change of the policy", func() error {
		body := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/ingress/0/ports/0/port","value":%d}]`, port)
		_, err := s.client.Resource(antreaPolicies).Namespace(shop).Patch(s.t.Context(), "db", types.JSONPatchType, body, metav1.PatchOptions{})
		return err
	})
}

// enforced waits until an app reaches the database on a port, a web server does
// not, and the policy says so.
func (s *site) enforced(port int) {
	s.t.Helper()
	const web1, app1, db1 = "i-0a100000000000001", "i-0a100000000000004", "i-0a100000000000007"
	s.eventually(fmt.Sprint("port ", port), func() error {
		if v := s.sim.Reach(simaws.Flow{From: app1, To: db1, Protocol: "tcp", Port: port}); v.Result != simaws.Allowed {
			return fmt.Errorf("app: %+v", v)
		}
		if v := s.sim.Reach(simaws.Flow{From: web1, To: db1, Protocol: "tcp", Port: port}); v.Result != simaws.Denied {
			return fmt.Errorf("web: %+v", v)
		}
		o, err := s.client.Resource(antreaPolicies).Namespace(shop).Get(s.t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if phase != "Realized" || seen != o.GetGeneration() {
			return fmt.Errorf("the policy is %s in generation %d of %d", phase, seen, o.GetGeneration())
		}
		return nil
	})
}

func (s *site) versions() string {
	var out bytes.Buffer
	for _, gvr := range []schema.GroupVersionResource{antreaPolicies, {Group: "crd.antrea.io", Version: "v1alpha2", Resource: "externalentities"},
		{Group: "crd.cloud.antrea.io", Version: "v1alpha1", Resource: "cloudprovideraccounts"}, {Group: "crd.cloud.antrea.io", Version: "v1alpha1", Resource: "cloudentityselectors"}} {
		list, err := s.client.Resource(gvr).Namespace(shop).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, o := range list.Items {
			fmt.Fprintln(&out, o.GetKind(), o.GetName(), o.GetResourceVersion())
		}
	}
	return out.String()
}

// foundByAgents says that upstream's agents find the replicas where they look, and may believe each of
// them by what they find there; and that people see who leads.
func (s *site) foundByAgents(replicas ...*process) {
	s.t.Helper()
	const addr = "10.1.2.3" // no Pod runs here, so the endpoints of the replicas are written by hand
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "replicas", Labels: map[string]string{discoveryv1.LabelServiceName: "isobar-controller"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("api"), Port: new(int32(5443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr}}},
	}
	if _, err := s.core.DiscoveryV1().EndpointSlices(system).Create(s.t.Context(), slice, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "an-agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "isobar-agent"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "an-agent"}},
	}
	if _, err := s.core.RbacV1().RoleBindings("kube-system").Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	agent := rest.CopyConfig(s.config)
	agent.Impersonate.UserName = "an-agent"
	var found *rest.Config
	s.eventually("agents find the replicas", func() (err error) {
		found, err = antrea.InCluster(agent, "kube-system")(s.t.Context())
		return err
	})
	if want := "https://" + addr + ":5443"; found.Host != want {
		s.t.Errorf("agents are sent to %s, want %s", found.Host, want)
	}
	for _, p := range replicas {
		found.Host, found.Timeout, found.Impersonate = "https://"+p.api, 10*time.Second, rest.ImpersonationConfig{}
		client, err := rest.HTTPClientFor(found) // with the name that upstream's agents verify
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := client.Get(found.Host + "/apis/controlplane.antrea.io/v1beta2")
		if err != nil {
			s.t.Errorf("an agent does not believe a replica: %v", err)
			continue
		}
		resp.Body.Close()
	}
	s.eventually("a heartbeat", func() error {
		info, err := s.client.Resource(schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "antreacontrollerinfos"}).Get(s.t.Context(), "antrea-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(info.Object["controllerConditions"]); !strings.Contains(text, "status:True") {
			return fmt.Errorf("its conditions are %s", text)
		}
		if owners := info.GetOwnerReferences(); len(owners) != 1 || owners[0].Name != "v1beta2.controlplane.antrea.io" { // with which an uninstallation deletes it
			return fmt.Errorf("its owners are %v", owners)
		}
		return nil
	})
}

// showsConsole says that people log in to the console of each replica, the one that leads and the one that follows, by TLS
// with the certificate of the chart's Service, and see what they may see by the rights that the chart gives.
func (s *site) showsConsole(replicas ...*process) {
	t := s.t
	t.Helper()
	token := userOf(t, s.core, shop, "teller")
	if _, err := s.core.RbacV1().RoleBindings(shop).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "teller-of-vms"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "isobar-tenant-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shop, Name: "teller"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	served, err := s.client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).Get(t.Context(), "v1alpha1.console.isobar.dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle, _, _ := unstructured.NestedString(served.Object, "spec", "caBundle")
	authority, err := base64.StdEncoding.DecodeString(bundle)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("the authority cannot be read: %v, %q", err, authority)
	}
	for _, p := range replicas {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: consoleService + "." + system + ".svc"}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		teller := &page{t: t, url: "https://" + p.console, transport: transport}
		teller.logIn("token", token)
		if teller.cookie == nil || !teller.cookie.Secure || !strings.HasPrefix(teller.cookie.Name, "__Host-") {
			t.Errorf("the cookie is %v", teller.cookie)
		}
		s.eventually("its VMs", func() error { // a right counts within ten seconds
			if code, text := teller.do("GET", "/api/views/workloads", ""); code != http.StatusOK || !strings.Contains(text, `"total":9,"items":[{"id":"ee/shop/`) {
				return fmt.Errorf("%d %.300s", code, text)
			}
			return nil
		})
		if code, text := teller.do("GET", "/api/views/me", ""); code != http.StatusOK || !strings.Contains(text, `"user":"system:serviceaccount:shop:teller"`) || !strings.Contains(text, `"namespaces":["shop"]`) {
			t.Errorf("its view: %d %.300s", code, text)
		}
		if strings.Contains(p.log.String(), token) || !strings.Contains(p.log.String(), "msg=\"logged in\" user=system:serviceaccount:shop:teller") {
			t.Errorf("the log has the token in it, or nothing of the login")
		}
	}
}

// A whole scenario with the rights that the chart gives, through the loss of a
// leader by kill -9 in the middle of a write, over an equal state, and by a stop
// that outlasts its Lease.
func TestControllerReplicas(t *testing.T) {
	s := newSite(t)
	first, second := s.start(), s.start()
	s.leaderOf(first, second)
	s.sample()
	s.enforced(5432)
	for _, p := range []*process{first, second} {
		s.eventually("ready", p.isReady)
	}
	s.eventually("kubectl get vm", func() error {
		list, err := s.client.Resource(schema.GroupVersionResource{Group: "runtime.cloud.antrea.io", Version: "v1alpha1", Resource: "virtualmachine"}).Namespace(shop).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("no VMs")
		}
		return err
	})

	s.foundByAgents(first, second)
	s.showsConsole(first, second)

	// Killed while it writes.
	leader, follower := s.leaderOf(first, second)
	s.setPort(5433)
	leader.kill()
	s.enforced(5433)
	s.leaderOf(follower)
	noneForbidden(t, leader, follower)

	// Killed over an equal state.
	third := s.start()
	s.eventually("ready", third.isReady)
	before, since := s.versions(), time.Now()
	s.eventually("nothing is written any more", func() error { // a follower looks twice at what has just changed
		if now := s.versions(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return errors.New("the objects have just changed:\n" + before)
		}
		return nil
	})
	s.sim.ResetCalls()
	follower.kill()
	s.leaderOf(third)
	s.eventually("the targets are read", func() error {
		if _, body := get("http://" + third.metrics + "/metrics"); !strings.Contains(body, `state="synced"} 1`) && !strings.Contains(body, `state="synced"} 2`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	if w := s.sim.Calls().Writes; len(w) > 0 || s.versions() != before {
		t.Errorf("taking over an equal state made %d writes in the cloud; objects before:\n%s\nand now:\n%s", len(w), before, s.versions())
	}

	// Stopped, so that it learns late that its Lease is over.
	fourth := s.start()
	s.eventually("ready", fourth.isReady)
	if err := third.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.leaderOf(fourth)
	s.setPort(5434)
	s.enforced(5434)
	if err := third.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if third.leads() && fourth.leads() && third.leads() {
			t.Fatal("two replicas lead")
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.enforced(5434)
	noneForbidden(t, third, fourth)

	// The log level follows the file.
	text, err := os.ReadFile(fourth.config)
	if err != nil {
		t.Fatal(err)
	}
	fourth.write(t, string(text)+"logLevel: debug\n")
	s.eventually("log level", func() error {
		_ = fourth.cmd.Process.Signal(syscall.SIGHUP)
		if !strings.Contains(fourth.log.String(), "level=DEBUG") {
			return fmt.Errorf("no debug messages")
		}
		return nil
	})

	// One that is told to end does, and leaves its Lease to the next one at once.
	if err := fourth.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-fourth.ended
	if code := fourth.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("told to end, it exits with %d", code)
	}
	s.leaderOf(third)
}

// noneForbidden says that a replica has all the rights it uses.
func noneForbidden(t *testing.T, replicas ...*process) {
	t.Helper()
	for _, p := range replicas {
		for _, line := range strings.Split(p.log.String(), "\n") {
			if strings.Contains(strings.ToLower(line), "forbidden") {
				t.Errorf("a right is missing: %s", line)
			}
		}
	}
}
