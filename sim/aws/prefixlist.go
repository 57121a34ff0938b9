package aws

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

var noList = idError("InvalidPrefixListID.NotFound", "pl", "prefix list ID")

// maxVersions is how many earlier versions of a list can be asked for.
const maxVersions = 100

// maxEdits is how many entries one call may have.
const maxEdits = 100

func tooManyEdits() *apiError {
	return invalid("The number of entries per request cannot exceeds limit (%d).", maxEdits)
}

// checkList refuses a list that EC2 would not keep.
func checkList(family string, most int, entries []Entry, quota int) error {
	if family != "IPv4" && family != "IPv6" {
		return invalid("The address family '%s' is invalid", family)
	}
	if most < 1 || most > quota {
		return invalid("Must specify a max size between 1 and %d", quota)
	}
	if len(entries) > most {
		return errf("PrefixListMaxEntriesExceeded", "The list has %d entries; its maximum is %d", len(entries), most)
	}
	for i, e := range entries {
		if err := checkPrefix(e.CIDR); err != nil || e.CIDR.Addr().Is4() != (family == "IPv4") {
			return invalid("The CIDR '%s' is invalid for the address family %s", e.CIDR, family)
		}
		if len(e.Description) > 255 {
			return invalid("An entry's description has more than 255 characters")
		}
		if slices.ContainsFunc(entries[:i], func(o Entry) bool { return o.CIDR == e.CIDR }) {
			return errf("DuplicatePrefixListEntry", "The CIDR '%s' appears more than once", e.CIDR)
		}
	}
	return nil
}

func describeLists(q *request) ([]elem, error) {
	ls, err := pick(q.s.lists, q.p.list("PrefixListId"), noList)
	if err != nil {
		return nil, err
	}
	owner := func(l *PrefixList) string {
		if l.byAWS {
			return "AWS"
		}
		return q.key.account
	}
	ls, err = sift(q, ls, filters[*PrefixList]{
		"owner-id":         one(owner),
		"prefix-list-id":   one(func(l *PrefixList) string { return l.ID }),
		"prefix-list-name": one(func(l *PrefixList) string { return l.Name }),
	}, func(l *PrefixList) map[string]string { return l.Tags })
	if err != nil {
		return nil, err
	}
	ls, next, err := cut(q, ls, func(l *PrefixList) string { return l.ID }, paging{1, 100, 100})
	if err != nil {
		return nil, err
	}
	set := items("prefixListSet", ls, func(l *PrefixList) []elem { return q.listXML(l, l.state) })
	for _, l := range ls {
		q.ended = q.s.listed(l) || q.ended
	}
	return []elem{set, opt("nextToken", next)}, nil
}

// awsLists are some of those that AWS itself keeps in every region. What they may hold is not told:
// they have a weight.
func awsLists(region string) map[string]*PrefixList {
	out := map[string]*PrefixList{}
	for _, l := range []*PrefixList{
		{ID: "pl-63a5400a", Name: "com.amazonaws." + region + ".s3", Entries: []Entry{{CIDR: netip.MustParsePrefix("52.216.0.0/15")}, {CIDR: netip.MustParsePrefix("54.231.0.0/16")}}, MaxEntries: 1},
		{ID: "pl-02cd2c6b", Name: "com.amazonaws." + region + ".dynamodb", Entries: []Entry{{CIDR: netip.MustParsePrefix("52.94.0.0/22")}}, MaxEntries: 1},
		{ID: "pl-3b927c52", Name: "com.amazonaws.global.cloudfront.origin-facing", Entries: []Entry{{CIDR: netip.MustParsePrefix("13.32.0.0/15")}}, MaxEntries: 55},
	} {
		l.Family, l.byAWS = "IPv4", true
		out[l.ID] = l
	}
	return out
}

// kept are the lists of customers.
func (s *site) kept() []*PrefixList {
	return slices.DeleteFunc(sortedValues(s.lists), func(l *PrefixList) bool { return l.byAWS })
}

// users are the groups with rules that name a list.
func (s *site) users(l *PrefixList) []*Group {
	return slices.DeleteFunc(sortedValues(s.groups), func(g *Group) bool {
		return !slices.ContainsFunc(g.Rules, func(r *Rule) bool { return r.PrefixList == l.ID })
	})
}

// isBusy says whether a change of the list has not taken effect, isGoing whether it is to be deleted.
func (l *PrefixList) isBusy() bool  { return l.busy > 0 }
func (l *PrefixList) isGoing() bool { return l.state == "delete-in-progress" }

