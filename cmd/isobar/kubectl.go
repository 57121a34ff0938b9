package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// The names by which kubectl finds a plugin, and what completes its arguments. Links to isobar
// of these names in PATH make it `kubectl isobar`.
const (
	pluginName     = "kubectl-isobar"
	completionName = "kubectl_complete-isobar"
)

// calledAs returns the arguments that the program has under the name that it is called by, and
// whether kubectl calls it.
func calledAs(argv []string) (args []string, byKubectl bool) {
	switch strings.TrimSuffix(filepath.Base(argv[0]), ".exe") {
	case pluginName:
		return argv[1:], true
	case completionName:
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...), true
	}
	return argv[1:], false
}

// ownName is the command's name where it is typed in an example.
var ownName = regexp.MustCompile(`(?m)(^\s*|\| )isobar `)

// asPlugin has a command and those below it call themselves as kubectl's users do.
func asPlugin(cmd *cobra.Command) {
	cmd.Use = pluginName
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl isobar"}
	var examples func(*cobra.Command)
	examples = func(c *cobra.Command) {
		c.Example = ownName.ReplaceAllString(c.Example, "${1}kubectl isobar ")
		for _, sub := range c.Commands() {
			examples(sub)
		}
	}
	examples(cmd)
}
