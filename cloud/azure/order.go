package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"isobar.dev/cloud"
	"isobar.dev/plan"
)

// mover is one interface on its way from one NSG to another, and from some ASGs to
// others.
type mover struct {
	shift
	key   string
	id    resourceID
	err   error      // why it is not known where it is
	queue [][]string // the ASGs that it is to have, one after the other
	moved bool       // it has the NSG that it is to have
	tidy  bool       // and remembers what it is to remember
	joins bool       // it has everything that it gets
	kept  bool       // it remembers what it had
	fails bool
}

func (a *applier) mover(c plan.Change[Object]) *mover {
	m := &mover{key: c.Key, shift: shift{nic: strings.TrimPrefix(c.Key, "nic/")}}
	if c.Want != nil {
		m.to, m.gets = c.Want.NIC.NSG, c.Want.NIC.Groups
	}
	marked := false
	if f := a.ground.nics[c.Key]; f != nil {
		m.from, m.had, m.addrs, m.id = f.nsg, f.groups, f.addrs, f.id
		m.kept, marked = f.kept && f.owner == a.cluster(), f.member == a.cluster()
	} else {
		m.id, m.err = parseID(m.nic)
	}
	unsettled := c.Have != nil && c.Have.NIC.Unsettled
	m.moved = m.from == m.to && m.kept == (m.to != "") && !(unsettled && m.to != "")
	member := len(m.gets) > 0
	// An interface of which Azure has not done what was asked for may have other ASGs
	// than it says.
	m.unsure = unsettled && (marked || member || len(m.had) > 0)
	if !slices.Equal(m.had, m.gets) || m.unsure || marked != member && (member || m.to != "") {
		m.queue = [][]string{m.gets}
	}
	m.tidy = m.to != "" || !m.kept && (member || !marked && len(m.had) == 0)
	return m
}

// weave finds when each interface changes its ASGs; written are the NSGs that are made
// or rewritten.
func (a *applier) weave(written []plan.Change[Object]) {
	have, want := map[string]*NSG{}, map[string]*NSG{}
	for key, f := range a.ground.nsgs {
		have[key], want[key] = f.now, f.now
	}
	for _, c := range written {
		want[c.Key] = c.Want.NSG
	}
	shifts := make([]*shift, len(a.movers))
	for i, m := range a.movers {
		shifts[i] = &m.shift
	}
	weave(have, want, shifts)
	for _, m := range a.movers {
		if m.joins = len(m.queue) == 0; m.mode == twice {
			if both := union(m.had, m.gets); !slices.Equal(both, m.had) {
				m.queue = [][]string{both, m.gets}
			} else {
				m.joins = true
			}
		}
	}
}

// run writes interfaces and NSGs, many at once.
//
// An NSG is rewritten when all that leave it have left: until then they have its old
// rules. An interface moves when the NSG that it comes to has its new rules. Both wait for
// the interfaces that must have their new ASGs by then, and are waited for by those that
// must have their old ones until then: see weave. An interface that can do so changes its
// ASGs in the call that moves it; when nothing else is left to do, before. Lowering takes
// care that this does not go around in circles: see tangled and untangle. If it does,
// since the cloud is not as it was, what is left waits for the next time.
func (a *applier) run(ctx context.Context) {
	rewrites := a.rewrites
	for hold := true; ; {
		closed, open := a.passages()
		leaving := map[string]bool{}
		for _, m := range a.movers {
			if !m.moved && m.from != m.to {
				leaving[m.from] = true
			}
		}
		var now []plan.Change[Object]
		now, rewrites = split(rewrites, func(c plan.Change[Object]) bool { return !leaving[c.Key] && !closed[passage{c.Key, c.Key}] })
		cloud.Each(now, func(c plan.Change[Object]) {
			err := a.rewrite(ctx, c)
			a.done(c.Key, err)
		})
		pending := map[string]bool{}
		for _, c := range rewrites {
			pending[c.Key] = true
		}
		for _, c := range a.rewrites {
			if a.failure(c.Key) != nil {
				open[passage{c.Key, c.Key}] = true
			}
		}
		for _, c := range rewrites {
			open[passage{c.Key, c.Key}] = true
		}
		var going []*turn
		for _, m := range a.movers {
			if t := m.turn(pending, closed, open, hold); t != nil {
				going = append(going, t)
			}
		}
		cloud.Each(going, func(t *turn) { a.done(t.m.key, a.step(ctx, t)) })
		switch {
		case len(now)+len(going) > 0:
			hold = true
		case hold:
			hold = false // nothing else can be done
		default:
			a.giveUp(rewrites)
			return
		}
	}
}

// giveUp says what has not been done, and why.
func (a *applier) giveUp(rewrites []plan.Change[Object]) {
	for _, c := range rewrites {
		a.done(c.Key, a.waiting(c.Key))
	}
	for _, m := range a.movers {
		if !m.fails && !m.isDone() {
			a.done(m.key, a.waiting(m.to))
		}
	}
}

// waiting returns why what has to do with an NSG has not been done: somebody has not
// left it, or has not what its new rules name.
func (a *applier) waiting(key string) error {
	for _, m := range a.movers {
		if m.from == key && !m.moved || !m.joins && slices.ContainsFunc(m.before, func(p passage) bool { return p.to == key }) {
			if err := a.failure(m.key); err != nil { // which may be that Azure is still at it
				return fmt.Errorf("waits for %s: %w", m.key, err)
			}
			return fmt.Errorf("waits for %s", m.key)
		}
	}
	return fmt.Errorf("waits for %s", cmp.Or(key, "others"))
}

