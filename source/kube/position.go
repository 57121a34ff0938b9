package kube

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// position is where the Snapshot stands. Kinds have places of their own in it, which are compared
// with those of the same kind alone: an API server may keep some kinds in another etcd. That
// resourceVersions of a kind are numbers and grow with each change is told of Kubernetes
// since 1.35, and was so before.
type position struct {
	cluster string
	kinds   map[*kind]*controlplanev1beta2.KindPosition // of which it is known
}

// versionOf returns a resourceVersion as a number, and 0 where it is none.
func versionOf(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// told returns p as it is now.
func (p *position) told() controlplanev1beta2.Position {
	out := controlplanev1beta2.Position{Cluster: p.cluster}
	if p.cluster == "" {
		return out
	}
	out.Kinds = make([]controlplanev1beta2.KindPosition, 0, len(p.kinds))
	for _, at := range p.kinds {
		out.Kinds = append(out.Kinds, *at)
	}
	slices.SortFunc(out.Kinds, func(a, b controlplanev1beta2.KindPosition) int { return cmp.Compare(a.Kind, b.Kind) })
	return out
}

// see notes which cluster it is.
func (p *position) see(k *kind, it *item) {
	if p != nil && k.name == "Namespace" && it.object.Name == metav1.NamespaceSystem {
		p.cluster = it.object.UID
	}
}

// listed says that e has made all objects of a kind what they were at a version. The newest of them
// last changed at newest. What was deleted before that is not known: so that somebody else
// has no more than we, his count must be ours.
func (e *edit) listed(k *kind, version, newest uint64) {
	if version == 0 {
		delete(e.position.kinds, k)
		return
	}
	at := e.position.kinds[k]
	isFirst := at == nil
	if isFirst {
		at = &controlplanev1beta2.KindPosition{Kind: k.at}
		if e.position.kinds == nil {
			e.position.kinds = map[*kind]*controlplanev1beta2.KindPosition{}
		}
		e.position.kinds[k] = at
	}
	at.Read, at.Count = version, e.count(k) // which is less than before where the API server has forgotten something
	if isFirst || e.changed || at.Changed > version {
		at.Changed, at.Newest = version, min(newest, version)
		if at.Count == 0 {
			at.Newest = version
		}
	}
}

// count returns how many values of a kind there are.
func (e *edit) count(k *kind) (n uint64) {
	k.table.keys(&e.snapshot, func(key string) bool {
		if strings.HasPrefix(key, k.prefix) {
			n++
		}
		return true
	})
	return n
}

// came says that e has taken a change of a kind at a version, or that there was none up to
// there. Before all objects were listed that says nothing.
func (e *edit) came(k *kind, version uint64) {
	at := e.position.kinds[k]
	switch {
	case at == nil:
		return
	case version == 0:
		delete(e.position.kinds, k) // until the next list
		return
	}
	at.Read = max(at.Read, version)
	if e.changed {
		at.Changed, at.Newest = at.Read, at.Read
		at.Count += uint64(k.table.len(&e.snapshot)) - uint64(k.table.len(&e.before)) // of one kind alone
	}
}
