package azure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// world is an estate with indexes. The lock of its Cloud guards it. Resources in it are never changed
// in place, so that a copy of the maps is a frozen world.
type world struct {
	serial   uint64
	tokenKey string
	tags     map[string][]netip.Prefix // of service tags, by folded name
	tagNames map[string]string         // as they were written
	tenants  map[string]*Tenant
	subs     map[string]*subscription
	things   map[string]*resource       // by key
	users    map[string]map[string]bool // of a key: the keys of what refers to it
	addrs    map[netAddr]string         // of each private address in a virtual network, the interface's key
	halves   map[half]string            // states of peerings
	ops      map[string]*operation      // by id
	pending  []*operation
	lists    map[string][]string // keys of a kind in a subscription, sorted
	counts   map[string]int      // of a kind in a subscription and location
	judges   *index              // of the live state; nil when it must be made
}

// netAddr is an address as it is known in a virtual network.
type netAddr struct {
	network string // key
	addr    netip.Addr
}

// subscription is what the estate says of it, and its resource groups.
type subscription struct {
	*Subscription
	groups map[string]*ResourceGroup // by folded name
}

// resource is one tracked resource. It is replaced, not changed.
type resource struct {
	id    resourceID
	kind  *kind
	doc   Document // as it was written, without what Azure computes
	view  any      // what matters of doc
	live  any      // the view that is in force; nil until it is made
	etag  string
	state string // Succeeded, Updating, Deleting or Failed
	guid  string // resourceGuid, or vmId
	born  string // timeCreated of a virtual machine
	power string // of a virtual machine: running, deallocated, …
	op    *operation
}

func (r *resource) key() string { return r.id.key() }

// guid makes up an id. The same history gives the same ids.
func (w *world) guid(of string) string {
	w.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", of, w.serial))
	s := hex.EncodeToString(sum[:16])
	return s[:8] + "-" + s[8:12] + "-4" + s[13:16] + "-8" + s[17:20] + "-" + s[20:32]
}

func (w *world) newETag() string { return `W/"` + w.guid("etag") + `"` }

// put stores a resource in the place of what has its id.
func (w *world) put(r *resource) {
	k := r.key()
	old := w.things[k]
	if old != nil {
		w.forget(old)
	} else {
		w.counts[countKeyOf(r)]++
		if keys, ok := w.lists[listKey(r)]; ok {
			i, _ := slices.BinarySearch(keys, k)
			w.lists[listKey(r)] = slices.Insert(slices.Clone(keys), i, k) // somebody may be walking over the old one
		}
	}
	w.things[k] = r
	for _, l := range r.kind.links(r) {
		t := keyOf(l.id)
		if w.users[t] == nil {
			w.users[t] = map[string]bool{}
		}
		w.users[t][k] = true
	}
	for _, a := range r.addresses() {
		w.addrs[a] = k
	}
	if old == nil || old.live != r.live || old.power != r.power {
		w.judges = nil
	}
}

// drop removes a resource.
func (w *world) drop(k string) {
	r := w.things[k]
	if r == nil {
		return
	}
	w.forget(r)
	delete(w.things, k)
	w.counts[countKeyOf(r)]--
	delete(w.lists, listKey(r))
	w.judges = nil
}

// forget takes a resource out of the indexes.
func (w *world) forget(r *resource) {
	k := r.key()
	for _, l := range r.kind.links(r) {
		t := keyOf(l.id)
		delete(w.users[t], k)
		if len(w.users[t]) == 0 {
			delete(w.users, t)
		}
	}
	for _, a := range r.addresses() {
		if w.addrs[a] == k {
			delete(w.addrs, a)
		}
	}
}

func listKey(r *resource) string { return fold(r.id.subscription + " " + r.kind.name) }

func countKeyOf(r *resource) string { return listKey(r) + " " + r.location() }

// list are the keys of all resources of a kind in a subscription, sorted.
func (w *world) list(sub string, k *kind) []string {
	lk := fold(sub + " " + k.name)
	keys, ok := w.lists[lk]
	if !ok {
		for key, r := range w.things {
			if r.kind == k && fold(r.id.subscription) == fold(sub) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		w.lists[lk] = keys
	}
	return keys
}

// usersOf are the resources of a kind that refer to a resource or to what is in it, sorted.
func (w *world) usersOf(key string, kinds ...*kind) []*resource {
	var out []*resource
	for _, k := range slices.Sorted(maps.Keys(w.users[key])) {
		if r := w.things[k]; r != nil && (len(kinds) == 0 || slices.Contains(kinds, r.kind)) {
			out = append(out, r)
		}
	}
	return out
}

// frozen is the world of this moment, for reads.
func (w *world) frozen() *world {
	f := *w
	f.things, f.addrs, f.ops = maps.Clone(w.things), maps.Clone(w.addrs), maps.Clone(w.ops)
	f.users = make(map[string]map[string]bool, len(w.users))
	for k, v := range w.users {
		f.users[k] = maps.Clone(v)
	}
	f.lists, f.pending, f.judges = map[string][]string{}, nil, nil
	f.counts, f.halves = maps.Clone(w.counts), maps.Clone(w.halves)
	f.subs = map[string]*subscription{}
	for k, s := range w.subs {
		c := *s
		c.groups = maps.Clone(s.groups)
		f.subs[k] = &c
	}
	return &f
}

// advance ends the operations whose time has come.
func (w *world) advance(now time.Time) {
	for len(w.pending) > 0 {
		i := slices.IndexFunc(w.pending, func(o *operation) bool { return !now.Before(o.due) })
		if i < 0 {
			return
		}
		o := w.pending[i]
		w.pending = slices.Delete(w.pending, i, i+1)
		w.finish(o)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
