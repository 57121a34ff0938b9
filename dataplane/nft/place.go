package nft

import (
	"net/netip"

	"isobar.dev/policy"
)

// Place is what a Driver knows of its machine. The zero Place is ready to use: the
// workloads have the addresses that the Ruleset says, Pods behind routed interfaces,
// and all others are the machine itself.
type Place struct {
	// Locals are the workloads of this machine as it has them; nil means those of the
	// Ruleset, as it says. A workload that is not among them is not here, and nothing is
	// enforced for it.
	Locals []Local
	// Machine: all workloads of the Ruleset are this machine as a whole, and Locals is not
	// looked at. There is a table then without any workload, too.
	Machine *Machine
	// Bypass is what passes to and from the machine itself before any rule is asked: a
	// way for whoever has to mend a rule.
	Bypass []Bypass
	// Mark is that of sockets of this machine whose packets pass before any rule is asked: the
	// agent's own. 0 means that none do.
	Mark uint32
	// JudgeProbes: what processes of this machine send to its Pods is asked the Pods'
	// rules of ingress. Otherwise it passes, as upstream has it, so that kubelets can
	// probe; rules of egress of the machine itself count in any case.
	JudgeProbes bool
	// LogGroup is the nflog group that logged packets go to.
	LogGroup uint16
	// LogRate is how many packets a second are logged of a rule, for each of the chains that
	// have it; 0 means 100.
	LogRate uint32
	// Names says at which addresses DNS names are known; nil where nobody looks at answers of
	// DNS. Then what a rule means by a name is enforced as strictly as it may mean.
	Names Names
	// NameQueue is the nfqueue in which answers of DNS wait until Names knows them.
	NameQueue uint16
	// NameServers are the only ones whose answers count, by the addresses that Pods ask; none
	// means all. What others answer to workloads whose answers wait is dropped.
	NameServers []netip.Prefix
	// Missing is what the kernel cannot do, as a Driver finds out.
	Missing Missing
}

// Missing is what a kernel may lack without being useless.
type Missing struct {
	Reject bool // a Reject is a Drop
	Log    bool // nothing is logged
	Queue  bool // no packet waits for the agent, so that DNS names are not seen
	Compat bool // targets of xtables; packets wait by nftables' own expression
}

// Local is a workload of this machine.
type Local struct {
	ID    string // of the Workload
	Addrs []netip.Addr
	// Interface is that of the machine behind which the workload is; what comes in there
	// with another source than Addrs is dropped. Empty where only the addresses are known.
	Interface string
	// Host: the workload is the machine itself.
	Host bool
	// Held: it has not got its rules yet. Nothing passes but what the machine itself sends
	// to it, whatever the Ruleset says.
	Held bool
	// behind: its rules are asked of what is passed on to who is behind the machine.
	behind bool
}

// MarkMask has the bits of a socket's mark that are looked at: not those that kube-proxy sets
// on packets.
const MarkMask = 0xffff3fff

// Bypass is traffic of the machine itself.
type Bypass struct {
	Direction policy.Direction
	Peer      netip.Prefix
	Protocol  policy.Protocol // TCP, UDP, SCTP, ICMP or AnyProtocol
	Ports     policy.Ports    // destination ports; zero means all
	// SourcePorts, where they are not zero, must be the source's.
	SourcePorts policy.Ports
}

// locals returns the workloads of the machine.
func (p Place) locals(rs policy.Ruleset) []Local {
	if p.Locals != nil {
		return p.Locals
	}
	var out []Local
	for _, e := range rs.Workloads {
		out = append(out, Local{ID: e.Workload.ID, Addrs: e.Workload.Addrs, Host: e.Workload.Kind != policy.KindPod})
	}
	return out
}
