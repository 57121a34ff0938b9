package policy

import "slices"

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

// IfStaged returns what [Evaluate] would say of a flow if all that is staged were enforced, and
// the IDs of staged policies that make it another verdict than that of now: all of them do, and
// none can be left out. There are none where the verdict would be the same, with the same needs.
func IfStaged(s Snapshot, f Flow) (v Verdict, by []string, err error) {
	now, err := Evaluate(s, f)
	if err != nil || s.Staged.Len() == 0 {
		return now, nil, err
	}
	x, err := Explain(s.WithStaged(), f)
	if err != nil {
		return x.Verdict, nil, err
	}
	v = x.Verdict
	if now.says(v) {
		return v, nil, nil
	}
	for _, w := range []Walk{x.Egress, x.Ingress} {
		for _, st := range w.Steps {
			if _, is := s.Staged.Get(st.Policy.ID); is {
				by = append(by, st.Policy.ID)
			}
		}
	}
	slices.Sort(by)
	by = slices.Compact(by)
	isEnough := func(ids []string) (bool, error) {
		t := s
		if len(ids) > 0 { // with none, all would count
			t = s.WithStaged(ids...)
		}
		then, err := Evaluate(t, f)
		return then.says(v), err
	}
	if enough, err := isEnough(by); err != nil || !enough { // a rule that has no say may isolate a VM
		by = nil
		for id := range s.Staged.All() {
			by = append(by, id)
		}
	}
	for i := 0; i < len(by); {
		rest := slices.Concat(by[:i], by[i+1:])
		enough, err := isEnough(rest)
		switch {
		case err != nil:
			return v, nil, err
		case enough:
			by, i = rest, 0 // without this one, one that was needed may not be
		default:
			i++
		}
	}
	return v, by, nil
}

// says says whether two verdicts are the same, whatever they were decided by.
func (v Verdict) says(w Verdict) bool { return v.Action == w.Action && slices.Equal(v.Needs, w.Needs) }
