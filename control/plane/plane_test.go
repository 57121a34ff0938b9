package plane_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane"
	"isobar.dev/control/plane/planetest"
)

func TestStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	// With fsync: this is what users run.
	p := start(t, plane.Options{DataDir: dir, Search: options(dir).Search})
	c := client(t, p)
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"k": "v"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var token *authenticationv1.TokenRequest
	planetest.Eventually(t, "token of default/default", func(ctx context.Context) (err error) {
		token, err = c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		return err
	})
	before := readFiles(t, dir, "ca.pem", "admin.pem", "apiserver.pem", "service-account.key", "kubeconfig")
	url := p.URL()

	// An open watch must not hold up the end.
	watch, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	begin := time.Now()
	stop(t, p) // reports any exit status but 0
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("stop took %s, want about 1s, and not the minute that the watch would last", took)
	} else {
		t.Logf("stop took %s", took)
	}

	begin = time.Now()
	p = start(t, plane.Options{DataDir: dir, Search: options(dir).Search})
	t.Logf("start took %s", time.Since(begin))
	if p.URL() != url {
		if l, err := net.Listen("tcp", strings.TrimPrefix(url, "https://")); err == nil { // else another has it by now
			l.Close()
			t.Errorf("URL after restart = %s, want %s", p.URL(), url)
		}
	}
	for name, want := range before {
		if got := readFiles(t, dir, name)[name]; got != want {
			t.Errorf("%s changed over a restart", name)
		}
	}
	got, err := client(t, p).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.Data["k"] != "v" {
		t.Errorf("ConfigMap after restart = %v, %v; want k: v", got, err)
	}
	if user := whoAmI(t, bearer(t, p, token.Status.Token)); user != "system:serviceaccount:default:default" {
		t.Errorf("token of before the restart is of %q", user)
	}
}

// What every cluster has is there as soon as a control plane has started, and need not be waited for.
func TestStartedIsComplete(t *testing.T) {
	t.Parallel()
	c := client(t, start(t, options(dataDir(t))))
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	m, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil || m.Data["client-ca-file"] == "" || m.Data["requestheader-client-ca-file"] == "" {
		t.Errorf("who serves a group of the API finds %v, %v", m, err)
	}
}

// A control plane that is killed loses nothing that it acknowledged, and
// leaves nothing that is in the way of the next.
func TestStateSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	o := plane.Options{DataDir: dir, Search: options(dir).Search}
	p, err := plane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, p).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop() after a kill = %v, want to hear of it", err)
	}
	p = start(t, o)
	if _, err := client(t, p).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// Damaged data is an error that names it, never an empty control plane.
func TestDamagedDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	stop(t, start(t, options(dir)))
	for _, pattern := range []string{"etcd/member/snap/db", "etcd/member/wal/*.wal", "service-account.key", "ca.pem", "port"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		good := readFile(t, files[0])
		damaged := make([]byte, len(good))
		for i := range damaged {
			damaged[i] = 'x'
		}
		write(t, files[0], string(damaged), 0o600)
		p, err := plane.Start(t.Context(), options(dir))
		if err == nil {
			stop(t, p)
			t.Fatalf("started with a damaged %s", pattern)
		}
		if text := err.Error(); !strings.Contains(text, dir) || strings.Contains(text, "goroutine") || len(text) > 500 {
			t.Errorf("damaged %s: error %q, want one that names %s", pattern, text, dir)
		}
		write(t, files[0], good, 0o600)
		_ = os.Remove(files[0] + ".broken") // etcd keeps a copy of a log that it tried to mend
	}
	start(t, options(dir))
}

func TestPrivateFiles(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := start(t, options(dir))
	if want := filepath.Join(dir, "kubeconfig"); p.Kubeconfig() != want {
		t.Errorf("Kubeconfig() = %s, want %s", p.Kubeconfig(), want)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s, want nothing for group and others", path, info.Mode())
		}
		if info.Mode().IsRegular() && filepath.Dir(path) == dir && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want 0600", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s has mode %v, %v; want 0700", dir, info.Mode(), err)
	}
}

