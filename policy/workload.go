package policy

import (
	"net/netip"
	"slices"
)

// Kind is what a Workload is.
type Kind uint8

// The kinds of Workload. The zero Kind is invalid and selects nothing.
const (
	KindPod      Kind = iota + 1
	KindExternal      // a VM, an on-premises machine or a cloud service: an ExternalEntity
	KindNode
)

func (k Kind) String() string {
	switch k {
	case KindPod:
		return "pod"
	case KindExternal:
		return "ee"
	case KindNode:
		return "node"
	}
	return "invalid"
}

// Isolation is what a VM denies once rules apply to it.
type Isolation uint8

// The settings of isolation. The zero Isolation is IsolateDirection for a
// KindExternal; Pods and Nodes ignore the setting.
const (
	IsolateNone      Isolation = iota + 1 // only what rules deny: Antrea's own meaning
	IsolateDirection                      // any rule in a direction denies the rest of that direction
	IsolateBoth                           // any rule denies the rest of both directions
)

// Direction is that of a rule, seen from the workload that it applies to.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota + 1
	Egress
)

func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	}
	return "invalid"
}

// NamedPort is a port that a workload declares.
type NamedPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Interface is a network interface of a cloud VM: the cloud's ID and its addresses.
type Interface struct {
	ID    string
	Addrs []netip.Addr
}

// Workload is anything with addresses. It is not changed once it is in a Snapshot.
type Workload struct {
	ID        string // see WorkloadID
	Kind      Kind
	Namespace string // empty for a Node
	Name      string
	Labels    Labels
	Addrs     []netip.Addr // unmapped, sorted
	Ports     []NamedPort
	// Network is the realm in which the addresses mean this workload: a VPC or
	// VNet, or empty for the cluster's. Two workloads in different networks may
	// have one address.
	Network string
	// Target names the place that enforces this workload's policies, empty where
	// there is none.
	Target string

	ServiceAccount string // of a Pod
	Node           string // name of the Node of a Pod; empty until it is scheduled
	HostNetwork    bool   // a Pod that has its Node's addresses
	Terminated     bool   // a Pod that has succeeded or failed

	Isolation  Isolation   // of a KindExternal
	Interfaces []Interface // of a cloud VM, sorted by ID
}

// WorkloadID is "pod/namespace/name", "ee/namespace/name" or "node/name".
func WorkloadID(k Kind, namespace, name string) string {
	if namespace == "" {
		return k.String() + "/" + name
	}
	return k.String() + "/" + namespace + "/" + name
}

// HasPort says whether w declares port n of protocol p under the name.
func (w *Workload) HasPort(name string, p Protocol, n uint16) bool {
	return slices.Contains(w.Ports, NamedPort{name, p, n})
}

// IsSubject says whether policies can apply to w: upstream leaves out Pods that
// are not scheduled, that have terminated, or that share their Node's network.
func (w *Workload) IsSubject() bool {
	return w.Kind != KindPod || w.Node != "" && !w.HostNetwork && !w.Terminated
}

// IsPeer says whether w counts as the peer of a rule: upstream leaves out Pods
// that have terminated or that share their Node's network, and whatever has no
// address.
func (w *Workload) IsPeer() bool {
	return len(w.Addrs) > 0 && !w.HostNetwork && !w.Terminated
}

// Isolates says whether w denies what no rule decides in direction d, given
// which directions have at least one rule that applies to it.
func (w *Workload) Isolates(d Direction, hasIngress, hasEgress bool) bool {
	if w.Kind != KindExternal {
		return false
	}
	switch w.Isolation {
	case IsolateNone:
		return false
	case IsolateBoth:
		return hasIngress || hasEgress
	}
	if d == Ingress {
		return hasIngress
	}
	return hasEgress
}

// Namespace is a Kubernetes Namespace.
type Namespace struct {
	Name   string
	Labels Labels
}

// Service is a Kubernetes Service.
type Service struct {
	Namespace, Name string
	Addrs           []netip.Addr // cluster IPs
	Ports           []NamedPort
	// Pods selects the Pods behind it in its own namespace; nil means that it
	// selects none, as a Service without a selector does.
	Pods *Selector
}

// ServiceID is "namespace/name".
func ServiceID(namespace, name string) string { return namespace + "/" + name }
