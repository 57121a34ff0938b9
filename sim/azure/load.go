package azure

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// newWorld builds and checks a world. It works on a copy of e.
func newWorld(e Estate) (*world, error) {
	e, err := e.clone()
	if err != nil {
		return nil, err
	}
	w := &world{
		serial: e.Serial, tokenKey: e.TokenKey, tags: map[string][]netip.Prefix{}, tagNames: map[string]string{},
		tenants: map[string]*Tenant{}, subs: map[string]*subscription{}, things: map[string]*resource{}, users: map[string]map[string]bool{},
		addrs: map[netAddr]string{}, halves: map[half]string{}, ops: map[string]*operation{}, lists: map[string][]string{}, counts: map[string]int{},
	}
	if w.tokenKey == "" {
		key := make([]byte, 32)
		rand.Read(key) // never fails
		w.tokenKey = hex.EncodeToString(key)
	}
	for name, ps := range e.ServiceTags {
		for _, p := range ps {
			if !p.IsValid() || p != p.Masked() {
				return nil, fmt.Errorf("service tag %s: %s is not a canonical prefix", name, p)
			}
		}
		if !isTag(name) {
			return nil, fmt.Errorf("service tag %q: not a name", name)
		}
		w.tags[fold(name)], w.tagNames[fold(name)] = ps, name
	}
	for i, t := range e.Tenants {
		if err := w.loadTenant(t); err != nil {
			return nil, fmt.Errorf("tenants[%d]: %w", i, err)
		}
	}
	for i, s := range e.Subscriptions {
		if err := w.loadSubscription(s); err != nil {
			return nil, fmt.Errorf("subscriptions[%d]: %w", i, err)
		}
	}
	if err := w.loadResources(e); err != nil {
		return nil, err
	}
	for _, s := range w.subs {
		if err := w.checkSurroundings(s); err != nil {
			return nil, fmt.Errorf("subscription %s: %w", s.ID, err)
		}
	}
	return w, nil
}

func (w *world) loadTenant(t *Tenant) error {
	if t == nil || !guidRE.MatchString(t.ID) || w.tenants[fold(t.ID)] != nil {
		return fmt.Errorf("the id is no GUID, or is given twice")
	}
	w.tenants[fold(t.ID)] = t
	taken := map[string]bool{}
	for _, a := range t.Applications {
		if a == nil || !guidRE.MatchString(a.ClientID) || taken[fold(a.ClientID)] {
			return fmt.Errorf("an application's clientId is no GUID, or is given twice")
		}
		taken[fold(a.ClientID)] = true
		if a.ObjectID == "" {
			a.ObjectID = w.guid("object")
		}
		for _, f := range a.Federated {
			if _, err := f.keys(); err != nil || f.Issuer == "" || f.Subject == "" {
				return fmt.Errorf("application %s: a federated credential has no issuer, subject or proper keys: %v", a.ClientID, err)
			}
		}
		for _, s := range a.Secrets {
			if s.Value == "" {
				return fmt.Errorf("application %s: an empty secret", a.ClientID)
			}
		}
	}
	return nil
}

func (w *world) loadSubscription(e *Subscription) error {
	if e == nil || !guidRE.MatchString(e.ID) || w.subs[fold(e.ID)] != nil {
		return fmt.Errorf("the id is no GUID, or is given twice")
	}
	if w.tenants[fold(e.Tenant)] == nil {
		return fmt.Errorf("subscription %s: unknown tenant %q", e.ID, e.Tenant)
	}
	if len(e.Locations) == 0 {
		return fmt.Errorf("subscription %s: no location", e.ID)
	}
	if err := e.Quotas.check(); err != nil {
		return fmt.Errorf("subscription %s: %w", e.ID, err)
	}
	if err := checkLocks(e.Locks); err != nil {
		return fmt.Errorf("subscription %s: %w", e.ID, err)
	}
	if !slices.Contains([]string{"", "Enabled", "Warned", "PastDue", "Disabled", "Deleted"}, e.State) {
		return fmt.Errorf("subscription %s: unknown state %q", e.ID, e.State)
	}
	s := &subscription{Subscription: e, groups: map[string]*ResourceGroup{}}
	for i, l := range e.Locations {
		e.Locations[i] = region(l)
	}
	for _, g := range e.Groups {
		if g == nil || !groupRE.MatchString(g.Name) || s.groups[fold(g.Name)] != nil {
			return fmt.Errorf("subscription %s: a resource group's name is malformed or given twice", e.ID)
		}
		g.Location = region(g.Location)
		s.groups[fold(g.Name)] = g
	}
	w.subs[fold(e.ID)] = s
	return nil
}

