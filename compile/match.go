package compile

import (
	"cmp"
	"hash/maphash"
	"slices"

	"isobar.dev/policy"
)

// Who matches what: namespaces and selectors of namespaces; profiles, which are
// workloads that look the same to every Selection, and Selections. Both ways it
// is found by label: a Selection is filed on shelves by one of its
// requirements, and profiles are posted under each of their labels.

// scope is where Selections of one Kind look: a namespace, namespaces by their
// labels, or everywhere. Its shelves hold the Selections.
type scope struct{ shelves map[shelfKey]*shelf }

// shelfKey is a label that all Selections of a shelf require, a key that they
// require, or, when it is zero, nothing.
type shelfKey struct {
	how        filing
	key, value string
}

type filing uint8

const (
	byNothing filing = iota
	byKey
	byValue
)

type shelf struct {
	key   shelfKey
	slots []slot
}

// slot is one filed thing, and which of its places this is.
type slot struct {
	it    *filed
	place int
}

// filed is what a Selection or a selector of namespaces has of shelves.
type filed struct {
	requires  policy.Selector
	places    []place // one, or one for each value
	selection *selection
	nsel      *nsel
}

type place struct {
	shelf *shelf
	i     int
}

// serviceAccountKey stands for the service account among labels; no label has such a key.
const serviceAccountKey = "\x00account"

// file puts it on the shelves of the requirement that has the emptiest: so what
// tells many Selections apart is what they are found by.
func (s *scope) file(it *filed) {
	best, fewest := []shelfKey{{}}, -1
	for _, r := range it.requires {
		var keys []shelfKey
		switch r.Op {
		case policy.In:
			for _, v := range r.Values {
				keys = append(keys, shelfKey{byValue, r.Key, v})
			}
		case policy.Exists:
			keys = []shelfKey{{byKey, r.Key, ""}}
		default:
			continue
		}
		n := 0
		for _, k := range keys {
			if sh := s.shelves[k]; sh != nil {
				n += len(sh.slots)
			}
		}
		if r.Op == policy.Exists {
			n += 1 << 30 // any value is better
		}
		if fewest < 0 || n < fewest {
			best, fewest = keys, n
		}
	}
	if s.shelves == nil {
		s.shelves = map[shelfKey]*shelf{}
	}
	slices.SortFunc(best, func(a, b shelfKey) int { return cmp.Compare(a.value, b.value) })
	for _, k := range slices.Compact(best) {
		sh := s.shelves[k]
		if sh == nil {
			sh = &shelf{key: k}
			s.shelves[k] = sh
		}
		it.places = append(it.places, place{sh, len(sh.slots)})
		sh.slots = append(sh.slots, slot{it, len(it.places) - 1})
	}
}

// unfile takes it off its shelves.
func (s *scope) unfile(it *filed) {
	for _, p := range it.places {
		last := len(p.shelf.slots) - 1
		moved := p.shelf.slots[last]
		p.shelf.slots[p.i] = moved
		moved.it.places[moved.place].i = p.i
		p.shelf.slots[last] = slot{}
		if p.shelf.slots = p.shelf.slots[:last]; last == 0 {
			delete(s.shelves, p.shelf.key)
		}
	}
	it.places = nil
}

// candidates calls f with what may match labels; it may be called twice with one.
func (s *scope) candidates(labels policy.Labels, account string, f func(*filed)) {
	if len(s.shelves) == 0 {
		return
	}
	look := func(k shelfKey) {
		if sh := s.shelves[k]; sh != nil {
			for _, sl := range sh.slots {
				f(sl.it)
			}
		}
	}
	look(shelfKey{})
	for _, l := range labels {
		look(shelfKey{byValue, l.Key, l.Value})
		look(shelfKey{byKey, l.Key, ""})
	}
	if account != "" {
		look(shelfKey{byValue, serviceAccountKey, account})
	}
}

// kinds is one scope for each Kind.
type kinds [policy.KindNode + 1]scope

// space is a namespace as far as it is known: by its object, or by workloads in it.
type space struct {
	name     string
	ns       *policy.Namespace // nil when it is not known
	kinds    kinds             // Selections of this namespace
	nsels    []*nsel           // those that match it
	profiles []*profile
	postings map[policy.Label]*posting
	named    int // Selections of this namespace
}

// posting is the profiles of one namespace that have one label.
type posting struct {
	space    *space
	i        int // in Engine.postings
	profiles []*profile
}

// nsel is a selector of namespaces.
type nsel struct {
	filed
	key    string
	kinds  kinds
	spaces bag[*space]
	users  int // Selections
}

// profile is workloads that look the same to every Selection.
type profile struct {
	hash      uint64
	next      *profile // of the same hash
	kind      policy.Kind
	fresh     bool // made by this Update
	dirty     bool // its role may be another
	moved     bool // its role is another
	space     *space
	account   string
	labels    policy.Labels
	workloads roster
	inSpace   int      // its place in space.profiles
	posted    []posted // for each label
	matches   []match  // in no order
	role      *role    // nil for as long as it is fresh
	drift     *drift   // nil when matches are what they were
}

// drift is what an Update has changed of the matches of a profile that was there.
type drift struct {
	gained, lost []*selection
	isGained     map[*selection]bool // once it is net
}

