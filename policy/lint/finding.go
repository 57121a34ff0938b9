package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// Severity is how much a Finding matters.
type Severity uint8

// The severities.
const (
	Note    Severity = iota + 1 // it may well be meant
	Warning                     // it is probably not meant
	Error                       // something is not there, or does not work
)

func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return "invalid"
}

// Check is one kind of Finding.
type Check struct {
	ID       string
	Severity Severity
	Title    string // says what is found
}

// Checks are all there are, by ID.
var Checks = []Check{
	{"contradicted", Warning, "A rule decides nothing: earlier tiers decide the contrary about all that it matches"},
	{"dns-cut-off", Error, "Workloads cannot reach the cluster's DNS"},
	{"dns-service-address", Note, "Workloads reach the cluster's DNS by the addresses of its Pods or of its Service alone"},
	{"equal-priority", Note, "Rules of two policies with one tier and priority contradict each other: their places in the policies decide"},
	{"group-selects-nothing", Warning, "A group has no members"},
	{"isolated-without-allow", Note, "A policy isolates workloads for which no rule allows anything"},
	{"missing-group", Error, "A policy or group refers to a group that does not exist or has no meaning"},
	{"missing-service", Error, "A policy or group refers to a Service that does not exist"},
	{"missing-tier", Error, "A policy is of a tier that does not exist"},
	{"peers-select-nothing", Warning, "The peers of a rule are nobody"},
	{"policy-selects-nothing", Warning, "A policy applies to no workload"},
	{"refused-default-not-enforceable", Error, "A target cannot enforce what a workload denies by default"},
	{"refused-names-need-dns", Warning, "A target cannot enforce a rule by DNS names"},
	{"refused-payload-not-seen", Warning, "A target cannot enforce a rule on payloads"},
	{"refused-peers-unreachable", Warning, "A target cannot name the peers of a rule"},
	{"refused-protocol-unsupported", Warning, "A target cannot enforce a rule on such traffic"},
	{"refused-quota-exceeded", Error, "Rules do not fit the quotas of a target"},
	{"refused-reject-is-drop", Note, "A target drops what it should reject"},
	{"refused-services-unknown", Warning, "A target does not know the Services of a rule"},
	{"refused-source-ports-unsupported", Warning, "A target cannot enforce a rule on source ports"},
	{"rule-selects-nothing", Warning, "A rule applies to no workload"},
	{"shadowed", Warning, "An earlier rule matches all that a rule can ever match"},
	{"tie", Warning, "Rules of two policies contradict each other with one place in the order: the stricter one decides"},
	{"unknown-port-name", Warning, "No workload declares the port by the name that a rule matches"},
	{"unreachable", Warning, "A rule decides nothing in this world: earlier rules decide about all that it matches"},
}

// checkOf returns the Check of that ID; there is one.
func checkOf(id string) Check {
	i, _ := slices.BinarySearchFunc(Checks, id, func(c Check, id string) int { return strings.Compare(c.ID, id) })
	return Checks[i]
}

// Finding is one thing that is probably a mistake.
type Finding struct {
	ID       string // of a Check
	Severity Severity
	Object   string // ID of a policy or a group
	// Rule is the rule of the policy that it is about; nil where it is about the whole object.
	Rule  *reach.Rule
	Field string // a JSON path such as spec.ingress[0].from; empty where it is not known
	// Message says what is, Fix what may be done about it. Both are one line.
	Message, Fix string
	// Others are the rules that it is about besides.
	Others []reach.Rule
	// Workloads are the IDs of those whom it is about, sorted.
	Workloads []string
	Witness   *Witness
	// IsRemovable, of a rule that decides nothing: no verdict changes when it alone is deleted.
	// Else what follows it in its policy would come to stand before rules of other policies.
	IsRemovable bool
	Targets     []string // of a refusal, sorted
}

// Witness is a flow that shows what a Finding says.
type Witness struct {
	Flow      policy.Flow
	Direction policy.Direction // of the end at which it is decided
	Verdict   policy.Verdict
}

// Report is what was found.
type Report struct {
	Findings []Finding // errors first, then by object
	// Unchecked says what could not be looked at.
	Unchecked []string
}

// Sort puts findings in their order.
func Sort(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Object, b.Object), a.place().Compare(b.place()),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
}

func (f Finding) place() reach.Rule {
	if f.Rule == nil {
		return reach.Rule{}
	}
	return *f.Rule
}

// Run looks for everything.
func Run(s policy.Snapshot) (Report, error) {
	l := &linter{s: s, picked: map[string]pick{}, counted: map[[2]string]int{}}
	w, err := reach.New(s)
	if err != nil {
		return Report{}, err
	}
	for _, p := range s.Policies.All() {
		l.references(p)
		l.selects(p)
		for _, d := range directions {
			for i := range p.Rules(d) {
				l.peers(p, d, i)
				l.portNames(p, d, i)
			}
		}
	}
	for _, g := range s.Groups.All() {
		l.group(g)
	}
	l.withoutAllow(w)
	if err := l.dns(); err != nil {
		return Report{}, err
	}
	if err := l.idle(); err != nil {
		return Report{}, err
	}
	Sort(l.out.Findings)
	return l.out, nil
}

var directions = []policy.Direction{policy.Ingress, policy.Egress}

// linter is one run.
type linter struct {
	s       policy.Snapshot
	out     Report
	picked  map[string]pick   // by selection
	counted map[[2]string]int // rules, by workload and direction
}

// add adds a finding with the severity of its check.
func (l *linter) add(f Finding) {
	if f.Severity == 0 {
		f.Severity = checkOf(f.ID).Severity
	}
	l.out.Findings = append(l.out.Findings, f)
}

// RuleName returns the name of a rule, or its place.
func RuleName(s policy.Snapshot, r reach.Rule) string {
	if r.Index < 0 {
		return "isolation"
	}
	if p, ok := s.Policies.Get(r.Policy); ok && r.Index < len(p.Rules(r.Direction)) && p.Rules(r.Direction)[r.Index].Name != "" {
		return p.Rules(r.Direction)[r.Index].Name
	}
	return fmt.Sprintf("%v[%d]", r.Direction, r.Index)
}

// full returns a rule with its policy, on one line whatever its name is.
func (l *linter) full(r reach.Rule) string {
	name := RuleName(l.s, r)
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.QuoteToASCII(name)
	}
	return r.Policy + " " + name
}

// few returns names of a list, of which there may be many.
func few[T any](list []T, name func(T) string) string {
	const most = 3
	var parts []string
	for _, x := range list[:min(most, len(list))] {
		parts = append(parts, name(x))
	}
	text := strings.Join(parts, ", ")
	if n := len(list) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func itself(s string) string { return s }

// ruleField is where a rule is written.
func ruleField(r reach.Rule, part string) string {
	return fmt.Sprintf("spec.%v[%d]%s", r.Direction, r.Index, part)
}

// peersField is where the peers of a rule are written.
func peersField(r reach.Rule) string {
	if r.Direction == policy.Ingress {
		return ruleField(r, ".from")
	}
	return ruleField(r, ".to")
}

// subjectField is where it is written whom a policy applies to.
func subjectField(p *policy.Policy) string {
	switch p.Dialect {
	case policy.KubernetesNetworkPolicy:
		return "spec.podSelector"
	case policy.AntreaNetworkPolicy, policy.AntreaClusterNetworkPolicy:
		return "spec.appliedTo"
	}
	return "spec.subject"
}