func checkLocks(locks []Lock) error {
	for _, l := range locks {
		if l.Level != "CanNotDelete" && l.Level != "ReadOnly" || !strings.HasPrefix(l.Scope, "/subscriptions/") {
			return fmt.Errorf("lock %s: the level is CanNotDelete or ReadOnly, and the scope begins with /subscriptions/", l.Name)
		}
	}
	return nil
}

// loadResources takes in what others refer to first.
func (w *world) loadResources(e Estate) error {
	byKind := map[*kind][]*resource{}
	peered := map[half]string{}
	for _, s := range e.Subscriptions {
		for i, doc := range s.Resources {
			r, err := w.loadResource(s, doc, peered)
			if err != nil {
				return fmt.Errorf("subscription %s: resources[%d]: %w", s.ID, i, err)
			}
			byKind[r.kind] = append(byKind[r.kind], r)
		}
		s.Resources = nil // the world holds them now
	}
	for _, k := range kinds {
		// Virtual networks refer to one another, so all must be there before one can be checked.
		for _, r := range byKind[k] {
			if w.things[r.key()] != nil {
				return fmt.Errorf("%s: given twice", r.id)
			}
			if k == virtualNetworks {
				r.live = r.view
				w.put(r)
				continue
			}
			if fail := k.check(w, r, nil); fail != nil {
				return fmt.Errorf("%s: %w", r.id, fail)
			}
			r.live = r.view
			w.put(r)
		}
		if k == scaleMachines {
			if err := w.fillSets(); err != nil {
				return err
			}
		}
		if k != virtualNetworks {
			continue
		}
		for _, r := range byKind[k] {
			if fail := k.check(w, r, nil); fail != nil {
				return fmt.Errorf("%s: %w", r.id, fail)
			}
		}
		for h, state := range peered {
			w.halves[h] = state
		}
		for _, r := range byKind[k] {
			w.settlePeerings(r.key())
		}
	}
	return nil
}

// fillSets makes the machines of scale sets that the estate does not tell of.
func (w *world) fillSets() error {
	for _, k := range sortedKeys(w.things) {
		if r := w.things[k]; r.kind == scaleSets && len(w.inSet(r, scaleMachines)) == 0 {
			if fail := w.fill(r); fail != nil {
				return fmt.Errorf("%s: %w", r.id, fail)
			}
			w.settleSet(r)
		}
	}
	return nil
}

