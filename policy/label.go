package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Label is one key and its value.
type Label struct{ Key, Value string }

// Labels are sorted by key, without duplicates; make them with [LabelsOf].
// A slice costs a third of a map and has one order.
type Labels []Label

// LabelsOf returns m as Labels. An empty map gives nil.
func LabelsOf(m map[string]string) Labels {
	if len(m) == 0 {
		return nil
	}
	l := make(Labels, 0, len(m))
	for k, v := range m {
		l = append(l, Label{k, v})
	}
	slices.SortFunc(l, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	return l
}

// Value returns the value of key, and whether there is one.
func (l Labels) Value(key string) (string, bool) {
	// Most sets have fewer than ten labels, where a scan beats a search.
	for i := range l {
		if l[i].Key == key {
			return l[i].Value, true
		}
	}
	return "", false
}

// String returns "k=v,k=v".
func (l Labels) String() string {
	var b strings.Builder
	for i, x := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(x.Key + "=" + x.Value)
	}
	return b.String()
}

// Operator compares a label with a Requirement's values.
type Operator uint8

// The operators of Kubernetes label selectors. The zero Operator matches nothing.
const (
	In Operator = iota + 1
	NotIn
	Exists
	DoesNotExist
)

// Requirement is one condition on Labels. Values are sorted; they are empty
// for Exists and DoesNotExist.
type Requirement struct {
	Key    string
	Op     Operator
	Values []string
}

// Matches says whether l meets the requirement. As in Kubernetes, NotIn and
// DoesNotExist hold when the key is absent.
func (r Requirement) Matches(l Labels) bool {
	v, has := l.Value(r.Key)
	switch r.Op {
	case In:
		return has && slices.Contains(r.Values, v)
	case NotIn:
		return !has || !slices.Contains(r.Values, v)
	case Exists:
		return has
	case DoesNotExist:
		return !has
	}
	return false
}

// Selector is met by Labels that meet all its requirements; the empty Selector
// is met by all Labels. A source that cannot read a selector uses [NoLabels].
type Selector []Requirement

// NoLabels is met by no Labels: its requirement has no operator.
var NoLabels = Selector{{}}

// Matches says whether l meets every requirement.
func (s Selector) Matches(l Labels) bool {
	for _, r := range s {
		if !r.Matches(l) {
			return false
		}
	}
	return true
}

// String returns a canonical form: equal strings mean equal selectors.
func (s Selector) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		key, values := quote(r.Key), make([]string, len(r.Values))
		for i, v := range r.Values {
			values[i] = quote(v)
		}
		slices.Sort(values)
		switch r.Op {
		case In, NotIn:
			op := " in ("
			if r.Op == NotIn {
				op = " notin ("
			}
			parts[i] = key + op + strings.Join(slices.Compact(values), ",") + ")"
		case Exists:
			parts[i] = key
		case DoesNotExist:
			parts[i] = "!" + key
		default:
			parts[i] = "<nothing>"
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}

// quote returns s as it stands in a canonical form: quoted when it is not what
// the names, keys and values of Kubernetes are made of, so that nobody writes
// one selector that looks like another.
func quote(s string) string {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '/':
		default:
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}
