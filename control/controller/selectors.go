package controller

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// setSelectors gives the account the selectors that name it.
func (c *Controller) setSelectors(a *account) {
	var mine []selector
	unreadable := false
	for _, key := range c.selectorMirror.keys() {
		ces, ok := c.selectorMirror.get(key)
		if !ok || accountOf(ces) != a.key {
			continue
		}
		s, err := readSelector(ces)
		c.mu.Lock()
		if err == nil {
			c.valid[key] = s
		} else if old, ok := c.valid[key]; ok {
			s, err = old, nil
		}
		c.mu.Unlock()
		if err != nil {
			unreadable = true
			continue
		}
		mine = append(mine, s)
	}
	slices.SortFunc(mine, selector.compare)
	a.mu.Lock()
	defer a.mu.Unlock()
	if reflect.DeepEqual(a.selectors, mine) && a.unreadable == unreadable {
		return
	}
	a.unreadable = unreadable
	a.version++
	before := matchKeys(a.selectors)
	a.selectors = mine
	if !slices.Equal(before, matchKeys(mine)) {
		for _, r := range a.regions {
			r.poke()
		}
	}
}

func matchKeys(selectors []selector) []string {
	var out []string
	for _, m := range matchesOf(selectors) {
		out = append(out, matchKey(m))
	}
	return out
}

// addSelectorsOf has the selectors of an account looked at again.
func (c *Controller) addSelectorsOf(key types.NamespacedName) {
	for _, k := range c.selectorMirror.keys() {
		if ces, ok := c.selectorMirror.get(k); ok && accountOf(ces) == key {
			c.selectorQueue.add(k)
		}
	}
}

// accountOf returns the account that a selector names.
func accountOf(ces *cloudv1alpha1.CloudEntitySelector) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(ces.Spec.AccountNamespace, ces.Namespace), Name: ces.Spec.AccountName}
}

// readSelector returns a selector, or an error that names what is wrong with it.
func readSelector(ces *cloudv1alpha1.CloudEntitySelector) (selector, error) {
	s := selector{key: types.NamespacedName{Namespace: ces.Namespace, Name: ces.Name}, created: ces.CreationTimestamp.Time}
	for i, in := range ces.Spec.VMSelector {
		e, err := readEntry(in)
		e.at = fmt.Sprintf("vmSelector[%d]", i)
		if err != nil {
			return s, fmt.Errorf("spec.%s: %w", e.at, err)
		}
		s.entries = append(s.entries, e)
	}
	for i, in := range ces.Spec.ServiceSelector {
		e, err := readServiceEntry(in)
		e.at = fmt.Sprintf("serviceSelector[%d]", i)
		if err != nil {
			return s, fmt.Errorf("spec.%s: %w", e.at, err)
		}
		s.entries = append(s.entries, e)
	}
	return s, nil
}

// readServiceEntry reads an entry of a service as that of a VM: what they have in
// common means the same.
func readServiceEntry(in cloudv1alpha1.ServiceSelector) (entry, error) {
	kinds := map[cloudv1alpha1.ServiceKind]cloud.Kind{
		cloudv1alpha1.ServiceDatabase: cloud.Database, cloudv1alpha1.ServiceLoadBalancer: cloud.LoadBalancer,
	}
	kind, ok := kinds[in.Kind]
	if !ok {
		return entry{}, fmt.Errorf("kind %q: want Database or LoadBalancer", in.Kind)
	}
	if in.VpcMatch == nil && len(in.ServiceMatch)+len(in.Tags) == 0 {
		return entry{}, errors.New("set vpcMatch, serviceMatch or tags; an empty vpcMatch selects everything")
	}
	for j, m := range in.ServiceMatch {
		if (m.MatchID == "") == (m.MatchName == "") {
			return entry{}, fmt.Errorf("serviceMatch[%d]: set exactly one of matchID and matchName", j)
		}
	}
	e, err := readEntry(cloudv1alpha1.VirtualMachineSelector{VpcMatch: in.VpcMatch, VMMatch: in.ServiceMatch, Tags: in.Tags, Isolation: in.Isolation})
	e.match.Kind = kind
	return e, err
}

func readEntry(in cloudv1alpha1.VirtualMachineSelector) (entry, error) {
	e := entry{agented: in.Agented}
	switch in.Isolation {
	case "", cloudv1alpha1.IsolationDirection:
		e.isolation = policy.IsolateDirection
	case cloudv1alpha1.IsolationNone:
		e.isolation = policy.IsolateNone
	case cloudv1alpha1.IsolationBoth:
		e.isolation = policy.IsolateBoth
	default:
		return e, fmt.Errorf("isolation %q: want None, Direction or Both", in.Isolation)
	}
	if in.VpcMatch == nil && len(in.VMMatch)+len(in.Tags)+len(in.Subnets) == 0 {
		return e, errors.New("set vpcMatch, vmMatch, tags or subnets; an empty vpcMatch selects everything")
	}
	if m := in.VpcMatch; m != nil {
		if m.MatchID != "" && m.MatchName != "" {
			return e, errors.New("vpcMatch: set one of matchID and matchName")
		}
		e.match.NetworkID, e.match.NetworkName = m.MatchID, m.MatchName
	}
	for j, m := range in.VMMatch {
		if (m.MatchID == "") == (m.MatchName == "") {
			return e, fmt.Errorf("vmMatch[%d]: set exactly one of matchID and matchName", j)
		}
		e.match.VMs = append(e.match.VMs, cloud.VMMatch{ID: m.MatchID, Name: m.MatchName})
	}
	for key, value := range in.Tags {
		if key == "" {
			return e, fmt.Errorf("tags: a key is empty, with the value %q", value)
		}
	}
	for j, id := range in.Subnets {
		if id == "" {
			return e, fmt.Errorf("subnets[%d]: is empty", j)
		}
	}
	e.match.Tags, e.match.Subnets = in.Tags, in.Subnets
	return e, nil
}