// listed brings a list that has been shown nearer to the end of its state, and says
// whether it has ended.
func (s *site) listed(l *PrefixList) bool {
	if !l.isBusy() {
		return false
	}
	if l.busy--; l.busy > 0 {
		return false
	}
	s.end(l)
	return true
}

// end ends a list's state in progress. That a list is in use, or has no place to grow where it is,
// is found out only then.
func (s *site) end(l *PrefixList) {
	switch {
	case l.isGoing():
		if users := s.users(l); len(users) > 0 {
			l.state, l.message = "delete-failed", "The prefix list is referenced by: "+ids(users)
			return
		}
		delete(s.lists, l.ID)
	case l.next != nil:
		was, tags, next := *l, l.Tags, l.next
		*l = *next // as it would be
		l.Tags, l.state, l.message, l.next = tags, "modify-complete", "", nil
		full := slices.DeleteFunc(s.users(l), func(g *Group) bool { return s.fits(g.Rules, false) == nil && s.fits(g.Rules, true) == nil })
		if l.MaxEntries > was.MaxEntries && len(full) > 0 {
			*l = was
			l.state, l.message, l.next = "modify-failed", "These resources do not support the new maximum size: "+ids(full[:min(len(full), 10)]), nil
		}
	default:
		l.state = "create-complete"
	}
}

func ids(groups []*Group) string {
	var out []string
	for _, g := range groups {
		out = append(out, g.ID)
	}
	return strings.Join(out, ", ")
}

// begin puts a list into a state in progress; without the option it ends at once.
func (q *request) begin(l *PrefixList, state string, next *PrefixList) {
	l.state, l.message, l.busy, l.next = state, "", q.c.opts.PrefixListBusyCalls, next
	if !l.isBusy() {
		q.s.end(l)
	}
}

// settled finds a list that takes changes now.
func (q *request) settled() (*PrefixList, error) {
	l, err := q.list()
	if err == nil && l.byAWS {
		return nil, errf("UnsupportedOperation", "The prefix list %s is managed by AWS", l.ID)
	}
	if err == nil && l.isBusy() {
		return nil, errf("IncorrectState", "The request cannot be completed while the prefix list (%s) is in the current state (%s)", l.ID, l.state)
	}
	return l, err
}

func (q *request) listXML(l *PrefixList, state string) []elem {
	if l.byAWS {
		return []elem{
			tx("prefixListId", l.ID), tx("prefixListName", l.Name), tx("addressFamily", l.Family), tx("state", "create-complete"),
			tx("prefixListArn", "arn:aws:ec2:"+q.key.region+":aws:prefix-list/"+l.ID), tx("ownerId", "AWS"), tagSet(nil),
		}
	}
	return []elem{
		tx("prefixListId", l.ID), tx("prefixListName", l.Name), tx("addressFamily", l.Family), tx("state", cmp.Or(state, "create-complete")), opt("stateMessage", l.message),
		tx("prefixListArn", arn("ec2", q.s.siteKey, "prefix-list/"+l.ID)), integer("maxEntries", l.MaxEntries),
		tx("version", strconv.FormatInt(l.Version, 10)), tx("ownerId", q.key.account), tagSet(l.Tags),
	}
}

func (q *request) list() (*PrefixList, error) {
	id := q.p.str("PrefixListId")
	if l := q.s.lists[id]; l != nil && !l.isGoing() {
		return l, nil
	}
	return nil, noList(id)
}

func listEntries(q *request) ([]elem, error) {
	l, err := q.list()
	if err != nil {
		return nil, err
	}
	entries := l.Entries
	if v, ok := q.p.num("TargetVersion"); ok && int64(v) != l.Version {
		if entries, ok = l.old[int64(v)]; !ok {
			return nil, errf("InvalidPrefixListVersion", "The prefix list %s has no version %d", l.ID, v)
		}
	}
	key := func(e Entry) string { return e.CIDR.String() }
	entries = slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return strings.Compare(key(a), key(b)) })
	entries, next, err := cut(q, entries, key, paging{1, 100, 100})
	if err != nil {
		return nil, err
	}
	return []elem{items("entrySet", entries, func(e Entry) []elem {
		return []elem{tx("cidr", e.CIDR.String()), opt("description", e.Description)}
	}), opt("nextToken", next)}, nil
}

