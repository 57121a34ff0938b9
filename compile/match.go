package compile

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"

	"isobar.dev/policy"
)

// Who matches what: namespaces and selectors of namespaces; profiles, which are
// workloads that look the same to every Selection, and Selections. Both ways it
// is found by label: profiles stand under each of their labels, and a Selection
// is filed under one of its requirements.

// label is a label that profiles have or Selections require, a key that these require, or, when it is zero,
// nothing.
type label struct {
	asked
	hash     uint32
	next     *label
	profiles sorted[profile]   // those that have it, by space
	wants    sorted[selection] // those that are filed under it, by where they look
}

// asked is what a Selection, or a selector of namespaces, is filed under: a label, or one of
// the two below.
type asked struct{ key, value string }

// anyValue stands for a key whatever its value; no label has such a value.
const anyValue = "\x00"

// anything stands for no requirement at all; no label has such a key.
var anything = asked{key: "\x00"}

func (l *label) link() (uint32, **label) { return l.hash, &l.next }

// serviceAccountKey stands for the service account among labels; no label has such a key.
const serviceAccountKey = "\x00account"

func (e *Engine) hashOf(a asked) uint32 {
	var h maphash.Hash // its own: who reads may do so beside others
	h.SetSeed(e.seed)
	h.WriteString(a.key)
	h.WriteByte(0)
	h.WriteString(a.value)
	return uint32(h.Sum64())
}

// label returns what is known of a, or nil when that is nothing.
func (e *Engine) label(a asked) *label {
	hash := e.hashOf(a)
	for l := e.labels.at(hash); l != nil; l = l.next {
		if l.hash == hash && l.asked == a {
			return l
		}
	}
	return nil
}

// makeLabel is label, and makes one that is not there.
func (e *Engine) makeLabel(a asked) *label {
	l := e.label(a)
	if l == nil {
		l = &label{asked: a, hash: e.hashOf(a)}
		e.labels.add(l)
	}
	return l
}

func (e *Engine) dropLabelIfUnused(l *label) {
	if l.profiles.isEmpty() && l.wants.isEmpty() {
		e.labels.remove(l)
	}
}

// in yields the profiles of sp that have l.
func (l *label) in(sp *space) iter.Seq[*profile] {
	return func(yield func(*profile) bool) {
		for p := range l.profiles.from(func(p *profile) int { return p.compare(sp.id, 0) }) {
			if p.space != sp || !yield(p) {
				return
			}
		}
	}
}

// choose returns under what something that requires sel is best filed, given how much is filed already: so what
// tells many apart is what they are found by.
func choose(sel policy.Selector, account string, filed func(asked) int) []asked {
	best, fewest := []asked{anything}, -1
	consider := func(key string, op policy.Operator, values []string) {
		var under []asked
		switch op {
		case policy.In:
			for _, v := range values {
				under = append(under, asked{key, v})
			}
		case policy.Exists:
			under = []asked{{key, anyValue}}
		default:
			return
		}
		n := 0
		for _, a := range under {
			n += filed(a)
		}
		if op == policy.Exists {
			n += 1 << 30 // any value is better
		}
		if fewest < 0 || n < fewest {
			best, fewest = under, n
		}
	}
	for _, r := range sel {
		consider(r.Key, r.Op, r.Values)
	}
	if account != "" {
		consider(serviceAccountKey, policy.In, []string{account})
	}
	slices.SortFunc(best, func(a, b asked) int { return cmp.Compare(a.value, b.value) })
	return slices.Compact(best)
}

// space is a namespace as far as it is known: by its object, or by workloads in it.
type space struct {
	id       uint64
	name     string
	ns       *policy.Namespace // nil when it is not known
	nsels    []*nsel           // those that match it
	profiles sorted[profile]   // by id
	wanted   int32             // Selections of this namespace
}

// nsel is a selector of namespaces.
type nsel struct {
	id       uint64
	key      string
	requires policy.Selector
	places   []place // where it is filed
	spaces   bag[*space]
	users    int // Selections
}

// everywhere is the id of the place where Selections of all namespaces look. Others are those of
// spaces and nsels.
const everywhere = 0

