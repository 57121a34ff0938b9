package machines

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// Bounds of what one agent may say.
const (
	MaxInterfaces = 64
	MaxIPs        = 64   // of one interface
	MaxText       = 256  // bytes of a version or a name
	MaxError      = 1024 // bytes of the last error
)

// Check returns what is wrong with what an agent says of itself, which may be anything, or nil.
func Check(s *runtimev1alpha1.VirtualMachineRuntimeInfoStatus) error {
	for _, x := range []struct{ field, text string }{
		{"agentVersion", s.AgentVersion}, {"kernelVersion", s.KernelVersion}, {"osImage", s.OSImage}, {"machineID", s.MachineID},
	} {
		if err := checkText("status."+x.field, x.text, MaxText); err != nil {
			return err
		}
	}
	switch s.State {
	case runtimev1alpha1.AgentWaiting, runtimev1alpha1.AgentEnforcing, runtimev1alpha1.AgentFailing, runtimev1alpha1.AgentOff:
	default:
		return fmt.Errorf("status.state: want Waiting, Enforcing, Failing or Off")
	}
	for _, x := range []struct {
		field string
		n     int32
	}{{"policies", s.Policies}, {"realizedPolicies", s.RealizedPolicies}, {"failedPolicies", s.FailedPolicies}} {
		if x.n < 0 {
			return fmt.Errorf("status.%s: %d is less than 0", x.field, x.n)
		}
	}
	if err := checkText("status.lastError", strings.Map(spaced, s.LastError), MaxError); err != nil {
		return err
	}
	return checkInterfaces(s.Interfaces)
}

func checkInterfaces(in []runtimev1alpha1.VirtualMachineInterface) error {
	if len(in) > MaxInterfaces {
		return fmt.Errorf("status.interfaces: %d are too many, want at most %d", len(in), MaxInterfaces)
	}
	seen := map[string]bool{}
	for i, n := range in {
		at := fmt.Sprintf("status.interfaces[%d]", i)
		if err := checkText(at+".name", n.Name, MaxText); err != nil {
			return err
		}
		if n.Name == "" || seen[n.Name] {
			return fmt.Errorf("%s.name: want one that no other has", at)
		}
		seen[n.Name] = true
		if n.MAC != "" {
			if _, err := net.ParseMAC(n.MAC); err != nil || len(n.MAC) > MaxText {
				return fmt.Errorf("%s.mac: is no MAC address", at)
			}
		}
		if len(n.IPs) > MaxIPs {
			return fmt.Errorf("%s.ips: %d are too many, want at most %d", at, len(n.IPs), MaxIPs)
		}
		for j, ip := range n.IPs {
			if a, err := netip.ParseAddr(ip); err != nil || a.Zone() != "" {
				return fmt.Errorf("%s.ips[%d]: is no IP address", at, j)
			}
		}
	}
	return nil
}

func checkText(field, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%s: %d bytes are too many, want at most %d", field, len(text), most)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%s: has control characters", field)
	}
	return nil
}

// spaced is a rune of an error as it is kept: on one line.
func spaced(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// Clean returns what an agent has said, which Check has passed, without what is not for it to
// say.
func Clean(s runtimev1alpha1.VirtualMachineRuntimeInfoStatus) runtimev1alpha1.VirtualMachineRuntimeInfoStatus {
	s.LastError = strings.Map(spaced, s.LastError)
	s.HeartbeatTime, s.Conditions = metav1.Time{}, nil
	return s
}