func TestSecondInstanceIsRefused(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := start(t, options(dir))
	second, err := plane.Start(t.Context(), options(dir))
	if err == nil {
		stop(t, second)
		t.Fatal("two control planes on one directory")
	}
	for _, want := range []string{dir, "in use by", "pid " + strconv.Itoa(p.PID()), "--data-dir"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if _, err := client(t, p).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the first is hurt: %v", err)
	}
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := plane.Start(t.Context(), options(dir))
	if err == nil {
		stop(t, p)
		t.Fatal("a directory with somebody's files was taken")
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "choose an empty one") {
		t.Errorf("error = %q, want the directory and what to do", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of %s became %v (%v)", dir, info.Mode(), err)
	}
}

// A socket's path may have about 100 bytes, a directory's 4096.
func TestLongDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "with space")
	p := start(t, options(dir))
	if _, err := client(t, p).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestListenOnAGivenPort(t *testing.T) {
	t.Parallel()
	first := start(t, options(dataDir(t)))
	port := first.URL()[strings.LastIndex(first.URL(), ":")+1:]

	o := options(dataDir(t))
	o.Listen = "127.0.0.1:" + port
	p, err := plane.Start(t.Context(), o)
	if err == nil {
		stop(t, p)
		t.Fatalf("two control planes on port %s", port)
	}
	if !strings.Contains(err.Error(), port) {
		t.Errorf("error %q does not say the port %s", err, port)
	}
}

// The port of the last start is a wish: a control plane whose port was taken
// meanwhile starts on another, and says so in its kubeconfig.
func TestPortTakenMeanwhile(t *testing.T) {
	t.Parallel()
	first := start(t, options(dataDir(t)))
	port := first.URL()[strings.LastIndex(first.URL(), ":")+1:]
	dir := dataDir(t)
	p := start(t, options(dir))
	stop(t, p)
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte(port+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, options(dir))
	if p.URL() == first.URL() {
		t.Fatalf("both at %s", p.URL())
	}
	if _, err := client(t, p).Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

// However the parent ends, no control plane stays behind.
func TestEndsWithItsParent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), orphanEnv+"="+dataDir(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killed := cmd.Process.Kill(); killed != nil {
		t.Error(killed)
	}
	_ = cmd.Wait() // killed, as we know
	if err != nil {
		t.Fatalf("read process id: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "end of the orphan", func(context.Context) error {
		// It is a child of nobody now, so somebody else reaps it; a zombie is no process.
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return nil
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return errors.New("still there")
		}
		return nil
	})
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	dir := dataDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // a start takes seconds
	defer cancel()
	if p, err := plane.Start(ctx, options(dir)); !errors.Is(err, context.DeadlineExceeded) {
		if err == nil {
			stop(t, p)
		}
		t.Fatalf("Start() = %v, want deadline exceeded", err)
	}
	start(t, options(dir)) // what was half made is no obstacle
}

func readFiles(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		all[name] = readFile(t, filepath.Join(dir, name))
	}
	return all
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// bearer is a configuration that has nothing but the token.
func bearer(t *testing.T, p interface{ Config() (*rest.Config, error) }, token string) *rest.Config {
	t.Helper()
	config, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	return config
}

// Who cannot be read is not nobody: the start ends, and says why.
func TestAuthenticationIsRefused(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for _, x := range []struct{ text, want string }{
		{head + "jwt:\n- issuer: {url: 'http://id.example.org', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "URL scheme must be https"},
		{head + "anonymous: {enabled: true}\n", "anonymous"},
	} {
		o := options(dataDir(t))
		o.Authentication = filepath.Join(t.TempDir(), "authentication.yaml")
		if err := os.WriteFile(o.Authentication, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := plane.Start(t.Context(), o)
		if err == nil {
			stop(t, p)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %q", x.text, err, x.want)
		}
	}
}
