package planetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// kubectl is the path of the tool of this test binary. It is a package variable because
// asking Go for it costs a second.
var kubectl = sync.OnceValues(func() (string, error) {
	checkout, err := search().Checkout()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(checkout, "tools", "kubectl")
	// Two go commands that build it at once may take what the other has not wholly written into the cache for theirs.
	main, err := os.Open(filepath.Join(dir, "main.go"))
	if err != nil {
		return "", fmt.Errorf("build tools/kubectl: %w", err)
	}
	defer main.Close() // which unlocks it
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(main.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", main.Name(), err)
	}
	cmd := exec.Command("go", "-C", dir, "tool", "-n", "isobar.dev/tools/kubectl")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build tools/kubectl: %w\n%s", err, errOut.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
})

// Kubectl returns a command of kubectl, as the administrator unless args say otherwise,
// for the caller to run. What it is built of is the real one's; tools/kubectl says
// which commands it has.
func (e *Env) Kubectl(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	tool, err := kubectl()
	if err != nil {
		t.Fatalf("planetest: %v", err)
	}
	// What it has found out of the API server is not kept: tests change that.
	return exec.CommandContext(t.Context(), tool, append([]string{"--kubeconfig=" + e.Kubeconfig(), "--cache-dir=" + t.TempDir()}, args...)...)
}
