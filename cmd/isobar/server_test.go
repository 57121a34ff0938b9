package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// lines is a log that a test waits for lines of.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// field is what the first line with the message has under that name; empty when there is none.
func (l *lines) field(message, name string) string {
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, "msg="+message+" ") {
			continue
		}
		_, rest, _ := strings.Cut(line, " "+name+"=")
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		return value
	}
	return ""
}

// startServer runs `isobar server` in this process until stop, and waits until it is ready.
func startServer(t *testing.T, f serverFlags) (log *lines, stop func()) {
	t.Helper()
	f.logLevel = "info"
	log = &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&server{flags: f, logTo: log}).run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "killed") { // by a test
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(stop)
	deadline := time.After(10 * time.Minute)
	for log.field("ready", "url") == "" {
		select {
		case err := <-done:
			t.Fatalf("server ended: %v\n%s", err, log)
		case <-deadline:
			own, _ := os.ReadFile(filepath.Join(planeDir(f.dataDir), "control-plane.log"))
			t.Fatalf("server is not ready:\n%s\n%s", log, own[max(0, len(own)-20000):])
		case <-time.After(20 * time.Millisecond):
		}
	}
	return log, stop
}

// clientOf is an administrator of the server in a data directory.
func clientOf(t *testing.T, dir string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(planeDir(dir), "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// authorities are the certificates of a data directory that others believe.
func authorities(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"control-plane/ca.pem", "control-plane/front-proxy-ca.pem", "control-plane/service-account.key", "webhook/webhook-ca.pem", "runtime-api/runtime-api-ca.pem"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v; want 0600", name, info.Mode(), err)
		}
		out[name] = string(text)
	}
	return out
}

// The server serves people and agents under the names that it was given, tells systemd, and begins
// anew with the same objects and authorities.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", systemd.LocalAddr().String())
	dir, kubeconfig := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "admin")
	flags := serverFlags{
		dataDir: dir, listen: "0.0.0.0:0", agentsListen: "127.0.0.1:0", hosts: []string{"isobar.example.org"}, kubeconfigOut: kubeconfig, metricsListen: "127.0.0.1:0",
	}
	log, stop := startServer(t, flags)
	ready := func(s string) bool { return strings.Contains(s, "READY=1") }
	if told := toldSystemd(t, systemd); len(told) == 0 || slices.IndexFunc(told, ready) != len(told)-1 {
		t.Errorf("systemd was told %q, and not that the server is ready, once and at the end", told)
	}

	bundle, _ := pem.Decode([]byte(authorities(t, dir)["runtime-api/runtime-api-ca.pem"]))
	ca, err := x509.ParseCertificate(bundle.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	agents := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "isobar.example.org"}}}
	defer agents.CloseIdleConnections()
	answer, err := agents.Get("https://" + log.field("ready", "agents") + "/apis/controlplane.antrea.io/v1beta2/networkpolicies")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("an agent that is nobody was answered %s; want 401", answer.Status)
	}

	info, err := os.Stat(kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v; want 0600", info, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(config.Host, "https://isobar.example.org:") {
		t.Errorf("the kubeconfig names %s; want isobar.example.org", config.Host)
	}
	config.Host, config.ServerName = log.field("ready", "url"), "isobar.example.org"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := authorities(t, dir)
	stop()
	if told := toldSystemd(t, systemd); !slices.Contains(told, "STOPPING=1") {
		t.Errorf("systemd was told %q, and not that the server stops", told)
	}

	again, _ := startServer(t, flags)
	if got, want := again.field("ready", "url"), log.field("ready", "url"); got != want {
		if l, err := net.Listen("tcp", strings.TrimPrefix(want, "https://")); err == nil { // else another has it by now
			l.Close()
			t.Errorf("the next start serves %s; want %s", got, want)
		}
	}
	if _, err := clientOf(t, dir).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after the next start: %v", err)
	}
	for name, text := range authorities(t, dir) {
		if text != before[name] {
			t.Errorf("%s is another one after the next start", name)
		}
	}
}

// toldSystemd is what has come to a socket of systemd's so far.
func toldSystemd(t *testing.T, at *net.UnixConn) []string {
	t.Helper()
	var out []string
	buffer := make([]byte, 4096)
	for {
		if err := at.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := at.Read(buffer)
		if err != nil {
			return out
		}
		out = append(out, string(buffer[:n]))
	}
}

func TestServerFlags(t *testing.T) {
	for _, f := range []serverFlags{
		{listen: "6443"}, {listen: "localhost:6443"}, {listen: ""}, {listen: "127.0.0.1:6443", agentsListen: ":10443"}, {listen: "127.0.0.1:6443", agentsListen: "example.org:10443"},
		{listen: "127.0.0.1:6443", agentLife: time.Second}, {listen: "127.0.0.1:6443", agentLife: 37 * time.Hour}, {listen: "127.0.0.1:6443", authentication: filepath.Join(t.TempDir(), "missing")},
	} {
		if err := f.check(); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
	if err := (serverFlags{listen: "[::]:6443", agentsListen: "0.0.0.0:10443"}).check(); err != nil {
		t.Error(err)
	}
}

func TestAgentServers(t *testing.T) {
	for _, x := range []struct {
		flags serverFlags
		want  []string
	}{
		{serverFlags{hosts: []string{"isobar.example.org"}}, nil},
		{serverFlags{agentsListen: "0.0.0.0:10443"}, nil},
		{serverFlags{agentsListen: "0.0.0.0:0", hosts: []string{"isobar.example.org"}}, nil},
		{serverFlags{agentsListen: "192.0.2.1:10443", hosts: []string{"isobar.example.org", "2001:db8::1"}}, []string{"https://isobar.example.org:10443", "https://[2001:db8::1]:10443"}},
	} {
		got, err := x.flags.agentServers()
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%+v: %q %v, want %q", x.flags, got, err, x.want)
		}
	}
}