// profile is workloads that look the same to every Selection.
type profile struct {
	id        uint64
	next      *profile
	hash      uint32
	kind      policy.Kind
	fresh     bool // made by this Update
	dirty     bool // its role may be another
	moved     bool // its role is another
	space     *space
	like      *policy.Workload // one of its workloads, or the last that it had
	workloads roster
	matches   sorted[selection] // that pick it, by id
	role      *role             // nil for as long as it is fresh
	drift     *drift            // nil when matches are what they were
}

func (p *profile) link() (uint32, **profile) { return p.hash, &p.next }

// compare compares the place of p under a label with that of a space and an id.
func (p *profile) compare(space, id uint64) int {
	return cmp.Or(cmp.Compare(p.space.id, space), cmp.Compare(p.id, id))
}

func (p *profile) place() func(*profile) int {
	return func(o *profile) int { return o.compare(p.space.id, p.id) }
}

// by returns the place of p where profiles are by their ids.
func (p *profile) by() func(*profile) int {
	return func(o *profile) int { return cmp.Compare(o.id, p.id) }
}

// put adds w, or replaces the one of its ID.
func (p *profile) put(w *policy.Workload) {
	p.like = w
	p.workloads.put(w)
}

// remove takes away the workload of an ID.
func (p *profile) remove(id string) {
	p.workloads.remove(id)
	if w := p.workloads.first(); w != nil {
		p.like = w
	}
}

// drift is what an Update has changed of the matches of a profile that was there.
type drift struct {
	gained, lost []*selection
	isGained     map[*selection]bool // once it is net
}

// moved is a profile whose role is another, and the role that it had: nil when
// it is fresh.
type moved struct {
	profile *profile
	from    *role
}

// selection is a Selection that is in use: as a group of rules' peers, or in
// what rules apply to.
type selection struct {
	id       uint64
	next     *selection
	sel      *policy.Selection // as the first that used it wrote it
	scope    uint64            // the id of where it looks: everywhere, a space or an nsel
	under    *label            // where it is filed, for the most part: see Engine.also
	profiles sorted[profile]   // that it picks, by id
	alone    *applied          // that of it alone; nil when rules apply to no such set
	sets     *bag[*applied]    // those that it has a part in; nil for none
	targets  bag[*target]      // those that need its members, counted by bundles
	namers   *bag[*target]     // those of a realm whose Allow and Pass rules name it, counted by parts; nil for none
	up       *selectionUpdate
	hash     uint32 // of its Key
	users    int32
	picked   bool // while one workload is looked at: it picked what that was
	fresh    bool
	dead     bool // users may be none
	renamed  bool // namers are others
}

// selectionUpdate is what an Update has changed of a selection that was there.
type selectionUpdate struct {
	touched map[*target]bool // to whether they needed it
	log     *GroupChange
}

func (s *selection) link() (uint32, **selection) { return s.hash, &s.next }

// compare compares the place of s under a label with that of a scope and an id.
func (s *selection) compare(scope, id uint64) int {
	return cmp.Or(cmp.Compare(s.scope, scope), cmp.Compare(s.id, id))
}

func (s *selection) place() func(*selection) int {
	return func(o *selection) int { return o.compare(s.scope, s.id) }
}

// by returns the place of s where selections are by their ids.
func (s *selection) by() func(*selection) int {
	return func(o *selection) int { return cmp.Compare(o.id, s.id) }
}

// eachApplied calls f with each set that rules apply to and that s has a part in.
func (s *selection) eachApplied(f func(*applied)) {
	if s.alone != nil {
		f(s.alone)
	}
	if s.sets == nil {
		return
	}
	for a := range s.sets.all() {
		f(a)
	}
}

// isApplied says whether rules apply to a set that s has a part in.
func (s *selection) isApplied() bool { return s.alone != nil || s.sets != nil }

func (e *Engine) newID() uint64 {
	e.lastID++
	return e.lastID
}

func (e *Engine) profileHash(w *policy.Workload) uint32 {
	var h maphash.Hash // its own: who reads may do so beside others
	h.SetSeed(e.seed)
	h.WriteByte(byte(w.Kind))
	h.WriteString(w.Namespace)
	h.WriteByte(0)
	h.WriteString(w.ServiceAccount)
	for _, l := range w.Labels {
		h.WriteByte(0)
		h.WriteString(l.Key)
		h.WriteByte(0)
		h.WriteString(l.Value)
	}
	return uint32(h.Sum64())
}

