package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
	"isobar.dev/cmd/isobar/archive"
	"isobar.dev/control/plane"
	"isobar.dev/source/antrea"
)

// freeAddr is a loopback address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", freePort(t))
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

// listed is the resourceVersion up to which a list is.
func listed(t *testing.T, client kubernetes.Interface) int64 {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// agentOf follows what the server tells one machine, as its agent does.
func agentOf(t *testing.T, dir, addr string) *antrea.Source {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(planeDir(dir), "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.CAData = "https://"+addr, []byte(authorities(t, dir)["runtime-api/runtime-api-ca.pem"])
	source, err := antrea.New(antrea.Fixed(config), "shop/db-1", antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = source.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return source
}

// waitLive waits until an agent has all that it watches, or has not any more, and lags behind nothing.
func waitLive(t *testing.T, s *antrea.Source, want bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		status := s.Status()
		live := !slices.ContainsFunc(status.Watches, func(w antrea.WatchStatus) bool { return !w.Live })
		if live == want && (!want || s.State() != nil && s.Reach().Live && len(status.Lag.Lacks) == 0) {
			return
		}
		select {
		case <-s.Noticed():
		case <-s.Reached():
		case <-s.Changed():
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("an agent's watches are %+v; want live %t", status, want)
		}
	}
}

// A server that is made of a backup has what there was then, under the same authorities. Clients and agents go
// on with it by themselves: versions have not gone back.
func TestServerRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes; -short")
	}
	top := t.TempDir()
	first, second, file := filepath.Join(top, "first"), filepath.Join(top, "second"), filepath.Join(top, "backup.tar")
	flags := serverFlags{dataDir: first, listen: freeAddr(t), agentsListen: freeAddr(t), metricsListen: "0"}
	log, stop := startServer(t, flags)
	ctx, client := t.Context(), clientOf(t, first)
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, configMap("early", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tokens := tokensOf(t, first)
	spec := map[string]any{"joinToken": map[string]any{"hash": "sha256:" + strings.Repeat("0", 64), "expirationTimestamp": "2100-01-01T00:00:00Z"}}
	if _, err := tokens.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "isobar.dev/v1alpha2", "kind": "AgentIdentity", "metadata": map[string]any{"name": "vm"}, "spec": spec}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := backup(ctx, plane.Search{}, first, file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has mode %v, %v; want 0600", info.Mode(), err)
	}
	if rest, err := filepath.Glob(filepath.Join(top, ".*")); err != nil || len(rest) > 0 {
		t.Errorf("the backup has left %v, %v", rest, err)
	}

	// Time goes on: an agent knows of a later world than the backup.
	if _, err := maps.Update(ctx, configMap("early", "2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(ctx, configMap("late", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	agent := agentOf(t, first, flags.agentsListen)
	waitLive(t, agent, true)
	newest := listed(t, client)
	before := authorities(t, first)
	// The power goes.
	killPlane(t, first)
	stop()
	waitLive(t, agent, false)
	if text := log.String(); !strings.Contains(text, "msg=ready") {
		t.Error(text)
	}

	if _, err := restore(ctx, plane.Search{}, file, first); err == nil {
		t.Error("a backup was restored over a data directory")
	}
	if err := os.Mkdir(second, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(second, 12345, 12346); err != nil {
		t.Logf("not root: %v", err)
	}
	if _, err := restore(ctx, plane.Search{}, file, second); err != nil {
		t.Fatal(err)
	}
	checkRestored(t, second)
	flags.dataDir = second
	startServer(t, flags)
	if u, err := tokensOf(t, second).Get(ctx, "vm", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if _, ok := u.Object["spec"].(map[string]any)["joinToken"]; ok {
		t.Error("a join token of the backup is good again")
	}
	if _, err := os.Lstat(filepath.Join(second, restoredFile)); !os.IsNotExist(err) {
		t.Errorf("it stays noted that the directory was restored: %v", err)
	}
	client = clientOf(t, second)
	maps = client.CoreV1().ConfigMaps("default")
	if got, err := maps.Get(ctx, "early", metav1.GetOptions{}); err != nil || got.Data["value"] != "1" {
		t.Errorf("what there was at the backup is %v, %v", got, err)
	}
	if _, err := maps.Get(ctx, "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the backup: %v; want it gone", err)
	}
	for name, text := range authorities(t, second) {
		if text != before[name] {
			t.Errorf("%s is another one", name)
		}
	}
	if now := listed(t, client); now <= newest {
		t.Errorf("resourceVersions went back from %d to %d", newest, now)
	}
	watch, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(newest, 10)})
	if err == nil {
		event := <-watch.ResultChan()
		err = apierrors.FromObject(event.Object)
		watch.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before: %v; want it told to list anew", err)
	}
	waitLive(t, agent, true)
	if s := agent.Status(); !s.Lag.WentBack.IsZero() {
		t.Errorf("the agent went back: %+v", s.Lag)
	}
}

func tokensOf(t *testing.T, dir string) dynamic.ResourceInterface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return dynamic.NewForConfigOrDie(config).Resource(isobarv1alpha2.GroupVersion.WithResource(isobarv1alpha2.ResourceAgentIdentities)).Namespace("default")
}

