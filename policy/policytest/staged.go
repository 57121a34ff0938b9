package policytest

import (
	"hash/fnv"
	"math/rand/v2"

	"isobar.dev/policy"
)

// beside returns a gen with random numbers of its own, which depend on s alone. So what is
// staged changes nothing of what else is drawn.
func (g *gen) beside(s policy.Snapshot) *gen {
	h := fnv.New64a()
	for id := range s.Policies.All() {
		h.Write([]byte(id))
	}
	for id := range s.Workloads.All() {
		h.Write([]byte(id))
	}
	b := *g
	b.Rand = rand.New(rand.NewPCG(h.Sum64(), 0x57A6ED))
	return &b
}

// stage returns s with one more policy that is staged, unless the one that it draws is enforced.
func (g *gen) stage(s policy.Snapshot) policy.Snapshot {
	p := g.policy()
	if _, is := s.Policies.Get(p.ID); !is {
		s.Staged = s.Staged.Put(p.ID, p)
	}
	return s
}

// editStaged returns what is staged after an edit of policies: often those that were taken
// away, and not those that have come. Then it edits it as others are.
func (g *gen) editStaged(s policy.Snapshot, was policy.Table[*policy.Policy]) policy.Table[*policy.Policy] {
	policy.Diff(was, s.Policies, func(id string, old, now **policy.Policy) {
		switch {
		case now != nil:
			s.Staged = s.Staged.Delete(id)
		case !g.odds(3):
			s.Staged = s.Staged.Put(id, *old)
		}
	})
	switch p := among(g, s.Staged); {
	case p == nil || g.odds(3):
		s = g.stage(s)
	case g.odds(4):
		s.Staged = s.Staged.Delete(p.ID)
	case g.odds(2):
		c := *p
		c.Generation++
		c.Ingress, c.Egress = g.rules(&c, policy.Ingress), g.rules(&c, policy.Egress)
		s.Staged = s.Staged.Put(c.ID, &c)
	}
	return s.Staged
}

// Unstaged returns s without what is staged.
func Unstaged(s policy.Snapshot) policy.Snapshot {
	s.Staged = policy.Table[*policy.Policy]{}
	return s
}
