package feed

import (
	"bytes"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// shared is an object that is sent to many, encoded once in each form that they ask
// for. It is not changed.
type shared struct {
	runtime.Object

	mu        sync.Mutex
	encodings map[runtime.Identifier]*encoding
}

type encoding struct {
	once  sync.Once
	bytes []byte
	err   error
}

var _ runtime.CacheableObject = (*shared)(nil)

func share(o runtime.Object) *shared { return &shared{Object: o} }

// CacheEncode writes the object in the form of an encoder.
func (s *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	s.mu.Lock()
	if s.encodings == nil {
		s.encodings = map[runtime.Identifier]*encoding{}
	}
	e := s.encodings[id]
	if e == nil {
		e = &encoding{}
		s.encodings[id] = e
	}
	s.mu.Unlock()
	e.once.Do(func() {
		var b bytes.Buffer
		e.err = encode(s.GetObject(), &b)
		e.bytes = bytes.Clone(b.Bytes())
	})
	if e.err != nil {
		return e.err
	}
	_, err := w.Write(e.bytes)
	return err
}

// GetObject returns the object itself, for one reader: its TypeMeta may be set, and
// nothing else be changed.
func (s *shared) GetObject() runtime.Object { return shallow(s.Object) }

// DeepCopyObject returns a copy that is nobody else's.
func (s *shared) DeepCopyObject() runtime.Object { return s.Object.DeepCopyObject() }

// GetObjectKind is that of a copy.
func (s *shared) GetObjectKind() schema.ObjectKind { return shallow(s.Object).GetObjectKind() }

func shallow(o runtime.Object) runtime.Object {
	switch o := o.(type) {
	case *controlplanev1beta2.NetworkPolicy:
		c := *o
		return &c
	case *controlplanev1beta2.AppliedToGroup:
		c := *o
		return &c
	case *controlplanev1beta2.AppliedToGroupPatch:
		c := *o
		return &c
	case *controlplanev1beta2.AddressGroup:
		c := *o
		return &c
	case *controlplanev1beta2.AddressGroupPatch:
		c := *o
		return &c
	}
	return o.DeepCopyObject()
}

// nameOf is the name of any object of these kinds.
func nameOf(o runtime.Object) string {
	if s, ok := o.(*shared); ok {
		o = s.Object
	}
	return o.(metav1.Object).GetName()
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name)}
}

// Resource is one of the three that are watched.
type Resource uint8

// The resources.
const (
	NetworkPolicies Resource = iota
	AppliedToGroups
	AddressGroups
	resources
)

// empty returns an object of r with no more than a name.
func (r Resource) empty(name string) runtime.Object {
	m := meta(name)
	switch r {
	case NetworkPolicies:
		return &controlplanev1beta2.NetworkPolicy{ObjectMeta: m}
	case AppliedToGroups:
		return &controlplanev1beta2.AppliedToGroup{ObjectMeta: m}
	default:
		return &controlplanev1beta2.AddressGroup{ObjectMeta: m}
	}
}

// group returns a group of r with members.
func (r Resource) group(name string, members []controlplanev1beta2.GroupMember) runtime.Object {
	if r == AppliedToGroups {
		return &controlplanev1beta2.AppliedToGroup{ObjectMeta: meta(name), GroupMembers: members}
	}
	return &controlplanev1beta2.AddressGroup{ObjectMeta: meta(name), GroupMembers: members}
}

// patch returns the Patch of a group of r, or nil when it says nothing.
func (r Resource) patch(name string, added, removed []controlplanev1beta2.GroupMember) runtime.Object {
	if len(added)+len(removed) == 0 {
		return nil
	}
	if r == AppliedToGroups {
		return &controlplanev1beta2.AppliedToGroupPatch{ObjectMeta: meta(name), AddedGroupMembers: added, RemovedGroupMembers: removed}
	}
	return &controlplanev1beta2.AddressGroupPatch{ObjectMeta: meta(name), AddedGroupMembers: added, RemovedGroupMembers: removed}
}
