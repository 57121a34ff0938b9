package antrea

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
)

// resources are what is watched, in a fixed order.
var resources = []string{"networkpolicies", "appliedtogroups", "addressgroups"}

// intake takes the events of the three watches into a Reader.
type intake struct {
	reader *convert.Reader
	parts  []part // as resources
}

// part is what one watch is about.
type part interface {
	begin()
	take(event watch.EventType, object any) error
	isLive() bool
	lose()
	// at is the mark up to which all has come, nil where the controller tells none; more
	// says that something has come since.
	at() (m *mark, more bool)
}

func newIntake(target string) *intake {
	r := convert.NewReader(target)
	return &intake{reader: r, parts: []part{
		&objects[controlplanev1beta2.NetworkPolicy, none]{
			name: func(p *controlplanev1beta2.NetworkPolicy) string { return p.Name },
			put:  r.PutPolicy, drop: r.DeletePolicy, replace: r.ReplacePolicies,
		},
		&objects[controlplanev1beta2.AppliedToGroup, controlplanev1beta2.AppliedToGroupPatch]{
			name: func(g *controlplanev1beta2.AppliedToGroup) string { return g.Name },
			put:  r.PutAppliedTo, patch: r.PatchAppliedTo, drop: r.DeleteAppliedTo, replace: r.ReplaceAppliedTo,
		},
		&objects[controlplanev1beta2.AddressGroup, controlplanev1beta2.AddressGroupPatch]{
			name: func(g *controlplanev1beta2.AddressGroup) string { return g.Name },
			put:  r.PutAddresses, patch: r.PatchAddresses, drop: r.DeleteAddresses, replace: r.ReplaceAddresses,
		},
	}}
}

// isLive says whether all watches are past their BOOKMARK.
func (in *intake) isLive() bool {
	return !slices.ContainsFunc(in.parts, func(p part) bool { return !p.isLive() })
}

// source is the controller that a live part is of, as Moments name it; empty where it
// tells none.
func source(p part) string {
	if m, _ := p.at(); m != nil {
		return m.Source
	}
	return ""
}

// isEnded says whether no part, all of which are live, is in the midst of what belongs together.
func (in *intake) isEnded() bool {
	return !slices.ContainsFunc(in.parts, func(p part) bool { _, more := p.at(); return more })
}

// isOfOne says whether what all parts, which are live, hold is what one controller knew at
// one moment, as far as it tells.
func (in *intake) isOfOne() bool {
	newest, _ := in.parts[0].at()
	for _, p := range in.parts {
		m, more := p.at()
		if more || source(p) != source(in.parts[0]) {
			return false
		}
		if m != nil && m.Version > newest.Version {
			newest = m
		}
	}
	for i, p := range in.parts {
		if m, _ := p.at(); m != nil && m.Version < newest.Last[i] {
			return false
		}
	}
	return true
}

// odd returns the parts that are not of the controller that the part last is of.
func (in *intake) odd(last int) []int {
	var out []int
	for i, p := range in.parts {
		if source(p) != source(in.parts[last]) {
			out = append(out, i)
		}
	}
	return out
}

// none is the Patch kind of what has none.
type none struct{}

// objects are those of one kind, whose Patch kind is P.
type objects[T, P any] struct {
	name    func(*T) string
	put     func(*T) error
	patch   func(*P) error
	drop    func(string)
	replace func([]*T) error

	live  bool
	first map[string]*T // what a watch begins with, until its BOOKMARK
	mark  *mark         // of the last BOOKMARK; nil where it had none
	more  bool          // something has come since, and another BOOKMARK will
}

func (o *objects[T, P]) begin() {
	o.live, o.first, o.mark, o.more = false, map[string]*T{}, nil, false
}
func (o *objects[T, P]) lose()        { o.live, o.first, o.mark, o.more = false, nil, nil, false }
func (o *objects[T, P]) isLive() bool { return o.live }
func (o *objects[T, P]) at() (*mark, bool) {
	return o.mark, o.more
}

// take takes one event. After an error the watch has to begin anew; what is held is as
// it was.
func (o *objects[T, P]) take(event watch.EventType, object any) error {
	if o.first == nil && !o.live {
		return fmt.Errorf("the watch has not begun")
	}
	switch object := object.(type) {
	case nil:
		return o.bookmark(nil)
	case *mark:
		return o.bookmark(object)
	}
	o.more = o.mark != nil
	switch object := object.(type) {
	case *T:
		name := o.name(object)
		switch {
		case name == "":
			return fmt.Errorf("%s of a %T without a name", event, object)
		case o.live && event == watch.Deleted:
			o.drop(name)
			return nil
		case o.live:
			return o.put(object)
		case event == watch.Deleted:
			delete(o.first, name)
			return nil
		}
		o.first[name] = object
		return nil
	case *P:
		if o.live && event == watch.Modified && o.patch != nil {
			return o.patch(object)
		}
	}
	return fmt.Errorf("%s of a %T where none is expected", event, object)
}

// bookmark makes what has come what there is. Later ones are of later Moments, or say
// nothing.
func (o *objects[T, P]) bookmark(m *mark) error {
	if o.live && ((m == nil) != (o.mark == nil) || m != nil && (m.Source != o.mark.Source || m.Version < o.mark.Version)) {
		return fmt.Errorf("BOOKMARK of %v after that of %v", m, o.mark)
	}
	o.mark, o.more = m, false
	if o.live {
		return nil
	}
	list := make([]*T, 0, len(o.first))
	for _, name := range slices.Sorted(maps.Keys(o.first)) {
		list = append(list, o.first[name])
	}
	o.live, o.first = true, nil
	return o.replace(list)
}