// moved is a profile whose role is another, and the lists that it had: nil when
// it is fresh.
type moved struct {
	profile *profile
	start   *lists
}

type posted struct {
	posting *posting
	i       int
}

// match is a Selection that picks a profile, and the profile's place there.
type match struct {
	sel *selection
	i   int
}

// picked is a profile that a Selection picks, and the Selection's place there.
type picked struct {
	profile *profile
	i       int
}

// selection is a Selection that is in use: as a group of rules' peers, or in
// what rules apply to.
type selection struct {
	filed
	key      string
	sel      policy.Selection
	nsel     *nsel  // where it looks ByLabels
	space    *space // where it looks in OneNamespace
	profiles []picked
	users    int
	applied  bag[*applied]
	targets  bag[*target] // those that need its members, counted by bundles
	touched  map[*target]bool
	namers   bag[*target] // those of a realm whose Allow and Pass rules name it, counted by parts
	renamed  bool         // namers are others
	fresh    bool
	dead     bool // users may be none
	mark     uint64
	log      *GroupChange
}

func (e *Engine) profileHash(kind policy.Kind, namespace, account string, labels policy.Labels) uint64 {
	var h maphash.Hash // its own: who reads may do so beside others
	h.SetSeed(e.seed)
	h.WriteByte(byte(kind))
	h.WriteString(namespace)
	h.WriteByte(0)
	h.WriteString(account)
	for _, l := range labels {
		h.WriteByte(0)
		h.WriteString(l.Key)
		h.WriteByte(0)
		h.WriteString(l.Value)
	}
	return h.Sum64()
}

// profileOf returns the profile of w, or nil when there is none.
func (e *Engine) profileOf(w *policy.Workload) (*profile, uint64) {
	hash := e.profileHash(w.Kind, w.Namespace, w.ServiceAccount, w.Labels)
	for p := e.profiles[hash]; p != nil; p = p.next {
		if p.kind == w.Kind && p.space.name == w.Namespace && p.account == w.ServiceAccount && slices.Equal(p.labels, w.Labels) {
			return p, hash
		}
	}
	return nil, hash
}

// addProfile makes the profile of w and finds what picks it.
func (e *Engine) addProfile(w *policy.Workload, hash uint64) *profile {
	sp := e.spaceOf(w.Namespace)
	p := &profile{
		hash: hash, next: e.profiles[hash], kind: w.Kind, space: sp, account: w.ServiceAccount, labels: w.Labels,
		inSpace: len(sp.profiles), fresh: true,
	}
	e.profiles[hash] = p
	e.up.freshProfiles = append(e.up.freshProfiles, p)
	e.soil(p)
	sp.profiles = append(sp.profiles, p)
	if len(p.labels) > 0 {
		p.posted = make([]posted, len(p.labels))
	}
	for i, l := range p.labels {
		po := sp.postings[l]
		if po == nil {
			if sp.postings == nil {
				sp.postings = map[policy.Label]*posting{}
			}
			po = &posting{space: sp, i: len(e.postings[l])}
			sp.postings[l] = po
			e.postings[l] = append(e.postings[l], po)
		}
		p.posted[i] = posted{po, len(po.profiles)}
		po.profiles = append(po.profiles, p)
	}
	if int(p.kind) < len(sp.kinds) {
		e.matchIn(p, &sp.kinds[p.kind])
		e.matchIn(p, &e.everywhere[p.kind])
		for _, n := range sp.nsels {
			e.matchIn(p, &n.kinds[p.kind])
		}
	}
	return p
}

// matchIn connects p to the Selections of a scope that covers it.
func (e *Engine) matchIn(p *profile, s *scope) {
	s.candidates(p.labels, p.account, func(it *filed) {
		if it.selection.fits(p) {
			e.connect(p, it.selection)
		}
	})
}

// fits says whether s picks p, its scope aside.
func (s *selection) fits(p *profile) bool {
	return s.sel.Kind == p.kind && (s.sel.ServiceAccount == "" || s.sel.ServiceAccount == p.account) && s.sel.Labels.Matches(p.labels)
}

// connect notes that s picks p. A scope covers p once and files s under values
// of one key, of which p has one: so it is not asked twice.
func (e *Engine) connect(p *profile, s *selection) {
	p.matches = append(p.matches, match{s, len(s.profiles)})
	s.profiles = append(s.profiles, picked{p, len(p.matches) - 1})
	if s.applied.len() > 0 {
		e.soil(p)
	}
	if d := e.driftOf(p); d != nil {
		d.gained = append(d.gained, s)
	}
}

// disconnect takes away match i of p.
func (e *Engine) disconnect(p *profile, i int) {
	m := p.matches[i]
	last := len(m.sel.profiles) - 1
	if m.i != last {
		moved := m.sel.profiles[last]
		m.sel.profiles[m.i] = moved
		moved.profile.matches[moved.i].i = m.i
	}
	m.sel.profiles[last] = picked{}
	m.sel.profiles = m.sel.profiles[:last]

	last = len(p.matches) - 1
	if i != last {
		moved := p.matches[last]
		p.matches[i] = moved
		moved.sel.profiles[moved.i].i = i
	}
	p.matches[last] = match{}
	p.matches = p.matches[:last]
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
		sp = &space{name: name}
		e.spaces[name] = sp
	}
	return sp
}
