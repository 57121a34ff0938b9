package azure

import (
	"context"
	"fmt"
	"strings"

	"isobar.dev/plan"
)

// mover is one interface on its way from one NSG to another.
type mover struct {
	key, from, to string // from and to are keys of NSGs of ours, or empty
	id            resourceID
	err           error // why it is not known where it is
	moved         bool
}

func (a *applier) mover(c plan.Change[Object]) *mover {
	m := &mover{key: c.Key}
	if c.Want != nil {
		m.to = c.Want.NIC.NSG
	}
	if f := a.ground.nics[c.Key]; f != nil {
		m.from, m.id = f.nsg, f.id
		return m
	}
	m.id, m.err = parseID(strings.TrimPrefix(c.Key, "nic/"))
	return m
}

// run moves interfaces and rewrites NSGs, many at once. An NSG is rewritten when all
// that leave it have left: until then they have its old rules. An interface moves when
// the NSG that it comes to has its new rules. Lowering takes care that this does not go
// around in circles: see tangled. If it does, since the cloud is not as it was, what is
// left waits for the next time.
func (a *applier) run(ctx context.Context) {
	rewrites, movers := a.rewrites, a.movers
	for len(rewrites)+len(movers) > 0 {
		leaving := map[string]bool{}
		for _, m := range a.movers {
			if !m.moved && m.from != m.to {
				leaving[m.from] = true
			}
		}
		var now []plan.Change[Object]
		now, rewrites = split(rewrites, func(c plan.Change[Object]) bool { return !leaving[c.Key] })
		each(now, func(c plan.Change[Object]) { a.done(c.Key, a.rewrite(ctx, c)) })
		pending := map[string]bool{}
		for _, c := range rewrites {
			pending[c.Key] = true
		}
		var going []*mover
		going, movers = split(movers, func(m *mover) bool { return !pending[m.to] })
		each(going, func(m *mover) { a.done(m.key, a.move(ctx, m)) })
		if len(now)+len(going) == 0 {
			break
		}
	}
	for _, c := range rewrites {
		a.done(c.Key, fmt.Errorf("waits until those who leave it have left: %s", a.leaver(c.Key)))
	}
	for _, m := range movers {
		a.done(m.key, fmt.Errorf("waits for %s", m.to))
	}
}

// leaver returns one who has not left an NSG.
func (a *applier) leaver(key string) string {
	for _, m := range a.movers {
		if m.from == key && !m.moved {
			return m.key
		}
	}
	return "nobody"
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

// move gives an interface its NSG, or back what it had.
func (a *applier) move(ctx context.Context, m *mover) error {
	if m.err != nil {
		return m.err
	}
	var id resourceID
	if m.to != "" {
		if err := a.failure(m.to); err != nil {
			return fmt.Errorf("waits for %s: %w", m.to, err)
		}
		id = a.nsgOf(m.to)
	}
	_, err := a.edit(ctx, m.id, func(doc document) (bool, error) {
		var n nic
		if err := doc.into(&n); err != nil {
			return false, err
		}
		if n.network() != a.vnet.key() {
			return false, fmt.Errorf("it is not in VNet %s", a.vnet)
		}
		if m.to == "" {
			return a.detach(doc)
		}
		return a.attach(doc, id)
	})
	if err == nil && m.to == "" {
		_, err = a.edit(ctx, m.id, a.forget)
	}
	// An interface that has gone needs no policy: its VM has gone with it.
	if err != nil && resultOf(err) != ResultGone {
		return fmt.Errorf("set the NSG of interface %s: %w", m.id.name(), err)
	}
	m.moved = true
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.ground.nics[m.key]; f != nil {
		f.nsg, f.kept = m.to, m.to != ""
	}
	if err != nil {
		delete(a.ground.nics, m.key)
	}
	return nil
}

// nsgOf returns the ID of an NSG of ours.
func (a *applier) nsgOf(key string) resourceID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ground.nsgs[key].id
}
