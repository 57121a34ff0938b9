package v1beta2

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PositionAnnotation is on a bookmark beside [MomentAnnotation], where the server knows it: the
// [Position] of what it knew then.
const PositionAnnotation = "isobar.dev/position"

// Position is where in the history of its cluster the world stands that a server tells of. Each
// kind is read by a watch of its own, which may lag, so there is a place for each.
//
// +kubebuilder:object:generate=false
type Position struct {
	// Cluster is the UID of the Namespace kube-system. Positions of two clusters cannot be
	// compared; where it is empty nothing is known.
	Cluster string
	// Kinds are by Kind. What is not known of one is not there.
	Kinds []KindPosition
}

// KindPosition is how far one kind has been read. The numbers are resourceVersions of objects and
// lists of this kind, which grow with each change.
//
// +kubebuilder:object:generate=false
type KindPosition struct {
	// Kind is a short name of small letters.
	Kind string
	// Read: all changes up to here are in the world.
	Read uint64
	// Changed: what is newer has changed nothing of the world.
	Changed uint64
	// Newest is where the newest object last changed that was there at Changed; Changed where there was none. It is less than
	// Changed where all objects were read at once: what was deleted before that has left no trace.
	Newest uint64
	// Count is how many objects there are.
	Count uint64
}

// The bounds of a Position's text.
const (
	maxPosition = 4096 // bytes
	maxKindName = 16
)

// String is the annotation's value: the cluster, and each kind as its name, Read, the way back
// from there to Changed, Count, and the way from Changed back to Newest unless that is 0; to the
// base of 36.
func (p Position) String() string {
	b := []byte(p.Cluster)
	for _, k := range p.Kinds {
		b = append(append(append(b, ' '), k.Kind...), ':')
		b = strconv.AppendUint(b, k.Read, 36)
		b = strconv.AppendUint(append(b, '.'), k.Read-k.Changed, 36)
		b = strconv.AppendUint(append(b, '.'), k.Count, 36)
		if k.Newest != k.Changed {
			b = strconv.AppendUint(append(b, '.'), k.Changed-k.Newest, 36)
		}
	}
	return string(b)
}

// ParsePosition parses what String returns, and nothing else.
func ParsePosition(s string) (Position, error) {
	fields := strings.Split(s, " ")
	bad := func(what string) (Position, error) {
		return Position{}, fmt.Errorf("position %.100q: %s", s, what)
	}
	if len(s) > maxPosition || fields[0] == "" || len(fields[0]) > maxSource {
		return bad("want a cluster and kinds")
	}
	p := Position{Cluster: fields[0]}
	for _, f := range fields[1:] {
		name, rest, _ := strings.Cut(f, ":")
		texts := strings.Split(rest, ".")
		if name == "" || len(name) > maxKindName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" || len(texts) < 3 || len(texts) > 4 {
			return bad(fmt.Sprintf("%.50q: want a kind and three or four numbers", f))
		}
		if n := len(p.Kinds); n > 0 && p.Kinds[n-1].Kind >= name {
			return bad(fmt.Sprintf("%s comes after %s", name, p.Kinds[n-1].Kind))
		}
		var n [4]uint64
		for i, text := range texts {
			var err error
			if n[i], err = strconv.ParseUint(text, 36, 64); err != nil {
				return bad(fmt.Sprintf("%.50q: %.30q is no number", f, text))
			}
		}
		if n[1] > n[0] || n[3] > n[0]-n[1] {
			return bad(fmt.Sprintf("%.50q: a change before the first", f))
		}
		p.Kinds = append(p.Kinds, KindPosition{Kind: name, Read: n[0], Changed: n[0] - n[1], Newest: n[0] - n[1] - n[3], Count: n[2]})
	}
	if p.String() != s {
		return bad("is written in another way")
	}
	return p, nil
}

// Lacks returns the kinds of which p may lack what is in q: empty where all that is in q is in p,
// or where that cannot be said, since they are of two clusters.
func (p Position) Lacks(q Position) []string {
	if p.Cluster == "" || p.Cluster != q.Cluster {
		return nil
	}
	var out []string
	for _, of := range q.Kinds {
		i, ok := slices.BinarySearchFunc(p.Kinds, of.Kind, func(k KindPosition, name string) int { return strings.Compare(k.Kind, name) })
		if ok && !p.Kinds[i].has(of) {
			out = append(out, of.Kind)
		}
	}
	return out
}

// has says whether all that is in q is in k.
func (k KindPosition) has(q KindPosition) bool {
	if k.Read >= q.Changed {
		return true
	}
	// All objects of q are in k, as they are in q: each last changed before Read. What k has
	// more was deleted before q was read.
	return k.Count == q.Count && (k.Read >= q.Newest || q.Count == 0)
}
