package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isobar.dev/plan"
)

// readASGs reads the ASGs of ours in the VNet. Credentials that may not list them have
// none, as those have that were set up for less, unless rules of ours name some: groups
// are the NSGs of the region.
func (d *Driver) readASGs(ctx context.Context, g *ground, groups []*nsg, out map[string]Object) error {
	list, err := d.region.applicationGroups(ctx, d.region.name)
	if resultOf(err) == ResultDenied && !slices.ContainsFunc(groups, d.namesASGs) {
		g.noASGs = true
		g.notes = append(g.notes, plan.Note{Key: "vnet/" + d.vnet.name(), Text: "application security groups may not be read: all peers are written as addresses"})
		return nil
	}
	if err != nil {
		return err
	}
	for _, x := range list {
		g.exists[x.key()] = x.ID
		if key := d.learnASG(g, x); key != "" {
			out[key] = Object{ASG: g.asgs[key].now}
		}
	}
	for _, x := range groups {
		for i := range x.Properties.Rules {
			g.noteNamed(d, x, &x.Properties.Rules[i])
		}
	}
	if len(g.asgs) == 0 {
		return nil
	}
	// Interfaces of uniform scale sets are in no list of interfaces.
	sets, err := resources[scaleSet](ctx, d.region.client, typeScaleSet, computeVersion, d.region.name)
	if err != nil {
		return err
	}
	for _, s := range sets {
		var keys []string
		for _, id := range s.asgs() {
			if key := g.asgKeys[id]; key != "" {
				keys = append(keys, key)
			}
		}
		g.spoil(s.ID, keys)
	}
	return nil
}

// learnASG notes an ASG, and returns its key if it is ours and of this VNet. Of two of
// one class the second is known by its ID, so that it goes.
func (d *Driver) learnASG(g *ground, x *asg) string {
	class := tag(x.Tags, tagClass)
	if tag(x.Tags, tagCluster) != d.cluster() || tag(x.Tags, tagKind) != kindMembership || tag(x.Tags, tagVNet) != vnetMark(d.vnet) || class == "" {
		g.others++
		return ""
	}
	if g.asgs[ASGKey(class)] != nil {
		class += "~" + hash(x.key())
	}
	key := ASGKey(class)
	g.asgs[key] = &asgFacts{id: x.id, now: &ASG{Class: class, Unsettled: !isSettled(x.Properties.ProvisioningState)}}
	g.asgKeys[x.key()] = key
	return key
}

// namesASGs says whether a rule of ours in an NSG names any ASG.
func (d *Driver) namesASGs(x *nsg) bool {
	return slices.ContainsFunc(x.Properties.Rules, func(r securityRule) bool {
		return d.isOurRule(&r) && len(r.Properties.SourceASGs)+len(r.Properties.DestinationASGs) > 0
	})
}

// noteNamed notes that a rule of others names an ASG of ours.
func (g *ground) noteNamed(d *Driver, x *nsg, r *securityRule) {
	if d.isOurRule(r) {
		return
	}
	for _, ref := range slices.Concat(r.Properties.SourceASGs, r.Properties.DestinationASGs) {
		if key := g.asgKeys[strings.ToLower(ref.ID)]; key != "" {
			g.notes = append(g.notes, plan.Note{Key: key, Text: fmt.Sprintf("rule %q of NSG %s, which is not ours, names it: when no policy needs it any more it is left to others", r.Name, x.Name)})
		}
	}
}

// spoil notes that something has ASGs of ours which we do not write: rules that named
// them would mean it, too.
func (g *ground) spoil(id string, keys []string) {
	for _, key := range keys {
		g.asgs[key].spoiled = true
		g.notes = append(g.notes, plan.Note{Key: key, Text: fmt.Sprintf("%s has it, which is not to: no rule of ours names it", id)})
	}
}

// createASG makes an ASG, with a name that no other has.
func (a *applier) createASG(ctx context.Context, c plan.Change[Object]) error {
	id := a.newID("applicationSecurityGroups", c.Want.ASG.Class)
	now, err := a.region.create(ctx, id, a.newGroup(kindMembership, c.Want.ASG.Class))
	if err != nil {
		return fmt.Errorf("create ASG %s: %w", id.name(), err)
	}
	return a.learnedASG(c.Key, id, now)
}

// settleASG has Azure make again what it could not make.
func (a *applier) settleASG(ctx context.Context, c plan.Change[Object]) error {
	id := a.asgOf(c.Key)
	now, err := a.edit(ctx, id, func(doc document) (bool, error) {
		var x asg
		if err := doc.into(&x); err != nil {
			return false, err
		}
		if tag(x.Tags, tagCluster) != a.cluster() {
			return false, errors.New("it is no longer marked as ours")
		}
		return settle(x.Properties.ProvisioningState)
	})
	if err != nil {
		return fmt.Errorf("write ASG %s: %w", id.name(), err)
	}
	return a.learnedASG(c.Key, id, now)
}

// learnedASG notes what an ASG is now.
func (a *applier) learnedASG(key string, id resourceID, doc document) error {
	var x asg
	if err := doc.into(&x); err != nil {
		return err
	}
	x.id = id
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.ground.asgs[key]; f != nil {
		delete(a.ground.asgs, key)
		delete(a.ground.asgKeys, f.id.key())
	}
	a.ground.exists[id.key()] = id.String()
	if told := a.learnASG(a.ground, &x); told != key || a.ground.asgs[key].now.Unsettled {
		return errors.New("Azure says that it is not as we wrote it")
	}
	return nil
}

// asgOf returns the ID of an ASG of ours; the zero ID where there is none.
func (a *applier) asgOf(key string) resourceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.ground.asgs[key]; f != nil {
		return f.id
	}
	return resourceID{}
}

// removeASG takes away an ASG that no interface of ours has and no rule of ours names:
// it is deleted or, where others rely on it, left to them, without our tags.
func (a *applier) removeASG(ctx context.Context, c plan.Change[Object]) error {
	id := a.asgOf(c.Key)
	for _, key := range slices.Sorted(maps.Keys(a.ground.nics)) {
		if slices.Contains(a.ground.nics[key].groups, c.Key) {
			return fmt.Errorf("delete ASG %s: %s still has it", id.name(), key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.ground.nsgs)) {
		if slices.Contains(a.ground.nsgs[key].now.named(), c.Key) {
			return fmt.Errorf("delete ASG %s: %s still names it", id.name(), key)
		}
	}
	err := a.deleteOrLeaveASG(ctx, id)
	if err != nil && resultOf(err) != ResultGone {
		return fmt.Errorf("delete ASG %s: %w", id.name(), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ground.asgs, c.Key)
	delete(a.ground.asgKeys, id.key())
	delete(a.ground.exists, id.key())
	return nil
}

func (a *applier) deleteOrLeaveASG(ctx context.Context, id resourceID) error {
	var err error
	for range tries {
		var doc document
		if doc, err = a.region.get(ctx, id); err != nil {
			return err
		}
		var x asg
		if err := doc.into(&x); err != nil {
			return err
		}
		if tag(x.Tags, tagCluster) != a.cluster() { // it is theirs already
			return nil
		}
		if err = a.region.delete(ctx, id, doc.etag()); resultOf(err) == ResultInUse {
			dropMarks(doc)
			_, err = a.region.replace(ctx, id, doc)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return err
}
