package policy

// Action is what a rule does with what it matches.
type Action uint8

// The actions. The zero Action is invalid; a rule that has it drops. Pass
// leaves a decision to the Kubernetes NetworkPolicies and the baseline.
const (
	Allow Action = iota + 1
	Drop
	Reject
	Pass
)

func (a Action) String() string {
	switch a {
	case Allow:
		return "Allow"
	case Drop:
		return "Drop"
	case Reject:
		return "Reject"
	case Pass:
		return "Pass"
	}
	return "invalid"
}

// Set is a set of workloads: those that any Selection picks or any group has.
// The zero Set is empty.
type Set struct {
	Selections []Selection
	Groups     []string // GroupIDs; one that is missing has no members
}

// Peers are the other ends that a rule matches: the union of all its parts. The
// zero Peers match nothing.
type Peers struct {
	All    bool // every address
	Set    Set
	Blocks []Block
	// Names are patterns of DNS names, of egress rules: "*" stands for any
	// characters, over several labels. Letters count in any case.
	Names []string
	// Services are ServiceIDs: the rule matches what is sent to their cluster
	// IPs and ports.
	Services []string
}

// HTTP is a condition on an HTTP request; empty fields match all.
type HTTP struct{ Host, Method, Path string }

// L7 is a condition on the payload: exactly one field is set.
type L7 struct {
	HTTP *HTTP
	TLS  *TLS
}

// TLS is a condition on a TLS handshake; an empty field matches all.
type TLS struct{ SNI string }

// Rule is one match and action. Its direction is that of the list it is in, its
// index its place there, from 0.
type Rule struct {
	Name      string // may be empty
	Action    Action
	Log       bool
	AppliedTo *Set // in place of the policy's; nil means the policy's
	Peers     Peers
	Traffic   []Traffic // any of them; none matches nothing
	// L7, when not empty, needs the payload to meet one of them as well: what
	// Peers and Traffic match and the payload does not meet is dropped.
	L7       []L7
	LogLabel string
}

// Policy is ordered lists of rules that apply to a set of workloads. It is not
// changed once it is in a Snapshot.
type Policy struct {
	ID        string // see PolicyID
	Dialect   Dialect
	Namespace string // empty for a policy of the cluster
	Name      string
	UID       string
	// Generation is that of the object it was written as.
	Generation int64

	// Tier is the name of a Tier, or one of the tiers that a dialect implies.
	Tier     string
	Priority float64 // in its tier, lower first

	AppliedTo Set
	// IsolatesIngress and IsolatesEgress: what the Kubernetes NetworkPolicies of
	// a workload do not allow in that direction is dropped.
	IsolatesIngress, IsolatesEgress bool

	Ingress, Egress []Rule
}

// Rules returns the rules of one direction.
func (p *Policy) Rules(d Direction) []Rule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// Isolates says whether p isolates what it applies to in direction d.
func (p *Policy) Isolates(d Direction) bool {
	return d == Ingress && p.IsolatesIngress || d == Egress && p.IsolatesEgress
}

// Applied returns the set that rule r of p applies to.
func (p *Policy) Applied(r *Rule) Set {
	if r.AppliedTo != nil {
		return *r.AppliedTo
	}
	return p.AppliedTo
}

// Dialect is the kind of object that a policy was written as.
type Dialect uint8

// The dialects.
const (
	KubernetesNetworkPolicy Dialect = iota + 1
	AntreaNetworkPolicy
	AntreaClusterNetworkPolicy
	ClusterNetworkPolicy // policy.networking.k8s.io/v1alpha2
	AdminNetworkPolicy
	BaselineAdminNetworkPolicy
)

// String returns the short form that PolicyIDs begin with.
func (d Dialect) String() string {
	switch d {
	case KubernetesNetworkPolicy:
		return "networkpolicy"
	case AntreaNetworkPolicy:
		return "annp"
	case AntreaClusterNetworkPolicy:
		return "acnp"
	case ClusterNetworkPolicy:
		return "cnp"
	case AdminNetworkPolicy:
		return "anp"
	case BaselineAdminNetworkPolicy:
		return "banp"
	}
	return "invalid"
}

// PolicyID is "dialect/namespace/name", or "dialect/name" where namespace is empty.
func PolicyID(d Dialect, namespace, name string) string {
	if namespace == "" {
		return d.String() + "/" + name
	}
	return d.String() + "/" + namespace + "/" + name
}

// Tier is a band of policies that are evaluated together.
type Tier struct {
	Name   string
	Number int32 // lower first; see TierNumber for what is valid
}

// The tiers that dialects imply. Their names cannot be those of objects.
const (
	TierAdmin                = "@admin"               // ClusterNetworkPolicy, tier Admin
	TierAdminNetworkPolicy   = "@adminnetworkpolicy"  // AdminNetworkPolicy
	TierKubernetes           = "@kubernetes"          // Kubernetes NetworkPolicy
	TierBaselineAdmin        = "@baselineadmin"       // BaselineAdminNetworkPolicy; ClusterNetworkPolicy, tier Baseline
	DefaultTier              = "application"          // of Antrea policies that name none
	tierNumberKubernetes     = 252                    // Pass leads here
	tierNumberOfMissingTiers = builtInApplicationTier // where a policy's denials stand when its tier is missing
	builtInApplicationTier   = 250
)

// MaxTierNumber is the highest number of a Tier of users: 250 and 253 are built
// in, the others above it reserved.
const MaxTierNumber = 249

// builtInTiers cannot be changed: the numbers of Antrea's default tiers, and
// those that it maps the other dialects to.
var builtInTiers = map[string]int32{
	"emergency": 50, "securityops": 100, "networkops": 150, "platform": 200,
	"application": builtInApplicationTier, "baseline": 253,
	TierAdmin: 220, TierAdminNetworkPolicy: 251, TierKubernetes: tierNumberKubernetes, TierBaselineAdmin: 254,
}

// IsBuiltInTier says whether the tier of that name is always there.
func IsBuiltInTier(name string) bool { _, ok := builtInTiers[name]; return ok }

// TierNumber returns the number of the tier of that name, and whether there is
// such a tier: built in, or in s with a number from 0 to 249.
func (s Snapshot) TierNumber(name string) (int32, bool) {
	if n, ok := builtInTiers[name]; ok {
		return n, true
	}
	t, ok := s.Tiers.Get(name)
	if !ok || t.Number < 0 || t.Number > MaxTierNumber {
		return tierNumberOfMissingTiers, false
	}
	return t.Number, true
}
