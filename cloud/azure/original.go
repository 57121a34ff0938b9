package azure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An interface has one NSG. The one that it had before ours is remembered in a tag, and
// put back when the last policy leaves. Since the NSG of an interface is of its own
// subscription, "group/name" tells it, which fits into the value of a tag; "-" says
// that there was none.

// noOriginal is the value of the tag where an interface had no NSG.
const noOriginal = "-"

// original returns the value of the tag for the ID of an NSG, or for none.
func original(id string) (string, error) {
	if id == "" {
		return noOriginal, nil
	}
	x, err := parseID(id)
	if err != nil {
		return "", fmt.Errorf("its own NSG: %w", err)
	}
	return x.group + "/" + x.name(), nil
}

// originalID returns the ID that the value of a tag stands for, if there is such an NSG.
func (d *Driver) originalID(value string) string {
	group, name, ok := strings.Cut(value, "/")
	if !ok {
		return ""
	}
	return d.ground.exists[networkID(d.region.subscription, group, "networkSecurityGroups", name).key()]
}

// attach has an interface carry an NSG of ours, and remember the one that it had. What
// is written down already is kept: a tag of ours with an NSG of ours, or with none, says
// what there was before. An NSG of others that has come since takes its place.
func (d *Driver) attach(doc document, id resourceID) (bool, error) {
	n, write, err := d.held(doc)
	if err != nil {
		return false, err
	}
	owner, isKept := tag(n.Tags, tagCluster), isTagged(n.Tags, tagOriginal)
	has := n.Properties.NSG.idOf()
	if isOurs := has != "" && d.isOurs(has); !isKept || owner == "" || has != "" && !isOurs {
		if isOurs { // what it had before is not known
			has = ""
		}
		value, err := original(has)
		if err != nil {
			return false, err
		}
		setTag(doc, tagCluster, d.cluster())
		setTag(doc, tagOriginal, value)
		write = true
	}
	if !strings.EqualFold(n.Properties.NSG.idOf(), id.String()) {
		if err := setNSG(doc, id.String()); err != nil {
			return false, err
		}
		write = true
	}
	return write, nil
}

// detach gives an interface back what it had. An NSG of others that it has by now stays.
// What remembers goes later, with forget: while it is not certain that Azure has done
// this, somebody has to know of it.
func (d *Driver) detach(doc document) (bool, error) {
	n, write, err := d.held(doc)
	if err != nil {
		return false, err
	}
	has := n.Properties.NSG.idOf()
	if has != "" && !d.isOurs(has) {
		return write, nil
	}
	own := d.originalID(tag(n.Tags, tagOriginal))
	if strings.EqualFold(has, own) {
		return write, nil
	}
	return true, setNSG(doc, own)
}

// forget takes our tags from an interface that has what it had.
func (d *Driver) forget(doc document) (bool, error) {
	n, _, err := d.held(doc)
	if err != nil {
		return false, err
	}
	if has := n.Properties.NSG.idOf(); has != "" && d.isOurs(has) {
		return false, errors.New("it has an NSG of ours again")
	}
	dropTag(doc, tagCluster)
	dropTag(doc, tagOriginal)
	return isTagged(n.Tags, tagCluster) || isTagged(n.Tags, tagOriginal), nil
}

// held reads an interface that nobody else enforces on, and says whether it must be
// written even if it is right.
func (d *Driver) held(doc document) (n nic, write bool, err error) {
	if err := doc.into(&n); err != nil {
		return n, false, err
	}
	if owner := tag(n.Tags, tagCluster); owner != "" && owner != d.cluster() {
		return n, false, fmt.Errorf("the cluster %q enforces on it", owner)
	}
	write, err = settle(n.Properties.ProvisioningState)
	return n, write, err
}

// isOurs says whether the NSG of that ID is one of ours.
func (d *Driver) isOurs(id string) bool { return d.ground.keys[strings.ToLower(id)] != "" }

// setGroups has an interface have those ASGs of ours, on all of its IP configurations as
// Azure wants it, and says whether that changes anything. Those of others stay.
func (a *applier) setGroups(doc document, want []string) (bool, error) {
	properties, _ := doc["properties"].(map[string]any)
	configs, _ := properties["ipConfigurations"].([]any)
	if len(configs) == 0 {
		return false, errors.New("it has no IP configurations")
	}
	write := false
	for _, x := range configs {
		config, _ := x.(map[string]any)
		p, ok := config["properties"].(map[string]any)
		if !ok {
			return false, errors.New("its IP configurations cannot be read")
		}
		list, _ := p["applicationSecurityGroups"].([]any)
		var out []any
		has := map[string]bool{}
		for _, g := range list {
			ref, _ := g.(map[string]any)
			id, ok := ref["id"].(string)
			if !ok {
				return false, errors.New("its application security groups cannot be read")
			}
			key := a.ground.asgKeys[strings.ToLower(id)]
			if key == "" || slices.Contains(want, key) {
				out = append(out, g)
			}
			has[key] = true
		}
		for _, key := range want {
			if id := a.asgOf(key); len(id.names) == 0 {
				return false, fmt.Errorf("waits for %s", key)
			} else if !has[key] {
				out = append(out, map[string]any{"id": id.String()})
				write = true
			}
		}
		write = write || len(out) != len(list)
		if p["applicationSecurityGroups"] = out; len(out) == 0 {
			delete(p, "applicationSecurityGroups")
		}
	}
	return write, nil
}

// markMember has an interface that gets ASGs of ours say so, and one that has none any
// more say nothing, if it is ours for its NSG.
func (a *applier) markMember(doc document, n *nic, t *turn) bool {
	if len(t.m.queue[0]) > 0 {
		setTag(doc, tagMember, a.cluster())
		return tag(n.Tags, tagMember) != a.cluster()
	}
	if t.m.to != "" && (t.m.kept || t.move) {
		return a.unmarkMember(doc, n)
	}
	return false
}

// unmarkMember takes away what says that an interface has ASGs of ours.
func (a *applier) unmarkMember(doc document, n *nic) bool {
	if tag(n.Tags, tagMember) != a.cluster() {
		return false
	}
	dropTag(doc, tagMember)
	return true
}

// setNSG sets the NSG of an interface, or takes it away.
func setNSG(doc document, id string) error {
	properties, ok := doc["properties"].(map[string]any)
	if !ok {
		return fmt.Errorf("it has no properties")
	}
	if id == "" {
		delete(properties, "networkSecurityGroup")
		return nil
	}
	properties["networkSecurityGroup"] = map[string]any{"id": id}
	return nil
}

// setTag sets a tag of a resource, whatever the case of its name.
func setTag(doc document, name, value string) {
	dropTag(doc, name)
	tags, ok := doc["tags"].(map[string]any)
	if !ok {
		tags = map[string]any{}
		doc["tags"] = tags
	}
	tags[name] = value
}

func dropTag(doc document, name string) {
	tags, _ := doc["tags"].(map[string]any)
	for k := range tags {
		if strings.EqualFold(k, name) {
			delete(tags, k)
		}
	}
}
