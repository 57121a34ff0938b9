package v1beta2

import (
	"fmt"
	"slices"
)

// Key returns what tells members apart: members with the same reference, addresses
// and ports, in their order, have equal Keys, and others do not. It is the member in
// protobuf.
func (m *GroupMember) Key() string { return string(m.AppendKey(nil)) }

// AppendKey appends the Key of m to b.
func (m *GroupMember) AppendKey(b []byte) []byte {
	size := m.Size()
	b = slices.Grow(b, size)
	end := len(b) + size
	if _, err := m.MarshalToSizedBuffer(b[len(b):end]); err != nil {
		panic(fmt.Sprintf("marshal %+v: %v", m, err)) // no part of a member can fail
	}
	return b[:end]
}

// memberKeys yields Keys without an allocation for each.
type memberKeys struct{ buffer []byte }

// of returns the Key of m, which is valid until the next call.
func (k *memberKeys) of(m *GroupMember) []byte {
	k.buffer = m.AppendKey(k.buffer[:0])
	return k.buffer
}

// keysOf returns the Keys of all members, in two allocations and their list.
func keysOf(members []GroupMember) []string {
	size := 0
	for i := range members {
		size += members[i].Size()
	}
	all, ends := make([]byte, size), make([]int, len(members))
	end := 0
	for i := range members {
		end += members[i].Size()
		if _, err := members[i].MarshalToSizedBuffer(all[:end]); err != nil {
			panic(fmt.Sprintf("marshal %+v: %v", &members[i], err))
		}
		ends[i] = end
	}
	text, start := string(all), 0
	keys := make([]string, len(members))
	for i, end := range ends {
		keys[i] = text[start:end]
		start = end
	}
	return keys
}

// DiffMembers returns what a Patch says that leads from old to now: members count
// whole, each once, in whatever order. What is returned shares the parts of its members
// with the lists.
func DiffMembers(old, now []GroupMember) (added, removed []GroupMember) {
	const inNow = -1
	oldKeys := keysOf(old)
	where := make(map[string]int, len(old)) // in old, or inNow
	for i, key := range oldKeys {
		where[key] = i
	}
	stays := make([]bool, len(old))
	var keys memberKeys
	for i := range now {
		key := keys.of(&now[i])
		at, known := where[string(key)]
		switch {
		case !known:
			where[string(key)] = inNow
			added = append(added, now[i])
		case at != inNow:
			stays[at] = true
		}
	}
	for i, key := range oldKeys {
		if where[key] == i && !stays[i] {
			removed = append(removed, old[i])
		}
	}
	return added, removed
}

// PatchMembers returns members as a Patch leaves them, in another list: without what is
// removed, and with what is added and not there. The error says that what is removed is
// not there, so that the Patch is of other members than these.
func PatchMembers(members, added, removed []GroupMember) ([]GroupMember, error) {
	goes := make(map[string]bool, len(removed)) // whether it was there
	for _, key := range keysOf(removed) {
		goes[key] = false
	}
	comes := make(map[string]bool, len(added)) // whether it is there
	for _, key := range keysOf(added) {
		comes[key] = false
	}
	out := make([]GroupMember, 0, len(members)+len(added))
	var keys memberKeys
	for i := range members {
		key := keys.of(&members[i])
		if _, ok := goes[string(key)]; ok {
			goes[string(key)] = true
			continue
		}
		if _, ok := comes[string(key)]; ok {
			comes[string(key)] = true
		}
		out = append(out, members[i])
	}
	for i := range removed {
		if !goes[string(keys.of(&removed[i]))] {
			return nil, fmt.Errorf("remove %s: no such member", removed[i].Reference())
		}
	}
	for i := range added {
		if key := keys.of(&added[i]); !comes[string(key)] {
			comes[string(key)] = true
			out = append(out, added[i])
		}
	}
	return out, nil
}

// Reference names the workload that m is, such as "pod namespace/name", and "nothing"
// where it has no reference that is known here.
func (m *GroupMember) Reference() string {
	switch {
	case m.Pod != nil:
		return "pod " + m.Pod.Namespace + "/" + m.Pod.Name
	case m.ExternalEntity != nil:
		return "externalentity " + m.ExternalEntity.Namespace + "/" + m.ExternalEntity.Name
	case m.Node != nil:
		return "node " + m.Node.Name
	case m.Service != nil:
		return "service " + m.Service.Namespace + "/" + m.Service.Name
	}
	return "nothing"
}
