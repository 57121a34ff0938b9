package compile

import (
	"iter"
	"slices"

	"isobar.dev/policy"
)

// logMembers notes the members that groups have gained and lost.
func (e *Engine) logMembers() {
	for _, p := range e.up.drifted {
		p.drift.net()
	}
	for _, c := range e.up.workloads {
		e.logMember(c)
	}
	for _, p := range e.up.drifted {
		d := p.drift
		if len(d.gained)+len(d.lost) == 0 {
			continue
		}
		for w := range p.workloads.all() {
			if !w.IsPeer() || e.hasChanged(w.ID) {
				continue
			}
			for _, s := range d.gained {
				e.gain(s, w)
			}
			for _, s := range d.lost {
				e.lose(s, w)
			}
		}
	}
}

// logMember notes the groups that one workload has entered, left or changed in.
func (e *Engine) logMember(c changed) {
	if c.old != nil && c.old.IsPeer() {
		for s := range c.from.before() {
			s.picked = true
		}
	}
	if c.now != nil && c.now.IsPeer() {
		for s := range c.into.matches.all() {
			if s.picked {
				e.remember(s, c.old)
			}
			s.picked = false
			e.gain(s, c.now)
		}
	}
	if c.old != nil && c.old.IsPeer() {
		for s := range c.from.before() {
			if s.picked {
				e.lose(s, c.old)
			}
			s.picked = false
		}
	}
}

// net leaves in gained and lost what is so in the end: what was gained and lost
// again, or lost and gained again, is neither.
func (d *drift) net() {
	n := make(map[*selection]int, len(d.gained)+len(d.lost))
	for _, s := range d.gained {
		n[s]++
	}
	for _, s := range d.lost {
		n[s]--
	}
	*d = drift{isGained: map[*selection]bool{}}
	for s, n := range n {
		switch {
		case n > 0:
			d.gained = append(d.gained, s)
			d.isGained[s] = true
		case n < 0:
			d.lost = append(d.lost, s)
		}
	}
}

// before yields the selections that picked p when the Update began.
func (p *profile) before() iter.Seq[*selection] {
	return func(yield func(*selection) bool) {
		if p.fresh {
			return
		}
		for s := range p.matches.all() {
			if p.drift != nil && p.drift.isGained[s] {
				continue
			}
			if !yield(s) {
				return
			}
		}
		if p.drift == nil {
			return
		}
		for _, s := range p.drift.lost {
			if !yield(s) {
				return
			}
		}
	}
}

// gain notes that w is a member of s, and was not, or was another.
func (e *Engine) gain(s *selection, w *policy.Workload) {
	if log := e.memberLog(s); log != nil {
		log.Workloads = append(log.Workloads, w)
	}
}

// lose notes that w was a member of s, and nothing of its ID is.
func (e *Engine) lose(s *selection, w *policy.Workload) {
	if log := e.memberLog(s); log != nil {
		log.Removed = append(log.Removed, w.ID)
		log.Were = append(log.Were, w)
	}
}

// remember notes that a member of s, which is another now, was w.
func (e *Engine) remember(s *selection, w *policy.Workload) {
	if log := e.memberLog(s); log != nil {
		log.Were = append(log.Were, w)
	}
}

// memberLog returns where the changes of s are noted; nil where no target had it
// before and has it now.
func (e *Engine) memberLog(s *selection) *GroupChange {
	if s.fresh || s.targets.len() == 0 {
		return nil
	}
	up := e.updateOfSelection(s)
	if up.log == nil {
		up.log = &GroupChange{Key: s.key(), Selection: s.sel}
		e.up.loggedSelections = append(e.up.loggedSelections, s)
	}
	return up.log
}

// logGroups logs the groups that targets have gained and lost, and the members
// of those that they kept.
func (e *Engine) logGroups() {
	for _, s := range e.up.freshSelections {
		if s.targets.len() == 0 {
			continue
		}
		whole := e.whole(s)
		for t := range s.targets.all() {
			e.logGroup(t, whole)
		}
	}
	for _, s := range e.up.loggedSelections {
		slices.SortFunc(s.up.log.Workloads, byID)
		slices.SortFunc(s.up.log.Were, byID)
		slices.Sort(s.up.log.Removed)
	}
	for _, s := range e.up.touchedSelections {
		var whole, gone *GroupChange
		for t, had := range s.up.touched {
			switch has := s.targets.has(t); {
			case has && !had:
				if whole == nil {
					whole = e.whole(s)
				}
				e.logGroup(t, whole)
			case had && !has:
				if gone == nil {
					gone = &GroupChange{Key: s.key(), Selection: s.sel, Gone: true}
				}
				e.logGroup(t, gone)
			case had && has && s.up.log != nil:
				e.logGroup(t, s.up.log)
			}
		}
	}
	for _, s := range e.up.loggedSelections {
		for t := range s.targets.all() {
			if _, ok := s.up.touched[t]; !ok {
				e.logGroup(t, s.up.log)
			}
		}
	}
}

// keepMembers brings the members of groups that Rulesets have had to what they are now.
func (e *Engine) keepMembers() {
	if len(e.members) == 0 {
		return // as where agents enforce
	}
	for _, s := range e.up.loggedSelections {
		switch members, ok := e.members[s]; {
		case !ok:
		case len(s.up.log.Workloads)+len(s.up.log.Removed) > members.Len()/4: // which would cost more
			delete(e.members, s)
		default:
			e.members[s] = s.up.log.apply(members)
		}
	}
	for _, s := range e.up.touchedSelections {
		if s.targets.len() == 0 { // what changes in it is not logged
			delete(e.members, s)
		}
	}
}

// whole returns the change of those that s is new to.
func (e *Engine) whole(s *selection) *GroupChange {
	g := &GroupChange{Key: s.key(), Selection: s.sel, New: true}
	if e.up.whole {
		g.Workloads = s.members()
	}
	return g
}

func (e *Engine) logGroup(t *target, g *GroupChange) {
	if e.up.whole || t.watched {
		log := e.logOf(t)
		log.groups = append(log.groups, g)
		return
	}
	e.logChanged(t)
}
