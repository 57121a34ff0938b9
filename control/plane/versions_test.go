package plane_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane/planetest"
)

// One version of Kubernetes in all modules: the types that we send are those
// that the server knows, kubectl is theirs, and what they share is compiled once.
func TestModulesAgreeOnKubernetes(t *testing.T) {
	main, embedded := kubernetesModules(t, "../.."), kubernetesModules(t, "../../embedded")
	if len(main) == 0 || len(embedded) == 0 {
		t.Fatalf("k8s.io modules: %v and %v", main, embedded)
	}
	staging := strings.Replace(embedded["k8s.io/kubernetes"], "v1.", "v0.", 1)
	for path, version := range main {
		// Modules that Kubernetes does not release itself need only agree.
		want, ok := embedded[path]
		if ok && version != want {
			t.Errorf("%s is %s in go.mod and %s in embedded/go.mod", path, version, want)
		}
	}
	for path, version := range kubernetesModules(t, "../../tools/kubectl") {
		if want, ok := embedded[path]; ok && version != want {
			t.Errorf("%s is %s in tools/kubectl/go.mod and %s in embedded/go.mod", path, version, want)
		}
	}
	for _, path := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/apiserver"} {
		if main[path] != staging || embedded[path] != staging {
			t.Errorf("%s is %s and %s, want %s as k8s.io/kubernetes", path, main[path], embedded[path], staging)
		}
	}
}

// kubernetesModules are the versions of the k8s.io modules in dir's go.mod, after
// its replaces.
func kubernetesModules(t *testing.T, dir string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read go.mod of %s: %v", dir, err)
	}
	type module struct{ Path, Version string }
	var file struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range file.Require {
		if strings.HasPrefix(m.Path, "k8s.io/") {
			versions[m.Path] = m.Version
		}
	}
	for _, r := range file.Replace {
		versions[r.Old.Path] = r.New.Version
	}
	return versions
}

// The server says what it is built from, and not the template that Kubernetes
// has for builds without the linker's flags.
func TestServerVersion(t *testing.T) {
	e := planetest.Start(t)
	got, err := kubernetes.NewForConfigOrDie(e.Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	want := kubernetesModules(t, "../../embedded")["k8s.io/kubernetes"]
	parts := strings.Split(strings.TrimPrefix(want, "v"), ".")
	if got.GitVersion != want || got.Major != parts[0] || got.Minor != parts[1] {
		t.Errorf("server is %s (%s.%s), want %s", got.GitVersion, got.Major, got.Minor, want)
	}
}
