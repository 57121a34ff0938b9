package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Apply makes the changes so that each interface has, at every moment, the rules that
// it had before or those that it is to have, and others' rules mean by it what they did
// before or are to mean: new groups are made, then interfaces and NSGs are written in an
// order that lets nobody have another's rules, and only then goes what nobody carries or
// names any more. Where a change cannot be made, what depends on it waits for the next
// time.
func (d *Driver) Apply(ctx context.Context, changes []plan.Change[Object]) error {
	if d.err != nil {
		return d.err
	}
	if d.ground == nil {
		return errors.New("apply: the VNet has not been read")
	}
	a := &applier{Driver: d, failed: map[string]error{}}
	var members, fresh, gone, goneMembers []plan.Change[Object]
	for _, c := range changes {
		o := c.Want
		if o == nil {
			o = c.Have
		}
		switch {
		case o.NIC != nil:
			a.movers = append(a.movers, a.mover(c))
		case o.ASG != nil && c.Want == nil:
			goneMembers = append(goneMembers, c)
		case o.ASG != nil:
			members = append(members, c)
		case c.Want == nil:
			gone = append(gone, c)
		case d.ground.nsgs[c.Key] == nil:
			fresh = append(fresh, c)
		default:
			a.rewrites = append(a.rewrites, c)
		}
	}
	a.weave(slices.Concat(fresh, a.rewrites))
	cloud.Each(members, func(c plan.Change[Object]) {
		if d.ground.asgs[c.Key] == nil {
			a.done(c.Key, a.createASG(ctx, c))
		} else {
			a.done(c.Key, a.settleASG(ctx, c))
		}
	})
	cloud.Each(fresh, func(c plan.Change[Object]) { a.done(c.Key, a.create(ctx, c)) })
	a.run(ctx)
	cloud.Each(gone, func(c plan.Change[Object]) { a.done(c.Key, a.remove(ctx, c)) })
	cloud.Each(goneMembers, func(c plan.Change[Object]) { a.done(c.Key, a.removeASG(ctx, c)) })
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(a.failed)) {
		errs = append(errs, &plan.ChangeError{Key: key, Err: scrub(d.account.config.Credentials, a.failed[key])})
	}
	return errors.Join(errs...)
}

// applier is one call of Apply.
type applier struct {
	*Driver
	movers   []*mover
	rewrites []plan.Change[Object]

	mu     sync.Mutex // for what follows, and the ground, while several calls are under way
	failed map[string]error
}

// done notes how a change has ended.
func (a *applier) done(key string, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed[key] = err
}

// failure returns why the change of that key has failed, or nil.
func (a *applier) failure(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed[key]
}

// create makes an NSG, with a name that no other has.
func (a *applier) create(ctx context.Context, c plan.Change[Object]) error {
	id := a.newID("networkSecurityGroups", c.Want.NSG.Class)
	doc := a.newGroup(kindEnforcement, c.Want.NSG.Class)
	if _, err := a.setRules(doc, c.Want.NSG); err != nil {
		return fmt.Errorf("create NSG %s: %w", id.name(), err)
	}
	now, err := a.region.create(ctx, id, doc)
	if err != nil {
		return fmt.Errorf("create NSG %s: %w", id.name(), err)
	}
	return a.learned(c.Key, id, now, c.Want.NSG)
}

// learned notes what an NSG is now. What Azure says is believed, and not what was
// asked for.
func (a *applier) learned(key string, id resourceID, doc document, want *NSG) error {
	var x nsg
	if err := doc.into(&x); err != nil {
		return err
	}
	x.id = id
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ground.nsgs, key)
	notes := a.ground.notes
	told := a.learn(a.ground, &x)
	a.ground.notes = notes // those of the last Read
	a.ground.exists[id.key()] = id.String()
	if told != key || !(Object{NSG: a.ground.nsgs[key].now}).Equal(Object{NSG: want}) {
		return errors.New("Azure says that it is not as we wrote it")
	}
	return nil
}

// newGroup returns the document of a group with nothing in it.
func (a *applier) newGroup(kind, class string) document {
	return document{
		"location":   a.ground.location,
		"tags":       map[string]any{tagCluster: a.cluster(), tagKind: kind, tagClass: class, tagVNet: vnetMark(a.vnet)},
		"properties": map[string]any{},
	}
}

