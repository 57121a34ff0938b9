package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"isobar.dev/plan"
)

// remove takes away an NSG that no interface of ours carries: it is deleted or, where
// others rely on it, left to them. See docs/decisions/0014-groups-left-to-others.md.
func (a *applier) remove(ctx context.Context, c plan.Change[Object]) error {
	id := a.nsgOf(c.Key)
	for _, key := range slices.Sorted(maps.Keys(a.ground.nics)) {
		if a.ground.nics[key].nsg == c.Key {
			return fmt.Errorf("delete NSG %s: %s still has it", id.name(), key)
		}
	}
	err := a.deleteOrLeave(ctx, id)
	if err != nil && resultOf(err) != ResultGone {
		return fmt.Errorf("delete NSG %s: %w", id.name(), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ground.nsgs, c.Key)
	delete(a.ground.keys, id.key())
	delete(a.ground.exists, id.key())
	return nil
}

func (a *applier) deleteOrLeave(ctx context.Context, id resourceID) error {
	var err error
	for range tries {
		var doc document
		if doc, err = a.region.get(ctx, id); err != nil {
			return err
		}
		var x nsg
		if err := doc.into(&x); err != nil {
			return err
		}
		switch write, others := a.leave(doc, &x); {
		case !others:
			err = a.region.delete(ctx, id, doc.etag())
		case write:
			_, err = a.region.replace(ctx, id, doc)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return err
}

// leave takes our rules and our tags from an NSG on which others rely: they have rules
// in it, or it is on a subnet or an interface where only others have put it. One whose mark has gone is
// theirs already.
func (a *applier) leave(doc document, x *nsg) (write, others bool) {
	if tag(x.Tags, tagCluster) != a.cluster() {
		return false, true
	}
	properties, _ := doc["properties"].(map[string]any)
	rules, _ := properties["securityRules"].([]any)
	theirs := []any{}
	for i := range x.Properties.Rules {
		if ours := a.isOurRule(&x.Properties.Rules[i]); !ours && i < len(rules) {
			theirs = append(theirs, rules[i])
		}
	}
	if len(theirs)+len(x.Properties.Subnets)+len(x.Properties.NICs) == 0 {
		return false, false
	}
	properties["securityRules"] = theirs
	dropMarks(doc)
	return true, true
}

// dropMarks takes our tags from a group.
func dropMarks(doc document) {
	for _, name := range []string{tagCluster, tagKind, tagClass, tagVNet} {
		dropTag(doc, name)
	}
}
