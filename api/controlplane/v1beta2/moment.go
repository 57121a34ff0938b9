package v1beta2

import (
	"fmt"
	"strconv"
	"strings"
)

// MomentAnnotation is on the bookmarks of a watch of policies or groups that asked for
// bookmarks (allowWatchBookmarks), where the server is an Isobar: it is the [Moment] of all that
// was told before. A server of upstream has no such bookmarks.
const MomentAnnotation = "isobar.dev/moment"

// Moment is what a watch has told all of: the events before its bookmark, taken together,
// lead to what the server knew then. What three watches of a Node have told is of one moment
// when each has come to at least the version that the newest Moment of them has in Last.
//
// +kubebuilder:object:generate=false
type Moment struct {
	// Source is the server, as long as it lives. Versions of several cannot be compared.
	Source string
	// Version counts what the server has known, from 1.
	Version uint64
	// Last is the version in which each resource last changed for the watcher, none of them
	// newer than Version: networkpolicies, appliedtogroups and addressgroups.
	Last [3]uint64
}

// String is the annotation's value.
func (m Moment) String() string {
	return fmt.Sprint(m.Source, " ", m.Version, " ", m.Last[0], " ", m.Last[1], " ", m.Last[2])
}

// maxSource bounds the name of a server, in bytes.
const maxSource = 64

// ParseMoment parses what String returns.
func ParseMoment(s string) (Moment, error) {
	fields := strings.Split(s, " ")
	if len(s) > maxSource+80 || len(fields) != 5 || fields[0] == "" || len(fields[0]) > maxSource {
		return Moment{}, fmt.Errorf("moment %.100q: want a source and four versions", s)
	}
	m := Moment{Source: fields[0]}
	for i, to := range []*uint64{&m.Version, &m.Last[0], &m.Last[1], &m.Last[2]} {
		n, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != fields[i+1] {
			return Moment{}, fmt.Errorf("moment %.100q: %q is no version", s, fields[i+1])
		}
		*to = n
	}
	for _, last := range m.Last {
		if last > m.Version {
			return Moment{}, fmt.Errorf("moment %.100q: version %d is newer than it", s, last)
		}
	}
	return m, nil
}