// passages returns those that wait for interfaces to have their new ASGs, and those
// that are not through yet, as far as they are of movers.
func (a *applier) passages() (closed, open map[passage]bool) {
	closed, open = map[passage]bool{}, map[passage]bool{}
	for _, m := range a.movers {
		if !m.moved && m.from != m.to {
			open[passage{m.from, m.to}] = true
		}
		if m.joins {
			continue
		}
		for _, p := range m.before {
			closed[p] = true
		}
	}
	return closed, open
}

// turn is one write of an interface.
type turn struct {
	m            *mover
	move, forget bool
	groups       bool // the first of its queue
}

func (m *mover) isDone() bool { return m.moved && m.tidy && len(m.queue) == 0 }

// turn returns what an interface may do now, or nil. While hold, it does not change its
// ASGs if it may do so when it moves.
func (m *mover) turn(pending map[string]bool, closed, open map[passage]bool, hold bool) *turn {
	if m.fails || m.isDone() {
		return nil
	}
	t := &turn{m: m}
	t.move = !m.moved && !pending[m.to] && !closed[passage{m.from, m.to}]
	last := len(m.queue) == 1
	waits := last && (m.mode == never || slices.ContainsFunc(m.after, func(p passage) bool { return open[p] }))
	t.groups = len(m.queue) > 0 && !waits
	if t.groups && !m.moved && !t.move && hold {
		t.groups = false
	}
	// What remembers goes in a call of its own: while it is not certain that Azure has done
	// the others, somebody has to know of the interface.
	t.forget = m.moved && !m.tidy && len(m.queue) == 0
	if !t.move && !t.groups && !t.forget {
		return nil
	}
	return t
}

// split returns those of a list that is picks, and the others.
func split[T any](list []T, is func(T) bool) (those, others []T) {
	for _, x := range list {
		if is(x) {
			those = append(those, x)
		} else {
			others = append(others, x)
		}
	}
	return those, others
}

// step writes an interface once.
func (a *applier) step(ctx context.Context, t *turn) error {
	m := t.m
	err := a.write(ctx, t)
	// An interface that has gone needs no policy: its VM has gone with it.
	gone := resultOf(err) == ResultGone
	if err != nil && !gone {
		m.fails = true
		return fmt.Errorf("write interface %s: %w", m.id.name(), err)
	}
	if t.groups {
		m.queue, m.joins = m.queue[1:], true
	}
	m.moved, m.tidy = m.moved || t.move, m.tidy || t.forget
	a.mu.Lock()
	defer a.mu.Unlock()
	if gone {
		m.queue, m.joins, m.moved, m.tidy = nil, true, true, true
		delete(a.ground.nics, m.key)
	}
	return nil
}

// write gives an interface its NSG, or back what it had, and its ASGs.
func (a *applier) write(ctx context.Context, t *turn) error {
	m := t.m
	if m.err != nil {
		return m.err
	}
	var nsg resourceID
	if t.move && m.to != "" {
		if err := a.failure(m.to); err != nil {
			return fmt.Errorf("waits for %s: %w", m.to, err)
		}
		nsg = a.nsgOf(m.to)
	}
	now, err := a.edit(ctx, m.id, func(doc document) (bool, error) { return a.change(doc, t, nsg) })
	if err != nil {
		return err
	}
	return a.learnedNIC(t, now)
}

// change alters the document of an interface.
func (a *applier) change(doc document, t *turn, id resourceID) (write bool, err error) {
	var n nic
	if err := doc.into(&n); err != nil {
		return false, err
	}
	if n.network() != a.vnet.key() {
		return false, fmt.Errorf("it is not in VNet %s", a.vnet)
	}
	steps := []func() (bool, error){func() (bool, error) { return settle(n.Properties.ProvisioningState) }}
	if t.groups {
		steps = append(steps, func() (bool, error) { return a.setGroups(doc, t.m.queue[0]) },
			func() (bool, error) { return a.markMember(doc, &n, t), nil })
	}
	switch {
	case t.move && t.m.to != "":
		steps = append(steps, func() (bool, error) { return a.attach(doc, id) })
	case t.move:
		steps = append(steps, func() (bool, error) { return a.detach(doc) })
	case t.forget && t.m.kept:
		steps = append(steps, func() (bool, error) { return a.forget(doc) })
	}
	if t.forget && len(t.m.gets) == 0 {
		steps = append(steps, func() (bool, error) { return a.unmarkMember(doc, &n), nil })
	}
	for _, step := range steps {
		changed, err := step()
		if err != nil {
			return false, err
		}
		write = write || changed
	}
	return write, nil
}

// learnedNIC notes what an interface is now. What Azure says is believed, and not what
// was asked for.
func (a *applier) learnedNIC(t *turn, doc document) error {
	var n nic
	if err := doc.into(&n); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, err := a.nic(a.ground, &n)
	if err != nil {
		return err
	}
	now.id = t.m.id
	if a.ground.nics[t.m.key] != nil {
		a.ground.nics[t.m.key] = now
	}
	if t.groups && !slices.Equal(now.groups, t.m.queue[0]) || t.move && t.m.to != "" && now.nsg != t.m.to {
		return fmt.Errorf("Azure says that it is not as we wrote it")
	}
	return nil
}

// nsgOf returns the ID of an NSG of ours.
func (a *applier) nsgOf(key string) resourceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ground.nsgs[key].id
}
