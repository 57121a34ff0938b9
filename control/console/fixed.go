package console

import "isobar.dev/policy"

// Fixed is a Source of a world that does not change, of which nobody enforces anything.
type Fixed struct{ Snapshot policy.Snapshot }

var _ Source = Fixed{}

// KnownWorld returns the world.
func (f Fixed) KnownWorld() (policy.Snapshot, bool) { return f.Snapshot, true }

// Revision is always the same.
func (f Fixed) Revision() (now string, changed <-chan struct{}) { return "fixed", nil }
