package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/control/enroll"
)

func TestParseSSH(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string
		ok   bool
	}{
		{"0.0.0.0/0,::/0", "[0.0.0.0/0 ::/0]", true},
		{"none", "[]", true},
		{"none,10.0.0.0/8", "[]", false},
		{"10.0.0.1/8", "[]", false}, // not the first address
		{"10.0.0.1", "[]", false},
		{"::ffff:10.0.0.0/104", "[]", false},
	} {
		got, err := parseSSH(strings.Split(tt.in, ","))
		if fmt.Sprint(got) != tt.want || (err == nil) != tt.ok {
			t.Errorf("parseSSH(%q) = %v, %v; want %s, ok %t", tt.in, got, err, tt.want, tt.ok)
		}
	}
	if got, err := parseSSH(nil); err == nil { // an empty list is a mistake, and not nobody
		t.Errorf("parseSSH() = %v", got)
	}
}

func TestVMFlags(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "conf")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: https://10.0.0.1:10443}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {token: t}}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want string // in the error; empty for none
	}{
		{"--antrea-kubeconfig " + conf + " --name shop/db", ""},
		{"", ""},
		{"--bypass-ssh none --bypass ingress,10.0.0.0/8,TCP/9100 --unreadable open --watchdog 0", ""},
		{"--antrea-kubeconfig " + conf, "--name"},
		{"--antrea-kubeconfig " + conf + " --name shop/db/x", "--name"},
		{"--name shop/db", "--name"},
		{"--antrea-kubeconfig /none --name shop/db", "--antrea-kubeconfig"},
		{"--unreadable shut", "--unreadable"},
		{"--watchdog -1s", "--watchdog"},
		{"--bypass ingress,10.0.0.0/8", "--bypass"},
		{"--inner-interface eth[", "--inner-interface"},
		{"--log-level loud", "--log-level"},
	} {
		var f vmFlags
		cmd := vmCommand()
		// What the command reads, its RunE would take.
		if err := cmd.ParseFlags(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		get := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
		f.name, f.antrea, f.unreadable, f.level = get("name"), get("antrea-kubeconfig"), get("unreadable"), get("log-level")
		f.ssh, _ = cmd.Flags().GetStringSlice("bypass-ssh")
		f.bypass, _ = cmd.Flags().GetStringArray("bypass")
		f.inner, _ = cmd.Flags().GetStringSlice("inner-interface")
		f.watchdog, _ = cmd.Flags().GetDuration("watchdog")
		o, err := f.options()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
		if tt.args == "" && (len(o.SSH) != 2 || o.UnreadableOpen || o.NoWatch || o.SSH[0] != netip.MustParsePrefix("0.0.0.0/0")) {
			t.Errorf("by default: %+v", o)
		}
	}
}

// A machine that has not joined has nothing to enforce, unless it had.
func TestAwaitIdentity(t *testing.T) {
	dir := t.TempDir()
	id := &identity{dir: filepath.Join(dir, "identity"), log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	ctx, cancel := context.WithCancel(t.Context())
	idle := 0
	name, err := id.await(ctx, dir, func() { idle++; cancel() })
	if name != "" || !errors.Is(err, context.Canceled) || idle != 1 {
		t.Errorf("not joined: %q, %v, idle %d", name, err, idle)
	}
	if _, err := id.endpoint(ctx); !errors.Is(err, enroll.ErrNotJoined) {
		t.Errorf("endpoint: %v", err)
	}
	if err := keepName(dir, "shop/db"); err != nil {
		t.Fatal(err)
	}
	name, err = id.await(t.Context(), dir, func() { t.Error("idle") })
	if name != "shop/db" || err != nil {
		t.Errorf("kept: %q, %v", name, err)
	}
}

func TestReply(t *testing.T) {
	for text, want := range map[string]bool{`{"vm":"shop/db","state":"Enforcing","policies":2,"realizedPolicies":2}`: true, `{"node":"n","policies":2}`: false} {
		if r, ok, err := vm.ParseReply([]byte(text)); ok != want || err != nil || r.IsWhole() != want {
			t.Errorf("%s: %+v, %t, %v", text, r, ok, err)
		}
	}
	r, _, _ := vm.ParseReply([]byte(`{"vm":"shop/db","state":"Failing","policies":2,"realizedPolicies":1,"lastError":"why","interfaces":[{"name":"eth0","ips":["10.0.0.1","fd00::1"]}]}`))
	var b strings.Builder
	r.Print(&b)
	const want = "VM:        shop/db\nState:     failing\nPolicies:  2, of which 1 are enforced as written\nError:     why\nInterface: eth0 10.0.0.1 fd00::1\n"
	if b.String() != want || r.IsWhole() {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// A server that takes no reports is told of, whatever is enforced.
func TestReplyAway(t *testing.T) {
	r := vm.Reply{VM: "shop/db", Away: "revoked", AwaySince: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)}
	r.State = runtimev1alpha1.AgentEnforcing
	var b strings.Builder
	r.Print(&b)
	const want = "VM:        shop/db\nState:     enforcing\nPolicies:  0, of which 0 are enforced as written\nServer:    has taken no report since 2026-01-02 03:04:05: revoked\n"
	if b.String() != want || !r.IsWhole() {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// Each command that does something shows how it is called.
func TestExamples(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its help has no example of it: %q", c.CommandPath(), c.Example)
		}
		for _, x := range c.Commands() {
			walk(x)
		}
	}
	walk(command())
}
