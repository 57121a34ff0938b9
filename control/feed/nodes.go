package feed

import (
	"strings"

	"isobar.dev/api/convert"
)

// Nodes returns who has to report on a policy: the names of the nodes, as SpanOf takes
// them, on which an agent enforces any rule of it; sorted by Target.
func (f *Feed) Nodes(policyID string) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []string
	for _, t := range f.engine.TargetsOf(policyID) {
		if name, ok := NodeOf(t); ok {
			out = append(out, name)
		}
	}
	return out
}

// IsAt says whether the node of that name is among them.
func (f *Feed) IsAt(nodeName, policyID string) bool {
	span := SpanOf(nodeName)
	if span.target == "" {
		return false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.engine.IsAt(span.target, policyID)
}

// NodeOf returns the name of the node whose agent enforces at a Target; ok is false where
// none does.
func NodeOf(target string) (nodeName string, ok bool) {
	if ns, name, ok := convert.OfAgentTarget(target); ok {
		return ns + "/" + name, true
	}
	return strings.CutPrefix(target, convert.NodeTarget(""))
}
