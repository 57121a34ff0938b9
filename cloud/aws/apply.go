package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Apply makes the changes so that a flow which both the old and the new state
// allow passes at every moment: groups are made and filled, then interfaces
// move, and only then what is not wanted any more goes. Where a change cannot be
// made, what depends on it waits for the next time.
func (d *Driver) Apply(ctx context.Context, changes []plan.Change[Object]) error {
	if d.err != nil {
		return d.err
	}
	if d.ground == nil {
		return errors.New("apply: the VPC has not been read")
	}
	a := &applier{Driver: d, failed: map[string]error{}, have: map[string]*Group{}, wanted: map[string]*Group{}, named: map[string][]string{}}
	for _, c := range changes {
		o := c.Want
		if o == nil {
			o = c.Have
		}
		switch {
		case o.NIC != nil:
			a.nics = append(a.nics, c)
		case o.List != nil:
			a.lists = append(a.lists, c)
		default:
			a.groups = append(a.groups, c)
			if c.Want != nil {
				a.wanted[c.Key] = c.Want.Group
			}
		}
	}
	a.createLists(ctx)
	a.createGroups(ctx)
	a.delayed = a.rewrites()
	a.fillAll(ctx, slices.DeleteFunc(slices.Clone(a.groups), func(c plan.Change[Object]) bool { return a.isDelayed(c.Key) }))
	a.changeLists(ctx, false)
	a.move(ctx)
	a.changeLists(ctx, true)
	a.revokeGroups(ctx, a.groups)
	a.deleteGroups(ctx)
	a.deleteLists(ctx)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(a.failed)) {
		errs = append(errs, &plan.ChangeError{Key: key, Err: scrub(d.account.config.Credentials, a.failed[key])})
	}
	return errors.Join(errs...)
}

// applier is one call of Apply.
type applier struct {
	*Driver
	groups, lists, nics []plan.Change[Object]
	wanted              map[string]*Group   // of groups
	delayed             []*rewrite          // made while interfaces move
	named               map[string][]string // what peers has found
	bridged             bridging            // while interfaces move
	spanned             map[string]span     // groups that get rules for bridged, by key

	mu     sync.Mutex        // for what follows, and the groups of the ground, while several calls are under way
	have   map[string]*Group // what groups that are to stay have now
	failed map[string]error  // by key
}

func (a *applier) fail(key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed[key] == nil {
		a.failed[key] = err
	}
}

func (d *Driver) settle() time.Duration { return cmp.Or(d.account.options.Settle, time.Minute) }

// onGroups calls f, which names groups, again while one that is new is unknown.
func (d *Driver) onGroups(ctx context.Context, keys []string, f func() error) error {
	return d.onFreshGroups(ctx, keys, "InvalidGroup.NotFound", f)
}

// onFreshGroups is onGroups for a service that has another code for it.
func (d *Driver) onFreshGroups(ctx context.Context, keys []string, unknown string, f func() error) error {
	for _, key := range keys {
		if g := d.ground.groups[key]; g != nil && g.fresh {
			return eventually(ctx, d.settle(), unknown, f)
		}
	}
	return f()
}

// now returns what a group that is to stay has now, or nil.
func (a *applier) now(key string) *Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.have[key]
}

// failure returns why the change of that key has failed, or nil.
func (a *applier) failure(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed[key]
}

// note enters what a group has now.
func (a *applier) note(key string, g *Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.have[key] = g
	if f := a.ground.groups[key]; f != nil {
		f.now = g
	}
}

func (a *applier) createGroups(ctx context.Context) {
	var missing []plan.Change[Object]
	for _, c := range a.groups {
		switch {
		case c.Want == nil:
		case c.Have != nil:
			a.have[c.Key] = c.Have.Group
		default:
			missing = append(missing, c)
		}
	}
	cloud.Each(missing, func(c plan.Change[Object]) {
		have, err := a.createGroup(ctx, c.Key, c.Want.Group)
		if err != nil {
			a.fail(c.Key, err)
			return
		}
		a.note(c.Key, have)
	})
}

