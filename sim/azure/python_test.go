package azure_test

import (
	"bytes"
	_ "embed"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"isobar.dev/sim/azure"
)

//go:embed testdata/drive.py
var drivePython []byte

// TestPythonSDK drives the simulator with Microsoft's SDK for Python, which has a mind of its own about
// polling, pages and api-versions. Debian has it in python3-azure.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // the one for which Debian's packages are
	if out, err := exec.Command(python, "-c", "import azure.identity, azure.mgmt.network, azure.mgmt.compute, azure.mgmt.resource").CombinedOutput(); err != nil {
		t.Skipf("missing: the Azure SDK for Python (python3-azure): %v %s", err, bytes.TrimSpace(out))
	}
	s := newSim(t, azure.Sample(), azure.Options{PageSize: 3})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-")
	cmd.Stdin = bytes.NewReader(drivePython)
	cmd.Env = append(os.Environ(), "ENDPOINT="+s.srv.URL, "REQUESTS_CA_BUNDLE="+ca, "TENANT="+azure.SampleTenant, "CLIENT="+azure.SampleClientID,
		"SECRET="+azure.SampleSecret, "SUBSCRIPTION="+azure.SampleSubscription,
		// Whatever is not for the simulator ends at a proxy that is not there.
		"HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := bytes.TrimSpace(out); !bytes.HasSuffix(got, []byte("done")) {
		t.Errorf("%s", got)
	}
	if v := s.cloud.Reach(azure.Flow{From: "10.244.0.9", To: "py", Protocol: "tcp", Port: 8443}); v.Result != azure.Allowed || v.Ingress.Rule != "pods" {
		t.Errorf("the machine that it made: %+v", v)
	}
}
