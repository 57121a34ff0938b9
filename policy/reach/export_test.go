package reach

// Bound sets how many peers the judges of w may list, and how many pairs one question may
// ask about.
func (w *World) Bound(lists, pairs int) { w.bounds.lists, w.bounds.pairs = lists, pairs }

// MakeNoRows has w ask about each pair alone, where it may.
func (w *World) MakeNoRows() { w.bounds.one = 0 }