// name is the name of a group or list in EC2, where that of a group is unique in the VPC.
func (d *Driver) name(class string) string {
	return d.account.config.Prefix + "-" + class + "-" + hash(d.account.config.Cluster)[:6]
}

// groupDescription begins the description of a group.
const groupDescription = "Isobar "

// maxNames bounds how many names are tried for a group.
const maxNames = 1000

// createGroup makes a group with the first of its names that nobody else's group
// has, and returns what rules it has then.
func (a *applier) createGroup(ctx context.Context, key string, want *Group) (*Group, error) {
	for n := range maxNames {
		name := a.name(want.Class)
		if n > 0 {
			name = fmt.Sprintf("%s-%d", name, n+1)
		}
		if a.ground.taken[name] {
			continue
		}
		if have, err := a.createNamed(ctx, key, name, want); !errors.Is(err, errTaken) {
			return have, err
		}
	}
	return nil, fmt.Errorf("create security group %s: others have this and the next %d names", a.name(want.Class), maxNames-1)
}

// createNamed makes a group of that name, with its tags in the same call.
func (a *applier) createNamed(ctx context.Context, key, name string, want *Group) (*Group, error) {
	out, err := a.region.api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: aws.String(name), VpcId: aws.String(a.vpc), Description: aws.String(groupDescription + string(want.Kind) + " group"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: a.groupTags(want)}},
	})
	if code(err) == "InvalidGroup.Duplicate" {
		return a.adopt(ctx, key, name, want)
	}
	if err != nil {
		if code(err) == "SecurityGroupLimitExceeded" {
			a.region.recount()
		}
		return nil, fmt.Errorf("create security group %s: %w", name, err)
	}
	a.know(key, aws.ToString(out.GroupId), name)
	have := &Group{Kind: want.Kind, Class: want.Class, Egress: []Rule{{Protocol: "-1", From: -1, To: -1, Prefix: all4}}}
	if slices.ContainsFunc(a.ground.prefixes, isIPv6) {
		have.Egress = append(have.Egress, Rule{Protocol: "-1", From: -1, To: -1, Prefix: all6})
	}
	return have, nil
}

// know enters a new group into the ground.
func (a *applier) know(key, id, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.region.enter(a.vpc, 1, 0)
	a.ground.exists[id], a.ground.keys[id] = true, key
	a.ground.groups[key] = &groupFacts{id: id, name: name, fresh: true, foreign: map[policy.Direction][]Rule{}}
}

// errTaken says that another's group has the name.
var errTaken = errors.New("another's group has the name")

