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
}

func (o *objects[T, P]) begin()       { o.live, o.first = false, map[string]*T{} }
func (o *objects[T, P]) lose()        { o.live, o.first = false, nil }
func (o *objects[T, P]) isLive() bool { return o.live }

// take takes one event. After an error the watch has to begin anew; what is held is as
// it was.
func (o *objects[T, P]) take(event watch.EventType, object any) error {
	if o.first == nil && !o.live {
		return fmt.Errorf("the watch has not begun")
	}
	switch object := object.(type) {
	case nil:
		return o.bookmark()
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

// bookmark makes what has come what there is. Later ones say nothing.
func (o *objects[T, P]) bookmark() error {
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
