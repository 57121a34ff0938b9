package embedded

import (
	"fmt"
	"runtime/debug"
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// Kubernetes expects its version from the linker's -X flags, and without them
// tells clients a template. These are the same variables, so that a plain
// `go build` is right, too, and no flag can disagree with go.mod.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

//go:linkname gitMajor k8s.io/component-base/version.gitMajor
var gitMajor string

//go:linkname gitMinor k8s.io/component-base/version.gitMinor
var gitMinor string

//go:linkname gitCommit k8s.io/component-base/version.gitCommit
var gitCommit string

// setVersion gives the process the version of k8s.io/kubernetes that it is
// built from. Call it before anything of Kubernetes starts.
func setVersion() error {
	kubernetes := "k8s.io/kubernetes"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("version of %s: the binary has no build information", kubernetes)
	}
	for _, m := range info.Deps {
		if m.Path != kubernetes {
			continue
		}
		parts := strings.SplitN(strings.TrimPrefix(m.Version, "v"), ".", 3)
		if len(parts) != 3 {
			return fmt.Errorf("version of %s: %q is not like v1.2.3", kubernetes, m.Version)
		}
		gitVersion, gitMajor, gitMinor, gitCommit = m.Version, parts[0], parts[1], ""
		return version.SetDynamicVersion(m.Version)
	}
	return fmt.Errorf("version of %s: not in the build information", kubernetes)
}
