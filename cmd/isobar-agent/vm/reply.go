package vm

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// Reply is what the agent of a VM answers who asks on the machine.
type Reply struct {
	VM string `json:"vm"` // namespace and name of the ExternalNode
	Status
	// Inner are the interfaces that lead to what is behind the machine.
	Inner []string `json:"inner,omitempty"`
	// Leaving means that the rules are in force still, until a cloud enforces.
	Leaving  bool      `json:"leaving,omitempty"`
	Kept     bool      `json:"kept,omitempty"` // the controller has not been reached since the start
	LastGood time.Time `json:"lastGood,omitzero"`
	// Away is why the server takes no reports of this machine, and AwaySince since when. It is enforced what was known then, and
	// nobody hears of that.
	Away      string    `json:"away,omitempty"`
	AwaySince time.Time `json:"awaySince,omitzero"`
	// Lacks are the kinds of which the controller has read less than is enforced, which stays.
	Lacks []string `json:"lacks,omitempty"`
	// Refusals are what the kernel does not enforce exactly.
	Refusals []string `json:"refusals,omitempty"`
}

// Reply returns what to answer.
func (m *Machine) Reply() Reply {
	a := m.r.agent.Status()
	out := Reply{VM: m.r.o.Namespace + "/" + m.r.o.Name, Status: m.Status(), Inner: m.Inner(), Kept: a.Kept, LastGood: a.LastGood, Leaving: IsLeaving(m.r.o.StateDir), Lacks: a.Lag.Lacks}
	m.r.mu.Lock()
	if out.Away = cut(m.r.refusal); out.Away != "" {
		out.AwaySince = m.r.taken
	}
	m.r.mu.Unlock()
	for _, r := range a.Report.Refusals {
		out.Refusals = append(out.Refusals, fmt.Sprintf("%s: %s", r.Policy, r.Message))
	}
	return out
}

// ParseReply reads a Reply; ok is false for the answer of a Node's agent.
func ParseReply(text []byte) (r Reply, ok bool, err error) {
	err = json.Unmarshal(text, &r)
	return r, r.VM != "", err
}

// IsWhole says whether all policies are enforced as they are written.
func (r Reply) IsWhole() bool {
	return r.State == runtimev1alpha1.AgentEnforcing && r.RealizedPolicies == r.Policies
}

// Print prints a Reply for people.
func (r Reply) Print(out io.Writer) {
	state := map[runtimev1alpha1.AgentState]string{
		runtimev1alpha1.AgentWaiting: "waiting: it is not known yet which policies there are", runtimev1alpha1.AgentEnforcing: "enforcing",
		runtimev1alpha1.AgentFailing: "failing", runtimev1alpha1.AgentOff: "off: nothing is enforced until `isobar-agent on`",
	}[r.State]
	if r.State == runtimev1alpha1.AgentEnforcing && r.Kept {
		state = "enforcing what was kept: the controller has not been reached since the start"
	}
	if r.Leaving {
		state = "leaving: it is switched off as soon as the cloud enforces, or the time for that is over"
	}
	if len(r.Lacks) > 0 {
		state += "; the controller lags behind that in " + strings.Join(r.Lacks, ", ")
	}
	fmt.Fprintf(out, "VM:        %s\nState:     %s\nPolicies:  %d, of which %d are enforced as written\n", r.VM, state, r.Policies, r.RealizedPolicies)
	if !r.LastGood.IsZero() {
		fmt.Fprintf(out, "Last good: %s\n", r.LastGood.Local().Format(time.DateTime))
	}
	if r.Away != "" {
		fmt.Fprintf(out, "Server:    has taken no report since %s: %s\n", r.AwaySince.Local().Format(time.DateTime), r.Away)
	}
	if r.LastError != "" {
		fmt.Fprintf(out, "Error:     %s\n", r.LastError)
	}
	for _, i := range r.Interfaces {
		fmt.Fprintf(out, "Interface: %s %s\n", i.Name, strings.Join(i.IPs, " "))
	}
	for _, i := range r.Inner {
		fmt.Fprintf(out, "Behind:    %s\n", i)
	}
	for _, x := range r.Refusals {
		fmt.Fprintf(out, "Refused:   %s\n", x)
	}
}
