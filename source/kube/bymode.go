package kube

import (
	"reflect"

	"isobar.dev/policy"
)

// byMode is the two tables of policies. Each key is in one of them.
type byMode struct{ enforced, staged of[policy.Policy] }

func (t byMode) has(s *policy.Snapshot, key string) bool {
	return t.enforced.has(s, key) || t.staged.has(s, key)
}

func (t byMode) len(s *policy.Snapshot) int { return t.enforced.len(s) + t.staged.len(s) }

// put puts a policy into the table of its mode. One that cannot be read any more is there
// with its last value: what it is to be is told apart from what it says.
func (t byMode) put(s *policy.Snapshot, key string, value any, m policy.Mode) bool {
	old, isStaged := t.staged(s).Get(key)
	has := isStaged
	if !has {
		old, has = t.enforced(s).Get(key)
	}
	now, ok := value.(*policy.Policy)
	if !ok && !has {
		return false
	}
	if has && (!ok || reflect.DeepEqual(old, now)) {
		now = old
	}
	if has && now == old && isStaged == (m == policy.Stage) {
		return false
	}
	*s = s.PutPolicy(now, m)
	return true
}

func (t byMode) putAll(s *policy.Snapshot, items []*item) bool {
	var enforced, staged []*item
	for _, it := range items {
		if it.mode == policy.Stage {
			staged = append(staged, it)
		} else {
			enforced = append(enforced, it)
		}
	}
	moved := false
	for _, x := range []struct {
		items    []*item
		to, from of[policy.Policy]
	}{{enforced, t.enforced, t.staged}, {staged, t.staged, t.enforced}} {
		moved = x.to.putAll(s, x.items) || moved
		for _, it := range x.items {
			if it.value != nil && x.from.delete(s, it.key) {
				moved = true
			}
		}
	}
	return moved
}

func (t byMode) delete(s *policy.Snapshot, key string) bool {
	enforced, staged := t.enforced.delete(s, key), t.staged.delete(s, key)
	return enforced || staged
}

func (t byMode) keys(s *policy.Snapshot, yield func(string) bool) {
	more := true
	t.enforced.keys(s, func(key string) bool {
		more = yield(key)
		return more
	})
	if more {
		t.staged.keys(s, yield)
	}
}
