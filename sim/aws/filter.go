package aws

import (
	"encoding/base64"
	"sort"
	"strconv"
	"strings"
)

// filters says, by a filter's name, what values an item has for it.
type filters[T any] map[string]func(T) []string

// one makes a filter of a property with one value.
func one[T any](f func(T) string) func(T) []string {
	return func(v T) []string { return []string{f(v)} }
}

// sift keeps the items that pass every filter of the request. tags may be nil for items without any.
// A filter that is not known is refused: one that is ignored would show the client too much.
func sift[T any](q *request, all []T, known filters[T], tags func(T) map[string]string) ([]T, error) {
	type test struct {
		get    func(T) []string
		values []string
	}
	var tests []test
	for _, f := range q.p.structs("Filter") {
		f.allow("Name", "Value")
		name, values := f.str("Name"), f.list("Value")
		get := known[name]
		if tags != nil && get == nil {
			get = tagFilter(name, tags)
		}
		if get == nil {
			return nil, invalid("The filter '%s' is invalid", name)
		}
		if len(values) == 0 {
			return nil, invalid("The filter '%s' has no values", name)
		}
		if len(values) > 200 {
			return nil, errf("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")
		}
		tests = append(tests, test{get, values})
	}
	if q.p.root.bad != nil {
		return nil, q.p.root.bad
	}
	var out []T
next:
	for _, it := range all {
		for _, t := range tests {
			if !anyMatch(t.get(it), t.values) {
				continue next
			}
		}
		out = append(out, it)
	}
	return out, nil
}

func tagFilter[T any](name string, tags func(T) map[string]string) func(T) []string {
	key, ok := strings.CutPrefix(name, "tag:")
	switch {
	case ok:
		return func(v T) []string {
			if val, ok := tags(v)[key]; ok {
				return []string{val}
			}
			return nil
		}
	case name == "tag-key":
		return func(v T) []string { return sortedKeys(tags(v)) }
	}
	return nil
}

func anyMatch(have, patterns []string) bool {
	for _, h := range have {
		for _, p := range patterns {
			if wildcard(p, h) {
				return true
			}
		}
	}
	return false
}

// wildcard matches as EC2's filters do: * is any text, ? one character, \ takes the next literally.
// It walks back to the last star only, so it needs no more than len(p) x len(s) steps.
func wildcard(p, s string) bool {
	pi, si, star, mark := 0, 0, -1, 0
	for si < len(s) {
		if pi < len(p) {
			switch c := p[pi]; {
			case c == '*':
				star, mark = pi, si
				pi++
				continue
			case c == '?':
				pi, si = pi+1, si+1
				continue
			case c == '\\' && pi+1 < len(p) && p[pi+1] == s[si]:
				pi, si = pi+2, si+1
				continue
			case c != '\\' && c == s[si], c == '\\' && pi+1 == len(p) && s[si] == '\\':
				pi, si = pi+1, si+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		pi, si = star+1, mark
	}
	return strings.Trim(p[pi:], "*") == ""
}

// paging bounds MaxResults of an action. Without MaxResults a page has implicit items; 0 is all.
type paging struct{ least, most, implicit int }

var usual = paging{5, 1000, 1000}

// cut returns one page of items that are sorted by key, and the token of the next page.
// The token holds the last key, so pages stay whole when items come and go.
func cut[T any](q *request, all []T, key func(T) string, g paging) ([]T, string, error) {
	return cutBy(q, all, key, g, "MaxResults", "NextToken")
}

// cutBy is cut for a service that has other names for the size of a page and its token.
func cutBy[T any](q *request, all []T, key func(T) string, g paging, sizeName, tokenName string) ([]T, string, error) {
	size, given := q.p.num(sizeName)
	if q.p.root.bad != nil {
		return nil, "", q.p.root.bad
	}
	switch {
	case !given && g.implicit == 0:
		size = len(all)
	case !given:
		size = g.implicit
	case size < g.least || size > g.most:
		return nil, "", invalid("Value ( %d ) for parameter %s is invalid. Expecting a value between %d and %d.", size, strings.ToLower(sizeName[:1])+sizeName[1:], g.least, g.most)
	}
	start := 0
	if q.p.has(tokenName) {
		last, ok := openToken(q, q.p.str(tokenName))
		if !ok {
			return nil, "", errf("Invalid"+tokenName, "The token is invalid or was made by another request")
		}
		start = sort.Search(len(all), func(i int) bool { return key(all[i]) > last })
	}
	end := min(len(all), start+size)
	if end == len(all) {
		return all[start:], "", nil
	}
	next := end
	switch q.page {
	case FaultRepeatPage:
		next = start
	case FaultMissPage:
		next = min(len(all), end+size)
	}
	if next == 0 {
		return all[start:end], makeToken(q, ""), nil
	}
	return all[start:end], makeToken(q, key(all[next-1])), nil
}

// makeToken is opaque to clients and names the request that it belongs to.
func makeToken(q *request, last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenScope(q) + "|" + last))
}

func openToken(q *request, token string) (string, bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(b), tokenScope(q)+"|")
}

func tokenScope(q *request) string {
	var filter strings.Builder
	for _, f := range q.p.structs("Filter") {
		filter.WriteString(strconv.Quote(f.str("Name")) + strings.Join(f.list("Value"), "\x00"))
	}
	return digest(q.key.account, q.key.region, q.action, filter.String())[:16]
}

// pick returns the items with the given ids, or all of them when none is given.
func pick[T any](all map[string]T, ids []string, unknown func(id string) error) ([]T, error) {
	if len(ids) == 0 {
		return sortedValues(all), nil
	}
	chosen := map[string]T{}
	for _, id := range ids {
		v, ok := all[id]
		if !ok {
			return nil, unknown(id)
		}
		chosen[id] = v
	}
	return sortedValues(chosen), nil
}

// idError is EC2's answer to an id that is malformed or names nothing: InvalidVpcID.NotFound and so on.
func idError(code, prefix, what string) func(id string) error {
	return func(id string) error {
		tail, ok := strings.CutPrefix(id, prefix+"-")
		if !ok || !idTailRE.MatchString(tail) {
			return errf(strings.TrimSuffix(code, "NotFound")+"Malformed", "Invalid id: \"%s\" (expecting \"%s-...\")", id, prefix)
		}
		return errf(code, "The %s '%s' does not exist", what, id)
	}
}
