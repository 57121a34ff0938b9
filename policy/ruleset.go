package policy

import (
	"cmp"
	"strconv"
	"strings"
)

// Ruleset is what one Target must enforce. Everything in it is sorted, so equal
// content has equal bytes. Its lists are not changed once somebody else has it.
type Ruleset struct {
	Target    string
	Workloads []Enforced   // by Workload.ID
	Rules     []TargetRule // in the order of evaluation; those that apply to none of Workloads are left out
	Groups    []Members    // by Key: each group that a rule names, once
	// Exports are by Key the groups that Allow and Pass rules of other Targets of
	// the Realm name, as far as their members are workloads of this one.
	Exports []Export
	// Pending and Failing are other Targets of the Realm: those that have not been
	// synced since their Rulesets changed last, and those that cannot be. They are
	// not compiled: who syncs several Targets may tell, sorted. Until a Target is
	// no longer Pending, what its rules may still name stays. What is Failing is not
	// trusted to take a workload out of a group.
	Pending, Failing []string
}

// Export is a group as others may name it: its members of one Target alone.
type Export struct {
	Members
	Targets []string // those whose rules name it, sorted
}

// Realm returns what Targets have in common that may name each other's groups: of
// a network of a cloud account, "cloud/account/region/network", all but the
// network. A Target of fewer parts, such as a Node, has none.
func Realm(target string) string {
	i := strings.LastIndexByte(target, '/')
	if i < 0 || strings.Count(target, "/") < 3 {
		return ""
	}
	return target[:i]
}

// Enforced is one workload of a Target.
type Enforced struct {
	Workload *Workload
	// Ingress and Egress are the Keys of the rules that apply, in order.
	Ingress, Egress []string
	// IsolatedIngress and IsolatedEgress: the Kubernetes NetworkPolicies of the
	// workload drop what they do not allow. They hold the ID of the policy that
	// is named for it, or "".
	IsolatedIngress, IsolatedEgress string
	// DeniesIngress and DeniesEgress: what no rule decides is dropped, by
	// Workload.Isolation.
	DeniesIngress, DeniesEgress bool
}

// TargetRule is a Rule as it stands in the order of all rules, its sets
// replaced by groups with members.
type TargetRule struct {
	// Key is unique in a Target and does not change while the rule's place in
	// its policy does not: see RuleKey.
	Key       string
	Policy    string // ID
	Name      string
	Direction Direction
	Tier      int32
	Priority  float64
	Index     int
	Action    Action // never the zero Action

	AllPeers bool
	Groups   []string // Keys of Members, sorted
	Blocks   []Block
	Names    []string
	Services []*Service
	// PortGroups are Keys of Members too: where an egress rule has port names,
	// those at the addresses of AllPeers, Blocks, Names and Services are looked
	// up in them. Those of Groups are looked up in Groups.
	PortGroups []string
	Traffic    []Traffic
	L7         []L7
	Log        bool
	LogLabel   string
}

// RuleKey is "policy/direction/index". A rule whose peers depend on the
// namespace of the workload that it applies to becomes one rule for each such
// namespace or bucket of namespaces, with "#" and the bucket at the end.
func RuleKey(policyID string, d Direction, index int, bucket string) string {
	key := policyID + "/" + d.String() + "/" + strconv.Itoa(index)
	if bucket != "" {
		key += "#" + bucket
	}
	return key
}

// Members is a group with its members, as peers.
type Members struct {
	Key string // canonical form of the Selection
	// Workloads are by ID, and only those that IsPeer. Where a controller tells several of one
	// ID, the others are after the first, under keys that are longer.
	Workloads Table[*Workload]
}

// ByID returns workloads by ID. It costs least when they are in that order.
func ByID(workloads ...*Workload) Table[*Workload] {
	return TableOf(func(yield func(string, *Workload) bool) {
		for _, w := range workloads {
			if !yield(w.ID, w) {
				return
			}
		}
	})
}

// IsKubernetes says whether r stands among the Kubernetes NetworkPolicies.
func (r *TargetRule) IsKubernetes() bool { return r.Tier == tierNumberKubernetes }

// Refusal is what a Target cannot enforce exactly, and why. An Allow that is
// refused is left out; a Drop or Reject that is refused keeps its whole match
// closed.
type Refusal struct {
	Target    string
	Policy    string // ID
	Rule      string // Key of the TargetRule; empty when it concerns the whole policy
	Workloads []string
	Reason    RefusalReason
	Message   string // says what, and what would fit
	Limit     int    // of a quota; 0 otherwise
	Need      int    // what would be needed of it
	// Costs are the rules that need most of the quota, at most three, costliest
	// first: where there is most to gain.
	Costs []RuleCost
}

// RuleCost is what one rule needs of a quota when it is written alone.
type RuleCost struct {
	Rule   string // Key of the TargetRule
	Policy string // ID
	Need   int
}

// Compare orders costs: costliest first, then by Key.
func (c RuleCost) Compare(o RuleCost) int {
	return cmp.Or(cmp.Compare(o.Need, c.Need), cmp.Compare(c.Rule, o.Rule), cmp.Compare(c.Policy, o.Policy))
}

// RefusalReason is a word for machines.
type RefusalReason string

// The reasons for a Refusal.
const (
	RefusedNames       RefusalReason = "NamesNeedDNS"
	RefusedL7          RefusalReason = "PayloadNotSeen"
	RefusedServices    RefusalReason = "ServicesUnknown"
	RefusedSourcePorts RefusalReason = "SourcePortsUnsupported"
	RefusedProtocol    RefusalReason = "ProtocolUnsupported"
	RefusedReject      RefusalReason = "RejectIsDrop"
	RefusedQuota       RefusalReason = "QuotaExceeded"
	RefusedPeers       RefusalReason = "PeersUnreachable"
	RefusedIsolation   RefusalReason = "DefaultNotEnforceable"
)

// Compare orders rules as they are evaluated; rules that are equal in tier,
// priority and index stand by strictness, then by Key.
func (r *TargetRule) Compare(o *TargetRule) int {
	return cmp.Or(
		cmp.Compare(r.Tier, o.Tier),
		cmp.Compare(r.Priority, o.Priority),
		cmp.Compare(r.Index, o.Index),
		cmp.Compare(strictness(r.Action), strictness(o.Action)),
		cmp.Compare(r.Policy, o.Policy),
		cmp.Compare(r.Key, o.Key),
	)
}

// AfterPass returns the lowest tier whose rules are evaluated after a rule of
// the given tier has passed.
func AfterPass(tier int32) int32 { return max(tier+1, tierNumberKubernetes) }
