package image_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/control/plane/planetest"
)

func TestMain(m *testing.M) { planetest.Main(m) }

const root = "../.."

// nobody is whom the image runs as, and the chart too.
const nobody = 65532

// recipe returns what follows a word at the beginning of a line of the Dockerfile, the
// last time.
func recipe(t *testing.T, word string) string {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^`+word+` (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Fatalf("the recipe has no %s", word)
	}
	return all[len(all)-1][1]
}

// The image has nobody's rights, as the chart has it, and starts what the chart's
// arguments are of.
func TestRecipe(t *testing.T) {
	for word, want := range map[string]string{
		"FROM": "scratch", "USER": fmt.Sprintf("%d:%d", nobody, nobody), "ENTRYPOINT": `["/isobar"]`, "CMD": `["controller"]`,
	} {
		if got := recipe(t, word); got != want {
			t.Errorf("%s %s, want %s", word, got, want)
		}
	}
	copied := strings.Fields(recipe(t, "COPY"))
	agent, err := os.ReadFile(filepath.Join(root, "deploy/chart/isobar/templates/agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(copied, "/isobar-agent") || !slices.Contains(copied, "/isobar-cni") || copied[len(copied)-1] != "/" || strings.Count(string(agent), "command: [/isobar-agent") != 2 {
		t.Errorf("the recipe copies %q, and the chart runs another agent", copied)
	}
	chart, err := os.ReadFile(filepath.Join(root, "deploy/chart/isobar/templates/deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("runAsUser: %d\n", nobody), "readOnlyRootFilesystem: true\n"} {
		if !bytes.Contains(chart, []byte(want)) {
			t.Errorf("the chart has no %s", want)
		}
	}
}

// What the recipe builds runs with nothing around it, as nobody, and writes no file.
func TestImageRuns(t *testing.T) {
	if os.Getenv("ISOBAR_IMAGE") == "" {
		t.Skip("missing: ISOBAR_IMAGE=1, since the image's build shares nothing with that of the tests and takes minutes")
	}
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give a process another root folder")
	}
	e := planetest.Start(t)
	e.ApplyCRDs(t, filepath.Join(root, "deploy/crd"))
	dir := t.TempDir()
	build(t, dir, "isobar", "isobar-agent", "isobar-cni")
	kubeconfig, err := os.ReadFile(e.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"kubeconfig": kubeconfig, "isobar.conf": []byte("logFormat: text\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, dir)

	probes := free(t)
	cmd := exec.Command("/isobar", "controller", "--kubeconfig=/kubeconfig", "--config=/isobar.conf", "--enable-leader-election",
		"--metrics-addr=0", "--health-probe-bind-address="+probes, "--webhook-addr="+free(t), "--api-addr="+free(t))
	cmd.Dir, cmd.Env = "/", []string{"POD_NAMESPACE=" + e.Namespace(t)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := sync.OnceValue(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return <-ended
	})
	defer func() {
		if err := stop(); err != nil || t.Failed() {
			t.Errorf("told to end: %v; its log:\n%s", err, log.String())
		}
	}()
	planetest.Eventually(t, "ready", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", resp.Status)
		}
		return nil
	})
	_ = stop() // its error is told of at the end
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("its files (-before +after):\n%s", diff)
	}
}

// build runs the line of the recipe that builds the binaries, and checks that they need no other file.
func build(t *testing.T, out string, names ...string) {
	t.Helper()
	line := strings.Replace(recipe(t, "RUN"), "-o / ", "-o "+out+" ", 1)
	if !strings.Contains(line, "-o "+out) {
		t.Fatalf("the last RUN is %s", line)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, text)
	}
	for _, name := range names {
		f, err := elf.Open(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("%s is linked with %v (%v)", name, libraries, err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is not static", name)
			}
		}
	}
}

func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out = append(out, fmt.Sprint(p, info.Size(), info.ModTime().UnixNano()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
