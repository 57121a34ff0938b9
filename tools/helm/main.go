// Command helm lints and renders a chart with Helm's own packages, without the
// rest of Helm: that takes minutes to build.
//
//	go -C tools/helm run . lint CHART [VALUES...]
//	go -C tools/helm run . template CHART RELEASE NAMESPACE [VALUES...]
//
// VALUES are files, of which the last that has a key counts. template prints what `helm template --include-crds` does.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "lint":
		values, err := readValues(args[2:])
		if err != nil {
			return err
		}
		return lintChart(args[1], values)
	case len(args) >= 4 && args[0] == "template":
		values, err := readValues(args[4:])
		if err != nil {
			return err
		}
		return render(args[1], args[2], args[3], values)
	}
	return fmt.Errorf("usage: lint CHART [VALUES...] | template CHART RELEASE NAMESPACE [VALUES...]")
}

func readValues(files []string) (map[string]any, error) {
	values := map[string]any{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var more map[string]any
		if err := yaml.Unmarshal(text, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		values = loader.MergeMaps(values, more)
	}
	return values, nil
}

// lintChart fails on warnings too.
func lintChart(dir string, values map[string]any) error {
	result := lint.RunAll(dir, values, "default")
	bad := 0
	for _, m := range result.Messages {
		fmt.Println(m)
		if m.Severity >= support.WarningSev {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s: %d complaints", dir, bad)
	}
	return nil
}

func render(dir, release, namespace string, values map[string]any) error {
	chart, err := loader.Load(dir)
	if err != nil {
		return err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	for _, crd := range chart.CRDObjects() {
		fmt.Printf("---\n# Source: %s\n%s\n", crd.Filename, crd.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && !strings.HasSuffix(name, "NOTES.txt") {
			fmt.Printf("---\n# Source: %s\n%s\n", name, text)
		}
	}
	return nil
}