// adopt finds the group that has our name: made by an earlier try whose answer
// was lost. One without our tags is another's.
func (a *applier) adopt(ctx context.Context, key, name string, want *Group) (*Group, error) {
	var found []types.SecurityGroup
	err := eventually(ctx, a.settle(), "NotThereYet", func() (err error) {
		found, err = a.region.groups(ctx, filter("vpc-id", a.vpc), filter("group-name", name))
		if err == nil && len(found) == 0 {
			return notThereYet{}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find security group %s: %w", name, err)
	}
	tags := tagsOf(found[0].Tags)
	if tags[tagCluster] != a.account.config.Cluster || tags[tagClass] != want.Class {
		return nil, errTaken
	}
	a.know(key, aws.ToString(found[0].GroupId), name)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.group(a.ground, key, found[0]), nil
}

// notThereYet is an answer that will change, with a code like EC2's.
type notThereYet struct{}

func (notThereYet) Error() string     { return "it exists, and is not listed yet" }
func (notThereYet) ErrorCode() string { return "NotThereYet" }

// ErrorMessage and ErrorFault are what smithy.APIError has besides.
func (n notThereYet) ErrorMessage() string { return n.Error() }

// fillAll adds the rules that groups lack. A new group, which nobody has yet,
// first loses the rules that EC2 gave it. Groups in which old and new rules have
// no place together come last, one by one.
func (a *applier) fillAll(ctx context.Context, groups []plan.Change[Object]) {
	fill := func(c plan.Change[Object], tight bool) {
		if c.Want == nil || a.now(c.Key) == nil || a.failure(c.Key) != nil {
			return
		}
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			if err := a.fillGroup(ctx, c, dir, tight); err != nil {
				a.fail(c.Key, err)
				break
			}
		}
	}
	cloud.Each(groups, func(c plan.Change[Object]) { fill(c, false) })
	for _, c := range groups {
		fill(c, true)
	}
}

// fillGroup adds what a group lacks in one direction. Where there is no place
// for it, and tight is set, rules go and come by turns: those go whose flows no
// rule has that is still to come. Only if there is none such, one goes that can
// break a flow which both states allow.
func (a *applier) fillGroup(ctx context.Context, c plan.Change[Object], dir policy.Direction, tight bool) error {
	want, isNew := c.Want.Group, c.Have == nil
	for isSeen := isNew; ; {
		have := a.now(c.Key)
		add, stale := a.delta(have, want, dir)
		if isNew {
			isNew = false
			if err := a.drop(ctx, c.Key, dir, stale); err != nil {
				return err
			}
			continue
		}
		n := a.fits(have, want.Class, dir, add)
		switch {
		case len(add) == 0 || n < len(add) && !tight:
			return nil
		case n == len(add):
			return a.put(ctx, c.Key, dir, add)
		case !isSeen:
			a.inspect(ctx, []plan.Change[Object]{c})
			if err := a.failure(c.Key); err != nil {
				return err
			}
			isSeen = true
			continue
		}
		coming := a.coming(dir)
		safe := slices.DeleteFunc(slices.Clone(stale), func(r Rule) bool { return slices.ContainsFunc(coming, r.overlaps) })
		var err error
		switch {
		case len(safe) > 0:
			err = a.drop(ctx, c.Key, dir, safe)
		case n > 0:
			err = a.put(ctx, c.Key, dir, add[:n])
		case len(stale) > 0:
			err = a.drop(ctx, c.Key, dir, stale[:1])
		default:
			err = a.put(ctx, c.Key, dir, add) // rules of others leave no place: EC2 says so
		}
		if err != nil {
			return err
		}
	}
}

// coming returns the rules of one direction that are still to be added, anywhere.
func (a *applier) coming(dir policy.Direction) []Rule {
	var out []Rule
	for _, c := range a.groups {
		if have := a.have[c.Key]; c.Want != nil && have != nil && a.failed[c.Key] == nil {
			add, _ := a.delta(have, c.Want.Group, dir)
			out = append(out, add...)
		}
	}
	return out
}

// fits returns how many of the rules, from the first, a group has a place for.
func (a *applier) fits(have *Group, class string, dir policy.Direction, add []Rule) int {
	most := a.account.config.Quotas.orDefaults().RulesPerGroup
	v4, v6 := weight(slices.Concat(have.rules(dir), a.foreign(class, dir)))
	for i, r := range add {
		x, y := weight([]Rule{r})
		if v4, v6 = v4+x, v6+y; v4 > most || v6 > most {
			return i
		}
	}
	return len(add)
}

// put and drop write rules, and note it.
func (a *applier) put(ctx context.Context, key string, dir policy.Direction, rules []Rule) error {
	err := a.authorize(ctx, key, dir, rules)
	if err == nil {
		a.setRules(key, dir, sorted(slices.Concat(a.now(key).rules(dir), rules)))
	}
	return err
}

func (a *applier) drop(ctx context.Context, key string, dir policy.Direction, rules []Rule) error {
	err := a.revoke(ctx, key, dir, rules)
	if err == nil {
		a.setRules(key, dir, minus(a.now(key).rules(dir), rules))
	}
	return err
}

// setRules notes what rules a group has in one direction.
func (a *applier) setRules(key string, dir policy.Direction, rules []Rule) {
	g := *a.now(key)
	if dir == policy.Egress {
		g.Egress = rules
	} else {
		g.Ingress = rules
	}
	a.note(key, &g)
}

// revokeGroups takes the rules that are not wanted, from groups whose new rules
// are in force: also those that name a group whose members are all there.
func (a *applier) revokeGroups(ctx context.Context, groups []plan.Change[Object]) {
	missing := a.missing()
	groups = slices.DeleteFunc(slices.Clone(groups), func(c plan.Change[Object]) bool {
		return c.Want == nil || c.Have == nil || a.now(c.Key) == nil || !a.hasStale(c)
	})
	a.inspect(ctx, groups)
	cloud.Each(groups, func(c plan.Change[Object]) {
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			if a.now(c.Key) == nil || a.failure(c.Key) != nil {
				return
			}
			if err := a.revokeStale(ctx, c, dir, missing); err != nil {
				a.fail(c.Key, err)
			}
		}
	})
}

