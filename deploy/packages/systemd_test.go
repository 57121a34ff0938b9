package packages_test

import (
	"os/exec"
	"strings"
	"testing"
)

// boot has systemd run in the root of prelude, and defines in_vm, which runs a command there, and await.
const boot = `
[ -x /lib/systemd/systemd ] || { echo "NO SYSTEMD"; exit 0; }
cat >"$top/boot" <<'END'
set -eu
r=$1
mount --make-rprivate /
mount -t sysfs sysfs "$r/sys"
mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
mount -t tmpfs tmpfs "$r/run"
mount -t tmpfs tmpfs "$r/tmp"
umount -R "$r/dev" "$r/proc"
mount -t proc proc "$r/proc"
mount -t tmpfs -o mode=755 tmpfs "$r/dev"
for d in null zero full random urandom tty; do : >"$r/dev/$d"; mount --bind "/dev/$d" "$r/dev/$d"; done
mkdir "$r/dev/pts" "$r/dev/shm" "$r/old"
mount -t devpts devpts "$r/dev/pts"
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
# Nothing of this machine is started there.
rm -rf "$r"/etc/systemd/system/*.wants
: >"$r/etc/fstab"
cd "$r"
pivot_root . old
umount -l /old
exec env -i container=other PATH="$PATH" /lib/systemd/systemd --system --unit=basic.target --log-target=journal
END
mount -t proc proc /proc # of this namespace of processes
mkdir "$top/cgroup"
mount -t cgroup2 cgroup2 "$top/cgroup" && group=$(mktemp -d "$top/cgroup/isobar-test-XXXXXX") || { echo "NO SYSTEMD: no control group"; exit 0; }
# What it has made of control groups outlives this namespace.
end() {
	code=$?
	set +e
	[ -z "$machine" ] || { kill -KILL "$machine"; wait "$machine"; } 2>/dev/null # unshare takes no other
	for i in $(seq 100); do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; [ -e "$group" ] || break; sleep 0.1; done
	exit $code
}
machine=
trap end EXIT
sh -c 'echo 0 >"$1/cgroup.procs" && exec unshare --mount --pid --cgroup --uts --ipc --fork --kill-child sh "$2/boot" "$2/root"' sh "$group" "$top" >"$top/console" 2>&1 &
machine=$!
in_vm() { nsenter -t "$init" -m -p -u -i -C env -i LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH="$PATH" HOME=/root "$@" </dev/null; }
# await waits for a command to succeed, and fails with what it says.
await() {
	what=$1; shift
	for i in $(seq 600); do
		! "$@" >"$top/said" 2>&1 || return 0
		kill -0 "$machine" 2>/dev/null || break
		sleep 0.1
	done
	in_vm journalctl --no-pager -n 30 || true
	fail "$what: $(cat "$top/said") $(cat "$top/console")"
}
has_booted() {
	init=$(cat "/proc/$machine/task/$machine/children") && init=${init% } && [ -n "$init" ] && in_vm systemctl is-active basic.target
}
for i in $(seq 600); do has_booted >/dev/null 2>&1 && break; kill -0 "$machine" 2>/dev/null || break; sleep 0.1; done
has_booted >/dev/null 2>&1 || { echo "NO SYSTEMD: $(cat "$top/console")"; exit 0; }
`

// Under systemd, with all that its unit takes from it, the agent has its rules in the kernel when systemd takes it for started. An
// upgrade starts the new one, and the rules stay meanwhile; a removal stops it, and takes the rules away.
func TestAgentUnderSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("builds binaries; -short")
	}
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Skip("missing: dpkg")
	}
	dir, bin := t.TempDir(), binaries(t)
	for _, version := range []string{"0.1.0", "0.1.1"} {
		makePackages(t, dir, bin, "--version="+version, "--arch="+strings.TrimSpace(string(arch)), "--only=isobar-agent")
	}
	inRoot(t, dir, boot+`
in_vm sh -c 'dpkg -i /mnt/isobar-agent_0.1.0*.deb' >/dev/null
[ "$(in_vm systemctl is-enabled isobar-agent || true)" = disabled ] || fail "it is enabled before the machine has joined"
cat >"$top/root/etc/isobar/agent.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: none}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
END
echo 'ISOBAR_AGENT_FLAGS="--name=shop/db-1 --antrea-kubeconfig=/etc/isobar/agent.conf"' >"$top/root/etc/isobar/agent.env"
in_vm systemctl enable --now isobar-agent 2>/dev/null || fail "it does not start: $(in_vm journalctl --no-pager -u isobar-agent)"
nft list table inet isobar >/dev/null || fail "it has started, and there are no rules"
in_vm isobar-agent status >"$top/status" 2>&1 || true # it has no server
grep -q '^VM: *shop/db-1$' "$top/status" || fail "it does not say how it is: $(cat "$top/status")"
! in_vm journalctl --no-pager -u isobar-agent | grep "not permitted" || fail "its unit leaves it too few rights"

main() { in_vm systemctl show -p MainPID --value isobar-agent; }
first=$(main)
in_vm systemctl kill -s KILL isobar-agent
nft list table inet isobar >/dev/null || fail "it is killed, and its rules are gone"
restarted() { [ "$(main)" != "$first" ] && in_vm systemctl is-active isobar-agent; }
await "another one runs" restarted
first=$(main)
in_vm sh -c 'dpkg -i /mnt/isobar-agent_0.1.1*.deb' >/dev/null
nft list table inet isobar >/dev/null || fail "the upgrade has taken the rules away"
restarted >/dev/null || fail "the upgrade has not started the new agent"

in_vm dpkg -r isobar-agent >/dev/null 2>&1 || fail "dpkg -r"
[ -z "$(nft list tables)" ] || fail "after the removal there are $(nft list tables)"
[ "$(in_vm systemctl is-active isobar-agent || true)" = inactive ] || fail "the agent runs after its removal"
rm "$top/root/etc/isobar/agent.conf"
in_vm dpkg --purge isobar-agent >/dev/null
for f in var/lib/isobar-agent etc/isobar etc/systemd/system/multi-user.target.wants/isobar-agent.service; do
	[ ! -e "$top/root/$f" ] || fail "after purge there is /$f"
done
`)
}
