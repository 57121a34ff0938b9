package validate

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// maxNodeLogLabel is how many characters of a log label fit into the kernel's
// log prefix, which rules on Nodes use.
const maxNodeLogLabel = 12

func (v *validator) policy(spec *field.Path, in *antreav1beta1.NetworkPolicySpec, namespaced bool) {
	if in.Priority < 0 || in.Priority > 10000 { // 0, that is absent, is refused by the schema
		v.invalid(spec.Child("priority"), in.Priority, "want a number from 1 to 10000")
	}
	v.tierOf(spec, in)
	v.ruleNames(spec, in)
	v.whereApplied(spec, in)
	p := policyValidator{validator: v, namespaced: namespaced}
	p.appliedToList(spec.Child("appliedTo"), in.AppliedTo)
	for i := range in.Ingress {
		p.rule(spec.Child("ingress").Index(i), &in.Ingress[i], in.AppliedTo, true)
	}
	for i := range in.Egress {
		p.rule(spec.Child("egress").Index(i), &in.Egress[i], in.AppliedTo, false)
	}
}

// tierOf checks that the tier exists and takes the actions.
func (v *validator) tierOf(spec *field.Path, in *antreav1beta1.NetworkPolicySpec) {
	name := antreav1beta1.TierName(in.Tier)
	if _, builtin := antreav1beta1.BuiltinTiers()[name]; !builtin && v.w != nil {
		found := false
		for _, t := range v.w.Tiers() {
			found = found || t.Name == name
		}
		if !found {
			v.missing(spec.Child("tier"), in.Tier, "create the Tier or name another")
		}
	}
	if name != antreav1beta1.TierBaseline {
		return
	}
	for _, dir := range rules(spec, in) {
		for i := range dir.rules {
			if actionOf(&dir.rules[i]) == antreav1beta1.RuleActionPass {
				v.forbid(dir.path.Index(i).Child("action"), "nothing comes after the tier baseline to Pass to; use Allow, Drop or Reject")
			}
		}
	}
}

// direction is the list of rules of one direction.
type direction struct {
	path  *field.Path
	rules []antreav1beta1.Rule
}

func rules(spec *field.Path, in *antreav1beta1.NetworkPolicySpec) []direction {
	return []direction{{spec.Child("ingress"), in.Ingress}, {spec.Child("egress"), in.Egress}}
}

// actionOf returns the action of a rule; empty when it is absent.
func actionOf(r *antreav1beta1.Rule) antreav1beta1.RuleAction {
	if r.Action == nil {
		return ""
	}
	return *r.Action
}

func (v *validator) ruleNames(spec *field.Path, in *antreav1beta1.NetworkPolicySpec) {
	seen := map[string]bool{}
	for _, dir := range rules(spec, in) {
		for i := range dir.rules {
			name := dir.rules[i].Name
			if name != "" && seen[name] {
				v.duplicate(dir.path.Index(i).Child("name"), name, "names of rules are unique in a policy; change or omit it")
			}
			seen[name] = true
		}
	}
}

// whereApplied checks that appliedTo is in the spec or in every rule.
func (v *validator) whereApplied(spec *field.Path, in *antreav1beta1.NetworkPolicySpec) {
	with, without := 0, 0
	var firstWith, firstWithout *field.Path
	for _, dir := range rules(spec, in) {
		for i := range dir.rules {
			p := dir.path.Index(i).Child("appliedTo")
			if len(dir.rules[i].AppliedTo) > 0 {
				if with++; with == 1 {
					firstWith = p
				}
			} else if without++; without == 1 {
				firstWithout = p
			}
		}
	}
	switch {
	case len(in.AppliedTo) > 0 && with > 0:
		v.forbid(firstWith, "spec.appliedTo is set too; set one of them")
	case len(in.AppliedTo) == 0 && with == 0:
		v.require(spec.Child("appliedTo"), "set it here or in every rule")
	case len(in.AppliedTo) == 0 && without > 0:
		v.require(firstWithout, "other rules have one; set it in every rule or in spec")
	}
}

// policyValidator checks the rules of one policy.
type policyValidator struct {
	*validator
	namespaced bool // a NetworkPolicy rather than a ClusterNetworkPolicy
}

// appliedToList checks the entries of the spec or of one rule.
func (p policyValidator) appliedToList(path *field.Path, list []antreav1beta1.AppliedTo) {
	services := 0
	for i := range list {
		p.appliedTo(path.Index(i), &list[i])
		if list[i].Service != nil {
			services++
		}
	}
	if services > 0 && services < len(list) {
		p.forbid(path, "services and other entries exclude each other; make two policies")
	}
}

