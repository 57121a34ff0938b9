package plane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// command is the package to build, seen from embedded/.
const command = "./cmd/" + BinaryName

// buildFlags are those of every build of the control plane. Flags of the
// compiler would recompile everything that the main module shares with it;
// these are the linker's. Stripping saves a third of the size.
var buildFlags = []string{"-buildvcs=false", "-ldflags=-s -w"}

// keep is how many built binaries, of about 130 MB each, stay in the cache: enough
// to go back and forth between two branches.
const keep = 3

// Find returns the path of the control plane's binary: beside the running
// executable, in PATH, or in the cache, built from this very checkout. It
// builds nothing; when there is none the error is fs.ErrNotExist and says how
// to get one.
func Find(s Search) (string, error) {
	if path, ok := installed(); ok && !s.CheckoutOnly {
		return path, nil
	}
	path, _, err := s.cached()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s was not built yet: %w", BinaryName, err)
	}
	return path, nil
}

// Build is Find, and builds the binary from the checkout when it finds none.
// That takes 5 to 10 minutes on two cores and 90 MB of modules with cold caches, and
// seconds when the go command's cache is warm. Two builds at a time wait for each other.
func Build(ctx context.Context, s Search) (string, error) {
	if path, ok := installed(); ok && !s.CheckoutOnly {
		return path, nil
	}
	path, checkout, err := s.cached()
	if err != nil {
		return "", err
	}
	if used(path) {
		return path, nil
	}
	unlock, err := lockBuild(ctx, filepath.Join(filepath.Dir(path), "build.lock"), func() {
		s.say("waiting for another build of %s", BinaryName)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if used(path) { // the build that we waited for
		return path, nil
	}
	temp := fmt.Sprintf("%s.tmp-%d", path, os.Getpid())
	defer os.Remove(temp)
	if err := s.compile(ctx, checkout, temp); err != nil {
		return "", err
	}
	if err := os.Rename(temp, path); err != nil {
		return "", fmt.Errorf("build %s: %w", BinaryName, err)
	}
	return path, prune(filepath.Dir(path))
}

// cached is where the binary of the checkout belongs, whether it is there or not.
func (s Search) cached() (path, checkout string, err error) {
	checkout, err = s.Checkout()
	if err != nil {
		return "", "", fmt.Errorf("%w: %s is neither beside this program nor in PATH, and there is nothing to build it from: "+
			"install it from a release archive, or run this in a checkout of isobar", errors.Join(fs.ErrNotExist, err), BinaryName)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", "", fmt.Errorf("%w: %s is neither beside this program nor in PATH, and building it from %s needs Go: "+
			"install Go 1.26 or later (https://go.dev/dl), or %[2]s from a release archive", errors.Join(fs.ErrNotExist, err), BinaryName, checkout)
	}
	dir, err := s.cacheDir()
	if err != nil {
		return "", "", err
	}
	key, err := buildKey(filepath.Join(checkout, "embedded"))
	if err != nil {
		return "", "", err
	}
	return filepath.Join(dir, BinaryName+"-"+key), checkout, nil
}

// buildKey names all that decides what a build gives: the sources, the Go
// version, its settings, and our flags.
func buildKey(module string) (string, error) {
	h := sha256.New()
	settings := goCommand(context.Background(), module, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "GOFLAGS", "GOEXPERIMENT")
	out, err := settings.Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its settings: %w", withStderr(err))
	}
	fmt.Fprintf(h, "%s\n%q\n", out, buildFlags)
	err = filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isSource(d.Name()) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(module, path)
		fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(rel), len(data))
		h.Write(data)
		return err
	}) // in lexical order
	if err != nil {
		return "", fmt.Errorf("hash sources of %s: %w", BinaryName, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func isSource(name string) bool {
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// used reports whether a built binary is at path, and marks it as used now.
func used(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

// compile builds the binary at out, and tells how far it is.
func (s Search) compile(ctx context.Context, checkout, out string) error {
	start := time.Now()
	s.say("building %s from %s: the first time takes 5 to 10 minutes on two cores and downloads 90 MB, later ones take seconds", BinaryName, checkout)
	module := filepath.Join(checkout, "embedded")
	list, err := goCommand(ctx, module, "list", "-deps", command).Output()
	if err != nil {
		return fmt.Errorf("list packages of %s: %w", BinaryName, withStderr(err))
	}
	total := strings.Count(string(list), "\n")

	lines := newTail()
	args := append([]string{"build", "-v", "-o", out}, buildFlags...)
	build := goCommand(ctx, module, append(args, command)...)
	build.Stderr = lines
	if err := build.Start(); err != nil {
		return fmt.Errorf("build %s: %w", BinaryName, err)
	}
	done := make(chan error, 1)
	go func() { done <- build.Wait() }()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// The go command names a package when it compiles it, and not when it is cached.
			s.say("compiled %d of at most %d packages in %s", lines.count(), total, time.Since(start).Round(time.Second))
		case err := <-done:
			if ctx.Err() != nil {
				return fmt.Errorf("build %s: %w", BinaryName, ctx.Err())
			}
			if err != nil {
				return fmt.Errorf("build %s in %s: %w\n%s", BinaryName, module, err, lines.complaints())
			}
			s.say("built %s in %s", BinaryName, time.Since(start).Round(time.Second))
			return nil
		}
	}
}

// goCommand is the go command in the nested module, which a go.work file of
// the user must not change. It is interrupted, not killed, so that it removes its
// temporary files.
func goCommand(ctx context.Context, module string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = module
	c.Env = append(os.Environ(), "GOWORK=off", "PWD="+module)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	return c
}

// withStderr adds what the command wrote on standard error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// prune removes all but the binaries used last.
func prune(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, BinaryName+"-*"))
	if err != nil {
		return fmt.Errorf("prune %s: %w", dir, err)
	}
	type binary struct {
		path string
		used time.Time
	}
	var all []binary
	for _, p := range paths {
		if strings.Contains(p, ".tmp-") { // of a build that was killed: we hold the lock
			_ = os.Remove(p)
			continue
		}
		if info, err := os.Stat(p); err == nil {
			all = append(all, binary{p, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b binary) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(a.path, b.path))
	})
	for _, b := range all[min(keep, len(all)):] {
		if err := os.Remove(b.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune %s: %w", dir, err)
		}
	}
	return nil
}

var _ io.Writer = (*tail)(nil)
