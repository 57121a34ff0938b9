package packages_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var toolDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "isobar-packager-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	toolDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// tool is the packager, in toolDir. It is a package variable because building it takes a while.
var tool = sync.OnceValues(func() (string, error) {
	out := filepath.Join(toolDir, "packages")
	if text, err := exec.Command("go", "-C", "../../tools/packages", "build", "-o", out, ".").CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(text), Err: err}
	}
	return out, nil
})

// binaries is a folder with the agent, and with scripts for what is too large to be packed in a test.
func binaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", "../../cmd/isobar-agent").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	for _, name := range []string{"isobar", "isobar-control-plane"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// makePackages makes packages of binaries, and returns the files.
func makePackages(t *testing.T, out, binaries string, args ...string) []string {
	t.Helper()
	path, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"--out=" + out, "--binaries=" + binaries, "--root=../.."}, args...)...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("packages: %v\n%s", err, text)
	}
	return strings.Fields(string(text))
}

// The same inputs give the same bytes, for each architecture and format.
func TestPackagesAreReproducible(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"isobar", "isobar-agent", "isobar-control-plane"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("binary "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		first, second := makePackages(t, t.TempDir(), bin, "--arch="+arch), makePackages(t, t.TempDir(), bin, "--arch="+arch)
		if len(first) != 4 || len(second) != 4 {
			t.Fatalf("%s: made %q and %q; want two debs and two rpms", arch, first, second)
		}
		sums := map[string][sha256.Size]byte{}
		for _, f := range append(first, second...) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(text)
			if had, ok := sums[filepath.Base(f)]; ok && had != sum {
				t.Errorf("%s is another one the second time", filepath.Base(f))
			}
			sums[filepath.Base(f)] = sum
		}
	}
}

// The server's package has the names by which kubectl finds isobar.
func TestPackagesLinkForKubectl(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("missing: dpkg-deb")
	}
	bin := t.TempDir()
	for _, name := range []string{"isobar", "isobar-agent", "isobar-control-plane"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("binary "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range makePackages(t, t.TempDir(), bin, "--arch=amd64") {
		if filepath.Ext(f) != ".deb" {
			continue
		}
		list, err := exec.Command("dpkg-deb", "--contents", f).Output()
		if err != nil {
			t.Fatal(err)
		}
		isServer := strings.HasPrefix(filepath.Base(f), "isobar-server")
		for _, link := range []string{"./usr/bin/kubectl-isobar -> isobar\n", "./usr/bin/kubectl_complete-isobar -> isobar\n"} {
			if strings.Contains(string(list), link) != isServer {
				t.Errorf("%s: has %q: %t, want %t\n%s", filepath.Base(f), link, !isServer, isServer, list)
			}
		}
	}
}

// The units are what systemd takes.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("missing: systemd-analyze")
	}
	units, err := filepath.Glob("../systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("units %q, %v", units, err)
	}
	dir := t.TempDir()
	for _, u := range units {
		text, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		// What they start is not installed here.
		text = []byte(strings.NewReplacer("/usr/bin/isobar-agent", "/bin/true", "/usr/bin/isobar", "/bin/true").Replace(string(text)))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(u)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, filepath.Base(u))).CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(u)) {
			t.Errorf("%s: %v\n%s", u, err, out)
		}
	}
}

// prelude makes a root of this machine's Debian in which nothing that is written is kept: the machine's files
// below, and what is written, and what is taken away, in upper. It is the root of a mount, network and
// process namespace of its own.
const prelude = `set -eu
top=$1 packages=$2
fail() { echo "FAIL: $*"; exit 1; }
mount -t tmpfs -o size=2g isobar-root "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root" || { echo "NO OVERLAY"; exit 0; }
mount --rbind /dev "$top/root/dev"
mount -t proc proc "$top/root/proc"
mkdir -p "$top/root/mnt"
mount --bind "$packages" "$top/root/mnt"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
in_root() { chroot "$top/root" "$@" </dev/null; }
# left lists what is there and was not, or is not there and was.
left() {
	(cd "$top/upper" && find . \( ! -type d -o -empty \) ! -path './var/lib/dpkg/*' ! -path './var/lib/rpm/*' ! -path './usr/lib/sysimage/*' ! -path './var/log/*' ! -path './root/*' ! -path './mnt' ! -path './run/*' ! -path './tmp*' ! -path './var/cache/*' \
		! -name 'passwd*' ! -name 'group*' ! -name 'shadow*' ! -name 'gshadow*' ! -name 'subuid*' ! -name 'subgid*' ! -name '.pwd.lock' |
		while read -r f; do [ -d "$f" ] && [ -d "/$f" ] || echo "$f"; done | sort)
}
clean() {
	l=$(left)
	[ -z "$l" ] || fail "after $1 there are: $l"
	for f in passwd group shadow; do cmp -s "/etc/$f" "$top/root/etc/$f" || fail "after $1 /etc/$f is another one"; done
}
ip link set lo up
`

