package feed

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// shared is an object that is sent to many, encoded once in each form that they ask
// for. It is not changed. Once it has been sent it is held as bytes alone, which are a fifth of
// it.
type shared struct {
	name     string
	resource Resource
	kept     bool // for as long as it is told; else for one event

	mu        sync.Mutex
	object    runtime.Object // nil once it is packed
	packed    []byte         // its protobuf; where it can be, a part of an encoding
	encodings []*encoding
}

type encoding struct {
	id    runtime.Identifier
	once  sync.Once
	bytes []byte
	err   error
}

var _ runtime.CacheableObject = (*shared)(nil)

// share returns o, for one event.
func share(o runtime.Object) *shared { return &shared{name: nameOf(o), object: o} }

// keep returns o, which is an object of r and will be held for long.
func keep(r Resource, o runtime.Object) *shared {
	s := share(o)
	s.resource, s.kept = r, true
	return s
}

// CacheEncode writes the object in the form of an encoder.
func (s *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.encodings, func(e *encoding) bool { return e.id == id })
	if i < 0 {
		i = len(s.encodings)
		s.encodings = append(s.encodings, &encoding{id: id})
	}
	e := s.encodings[i]
	s.mu.Unlock()
	e.once.Do(func() {
		var b bytes.Buffer
		e.err = encode(s.GetObject(), &b)
		e.bytes = bytes.Clone(b.Bytes())
		if s.kept && e.err == nil {
			s.pack(e.bytes)
		}
	})
	if e.err != nil {
		return e.err
	}
	_, err := w.Write(e.bytes)
	return err
}

// message is what an object is packed by.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// pack lets go of the object, if it can be had from bytes. encoded is one form of it.
func (s *shared) pack(encoded []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.object.(message)
	if !ok {
		return
	}
	packed, err := m.Marshal()
	if err != nil || s.resource.new().Unmarshal(packed) != nil {
		return
	}
	if i := bytes.Index(encoded, packed); i >= 0 {
		packed = encoded[i : i+len(packed)]
	}
	s.object, s.packed = nil, packed
}

// GetObject returns the object itself, for one reader: its TypeMeta may be set, and
// nothing else be changed.
func (s *shared) GetObject() runtime.Object {
	s.mu.Lock()
	object, packed := s.object, s.packed
	s.mu.Unlock()
	if object != nil {
		return shallow(object)
	}
	m := s.resource.new()
	if err := m.Unmarshal(packed); err != nil {
		panic("feed: what was packed cannot be read: " + err.Error()) // it could be when it was packed
	}
	return m
}

// isLike says whether s and o say the same.
func (s *shared) isLike(o *shared) bool {
	return s == o || equality.Semantic.DeepEqual(s.GetObject(), o.GetObject())
}

// DeepCopyObject returns a copy that is nobody else's.
func (s *shared) DeepCopyObject() runtime.Object { return s.GetObject().DeepCopyObject() }

// GetObjectKind says nothing: the kind is what the encoder says.
func (s *shared) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

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
		return s.name
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

// new returns an object of r that says nothing.
func (r Resource) new() message {
	switch r {
	case NetworkPolicies:
		return &controlplanev1beta2.NetworkPolicy{}
	case AppliedToGroups:
		return &controlplanev1beta2.AppliedToGroup{}
	default:
		return &controlplanev1beta2.AddressGroup{}
	}
}

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
