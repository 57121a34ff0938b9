package plane_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isobar.dev/control/plane"
)

func TestFindSaysWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	checkout := t.TempDir()
	write(t, filepath.Join(checkout, "embedded", "go.mod"), "module isobar.dev/embedded\n", 0o600)
	for _, tt := range []struct {
		name, dir, path string
		want            []string
	}{
		{"no checkout", empty, os.Getenv("PATH"), []string{"beside this program", "PATH", "no checkout", "release archive"}},
		{"no Go", checkout, empty, []string{"needs Go", "go.dev/dl", checkout}},
		{"not built", checkout, os.Getenv("PATH"), []string{"not built yet"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", tt.path)
			path, err := plane.Find(plane.Search{Dir: tt.dir, Cache: t.TempDir()})
			if !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("Find() = %q, %v; want an error that is fs.ErrNotExist", path, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestFindPrefersWhatIsInstalled(t *testing.T) {
	bin := t.TempDir()
	want := filepath.Join(bin, plane.BinaryName)
	write(t, want, "#!/bin/sh\n", 0o700)
	t.Setenv("PATH", bin)
	if got, err := plane.Find(plane.Search{Dir: t.TempDir()}); got != want || err != nil {
		t.Errorf("Find() = %q, %v; want %q", got, err, want)
	}
	if got, err := plane.Find(plane.Search{Dir: t.TempDir(), CheckoutOnly: true}); err == nil {
		t.Errorf("Find(CheckoutOnly) = %q, want an error", got)
	}
}

func TestCheckoutIsFoundUpwards(t *testing.T) {
	root, err := plane.Search{Dir: "planetest"}.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "control", "plane", "build_test.go")); err != nil {
		t.Errorf("Checkout() = %s, which is not ours: %v", root, err)
	}
	if root, err := (plane.Search{Dir: t.TempDir()}).Checkout(); !errors.Is(err, plane.ErrNoCheckout) {
		t.Errorf("Checkout() outside of one = %q, %v", root, err)
	}
}

// A toy in the place of the control plane: what counts here is when it is
// built, not what.
func TestBuildFollowsTheSources(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	module := filepath.Join(root, "embedded")
	write(t, filepath.Join(module, "go.mod"), "module isobar.dev/embedded\n\ngo 1.26.0\n", 0o600)
	source := filepath.Join(module, "cmd", plane.BinaryName, "main.go")
	var said []string
	s := plane.Search{Dir: root, Cache: cache, CheckoutOnly: true, Progress: func(line string) { said = append(said, line) }}
	build := func(code string) string {
		t.Helper()
		write(t, source, code, 0o600)
		path, err := plane.Build(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}

	first := build("package main\n\nfunc main() {}\n")
	if len(said) < 2 || !strings.HasPrefix(said[0], "building") || !strings.HasPrefix(said[len(said)-1], "built") {
		t.Errorf("progress = %q, want building ... built", said)
	}
	said = nil
	if again := build("package main\n\nfunc main() {}\n"); again != first || len(said) != 0 {
		t.Errorf("the same sources gave %s (%q), want %s and nothing built", again, said, first)
	}
	write(t, filepath.Join(filepath.Dir(source), "main_test.go"), "package main\n", 0o600)
	if again := build("package main\n\nfunc main() {}\n"); again != first {
		t.Errorf("a test changed the binary's path to %s", again)
	}
	if found, err := plane.Find(s); found != first || err != nil {
		t.Errorf("Find() = %s, %v; want %s", found, err, first)
	}
	if second := build("package main\n\nfunc main() { println() }\n"); second == first {
		t.Error("changed sources gave the old binary")
	}

	write(t, source, "package main\n\nfunc main() { undefined() }\n", 0o600)
	if path, err := plane.Build(t.Context(), s); err == nil || !strings.Contains(err.Error(), "undefined") {
		t.Errorf("broken sources: %s, %v; want the compiler's words", path, err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 3 { // two binaries and the lock
		t.Errorf("cache has %v, %v; want two binaries and the lock", left, err)
	}
	for i := range 4 {
		build("package main\n\nfunc main() { println(" + strings.Repeat("1", i+1) + ") }\n")
	}
	if left, err = filepath.Glob(filepath.Join(cache, plane.BinaryName+"-*")); err != nil || len(left) != 3 {
		t.Errorf("cache has %v, %v; want the three last binaries", left, err)
	}
}

func write(t *testing.T, path, data string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
}