// profileOf returns the profile of w, or nil when there is none.
func (e *Engine) profileOf(w *policy.Workload) (*profile, uint32) {
	hash := e.profileHash(w)
	for p := e.profiles.at(hash); p != nil; p = p.next {
		if p.hash == hash && p.kind == w.Kind && p.space.name == w.Namespace && p.like.ServiceAccount == w.ServiceAccount && slices.Equal(p.like.Labels, w.Labels) {
			return p, hash
		}
	}
	return nil, hash
}

// addProfile makes the profile of w and finds what picks it.
func (e *Engine) addProfile(w *policy.Workload, hash uint32) *profile {
	sp := e.spaceOf(w.Namespace)
	p := &profile{id: e.newID(), hash: hash, kind: w.Kind, space: sp, like: w, fresh: true}
	e.profiles.add(p)
	e.up.freshProfiles = append(e.up.freshProfiles, p)
	e.soil(p)
	sp.profiles.put(p, p.by())
	for _, l := range w.Labels {
		e.makeLabel(asked{l.Key, l.Value}).profiles.put(p, p.place())
	}
	e.matchIn(p, everywhere, sp.id)
	for _, n := range sp.nsels {
		e.matchIn(p, n.id)
	}
	return p
}

// matchIn connects p to the Selections that look in these scopes, each of which covers it.
func (e *Engine) matchIn(p *profile, scopes ...uint64) {
	look := func(a asked) {
		l := e.label(a)
		if l == nil || l.wants.isEmpty() {
			return
		}
		for _, scope := range scopes {
			for s := range l.wants.from(func(s *selection) int { return s.compare(scope, 0) }) {
				if s.scope != scope {
					break
				}
				if s.fits(p) {
					e.connect(p, s)
				}
			}
		}
	}
	look(anything)
	for _, l := range p.like.Labels {
		look(asked{l.Key, l.Value})
		look(asked{l.Key, anyValue})
	}
	if p.like.ServiceAccount != "" {
		look(asked{serviceAccountKey, p.like.ServiceAccount})
	}
}

// fits says whether s picks p, its scope aside.
func (s *selection) fits(p *profile) bool {
	return s.sel.Kind == p.kind && p.kind != 0 && (s.sel.ServiceAccount == "" || s.sel.ServiceAccount == p.like.ServiceAccount) && s.sel.Labels.Matches(p.like.Labels)
}

// connect notes that s picks p. A scope covers p once and s is filed under values
// of one key, of which p has one: so it is not asked twice.
func (e *Engine) connect(p *profile, s *selection) {
	p.matches.put(s, s.by())
	s.profiles.put(p, p.by())
	if s.isApplied() {
		e.soil(p)
	}
	if d := e.driftOf(p); d != nil {
		d.gained = append(d.gained, s)
	}
}

// disconnect notes that s does not pick p any more.
func (e *Engine) disconnect(p *profile, s *selection) {
	p.matches.remove(s.by())
	s.profiles.remove(p.by())
}

// driftOf returns where it is noted what p has gained and lost; nil for a fresh
// profile, of which nothing was known.
func (e *Engine) driftOf(p *profile) *drift {
	if p.drift == nil && !p.fresh {
		p.drift = &drift{}
		e.up.drifted = append(e.up.drifted, p)
	}
	return p.drift
}

// soil notes that the role of p may be another.
func (e *Engine) soil(p *profile) {
	if !p.dirty {
		p.dirty = true
		e.up.dirtyProfiles = append(e.up.dirtyProfiles, p)
	}
}

// spaceOf returns the space of a namespace, which it makes when there is none.
func (e *Engine) spaceOf(name string) *space {
	sp := e.spaces[name]
	if sp == nil {
		sp = &space{id: e.newID(), name: name}
		e.spaces[name] = sp
	}
	return sp
}

// dropProfile takes away p, which has no workloads and no role.
func (e *Engine) dropProfile(p *profile) {
	for !p.matches.isEmpty() {
		e.disconnect(p, p.matches.first())
	}
	for _, l := range p.like.Labels {
		at := e.label(asked{l.Key, l.Value})
		at.profiles.remove(p.place())
		e.dropLabelIfUnused(at)
	}
	p.space.profiles.remove(p.by())
	e.profiles.remove(p)
	e.dropSpaceIfUnused(p.space)
}

func (e *Engine) dropSpaceIfUnused(sp *space) {
	if sp.ns == nil && sp.profiles.isEmpty() && sp.wanted == 0 {
		delete(e.spaces, sp.name)
	}
}
