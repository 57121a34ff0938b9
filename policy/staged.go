package policy

// Mode says whether a policy is enforced. What has another one than Stage is: the
// zero Mode is invalid, and a denial must hold.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota + 1
	Stage        // what it would do is computed and shown, and nothing enforces it
)

func (m Mode) String() string {
	switch m {
	case Enforce:
		return "Enforce"
	case Stage:
		return "Stage"
	}
	return "invalid"
}

// PutPolicy returns s with p in the table of its mode, and not in the other one.
func (s Snapshot) PutPolicy(p *Policy, m Mode) Snapshot {
	if m == Stage {
		s.Policies, s.Staged = s.Policies.Delete(p.ID), s.Staged.Put(p.ID, p)
		return s
	}
	s.Policies, s.Staged = s.Policies.Put(p.ID, p), s.Staged.Delete(p.ID)
	return s
}

// WithStaged returns s as if the staged policies of these IDs were enforced: all of
// them where it names none. An ID of which no policy is staged adds nothing.
func (s Snapshot) WithStaged(ids ...string) Snapshot {
	if len(ids) == 0 {
		s.Policies, s.Staged = s.Policies.Merge(s.Staged), Table[*Policy]{}
		return s
	}
	for _, id := range ids {
		if p, ok := s.Staged.Get(id); ok {
			s = s.PutPolicy(p, Enforce)
		}
	}
	return s
}
