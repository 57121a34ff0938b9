package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/dataplane/cni"
)

// installCommand puts the plugin where runtimes look for it, as an init container does.
func installCommand() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put the plugin isobar-cni where the container runtime looks for it",
		Long: `Copies the plugin into the folder of the container runtime's plugins: whoever runs it meanwhile runs the one of
before, or this one. The network's configuration is the agent's to write (--cni-conf-dir), once Pods can be attached.`,
		Example: `  isobar-agent install --from /isobar-cni --to /opt/cni/bin`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			return replace(filepath.Join(to, plugin.Name), text, 0o755)
		},
	}
	cmd.Flags().StringVar(&from, "from", "/"+plugin.Name, "the plugin")
	cmd.Flags().StringVar(&to, "to", "/opt/cni/bin", "folder of the runtime's plugins")
	return cmd
}

// uninstallCommand undoes that, and what the agent has written.
func uninstallCommand() *cobra.Command {
	var bin string
	var c netConf
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the network's configuration and the plugin away from the container runtime",
		Long: `Deletes the network's configuration, if it names isobar-cni, and then the plugin. New Pods are not attached by Isobar
then; those that are keep their network until they are removed. Rules stay: see docs/nodes.md.`,
		Example: `  isobar-agent uninstall`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			have, err := os.ReadFile(c.path())
			if err == nil {
				if !isOurs(have) {
					return fmt.Errorf("%s does not name %s: it is not Isobar's, and stays", c.path(), plugin.Name)
				}
				err = os.Remove(c.path())
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := os.Remove(filepath.Join(bin, plugin.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bin, "bin-dir", "/opt/cni/bin", "folder of the runtime's plugins")
	cmd.Flags().StringVar(&c.dir, "cni-conf-dir", "/etc/cni/net.d", "folder of the runtime's networks")
	cmd.Flags().StringVar(&c.name, "cni-conf-name", defaultConfName, "name of the configuration")
	return cmd
}

// replace writes a file as a whole, or leaves it as it is. One that is equal is not written.
func replace(path string, text []byte, mode fs.FileMode) (err error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
			return nil
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".isobar-*") // which no runtime takes for anything
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

const defaultConfName = "10-isobar.conflist"

// netConf is the network's configuration for the container runtime.
type netConf struct {
	dir, name string
	version   string
	socket    string
	plugins   []string // after ours, of those that are known
	after     string   // name of the configuration of another plugin, after whose plugins ours comes
}

func (c netConf) path() string { return filepath.Join(c.dir, c.name) }

// others are the plugins that can come after ours, as a runtime has to be told of them.
var others = map[string]map[string]any{
	"portmap":   {"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
	"bandwidth": {"type": "bandwidth", "capabilities": map[string]any{"bandwidth": true}},
}

func (c netConf) check() error {
	if c.after == c.name {
		return errors.New("--cni-after and --cni-conf-name are the same file")
	}
	for flag, name := range map[string]string{"cni-conf-name": c.name, "cni-after": c.after} {
		if name != filepath.Base(name) && name != "" || flag == "cni-conf-name" && filepath.Ext(name) != ".conflist" {
			return fmt.Errorf("--%s %q: want the name of a file, as %s", flag, name, defaultConfName)
		}
	}
	for _, p := range c.plugins {
		if others[p] == nil {
			return fmt.Errorf("--cni-plugin %q: want portmap or bandwidth", p)
		}
	}
	return nil
}

// isOurs says whether a configuration names our plugin.
func isOurs(text []byte) bool {
	var list struct {
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if json.Unmarshal(text, &list) != nil {
		return false
	}
	for _, p := range list.Plugins {
		if p.Type == plugin.Name {
			return true
		}
	}
	return false
}

// text returns the configuration.
func (c netConf) text() ([]byte, error) {
	ours := map[string]any{"type": plugin.Name}
	if c.socket != cni.DefaultSocket {
		ours["socket"] = c.socket
	}
	list := map[string]any{"cniVersion": c.version, "name": "isobar"}
	plugins := []any{ours}
	if c.after != "" {
		text, err := os.ReadFile(filepath.Join(c.dir, c.after))
		if err != nil {
			return nil, err
		}
		if list, plugins, err = readConf(text); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(c.dir, c.after), err)
		}
		plugins = append(plugins, ours)
	}
	for _, p := range c.plugins {
		if !slices.ContainsFunc(plugins, func(x any) bool { m, _ := x.(map[string]any); return m["type"] == p }) {
			plugins = append(plugins, others[p])
		}
	}
	list["plugins"] = plugins
	out, err := json.MarshalIndent(list, "", "  ")
	return append(out, '\n'), err
}

// readConf reads a list of plugins, or the configuration of one as a list.
func readConf(text []byte) (list map[string]any, plugins []any, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, err
	}
	if isOurs(text) {
		return nil, nil, fmt.Errorf("it names %s already", plugin.Name)
	}
	plugins, isList := list["plugins"].([]any)
	switch {
	case isList && len(plugins) > 0:
		return list, plugins, nil
	case list["type"] == nil || list["name"] == nil:
		return nil, nil, errors.New("it is no network's configuration: it has neither plugins nor a type and a name")
	}
	return map[string]any{"cniVersion": list["cniVersion"], "name": list["name"]}, []any{list}, nil
}

// write writes the configuration, unless it is as it should be, or another's.
func (c netConf) write() error {
	if have, err := os.ReadFile(c.path()); err == nil && !isOurs(have) {
		return fmt.Errorf("%s does not name %s: it is somebody else's, and stays; delete it, or give another --cni-conf-name", c.path(), plugin.Name)
	}
	text, err := c.text()
	if err != nil {
		return err
	}
	return replace(c.path(), text, 0o644)
}

// before returns the configurations that runtimes take in place of ours: the first by name counts.
func (c netConf) before() (out []string) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	for _, f := range files {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(f.Name())) && f.Name() < c.name {
			out = append(out, f.Name())
		}
	}
	return out
}

// keep keeps the configuration right from when isReady says so, until ctx ends. It stays then: Pods wait
// for the agent to come back, and their runtime is not without a network meanwhile.
func (c netConf) keep(ctx context.Context, isReady func() bool, log *slog.Logger) {
	const soon, every = time.Second, 30 * time.Second
	wait, told := time.Duration(0), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if wait = soon; !isReady() && told == "" {
			continue
		}
		now := "written"
		if err := c.write(); err != nil {
			now = err.Error()
		} else if wait = every; len(c.before()) > 0 {
			now = "runtimes take another one in place of ours: " + strings.Join(c.before(), ", ")
		}
		if now != told {
			log.Info("the network's configuration", "file", c.path(), "state", now)
		}
		told = now
	}
}