// inRoot runs a script in such a root.
func inRoot(t *testing.T, packages, script string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, for a root directory of its own")
	}
	for _, name := range []string{"dpkg", "unshare", "setpriv", "nft", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("missing: %s", name)
		}
	}
	out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", prelude+script, "sh", t.TempDir(), packages).CombinedOutput()
	if strings.Contains(string(out), "NO OVERLAY") {
		t.Skip("missing: a file system over which an overlay can be mounted")
	}
	if strings.Contains(string(out), "NO SYSTEMD") {
		t.Skipf("missing: a systemd that starts in namespaces: %s", out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Packages are installed, upgraded, removed and purged, and nothing is left. An upgrade leaves the rules in the
// kernel; a removal does not.
func TestPackagesComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds binaries; -short")
	}
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Skip("missing: dpkg")
	}
	dir, bin := t.TempDir(), binaries(t)
	for _, version := range []string{"0.1.0", "0.1.1"} {
		makePackages(t, dir, bin, "--version="+version, "--arch="+strings.TrimSpace(string(arch)))
	}
	t.Run("agent", func(t *testing.T) {
		inRoot(t, dir, `
in_root sh -c 'dpkg -i /mnt/isobar-agent_0.1.0*.deb' >/dev/null
[ -z "$(in_root dpkg --verify isobar-agent)" ] || fail "dpkg --verify: $(in_root dpkg --verify isobar-agent)"
[ -z "$(nft list tables)" ] || fail "the installation has made rules"
[ ! -e "$top/root/etc/systemd/system/multi-user.target.wants/isobar-agent.service" ] || fail "it is enabled before the machine has joined"
[ "$(stat -c %a "$top/root/etc/isobar/agent.env")" = 600 ] || fail "agent.env is not private"

# An agent without a server has a table, which stays when it ends.
cat >"$top/root/root/agent.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: none}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
END
mkdir -p "$top/root/var/lib/isobar-agent"
# It has the rights that its unit leaves it.
rights=$(sed -n 's/^CapabilityBoundingSet=//p' "$top/root/usr/lib/systemd/system/isobar-agent.service" | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
[ -n "$rights" ] || fail "the unit bounds no rights"
chroot "$top/root" setpriv --no-new-privs --bounding-set="-all,$rights" isobar-agent vm --name=shop/db-1 --antrea-kubeconfig=/root/agent.conf --health-addr=0 >"$top/log" 2>&1 </dev/null &
agent=$!
for i in $(seq 300); do [ -n "$(nft list tables)" ] && break; kill -0 $agent || break; sleep 0.1; done
[ -n "$(nft list tables)" ] || fail "the agent has made no table: $(cat "$top/log")"
! grep -q "not permitted" "$top/log" || fail "the unit leaves the agent too few rights: $(cat "$top/log")"
kill $agent; wait $agent || true
[ -n "$(nft list tables)" ] || fail "the agent has taken its table away"

echo 'ISOBAR_AGENT_FLAGS="--log-level=debug"' >"$top/root/etc/isobar/agent.env"
in_root sh -c 'dpkg -i /mnt/isobar-agent_0.1.1*.deb' >/dev/null
[ -n "$(nft list tables)" ] || fail "the upgrade has taken the rules away"
grep -q debug "$top/root/etc/isobar/agent.env" || fail "the upgrade has replaced agent.env"

in_root dpkg -r isobar-agent >/dev/null
[ -z "$(nft list tables)" ] || fail "after the removal there are $(nft list tables)"
[ -d "$top/root/var/lib/isobar-agent" ] || fail "the removal has taken the state away"
[ ! -e "$top/root/var/lib/isobar-agent/off" ] || fail "the machine stays switched off"
in_root dpkg --purge isobar-agent >/dev/null
rm -f "$top/root/root/agent.conf"
clean purge
`)
	})
	t.Run("server", func(t *testing.T) {
		inRoot(t, dir, `
in_root sh -c 'dpkg -i /mnt/isobar-server_0.1.0*.deb' >/dev/null
[ -z "$(in_root dpkg --verify isobar-server)" ] || fail "dpkg --verify: $(in_root dpkg --verify isobar-server)"
[ "$(in_root stat -c '%U %a' /var/lib/isobar-server)" = "isobar-server 700" ] || fail "the state is not its own"
in_root /usr/lib/isobar/isobar-control-plane --version >/dev/null
in_root isobar
echo kept >"$top/root/var/lib/isobar-server/state"
in_root sh -c 'dpkg -i /mnt/isobar-server_0.1.1*.deb' >/dev/null
in_root dpkg -r isobar-server >/dev/null
[ -e "$top/root/var/lib/isobar-server/state" ] || fail "the removal has taken the state away"
in_root dpkg --purge isobar-server >/dev/null
clean purge
`)
	})
	t.Run("rpm", func(t *testing.T) {
		if _, err := exec.LookPath("rpm"); err != nil {
			t.Skip("missing: rpm")
		}
		inRoot(t, dir, `
in_root rpm --initdb
for name in isobar-agent isobar-server; do
	for version in 0.1.0 0.1.1; do
		in_root sh -c "rpm -U --nodeps /mnt/$name-$version*.rpm" || fail "rpm -U $name $version"
		in_root rpm -V --nodeps $name || fail "rpm -V $name"
	done
	for f in $(in_root rpm -ql $name); do [ -e "$top/root$f" ] || fail "$name has no $f"; done
	in_root rpm -e $name || fail "rpm -e $name"
done
# rpm knows no purge: the server's state and user stay.
in_root sh -c 'rm -rf /var/lib/isobar-server; userdel isobar-server'
clean 'rpm -e'
`)
	})
}
