package kube

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

// Write is one object as it would be written, whole, or its deletion.
type Write struct {
	// Manifest is the object in JSON. Of a deletion only apiVersion, kind, name and
	// namespace count.
	Manifest []byte
	Delete   bool
}

// Layer lays writes that nobody has made over Snapshots. Its methods may be called
// from several goroutines.
type Layer struct {
	kinds  map[schema.GroupVersionKind]*kind
	scheme *runtime.Scheme
}

// ofCluster are the kinds whose objects belong to no namespace.
var ofCluster = []string{"Namespace", "Node", "Tier", "ClusterGroup", "ClusterNetworkPolicy", "AdminNetworkPolicy", "BaselineAdminNetworkPolicy"}

// NewLayer returns a Layer for the Snapshots of a Source with such Networks.
func NewLayer(n Networks) (*Layer, error) {
	all := kinds(n)
	scheme, err := newScheme(all)
	if err != nil {
		return nil, err
	}
	l := &Layer{kinds: map[schema.GroupVersionKind]*kind{}, scheme: scheme}
	for _, k := range all {
		l.kinds[k.gvr.GroupVersion().WithKind(k.name)] = k
	}
	return l, nil
}

// Lay returns the Snapshot that a Source would give after s once the API server had
// taken the writes in their order. There is a Notice for each write, nil where the
// write is taken as it stands. Two things are not as they would be: a Namespace
// cannot be deleted, because what else would go is not known, and a Pod without a
// status keeps its address and Node, if it runs, and gets the labels alone.
func (l *Layer) Lay(s policy.Snapshot, writes []Write) (policy.Snapshot, []*Notice) {
	e := edit{snapshot: s}
	in := intern.New()
	notices := make([]*Notice, len(writes))
	for i, w := range writes {
		notices[i] = l.lay(&e, w, in)
	}
	return e.snapshot, notices
}

func (l *Layer) lay(e *edit, w Write, in *intern.Interner) *Notice {
	var r raw
	if err := r.UnmarshalJSON(w.Manifest); err != nil {
		return &Notice{Unread: true, Problems: bounded([]convert.Problem{{Message: err.Error()}})}
	}
	n := &Notice{Object: Object{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}
	unread := func(field, format string, args ...any) *Notice {
		n.Unread, n.Problems = true, bounded([]convert.Problem{{Field: field, Message: fmt.Sprintf(format, args...)}})
		return n
	}
	k := l.kinds[schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)]
	switch {
	case k == nil:
		return unread("kind", "%s of %s says nothing about policies, or is not known", r.Kind, r.APIVersion)
	case r.Name == "":
		return unread("metadata.name", "must be set")
	case r.Namespace == "" && !slices.Contains(ofCluster, k.name):
		return unread("metadata.namespace", "must be set")
	case r.Namespace != "" && slices.Contains(ofCluster, k.name):
		return unread("metadata.namespace", "a %s belongs to no namespace", k.name)
	case w.Delete && k.name == "Namespace":
		return unread("", "what else goes with a Namespace is not known: name what is deleted")
	case w.Delete:
		if !k.table.has(&e.snapshot, k.key(r.Namespace, r.Name)) {
			return warn(unread("", "it is not there"))
		}
		e.delete(k, k.key(r.Namespace, r.Name))
		return nil
	}
	obj, unknown, err := l.object(k, &r)
	if err != nil {
		return unread("", "cannot be read: %v", err)
	}
	it, err := k.read(obj, in)
	if err != nil {
		return unread("", "%v", err)
	}
	if pod, ok := it.value.(*policy.Workload); ok && pod.Kind == policy.KindPod && len(pod.Addrs) == 0 {
		had, ok := e.snapshot.Workloads.Get(it.key)
		if !ok {
			return warn(unread("status.podIPs", "it has no address before it runs: nothing is enforced for it yet"))
		}
		labelled := *had
		labelled.Labels = pod.Labels
		it.value = &labelled
	}
	e.put(k, it)
	if it.problems = append(it.problems, unknown...); len(it.problems) == 0 {
		return nil
	}
	n.Problems, n.Unread = bounded(it.problems), it.value == nil
	return n
}

// warn makes a warning of the only problem of n.
func warn(n *Notice) *Notice {
	n.Problems[0].Warning = true
	return n
}

// object returns the object as the kind's conversion wants it.
func (l *Layer) object(k *kind, r *raw) (runtime.Object, []convert.Problem, error) {
	if k.custom {
		return r, nil, nil
	}
	obj, err := l.scheme.New(k.gvr.GroupVersion().WithKind(k.name))
	if err != nil {
		return nil, nil, err
	}
	unknown, err := kjson.UnmarshalStrict(r.body, obj)
	return obj, unknownFields(unknown), err
}
