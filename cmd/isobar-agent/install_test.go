package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"isobar.dev/dataplane/cni"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is written is what a runtime takes, with the plugins in their order; what is somebody else's stays.
func TestConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, after string // the other plugin's
		conf        netConf
		want        string // name, version and types of plugins
		refused     string
	}{
		{"alone", "", netConf{version: "1.1.0", plugins: []string{"portmap", "bandwidth"}}, "isobar 1.1.0 isobar-cni portmap bandwidth", ""},
		{"only ours", "", netConf{version: "1.0.0"}, "isobar 1.0.0 isobar-cni", ""},
		{"after a list", `{"cniVersion":"0.4.0","name":"aws-cni","disableCheck":true,"plugins":[{"type":"aws-cni","mtu":"9001"},{"type":"portmap"}]}`,
			netConf{after: "20-other.conflist", plugins: []string{"portmap", "bandwidth"}}, "aws-cni 0.4.0 aws-cni portmap isobar-cni bandwidth", ""},
		{"after one plugin", `{"cniVersion":"0.3.1","name":"net","type":"bridge","bridge":"br"}`, netConf{after: "20-other.conflist"}, "net 0.3.1 bridge isobar-cni", ""},
		{"after nothing", "", netConf{after: "20-other.conflist"}, "", "no such file"},
		{"after what is broken", `{"cniVersion":`, netConf{after: "20-other.conflist"}, "", "20-other.conflist: unexpected"},
		{"after what is empty", `{"name":"x","plugins":[]}`, netConf{after: "20-other.conflist"}, "", "no network's configuration"},
		{"after ours", `{"name":"x","plugins":[{"type":"isobar-cni"}]}`, netConf{after: "20-other.conflist"}, "", "already"},
	} {
		tt.conf.dir, tt.conf.name, tt.conf.socket = t.TempDir(), defaultConfName, cni.DefaultSocket
		if tt.after != "" {
			write(t, filepath.Join(tt.conf.dir, "20-other.conflist"), tt.after)
		}
		err := tt.conf.write()
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.refused)
			}
			if _, err := os.Stat(tt.conf.path()); err == nil {
				t.Errorf("%s: something is written", tt.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		list, err := libcni.ConfListFromFile(tt.conf.path())
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := list.Name + " " + list.CNIVersion
		for _, p := range list.Plugins {
			got += " " + p.Network.Type
		}
		if got != tt.want || list.DisableCheck != strings.Contains(tt.after, "disableCheck") {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		before, _ := os.Stat(tt.conf.path())
		if err := tt.conf.write(); err != nil {
			t.Error(err)
		}
		if after, _ := os.Stat(tt.conf.path()); !os.SameFile(before, after) {
			t.Errorf("%s: what is equal is written", tt.name)
		}
	}
	c := netConf{dir: t.TempDir(), name: defaultConfName, socket: "/else.sock", version: "1.0.0"}
	write(t, c.path(), `{"name":"x","plugins":[{"type":"flannel"}]}`)
	if err := c.write(); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("another's is replaced: %v", err)
	}
	if err := (netConf{name: "../x.conflist"}).check(); err == nil {
		t.Error("a path is taken for a name")
	}
	if err := (netConf{name: defaultConfName, plugins: []string{"sbr"}}).check(); err == nil {
		t.Error("a plugin that is not known is taken")
	}
}

// The configuration is there when Pods can be attached and not before, and again when somebody has
// deleted it; it stays when the agent ends.
func TestConfigurationIsKept(t *testing.T) {
	c := netConf{dir: t.TempDir(), name: defaultConfName, socket: "/else.sock", version: "1.0.0"}
	write(t, filepath.Join(c.dir, "05-first.conf"), "{}")
	var ready atomic.Bool
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	asked := make(chan struct{}, 100)
	go func() {
		defer close(ended)
		c.keep(ctx, func() bool {
			asked <- struct{}{}
			return ready.Load()
		}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	<-asked
	if _, err := os.Stat(c.path()); err == nil {
		t.Error("it is there too early")
	}
	ready.Store(true)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(c.path()); err == nil && strings.Contains(string(text), `"socket": "/else.sock"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not written")
		}
	}
	cancel()
	<-ended
	if _, err := os.Stat(c.path()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "05-first.conf") {
		t.Errorf("that another comes first is not told: %s", log.String())
	}
}

// What is installed is taken away again, and nothing that is another's.
func TestInstall(t *testing.T) {
	from, bin, conf := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, "isobar-cni"), "one")
	write(t, filepath.Join(bin, "portmap"), "another's")
	run := func(args ...string) error {
		cmd := command()
		cmd.SetArgs(args)
		return cmd.Execute()
	}
	install := []string{"install", "--from", filepath.Join(from, "isobar-cni"), "--to", bin}
	for _, text := range []string{"one", "two"} {
		write(t, filepath.Join(from, "isobar-cni"), text)
		if err := run(install...); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(bin, "isobar-cni"))
		if info, _ := os.Stat(filepath.Join(bin, "isobar-cni")); err != nil || string(got) != text || info.Mode().Perm() != 0o755 {
			t.Errorf("%q, %v, %v", got, info.Mode(), err)
		}
	}
	c := netConf{dir: conf, name: defaultConfName, version: "1.0.0", socket: cni.DefaultSocket}
	uninstall := []string{"uninstall", "--bin-dir", bin, "--cni-conf-dir", conf}
	write(t, c.path(), `{"name":"x","plugins":[{"type":"flannel"}]}`)
	if err := run(uninstall...); err == nil {
		t.Error("another's configuration is taken away")
	}
	if err := os.Remove(c.path()); err != nil {
		t.Fatal(err)
	}
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := run(uninstall...); err != nil {
			t.Error(err)
		}
	}
	var left []string
	for _, dir := range []string{bin, conf} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			left = append(left, f.Name())
		}
	}
	if !slices.Equal(left, []string{"portmap"}) {
		t.Errorf("left are %q", left)
	}
}
