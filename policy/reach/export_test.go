package reach

// Bound sets how many peers the judges of w may list, and how many pairs one question may
// ask about.
func (w *World) Bound(lists, pairs int) { w.bounds = bounds{lists, pairs} }
