package web

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

func TestFindOwner(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1060 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:A0F4 01 00000000:00000000 00:00000000 00000000     7        0 1061 1 0 100 0 0 10 0
   2: 0100007F:A0F4 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 1062 1 0 100 0 0 10 0
   3: 0100007F:A0F5 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0
   4: 0100007F:A0F6 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  1000        0 1063 1 0 100 0 0 10 0
   5: 0100007F:A0F7 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0
   6: 0000000000000000FFFF00000100007F:A0F8 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 1064 1 0 100 0 0 10 0
   7: 00000000000000000000000001000000:A0F9 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 1065 1 0 100 0 0 10 0
`
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("missing: a machine with the table's order of bytes")
	}
	for _, tt := range []struct {
		client, server string
		uid            int
		ok             bool
	}{
		{"127.0.0.1:41204", "127.0.0.1:8080", 1000, true},
		{"[::ffff:127.0.0.1]:41204", "[::ffff:127.0.0.1]:8080", 1000, true},
		{"127.0.0.1:41205", "127.0.0.1:8080", 0, false}, // closed by its process, which the table calls root's
		{"127.0.0.1:41206", "127.0.0.1:8080", 0, false}, // to another server
		{"127.0.0.1:41207", "127.0.0.1:8080", 0, false}, // of no process any more
		{"127.0.0.1:41208", "127.0.0.1:8080", 1001, true},
		{"[::1]:41209", "[::1]:8080", 1002, true},
		{"127.0.0.1:9", "127.0.0.1:8080", 0, false},
	} {
		uid, ok, err := findOwner(strings.NewReader(table), netip.MustParseAddrPort(tt.client), netip.MustParseAddrPort(tt.server))
		if uid != tt.uid || ok != tt.ok || err != nil {
			t.Errorf("%s to %s: %d, %t, %v; want %d, %t", tt.client, tt.server, uid, ok, err, tt.uid, tt.ok)
		}
	}
	for _, bad := range []string{"x", "0100007F", "0100007F:x", "01:1F90", "0100007G:1F90"} {
		if _, err := parseSocket(bad); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}

// Another user of the machine gets nothing, not even with the right name and a session's cookie.
func TestOtherUsersOfTheMachine(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("missing: root on Linux, to become another user")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("missing: bash")
	}
	codes := NewCodes(func(string) {})
	s, err := New(InProcess(http.NotFoundHandler(), "you", codes), Options{OnlyHere: true, Log: slog.New(slog.DiscardHandler), Assets: fstest.MapFS{"index.html": {Data: []byte("the page")}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	defer func() { cancel(); <-done }()
	port := l.Addr().(*net.TCPAddr).Port
	ask := func(uid uint32, host, path string) string {
		script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' >&3; cat <&3`, port, path, host)
		cmd := exec.CommandContext(t.Context(), bash, "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("as %d: %v: %s", uid, err, &out)
		}
		return out.String()
	}
	at := l.Addr().String()
	for _, path := range []string{"/", "/api/session", "/api/views/me"} {
		if got := ask(12345, at, path); !strings.HasPrefix(got, "HTTP/1.1 403") || !strings.Contains(got, "of another user") || strings.Contains(got, "the page") {
			t.Errorf("another user, %s: %s", path, got)
		}
	}
	if got := ask(0, at, "/"); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.Contains(got, "the page") {
		t.Errorf("this user: %s", got)
	}
	if got := ask(0, "evil.example", "/"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("by another name: %s", got)
	}
	t.Setenv("SUDO_UID", "12345")
	if got := ask(12345, at, "/"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("who has started this by sudo: %s", got)
	}
}
