package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

// The bounds of one object's Notice.
const (
	maxProblems = 20
	maxMessage  = 500 // bytes of a Problem's field, and of its message
)

// item is one object as the store takes it.
type item struct {
	object   Object
	key      string      // in the kind's table
	version  uint64      // where it last changed; 0 where that is no number
	value    any         // a pointer to the kind's policy value; nil when it cannot be read
	mode     policy.Mode // of a policy, whether or not it can be read
	problems []convert.Problem
}

// GetObjectKind makes item a runtime.Object, so that it can be in a list.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject makes item a runtime.Object. Items are never changed.
func (it *item) DeepCopyObject() runtime.Object { return it }

// read converts one object of kind k. It does not panic, whatever the object does to
// the converter; the error says that obj is no object at all.
func (k *kind) read(obj runtime.Object, in *intern.Interner) (*item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read %v: %w", k, err)
	}
	it := &item{
		object: Object{Kind: k.name, APIVersion: k.gvr.GroupVersion().String(), Namespace: m.GetNamespace(), Name: m.GetName(), UID: string(m.GetUID())},
		key:    k.key(m.GetNamespace(), m.GetName()), version: versionOf(m.GetResourceVersion()),
	}
	it.convert(k, obj, in)
	if _, ok := k.table.(byMode); ok {
		mode, problems := convert.Mode(m.GetAnnotations())
		it.mode, it.problems = mode, append(it.problems, problems...)
	}
	it.problems = bounded(it.problems)
	return it, nil
}

// convert sets the value and the problems.
func (it *item) convert(k *kind, obj runtime.Object, in *intern.Interner) {
	defer func() {
		if r := recover(); r != nil {
			it.value = nil
			it.problems = []convert.Problem{{Message: fmt.Sprintf("cannot be read, by a fault of isobar: %v", r)}}
		}
	}()
	var err error
	it.value, it.problems, err = k.convert(obj)
	if err != nil {
		it.value = nil
		it.problems = append(it.problems, convert.Problem{Message: "cannot be read: " + err.Error()})
		return
	}
	switch v := it.value.(type) {
	case *policy.Workload:
		v.ID = it.key // one string, not two that are equal
		in.Workload(v)
	case *policy.Namespace:
		in.Namespace(v)
	case *policy.Policy:
		v.ID = it.key
		in.Policy(v)
	}
}

// bounded cuts what an author can make long.
func bounded(ps []convert.Problem) []convert.Problem {
	if len(ps) > maxProblems {
		left := len(ps) - maxProblems
		ps = append(ps[:maxProblems:maxProblems], convert.Problem{Message: fmt.Sprintf("and %d more", left)})
	}
	for i := range ps {
		ps[i].Field = cut(ps[i].Field)
		ps[i].Message = cut(ps[i].Message)
	}
	return ps
}

func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
