package datadir_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"isobar.dev/embedded/datadir"
)

func open(t *testing.T, path string) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "data")
	first := open(t, path)
	if err := first.Describe("pid 7"); err != nil {
		t.Fatal(err)
	}
	var inUse *datadir.InUseError
	if _, err := datadir.Open(path); !errors.As(err, &inUse) || inUse.Dir != path || inUse.Holder != "pid 7" {
		t.Errorf("second Open() = %v, want in use by pid 7", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestDirectoryBecomesPrivate(t *testing.T) {
	path := t.TempDir() // empty, and open to others
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	if err := d.WriteFile("key", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{path: 0o700, d.Path("key"): 0o600, d.Path("lock"): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

func TestForeignDirectory(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(path); err == nil || !strings.Contains(err.Error(), "choose an empty one") {
		t.Errorf("Open() of a directory with files = %v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(path, "lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused directory got a lock file: %v", err)
	}
}

func TestWriteFileReplaces(t *testing.T) {
	d := open(t, t.TempDir())
	for _, want := range []string{"one", "a second one"} {
		if err := d.WriteFile("f", []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.ReadFile("f"); string(got) != want || err != nil {
			t.Errorf("ReadFile() = %q, %v; want %q", got, err, want)
		}
	}
	if _, err := d.ReadFile("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile(missing) = %v, want fs.ErrNotExist", err)
	}
	left, err := filepath.Glob(d.Path(".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestListenKeepsItsPort(t *testing.T) {
	d := open(t, t.TempDir())
	first := listen(t, d, "127.0.0.1")
	if again, err := d.Listen("127.0.0.1"); err != nil {
		t.Errorf("Listen() with the last port taken: %v", err)
	} else {
		again.Close()
	}
	first.Close()

	second := listen(t, d, "127.0.0.1:0")
	port := second.Addr().(*net.TCPAddr).Port
	second.Close()
	third := listen(t, d, "localhost")
	if got := third.Addr().(*net.TCPAddr).Port; got != port {
		t.Errorf("port = %d, want that of the last start, %d", got, port)
	}
	third.Close()

	if err := d.WriteFile("port", []byte("-1\n")); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Listen("127.0.0.1"); err == nil {
		l.Close()
		t.Error("Listen() with an unreadable last port succeeded")
	}
}

func TestListenOnATakenPort(t *testing.T) {
	d := open(t, t.TempDir())
	l := listen(t, d, "127.0.0.1")
	addr := l.Addr().String()
	if again, err := d.Listen(addr); err == nil {
		again.Close()
		t.Errorf("Listen(%s) twice succeeded", addr)
	}
}

func listen(t *testing.T, d *datadir.Dir, addr string) net.Listener {
	t.Helper()
	l, err := d.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestSplitAddress(t *testing.T) {
	for _, tt := range []struct {
		in   string
		host string
		port int
		ok   bool
	}{
		{"127.0.0.1", "127.0.0.1", 0, true},
		{"127.0.0.1:6443", "127.0.0.1", 6443, true},
		{"localhost", "127.0.0.1", 0, true},
		{"localhost:1", "127.0.0.1", 1, true},
		{"::1", "::1", 0, true},
		{"[::1]:65535", "::1", 65535, true},
		{"0.0.0.0:0", "0.0.0.0", 0, true},
		{"", "", 0, false},
		{":6443", "", 0, false}, // would be every address: say so
		{"127.0.0.1:", "", 0, false},
		{"127.0.0.1:65536", "", 0, false},
		{"127.0.0.1:-1", "", 0, false},
		{"127.0.0.1:http", "", 0, false},
		{"example.com:1", "", 0, false}, // may resolve to anything
		{"[::1]", "", 0, false},
	} {
		host, port, err := datadir.SplitAddress(tt.in)
		if host != tt.host || port != tt.port || (err == nil) != tt.ok {
			t.Errorf("SplitAddress(%q) = %q, %d, %v; want %q, %d, ok %t", tt.in, host, port, err, tt.host, tt.port, tt.ok)
		}
	}
}

func FuzzSplitAddress(f *testing.F) {
	f.Add("127.0.0.1:6443")
	f.Add("[::1]:0")
	f.Fuzz(func(t *testing.T, s string) {
		host, port, err := datadir.SplitAddress(s)
		if err != nil {
			return
		}
		again, p, err := datadir.SplitAddress(net.JoinHostPort(host, strconv.Itoa(port)))
		if again != host || p != port || err != nil {
			t.Errorf("%q: %s %d became %s %d (%v)", s, host, port, again, p, err)
		}
	})
}
