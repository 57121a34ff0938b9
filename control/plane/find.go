package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Search says where to look for the control plane's binary. The zero value is
// right for a command that a user runs.
type Search struct {
	// Dir is where the search for a checkout begins, and goes upwards. Empty
	// means the working directory, then the folders of the running executable
	// and of the sources that it was built from.
	Dir string

	// CheckoutOnly leaves out the binaries beside the running executable and in
	// PATH: only what the checkout's sources give will do. For tests.
	CheckoutOnly bool

	// Cache is the directory of built binaries. Empty means "isobar" in
	// os.UserCacheDir.
	Cache string

	// Progress is told about a build, one short line at a time, at most one
	// every few seconds. Nil means nobody is.
	Progress func(string)
}

// ErrNoCheckout says that there is no checkout of Isobar to build from.
var ErrNoCheckout = errors.New("no checkout of isobar found")

// Checkout is the root of the checkout of Isobar that the search finds: the
// nearest folder upwards whose embedded/go.mod is the control plane's. When
// there is none the error is ErrNoCheckout.
func (s Search) Checkout() (string, error) {
	starts := []string{s.Dir}
	if s.Dir == "" {
		starts = starts[:0]
		if dir, err := os.Getwd(); err == nil {
			starts = append(starts, dir)
		}
		if dir, ok := executableDir(); ok {
			starts = append(starts, dir)
		}
		// The compiler's path of this file, unless it was built with -trimpath.
		if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
			starts = append(starts, filepath.Dir(file))
		}
	}
	for _, dir := range starts {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("find checkout: %w", err)
		}
		for {
			if isCheckout(abs) {
				return abs, nil
			}
			up := filepath.Dir(abs)
			if up == abs {
				break
			}
			abs = up
		}
	}
	return "", ErrNoCheckout
}

func isCheckout(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "embedded", "go.mod"))
	return err == nil && strings.HasPrefix(string(data), "module isobar.dev/embedded\n")
}

func executableDir() (string, bool) {
	exe, err := os.Executable()
	if err != nil {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return filepath.Dir(exe), true
}

// installed finds a binary beside the running executable, where packages put it (/usr/lib/isobar
// for /usr/bin/isobar), or in PATH.
func installed() (string, bool) {
	if dir, ok := executableDir(); ok {
		for _, path := range []string{filepath.Join(dir, BinaryName), filepath.Join(dir, "..", "lib", "isobar", BinaryName)} {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, true
			}
		}
	}
	path, err := exec.LookPath(BinaryName)
	return path, err == nil // LookPath refuses what it finds in the working directory
}

// cacheDir is the directory of built binaries, made when it is missing.
func (s Search) cacheDir() (string, error) {
	dir := s.Cache
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache directory: %w (set HOME or XDG_CACHE_HOME)", err)
		}
		dir = filepath.Join(base, "isobar")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	return dir, nil
}

func (s Search) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}