// hasStale says whether a group has rules that are not wanted.
func (a *applier) hasStale(c plan.Change[Object]) bool {
	for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
		if _, stale := a.delta(a.now(c.Key), c.Want.Group, dir); len(stale) > 0 {
			return true
		}
	}
	return false
}

// missing returns, by their keys, the groups that an interface should have and has
// not, with the interface.
func (a *applier) missing() map[string]string {
	out := map[string]string{}
	for _, c := range a.nics {
		if c.Want != nil && a.failure(c.Key) != nil {
			for _, key := range c.Want.NIC.Groups {
				out[key] = c.Key
			}
		}
	}
	return out
}

// revokeStale takes from a group the rules of one direction that are not wanted,
// given which groups an interface should have and has not.
func (a *applier) revokeStale(ctx context.Context, c plan.Change[Object], dir policy.Direction, missing map[string]string) error {
	_, stale := a.delta(a.now(c.Key), c.Want.Group, dir)
	if stale = minus(stale, a.bridgesOf(c.Key, dir, c.Want.Group.rules(dir))); len(stale) == 0 {
		return nil
	}
	for _, r := range c.Want.Group.rules(dir) {
		if nic := missing[r.Group]; r.Group != "" && nic != "" {
			return fmt.Errorf("revoke %v: waits for %s, which does not carry %s yet", dir, nic, r.Group)
		}
		if err := a.failure(r.List); r.List != "" && err != nil {
			return fmt.Errorf("revoke %v: waits for %s: %w", dir, r.List, err)
		}
	}
	// What has gone to another group of the class is still needed here by those who
	// could not be given that.
	nic, coming := a.lacked(c.Key, dir)
	n := len(stale)
	stale = slices.DeleteFunc(stale, func(r Rule) bool { return slices.ContainsFunc(coming, r.within) })
	if len(stale) > 0 {
		if err := a.drop(ctx, c.Key, dir, stale); err != nil {
			return err
		}
	}
	if len(stale) < n {
		return fmt.Errorf("revoke %v: waits for %s, which does not carry all of its groups yet: %w", dir, nic, a.failure(nic))
	}
	return nil
}

// lacked returns the rules of one direction of groups that interfaces with a group
// should have and have not, and one of these.
func (a *applier) lacked(key string, dir policy.Direction) (nic string, rules []Rule) {
	seen := map[string]bool{}
	for _, c := range a.nics {
		if c.Have == nil || c.Want == nil || !slices.Contains(c.Have.NIC.Groups, key) || a.failure(c.Key) == nil {
			continue
		}
		for _, other := range without(c.Want.NIC.Groups, c.Have.NIC.Groups) {
			if seen[other] {
				continue
			}
			seen[other] = true
			if more := a.comingTo(other, dir); len(more) > 0 {
				nic, rules = c.Key, slices.Concat(rules, more)
			}
		}
	}
	return nic, rules
}

// comingTo returns the rules of one direction that a group is to have or, if it does not
// change, has.
func (a *applier) comingTo(key string, dir policy.Direction) []Rule {
	if g := a.wanted[key]; g != nil {
		return g.rules(dir)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.ground.groups[key]; f != nil && f.now != nil {
		return f.now.rules(dir)
	}
	return nil
}
