package aws

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of tags.
const (
	maxTags     = 50  // of one resource
	maxTagKey   = 128 // characters
	maxTagValue = 256 // characters
)

func cloneTags(t map[string]string) map[string]string { return maps.Clone(t) }

// checkTags refuses what EC2 would not keep.
func checkTags(id string, tags map[string]string) error {
	if len(tags) > maxTags {
		return errf("TagLimitExceeded", "The maximum number of Tags for a resource has been reached: %s", id)
	}
	for k, v := range tags {
		if k == "" || utf8.RuneCountInString(k) > maxTagKey || !utf8.ValidString(k) {
			return invalid("Tag key exceeds the maximum length of %d characters or is empty", maxTagKey)
		}
		if utf8.RuneCountInString(v) > maxTagValue || !utf8.ValidString(v) {
			return invalid("Tag value exceeds the maximum length of %d characters", maxTagValue)
		}
		if strings.HasPrefix(strings.ToLower(k), "aws:") {
			return invalid("Tag keys starting with 'aws:' are reserved for internal use")
		}
	}
	return nil
}

func readTags(p *params) map[string]string {
	list := p.structs("Tag")
	if len(list) == 0 {
		return nil
	}
	tags := map[string]string{}
	for _, t := range list {
		t.allow("Key", "Value")
		k := t.str("Key")
		if _, ok := tags[k]; ok {
			p.fail(invalid("Duplicate tag key '%s' specified.", k))
		}
		tags[k] = t.str("Value")
	}
	return tags
}

// tagSpecs reads TagSpecification for one type of resource.
func (q *request) tagSpecs(kind string) (map[string]string, error) {
	by, err := q.tagSpecsOf(kind)
	return by[kind], err
}

func (q *request) tagSpecsOf(kinds ...string) (map[string]map[string]string, error) {
	by := map[string]map[string]string{}
	for _, s := range q.p.structs("TagSpecification") {
		s.allow("ResourceType", "Tag")
		kind := s.str("ResourceType")
		if !slices.Contains(kinds, kind) || by[kind] != nil {
			return nil, invalid("'%s' is not a valid taggable resource type for this operation, or is given twice.", kind)
		}
		by[kind] = readTags(s)
		if err := checkTags("", by[kind]); err != nil {
			return nil, err
		}
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	return by, nil
}

// resource is something that carries tags.
type resource struct {
	id, kind string
	tags     *map[string]string
}

// resource finds what an id names, nil when that is nothing that the caller can tag.
func (q *request) resource(id string) *resource {
	at := func(kind string, tags *map[string]string) *resource { return &resource{id, kind, tags} }
	if v := q.s.vpcs[id]; v != nil {
		return at("vpc", &v.Tags)
	}
	if v := q.s.subnets[id]; v != nil {
		return at("subnet", &v.Tags)
	}
	if v := q.s.groups[id]; v != nil && q.sees(v) {
		return at("security-group", &v.Tags)
	}
	if v := q.s.lists[id]; v != nil && !v.byAWS {
		return at("prefix-list", &v.Tags)
	}
	if v := q.s.instances[id]; v != nil {
		return at("instance", &v.Tags)
	}
	if v := q.s.enis[id]; v != nil {
		return at("network-interface", &v.Tags)
	}
	if v := q.peerings()[id]; v != nil {
		return at("vpc-peering-connection", &v.Tags)
	}
	if strings.HasPrefix(id, "sgr-") {
		for _, g := range q.s.groups {
			if i := slices.IndexFunc(g.Rules, func(r *Rule) bool { return r.ID == id }); i >= 0 {
				return at("security-group-rule", &g.Rules[i].Tags)
			}
		}
	}
	return nil
}

// resources lists everything of a site that can carry tags.
func (q *request) resources() []string {
	ids := slices.Concat(sortedKeys(q.s.vpcs), sortedKeys(q.s.subnets), sortedKeys(q.s.groups),
		sortedKeys(q.s.instances), sortedKeys(q.s.enis), sortedKeys(q.peerings()))
	for _, l := range q.s.kept() {
		ids = append(ids, l.ID)
	}
	for _, g := range q.s.groups {
		for _, r := range g.Rules {
			if len(r.Tags) > 0 {
				ids = append(ids, r.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// notThere is EC2's answer to a resource id that tags cannot be put on.
func notThere(id string) error {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "sg":
		return noGroup(id)
	case "i":
		return noInstance(id)
	case "eni":
		return noInterface(id)
	case "vpc":
		return idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(id)
	case "pl":
		return noList(id)
	case "sgr":
		return noRule(id)
	}
	return errf("InvalidID", "The ID '%s' is not valid", id)
}

// eachResource finds all of ResourceId before anything is changed.
func (q *request) eachResource() ([]*resource, error) {
	var out []*resource
	seen := map[string]bool{}
	for _, id := range q.p.list("ResourceId") {
		r := q.resource(id)
		if r == nil {
			return nil, notThere(id)
		}
		if !seen[id] {
			out = append(out, r)
		}
		seen[id] = true
	}
	return out, nil
}

func createTags(q *request) ([]elem, error) {
	add := readTags(q.p)
	if err := checkTags("", add); err != nil {
		return nil, err
	}
	rs, err := q.eachResource()
	if err != nil {
		return nil, err
	}
	after := make([]map[string]string, len(rs))
	for i, r := range rs {
		after[i] = map[string]string{}
		maps.Copy(after[i], *r.tags)
		maps.Copy(after[i], add)
		if err := checkTags(r.id, after[i]); err != nil {
			return nil, err
		}
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	for i, r := range rs {
		*r.tags = after[i]
	}
	return []elem{boolean("return", true)}, nil
}

// deleteTags removes tags by key, by key and value when a value is given, or all of them.
func deleteTags(q *request) ([]elem, error) {
	rs, err := q.eachResource()
	if err != nil {
		return nil, err
	}
	list := q.p.structs("Tag")
	for _, t := range list {
		t.allow("Key", "Value")
		t.str("Key")
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	for _, r := range rs {
		after := maps.Clone(*r.tags)
		if len(list) == 0 {
			clear(after)
		}
		for _, t := range list {
			if !t.has("Value") || after[t.str("Key")] == t.str("Value") {
				delete(after, t.str("Key"))
			}
		}
		*r.tags = after
	}
	return []elem{boolean("return", true)}, nil
}

// tagRow is one row of DescribeTags.
type tagRow struct{ resource, kind, key, value string }

func describeTags(q *request) ([]elem, error) {
	var rows []tagRow
	for _, id := range q.resources() {
		r := q.resource(id)
		if r == nil {
			continue // a group that hides
		}
		for _, k := range sortedKeys(*r.tags) {
			rows = append(rows, tagRow{r.id, r.kind, k, (*r.tags)[k]})
		}
	}
	rows, err := sift(q, rows, filters[tagRow]{
		"resource-id":   one(func(r tagRow) string { return r.resource }),
		"resource-type": one(func(r tagRow) string { return r.kind }),
		"key":           one(func(r tagRow) string { return r.key }),
		"value":         one(func(r tagRow) string { return r.value }),
	}, func(r tagRow) map[string]string { return map[string]string{r.key: r.value} })
	if err != nil {
		return nil, err
	}
	rows, next, err := cut(q, rows, func(r tagRow) string { return r.resource + "\x00" + r.key }, usual)
	if err != nil {
		return nil, err
	}
	return []elem{items("tagSet", rows, func(r tagRow) []elem {
		return []elem{tx("resourceId", r.resource), tx("resourceType", r.kind), tx("key", r.key), tx("value", r.value)}
	}), opt("nextToken", next)}, nil
}
