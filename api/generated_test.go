package api_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGeneratedFilesAreCurrent runs go generate on a copy of the types, without
// what was generated, and compares.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: running the generator takes seconds")
	}
	tool := exec.Command("go", "tool", "-modfile=../tools/go.mod", "controller-gen", "--version")
	if out, err := tool.CombinedOutput(); err != nil {
		t.Skipf("missing: controller-gen, which cannot be built here (%v): %s", err, out)
	}
	root := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "tools/go.mod", "tools/go.sum", "tools/protogen/main.go", "api/doc.go"} {
		copyFile(t, filepath.Join("..", name), filepath.Join(root, name))
	}
	want := map[string]string{} // what is checked in, by path from the root
	for _, room := range []string{"antrea", "cloud", "console", "controlplane", "isobar", "netpol", "nimbess", "runtime", "stats"} {
		walk(t, room, func(path string) {
			switch {
			case strings.HasPrefix(filepath.Base(path), "zz_generated."):
				want["api/"+path] = read(t, path)
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				copyFile(t, path, filepath.Join(root, "api", path))
			}
		})
	}
	walk(t, "../deploy/crd", func(path string) {
		if strings.HasSuffix(path, ".yaml") {
			want[strings.TrimPrefix(path, "../")] = read(t, path)
		}
	})

	generate := exec.Command("go", "generate", ".")
	generate.Dir = filepath.Join(root, "api")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("go generate: %v\n%s", err, out)
	}
	got := map[string]string{}
	walk(t, root, func(path string) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(name), "zz_generated.") || strings.HasPrefix(name, "deploy/") {
			got[name] = read(t, path)
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("generated files are not current, run go generate ./api (-checked in +generated):\n%s", diff)
	}
}

func walk(t *testing.T, root string, file func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			file(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(read(t, from)), 0o600); err != nil {
		t.Fatal(err)
	}
}
