package reach

// Bound sets how many peers the judges of w may list.
func (w *World) Bound(lists int) { w.bounds.lists = lists }

// MakeNoRows has w ask about each pair alone, where it may.
func (w *World) MakeNoRows() { w.bounds.one = 0 }
