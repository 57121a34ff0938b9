package azure

import (
	"strings"
)

// may says whether a principal may do an action at a scope, an id.
func (p principal) may(action, scope string) bool {
	for _, d := range p.app.Deny {
		if wildcard(d, action) {
			return false
		}
	}
	if len(p.app.Roles) == 0 {
		return true
	}
	for _, r := range p.app.Roles {
		if covers(r.Scope, scope) && anyMatches(r.Actions, action) && !anyMatches(r.NotActions, action) {
			return true
		}
	}
	return false
}

// covers says whether a scope is another or has it below.
func covers(scope, id string) bool {
	scope, id = strings.TrimSuffix(fold(scope), "/"), fold(id)
	return id == scope || strings.HasPrefix(id, scope+"/")
}

func anyMatches(patterns []string, action string) bool {
	for _, p := range patterns {
		if wildcard(p, action) {
			return true
		}
	}
	return false
}

// wildcard matches without case; * is any text.
func wildcard(pattern, s string) bool {
	pattern, s = fold(pattern), fold(s)
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, p)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

func (q *request) denied(action, scope string) *apiError {
	return errf("AuthorizationFailed", "The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		q.who.app.ClientID, q.who.app.ObjectID, action, scope)
}

// linked refuses a new reference to what the writer may not use.
func (q *request) linked(r, old *resource) *apiError {
	had := map[string]bool{}
	if old != nil {
		for _, l := range old.kind.links(old) {
			had[keyOf(l.id)] = true
		}
	}
	for _, l := range r.kind.links(r) {
		if l.action == "" || had[keyOf(l.id)] || q.who.may(l.action, l.id) {
			continue
		}
		return errf("LinkedAuthorizationFailed", "The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' (respectively) or the linked scope(s) are invalid.",
			q.who.app.ClientID, q.who.app.ObjectID, q.op.action, r.id, l.action, l.id)
	}
	return nil
}

// locked refuses what a management lock forbids.
func (q *request) locked() *apiError {
	if !q.op.mutates || q.at.sub == "" {
		return nil
	}
	for _, l := range q.w.subs[fold(q.at.sub)].Locks {
		scope := q.at.scope()
		// A lock below forbids to delete what is above it.
		if !covers(l.Scope, scope) && !(q.op.deletes && covers(scope, l.Scope)) {
			continue
		}
		if l.Level == "ReadOnly" || q.op.deletes {
			verb := "write"
			if q.op.deletes {
				verb = "delete"
			}
			return errf("ScopeLocked", "The scope '%s' cannot perform %s operation because following scope(s) are locked: '%s'. Please remove the lock and try again.", scope, verb, l.Scope)
		}
	}
	return nil
}