func (p policyValidator) appliedTo(path *field.Path, a *antreav1beta1.AppliedTo) {
	p.labels(path.Child("podSelector"), a.PodSelector)
	p.labels(path.Child("namespaceSelector"), a.NamespaceSelector)
	p.labels(path.Child("externalEntitySelector"), a.ExternalEntitySelector)
	p.labels(path.Child("nodeSelector"), a.NodeSelector)
	if a.IsUnknown() {
		if p.namespaced {
			p.warn(path, "is empty: Drop and Reject apply to every Pod of the namespace by it, Allow and Pass to none; write podSelector: {} to mean every Pod")
		} else {
			p.warn(path, "is empty: it applies to nothing; set a selector or group")
		}
		return
	}
	set := p.alone(path, []form{
		{"group", a.Group != ""},
		{"service", a.Service != nil},
		{"serviceAccount", a.ServiceAccount != nil},
		{"nodeSelector", a.NodeSelector != nil},
	}, a.PodSelector != nil || a.NamespaceSelector != nil || a.ExternalEntitySelector != nil)
	if set && a.PodSelector != nil && a.ExternalEntitySelector != nil {
		p.forbid(path.Child("externalEntitySelector"), "podSelector is set too; use two entries")
	}
	p.reference(path.Child("service"), a.Service, true)
	p.reference(path.Child("serviceAccount"), a.ServiceAccount, true)
	if !p.namespaced {
		return
	}
	for _, f := range []form{
		{"namespaceSelector", a.NamespaceSelector != nil},
		{"nodeSelector", a.NodeSelector != nil},
		{"service", a.Service != nil},
		{"serviceAccount", a.ServiceAccount != nil},
	} {
		if f.set {
			p.forbid(path.Child(f.name), "a NetworkPolicy applies to Pods, ExternalEntities and Groups of its own namespace; use a ClusterNetworkPolicy")
		}
	}
}

// form is one way to select something.
type form struct {
	name string
	set  bool
}

// alone checks that at most one of forms is set, and that none is when others
// are. It says whether that holds.
func (v *validator) alone(path *field.Path, forms []form, others bool) bool {
	var set []string
	for _, f := range forms {
		if f.set {
			set = append(set, f.name)
		}
	}
	if len(set) == 0 || len(set) == 1 && !others {
		return true
	}
	if len(set) == 1 {
		v.forbid(path.Child(set[0]), "other fields are set beside it; use an entry of its own")
	} else {
		v.forbid(path, "%s exclude each other; use an entry for each", strings.Join(set, ", "))
	}
	return false
}

// reference checks a name that must be given, and with full a namespace.
func (v *validator) reference(path *field.Path, n *antreav1beta1.NamespacedName, full bool) {
	if n == nil {
		return
	}
	if n.Name == "" {
		v.require(path.Child("name"), "set it")
	}
	if full && n.Namespace == "" {
		v.require(path.Child("namespace"), "set it")
	}
}

// rule checks one rule; specAppliedTo is the list that governs it when it has none.
func (p policyValidator) rule(path *field.Path, r *antreav1beta1.Rule, specAppliedTo []antreav1beta1.AppliedTo, ingress bool) {
	switch actionOf(r) {
	case "", antreav1beta1.RuleActionAllow, antreav1beta1.RuleActionDrop, antreav1beta1.RuleActionReject, antreav1beta1.RuleActionPass:
		// The schema refuses one that is absent.
	default:
		p.add(field.NotSupported(path.Child("action"), *r.Action, []string{"Allow", "Drop", "Pass", "Reject"}))
	}
	if problems := validation.IsValidLabelValue(r.LogLabel); len(problems) > 0 {
		p.invalid(path.Child("logLabel"), r.LogLabel, "%s", problems[0])
	}
	applied := specAppliedTo
	if len(r.AppliedTo) > 0 {
		applied = r.AppliedTo
		p.appliedToList(path.Child("appliedTo"), r.AppliedTo)
	}
	p.appliedNodesAndServices(path, r, applied, ingress)
	p.peerLists(path, r, ingress)
	p.traffic(path, r, ingress)
	p.layer7(path, r)
}

func (p policyValidator) appliedNodesAndServices(path *field.Path, r *antreav1beta1.Rule, applied []antreav1beta1.AppliedTo, ingress bool) {
	services, nodes := false, false
	for i := range applied {
		services = services || applied[i].Service != nil
		nodes = nodes || applied[i].NodeSelector != nil
	}
	if nodes && len(r.LogLabel) > maxNodeLogLabel {
		p.warn(path.Child("logLabel"), "on Nodes only the first %d characters are logged", maxNodeLogLabel)
	}
	if !services {
		return
	}
	if !ingress {
		p.forbid(path, "a policy that applies to services can have ingress rules only")
	}
	for i := range r.From {
		if f := &r.From[i]; f.IPBlock == nil {
			p.forbid(path.Child("from").Index(i), "a policy that applies to services can select peers by ipBlock only")
		}
	}
}