func (w *world) loadResource(s *Subscription, doc Document, peered map[half]string) (*resource, error) {
	if doc == nil || depth(doc) > maxDepth {
		return nil, fmt.Errorf("null, or more than %d levels", maxDepth)
	}
	id, err := parseID(text(doc, "id"))
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(id.subscription, s.ID) || w.subs[fold(s.ID)].groups[fold(id.group)] == nil {
		return nil, fmt.Errorf("%s: of another subscription, or of an unknown resource group", id)
	}
	k := kindOf(id.provider, strings.Join(id.types, "/"))
	if k == nil {
		return nil, fmt.Errorf("%s: resources of this type are not simulated, or belong into the document of the one that they are in", id)
	}
	props := object(doc, "properties")
	etag, state, guid, power := text(doc, "etag"), text(props, "provisioningState"), text(props, "resourceGuid"), powerOf(doc)
	if slices.Contains(anyMachine, k) {
		guid = text(props, "vmId")
	}
	if k == virtualNetworks {
		for _, o := range objects(props, "virtualNetworkPeerings") {
			if p := object(o, "properties"); text(p, "peeringState") == peerDisconnected {
				peered[half{id.key(), keyOf(text(object(p, "remoteVirtualNetwork"), "id"))}] = peerDisconnected
			}
		}
	}
	born := text(props, "timeCreated")
	r, fail := k.load(id, doc)
	if fail != nil {
		return nil, fmt.Errorf("%s: %w", id, fail)
	}
	r.born = cmp.Or(born, "2024-01-01T00:00:00+00:00")
	if !slices.Contains(w.subs[fold(s.ID)].Locations, r.location()) {
		return nil, fmt.Errorf("%s: location %q is none of the subscription", id, r.location())
	}
	if r.etag = etag; etag == "" {
		r.etag = w.newETag()
	}
	if r.guid = guid; guid == "" {
		r.guid = w.guid("resource")
	}
	if k == scaleMachines {
		without(props, "latestModelApplied")
		without(doc, "instanceId")
	}
	if state == "Failed" {
		r.state = state
	}
	if slices.Contains(anyMachine, k) {
		r.power = power
	}
	return r, nil
}

// checkSurroundings looks at what the estate says besides resources.
func (w *world) checkSurroundings(s *subscription) error {
	for _, u := range s.Uplinks {
		if r := w.things[keyOf(u.VirtualNetwork)]; r == nil || r.kind != virtualNetworks {
			return fmt.Errorf("uplink of an unknown virtual network %q", u.VirtualNetwork)
		}
		for _, p := range u.OnPremises {
			if !p.IsValid() || p != p.Masked() {
				return fmt.Errorf("uplink of %s: %s is not a canonical prefix", u.VirtualNetwork, p)
			}
		}
	}
	for _, a := range s.AdminRules {
		for _, n := range a.VirtualNetworks {
			if r := w.things[keyOf(n)]; r == nil || r.kind != virtualNetworks {
				return fmt.Errorf("admin rule %s: unknown virtual network %q", a.Name, n)
			}
		}
		if _, err := w.adminRule(a); err != nil {
			return fmt.Errorf("admin rule %s: %w", a.Name, err)
		}
	}
	return nil
}

// estate writes the world down again, sorted.
func (w *world) estate() Estate {
	e := Estate{Serial: w.serial, TokenKey: w.tokenKey}
	for _, k := range sortedKeys(w.tenants) {
		e.Tenants = append(e.Tenants, w.tenants[k])
	}
	for k, ps := range w.tags {
		if e.ServiceTags == nil {
			e.ServiceTags = map[string][]netip.Prefix{}
		}
		e.ServiceTags[w.tagNames[k]] = ps
	}
	for _, k := range sortedKeys(w.subs) {
		s := *w.subs[k].Subscription
		s.Groups = nil
		// A virtual network may have gone since.
		gone := func(id string) bool { return w.things[keyOf(id)] == nil }
		s.Uplinks = slices.DeleteFunc(slices.Clone(s.Uplinks), func(u Uplink) bool { return gone(u.VirtualNetwork) })
		s.AdminRules = slices.Clone(s.AdminRules)
		for i := range s.AdminRules {
			s.AdminRules[i].VirtualNetworks = slices.DeleteFunc(slices.Clone(s.AdminRules[i].VirtualNetworks), gone)
		}
		for _, g := range sortedKeys(w.subs[k].groups) {
			s.Groups = append(s.Groups, w.subs[k].groups[g])
		}
		for _, kind := range kinds {
			for _, key := range w.list(s.ID, kind) {
				r := w.things[key]
				if r.state == "Deleting" {
					continue
				}
				body := w.body(r)
				if slices.Contains(anyMachine, kind) {
					object(body, "properties")["instanceView"] = r.instanceView()
				}
				s.Resources = append(s.Resources, body)
			}
		}
		e.Subscriptions = append(e.Subscriptions, &s)
	}
	c, err := e.clone()
	if err != nil {
		panic(err) // every document was JSON once
	}
	return c
}
