package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestBehindStub(t *testing.T) {
	was := resolvConfs
	defer func() { resolvConfs = was }()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	resolvConfs = []string{filepath.Join(t.TempDir(), "none"), path}
	if got := behindStub("127.0.0.53:53"); got != "127.0.0.53:53" {
		t.Errorf("without a file: %s", got)
	}
	text := "# made by somebody\nsearch example.com\nnameserver 127.0.0.1\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := servers(text), []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fe80::1%eth0")}; !slices.Equal(got, want) {
		t.Errorf("servers: %v, want %v", got, want)
	}
	seen := map[string]bool{}
	for range 4 {
		seen[behindStub("127.0.0.53:53")] = true
	}
	if len(seen) != 2 || !seen["10.0.0.2:53"] || !seen["[fe80::1%eth0]:53"] {
		t.Errorf("behind a stub: %v", seen)
	}
	if got := behindStub("10.9.9.9:53"); got != "10.9.9.9:53" {
		t.Errorf("a server that is none: %s", got)
	}
}
