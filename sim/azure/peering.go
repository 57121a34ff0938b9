package azure

import (
	"slices"
	"strings"
)

// A peering has two halves, one in each virtual network. It is Connected when both are there, Initiated
// while the other is not there yet, and Disconnected once the other was deleted: then this one must be
// deleted, too, before it can be made again.
const (
	peerInitiated    = "Initiated"
	peerConnected    = "Connected"
	peerDisconnected = "Disconnected"
)

// half names one half of a peering: the keys of its virtual network and of the other.
type half struct{ local, remote string }

func (n *network) peeringWith(remote string) *peering {
	i := slices.IndexFunc(n.peerings, func(p peering) bool { return p.remote == remote })
	if i < 0 {
		return nil
	}
	return &n.peerings[i]
}

func (w *world) checkPeerings(r *resource, n *network) *apiError {
	for i, p := range n.peerings {
		if p.remote == r.key() || slices.ContainsFunc(n.peerings[:i], func(o peering) bool { return o.remote == p.remote }) {
			return errf("AnotherPeeringAlreadyReferencesRemoteVnet", "Peering %s cannot be created or updated because another peering already references remote virtual network %s.", p.name, p.id)
		}
		// The other subscription may be of any tenant of the estate that the writer can reach.
		if fail := w.resolve(r, p.id, virtualNetworks, false); fail != nil {
			return fail
		}
		for _, mine := range n.prefixes {
			if slices.ContainsFunc(w.things[p.remote].view.(*network).prefixes, mine.Overlaps) {
				return errf("VnetAddressSpacesOverlap", "Cannot create or update peering %s. Virtual networks %s and %s cannot be peered because their address spaces overlap.", p.name, r.id, p.id)
			}
		}
	}
	return nil
}

// settlePeerings brings the states of a virtual network's peerings, and of those that others have with
// it, up to what is in force.
func (w *world) settlePeerings(key string) {
	touched := map[half]bool{}
	for h := range w.halves {
		if h.local == key || h.remote == key {
			touched[h] = true
		}
	}
	add := func(local string) {
		if n, ok := w.liveNetwork(local); ok {
			for _, p := range n.peerings {
				if local == key || p.remote == key {
					touched[half{local, p.remote}] = true
				}
			}
		}
	}
	add(key)
	for _, u := range w.usersOf(key, virtualNetworks) {
		add(u.key())
	}
	next := map[half]string{}
	for h := range touched {
		next[h] = w.halfState(h)
	}
	for h, s := range next {
		if s == "" {
			delete(w.halves, h)
			continue
		}
		w.halves[h] = s
	}
}

func (w *world) liveNetwork(key string) (*network, bool) {
	r := w.things[key]
	if r == nil {
		return nil, false
	}
	n, ok := r.live.(*network)
	return n, ok
}

func (w *world) halfState(h half) string {
	n, ok := w.liveNetwork(h.local)
	if !ok || n.peeringWith(h.remote) == nil {
		return ""
	}
	o, ok := w.liveNetwork(h.remote)
	there := ok && o.peeringWith(h.local) != nil
	switch was := w.halves[h]; {
	case was == peerDisconnected, was == peerConnected && !there:
		return peerDisconnected
	case there && w.halves[half{h.remote, h.local}] != peerDisconnected:
		return peerConnected
	}
	return peerInitiated
}

// connected says whether packets pass between two virtual networks by peering.
func (w *world) connected(a, b string) bool {
	return w.halves[half{a, b}] == peerConnected && w.halves[half{b, a}] == peerConnected
}

func (w *world) renderPeering(r *resource, o Document) {
	p := object(o, "properties")
	ref, _ := p["remoteVirtualNetwork"].(map[string]any)
	remote := keyOf(text(ref, "id"))
	state := w.halves[half{r.key(), remote}]
	if state == "" {
		state = peerInitiated
	}
	p["peeringState"] = state
	p["peeringSyncLevel"] = map[string]string{peerConnected: "FullyInSync", peerInitiated: "RemoteNotInSync", peerDisconnected: "LocalAndRemoteNotInSync"}[state]
	if other := w.things[remote]; other != nil {
		if space, ok := object(other.doc, "properties")["addressSpace"]; ok {
			p["remoteAddressSpace"], p["remoteVirtualNetworkAddressSpace"] = copied(space), copied(space)
		}
	}
}

// disconnected refuses to write a half whose other half was deleted.
func (w *world) disconnected(r *resource, name string) *apiError {
	n, ok := r.view.(*network)
	if !ok {
		return nil
	}
	for _, p := range n.peerings {
		if strings.EqualFold(p.name, name) && w.halves[half{r.key(), p.remote}] == peerDisconnected {
			return errf("RemotePeeringIsDisconnected", "Cannot create or update peering %s because remote peering is in Disconnected state. Update or re-create the remote peering to get it back to Initiated state. Peering gets Disconnected when remote vnet or remote peering is deleted and re-created.", name)
		}
	}
	return nil
}