// killPlane kills the control plane on a directory, as a power cut does.
func killPlane(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(planeDir(dir), "lock")) // "isobar-control-plane, pid 12, started ..."
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscanf(string(text), "isobar-control-plane, pid %d,", &pid); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// checkRestored: all is its owner's alone, who is that of the directory that was there. Afterwards it is ours.
func checkRestored(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if os.Geteuid() == 0 && (st.Uid != 12345 || st.Gid != 12346) {
			t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return os.Chown(path, os.Geteuid(), os.Getegid())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What is no whole backup leaves nothing behind.
func TestRestoreRefuses(t *testing.T) {
	top := t.TempDir()
	good := filepath.Join(top, "good.tar")
	snapshot := filepath.Join(top, "snapshot")
	if err := os.WriteFile(snapshot, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := archive.Write(&text, time.Now(), []archive.Source{{Name: archive.Snapshot, Path: snapshot}, {Name: "control-plane/ca.pem", Path: snapshot}}); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(top, "full")
	if err := errorsOf(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, ".hidden"), nil, 0o600), os.WriteFile(good, text.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(text.Bytes())
	broken[bytes.LastIndex(broken, []byte("no database"))] ^= 1
	bad := filepath.Join(top, "bad.tar")
	if err := os.WriteFile(bad, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	none := plane.Search{Dir: top, CheckoutOnly: true} // no control plane is found: none may be asked
	for name, tt := range map[string]struct{ file, dir, want string }{
		"a directory with something": {good, full, "not empty"},
		"a file in its place":        {good, good, "no directory"},
		"another checksum":           {bad, filepath.Join(top, "new"), "checksum"},
		"no file":                    {filepath.Join(top, "none"), filepath.Join(top, "new"), "no such file"},
		"a directory":                {full, filepath.Join(top, "new"), "is a directory"},
	} {
		if _, err := restore(t.Context(), none, tt.file, tt.dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
	if _, err := os.Lstat(filepath.Join(top, "new")); err == nil {
		t.Error("a directory was made")
	}
	if rest, err := filepath.Glob(filepath.Join(top, ".*")); err != nil || len(rest) > 0 {
		t.Errorf("%v is left, %v", rest, err)
	}
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// kills is how often TestServerSurvivesKills kills: ISOBAR_KILLS, or few.
func kills(t *testing.T) int {
	if text := os.Getenv("ISOBAR_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 4
}

// A server that is killed at any instant, with its control plane or without, loses nothing of what it has
// acknowledged, and none of its authorities.
func TestServerSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes; -short")
	}
	top := t.TempDir()
	binary, dir, addr := filepath.Join(top, "isobar"), filepath.Join(top, "state"), freeAddr(t)
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	found, err := plane.Build(t.Context(), plane.Search{CheckoutOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(found, filepath.Join(top, plane.BinaryName)); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string]string{}
	known := map[string]string{} // authorities, once made
	n := kills(t)
	for round := range n {
		cmd := exec.Command(binary, "server", "--data-dir="+dir, "--listen="+addr, "--metrics-listen=0")
		log := &lines{}
		cmd.Stderr, cmd.WaitDelay = log, time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Some rounds end before all is ready, or in the midst of the first start.
		if round%4 != 3 {
			wrote := writeUntilKilled(t, cmd, dir, round, log)
			for name, value := range wrote {
				acknowledged[name] = value
			}
		} else {
			time.Sleep(rand.N(2 * time.Second))
			killBoth(cmd, dir, round%2 == 0)
		}
		_ = cmd.Wait()
		for _, name := range []string{"control-plane/ca.pem", "control-plane/front-proxy-ca.pem", "control-plane/service-account.key", "webhook/webhook-ca.pem", "runtime-api/runtime-api-ca.pem"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil && known[name] != "" && known[name] != string(text) {
				t.Errorf("round %d: %s is another one", round, name)
			}
			if err != nil && known[name] != "" {
				t.Errorf("round %d: %v", round, err)
			}
			known[name] = string(text)
		}
	}
	startServer(t, serverFlags{dataDir: dir, listen: addr, metricsListen: "0"})
	list, err := clientOf(t, dir).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, c := range list.Items {
		have[c.Name] = c.Data["value"]
	}
	for name, value := range acknowledged {
		if have[name] != value {
			t.Errorf("%s = %q was acknowledged, and is %q", name, value, have[name])
		}
	}
	t.Logf("%d kills, %d acknowledged writes", n, len(acknowledged))
	if len(acknowledged) == 0 {
		t.Error("nothing was written")
	}
}

// writeUntilKilled writes objects to a server that is starting, kills it a while after the first was acknowledged,
// and returns those that were.
func writeUntilKilled(t *testing.T, cmd *exec.Cmd, dir string, round int, log *lines) map[string]string {
	t.Helper()
	client := waitClient(t, dir, log)
	acknowledged := map[string]string{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	for writer := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name, value := fmt.Sprintf("k-%d-%d-%d", round, writer, i), strconv.Itoa(rand.Int())
				if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap(name, value), metav1.CreateOptions{}); err != nil {
					continue
				}
				mu.Lock()
				acknowledged[name] = value
				mu.Unlock()
				begin()
			}
		})
	}
	select {
	case <-begun:
	case <-time.After(5 * time.Minute):
		t.Errorf("round %d: nothing could be written:\n%s", round, log)
	}
	time.Sleep(rand.N(time.Second)) // the instant is what the test is about
	killBoth(cmd, dir, round%2 == 0)
	cancel()
	writers.Wait()
	return acknowledged
}

// killBoth kills a server, and its control plane with it or not, which ends by itself then.
func killBoth(cmd *exec.Cmd, dir string, both bool) {
	if both {
		if text, err := os.ReadFile(filepath.Join(planeDir(dir), "lock")); err == nil {
			var pid int
			if _, err := fmt.Sscanf(string(text), "isobar-control-plane, pid %d,", &pid); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	_ = cmd.Process.Kill()
}

// waitClient waits until the API server on a directory answers an administrator.
func waitClient(t *testing.T, dir string, log io.Writer) *kubernetes.Clientset {
	t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(planeDir(dir), "kubeconfig"))
		var client *kubernetes.Clientset
		if err == nil {
			config.QPS, config.Timeout = -1, 10*time.Second
			client, err = kubernetes.NewForConfig(rest.CopyConfig(config))
		}
		if err == nil {
			_, err = client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		}
		if err == nil {
			return client
		}
		if time.Now().After(deadline) {
			t.Fatalf("no API server answers: %v\n%s", err, log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