func (q *request) entries(name, family string) ([]Entry, error) {
	var out []Entry
	specs := q.p.structs(name)
	if len(specs) > maxEdits {
		return nil, tooManyEdits()
	}
	for _, p := range specs {
		p.allow("Cidr", "Description")
		c, err := parseCIDR(p.str("Cidr"), family == "IPv4")
		if err != nil {
			return nil, err
		}
		out = append(out, Entry{c, p.str("Description")})
	}
	return out, nil
}

func createList(q *request) ([]elem, error) {
	tags, err := q.tagSpecs("prefix-list")
	if err != nil {
		return nil, err
	}
	l := &PrefixList{Name: q.p.str("PrefixListName"), Family: q.p.str("AddressFamily"), Version: 1, Tags: tags}
	l.MaxEntries, _ = q.p.num("MaxEntries")
	if l.Entries, err = q.entries("Entry", l.Family); err != nil {
		return nil, err
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	if l.Name == "" || len(l.Name) > 255 || strings.HasPrefix(l.Name, "com.amazonaws") {
		return nil, invalid("The prefix list name '%s' is invalid", l.Name)
	}
	if err := checkList(l.Family, l.MaxEntries, l.Entries, q.s.limits().PrefixListEntries); err != nil {
		return nil, err
	}
	if l.token = q.p.str("ClientToken"); l.token != "" {
		for _, same := range sortedValues(q.s.lists) {
			if same.token == l.token {
				return []elem{el("prefixList", q.listXML(same, same.state)...)}, nil
			}
		}
	}
	if len(q.s.kept()) >= q.s.limits().PrefixLists {
		return nil, errf("PrefixListLimitExceeded", "The maximum number of prefix lists has been reached.")
	}
	l.ID = q.w.newID("pl")
	q.s.lists[l.ID] = l
	q.begin(l, "create-in-progress", nil)
	return []elem{el("prefixList", q.listXML(l, "create-in-progress")...)}, nil
}

// modifyList changes entries, which makes a new version and needs the current one, or the size, but not both.
func modifyList(q *request) ([]elem, error) {
	l, err := q.settled()
	if err != nil {
		return nil, err
	}
	add, err := q.entries("AddEntry", l.Family)
	if err != nil {
		return nil, err
	}
	remove, err := q.entries("RemoveEntry", l.Family)
	if err != nil {
		return nil, err
	}
	// The documented bound is that of each; the error tells of the request, so both count together.
	if len(add)+len(remove) > maxEdits {
		return nil, tooManyEdits()
	}
	after := *l
	edits := len(add)+len(remove) > 0
	if v, ok := q.p.num("CurrentVersion"); ok && int64(v) != l.Version {
		return nil, errf("PrefixListVersionMismatch", "The prefix list has the incorrect version number: it is %d, not %d", l.Version, v)
	} else if !ok && edits {
		return nil, missing("CurrentVersion")
	}
	if n, ok := q.p.num("MaxEntries"); ok {
		if edits {
			return nil, errf("InvalidParameterCombination", "You cannot modify the entries and the maximum entries for the prefix list in the same request.")
		}
		after.MaxEntries = n
	}
	if q.p.has("PrefixListName") {
		after.Name = q.p.str("PrefixListName")
	}
	after.Entries = slices.Clone(l.Entries)
	for _, e := range remove {
		i := slices.IndexFunc(after.Entries, func(o Entry) bool { return o.CIDR == e.CIDR })
		if i < 0 {
			return nil, invalid("The CIDR '%s' is not in the prefix list", e.CIDR)
		}
		after.Entries = slices.Delete(after.Entries, i, i+1)
	}
	for _, e := range add { // an entry that is there gets the new description
		if i := slices.IndexFunc(after.Entries, func(o Entry) bool { return o.CIDR == e.CIDR }); i >= 0 {
			after.Entries[i] = e
			continue
		}
		after.Entries = append(after.Entries, e)
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	if err := checkList(after.Family, after.MaxEntries, after.Entries, q.s.limits().PrefixListEntries); err != nil {
		return nil, err
	}
	if edits {
		after.old = maps.Clone(l.old)
		if after.old == nil {
			after.old = map[int64][]Entry{}
		}
		after.old[l.Version] = l.Entries
		delete(after.old, l.Version-maxVersions)
		after.Version++
	}
	q.begin(l, "modify-in-progress", &after)
	return []elem{el("prefixList", q.listXML(l, "modify-in-progress")...)}, nil
}

func deleteList(q *request) ([]elem, error) {
	l, err := q.settled()
	if err != nil {
		return nil, err
	}
	q.begin(l, "delete-in-progress", nil)
	return []elem{el("prefixList", q.listXML(l, "delete-in-progress")...)}, nil
}