// newID returns the ID for a new group.
func (a *applier) newID(kind, class string) resourceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	base := a.account.config.Prefix + "-" + class + "-" + vnetMark(a.vnet)[:8]
	name := base
	for n := 2; ; n++ {
		id := networkID(a.region.subscription, a.ground.group, kind, name)
		if a.ground.exists[id.key()] == "" {
			return id
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

// tries is how often a resource is read again that somebody else has changed since we
// read it.
const tries = 4

// edit changes a resource, again where somebody else was quicker.
func (a *applier) edit(ctx context.Context, id resourceID, change func(document) (bool, error)) (document, error) {
	var doc document
	var err error
	for range tries {
		if doc, err = a.region.edit(ctx, id, change); !errors.Is(err, errChanged) {
			break
		}
	}
	return doc, err
}

// rewrite gives an NSG its rules, all at once.
func (a *applier) rewrite(ctx context.Context, c plan.Change[Object]) error {
	id := a.nsgOf(c.Key)
	now, err := a.edit(ctx, id, func(doc document) (bool, error) {
		var x nsg
		if err := doc.into(&x); err != nil {
			return false, err
		}
		if tag(x.Tags, tagCluster) != a.cluster() {
			return false, errors.New("it is no longer marked as ours")
		}
		write, err := settle(x.Properties.ProvisioningState)
		if err != nil {
			return false, err
		}
		if !write && a.has(&x, c.Want.NSG) { // what was under way when we read it is done
			return false, nil
		}
		return a.setRules(doc, c.Want.NSG)
	})
	if err != nil {
		return fmt.Errorf("write the rules of NSG %s: %w", id.name(), err)
	}
	return a.learned(c.Key, id, now, c.Want.NSG)
}

// has says whether an NSG is as it is wanted.
func (a *applier) has(x *nsg, want *NSG) bool {
	g := &ground{nsgs: map[string]*nsgFacts{}, keys: map[string]string{}, asgKeys: a.ground.asgKeys}
	key := a.learn(g, x)
	return key == NSGKey(want.Class) && (Object{NSG: g.nsgs[key].now}).Equal(Object{NSG: want})
}

// setRules puts rules into the document of an NSG in the place of ours. Those of others
// stay, with their priorities.
func (a *applier) setRules(doc document, want *NSG) (bool, error) {
	properties, ok := doc["properties"].(map[string]any)
	if !ok {
		return false, errors.New("it has no properties")
	}
	var x nsg
	if err := doc.into(&x); err != nil {
		return false, err
	}
	old, _ := properties["securityRules"].([]any)
	if len(old) != len(x.Properties.Rules) {
		return false, errors.New("its rules cannot be read")
	}
	rules := []any{}
	have, taken := map[string]int{}, map[policy.Direction]map[int]bool{policy.Ingress: {}, policy.Egress: {}}
	for i := range x.Properties.Rules {
		r := &x.Properties.Rules[i]
		dir := policy.Ingress
		if strings.EqualFold(r.Properties.Direction, "Outbound") {
			dir = policy.Egress
		}
		if a.isOurRule(r) {
			have[r.Name] = int(r.Properties.Priority)
			continue
		}
		taken[dir][int(r.Properties.Priority)] = true
		rules = append(rules, old[i])
	}
	for _, dir := range directions {
		list := want.rules(dir)
		names := make([]string, len(list))
		for i, r := range list {
			names[i] = r.Name
		}
		priorities := numbers(names, have, taken[dir])
		if priorities == nil && len(list) > 0 {
			return false, fmt.Errorf("rules of others leave no priorities for the %d %v rules", len(list), dir)
		}
		for i, r := range list {
			rule, err := a.ruleDocument(r, dir, priorities[i])
			if err != nil {
				return false, err
			}
			rules = append(rules, rule)
		}
	}
	properties["securityRules"] = rules
	return true, nil
}

// ruleDocument returns a rule as Azure takes it.
func (a *applier) ruleDocument(r Rule, dir policy.Direction, priority int) (map[string]any, error) {
	p := map[string]any{
		"description": strings.TrimSuffix(a.mark()+" "+r.About, " "), "protocol": r.Protocol, "priority": priority, "sourcePortRange": "*",
		"access": map[bool]string{true: "Allow", false: "Deny"}[r.Allow],
	}
	self, peer := "destination", "source"
	p["direction"] = "Inbound"
	if dir == policy.Egress {
		self, peer = peer, self
		p["direction"] = "Outbound"
	}
	p[self+"AddressPrefix"] = "*"
	var prefixes, ranges []any
	for _, x := range r.Prefixes {
		prefixes = append(prefixes, x.String())
	}
	for _, x := range r.Ports {
		ranges = append(ranges, x.String())
	}
	put := func(one, many string, list []any) {
		switch len(list) {
		case 0:
			p[one] = "*"
		case 1:
			p[one] = list[0]
		default:
			p[many] = list
		}
	}
	if !r.Any && len(prefixes) == 0 { // it would be every address
		prefixes = append(prefixes, "none")
	}
	var groups []any
	for _, key := range r.Groups {
		id := a.asgOf(key)
		if len(id.names) == 0 {
			return nil, fmt.Errorf("waits for %s", key)
		}
		groups = append(groups, map[string]any{"id": id.String()})
	}
	if len(groups) > 0 {
		p[peer+"ApplicationSecurityGroups"] = groups
	} else {
		put(peer+"AddressPrefix", peer+"AddressPrefixes", prefixes)
	}
	put("destinationPortRange", "destinationPortRanges", ranges)
	return map[string]any{"name": r.Name, "properties": p}, nil
}
