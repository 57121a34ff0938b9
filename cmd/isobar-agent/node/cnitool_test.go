package node_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/testutils"

	"isobar.dev/cmd/isobar-agent/node"
)

// The command of containernetworking drives the plugin, as administrators do by hand.
func TestCnitool(t *testing.T) {
	c := newCluster(t)
	built := filepath.Join(c.dir, "built")
	if out, err := exec.Command("go", "-C", "../../../tools/cni", "build", "-o", built+"/", "github.com/containernetworking/cni/cnitool").CombinedOutput(); err != nil {
		t.Fatalf("build cnitool: %v\n%s", err, out)
	}
	c.run(func(*node.Options) {})
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "isobar", "plugins": []any{map[string]any{"type": "isobar-cni", "socket": c.socket("node-1")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "10-isobar.conflist"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	space, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(space.Close(), testutils.UnmountNS(space)); err != nil {
			t.Error(err)
		}
	})
	run := func(command string) (string, error) {
		cmd := exec.Command(filepath.Join(built, "cnitool"), command, "isobar", space.Path())
		cmd.Env = append(os.Environ(), "NETCONFPATH="+c.dir, "CNI_PATH="+filepath.Join(c.dir, "plugins"), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=byhand")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		return string(out) + stderr.String(), err
	}
	must := func(command string) string {
		t.Helper()
		out, err := run(command)
		if err != nil {
			t.Fatalf("cnitool %s: %v\n%s", command, err, out)
		}
		return out
	}
	first := must("add")
	result, err := types100.NewResult([]byte(first))
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	ips := result.(*types100.Result).IPs
	if len(ips) != 1 || !c.lab.Nodes[0].Ranges[0].Contains(addrOf(t, ips[0])) {
		t.Errorf("addresses %v of %v", ips, c.lab.Nodes[0].Ranges)
	}
	must("check")
	must("del")
	must("del")
	if out, err := run("check"); err == nil {
		t.Errorf("check after del: %s", out)
	}
}

func addrOf(t *testing.T, c *types100.IPConfig) netip.Addr {
	t.Helper()
	a, ok := netip.AddrFromSlice(c.Address.IP)
	if !ok {
		t.Fatalf("address %v", c)
	}
	return a.Unmap()
}
