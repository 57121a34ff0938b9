package feed

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// Feed keeps one world. Its methods may be called by any number of goroutines, Update
// by one at a time.
type Feed struct {
	source string // its name in Moments

	mu       sync.RWMutex // Update writes; whoever makes objects reads
	engine   *compile.Engine
	world    policy.Snapshot
	version  uint64 // of the world: the number of Updates
	position string // of the world; empty where it is not known
	overlaps overlaps

	made struct { // what is known of the world as it is now
		sync.Mutex
		policies map[string]*shared            // by ID
		parts    map[string]map[string]*shared // likewise, and by what of the policy it is
		problems map[string][]convert.Problem  // of those
		groups   map[string]*shared            // AddressGroups, by Key
		names    map[string]string             // of groups, by Key
	}
	watching struct {
		sync.Mutex
		places map[string]*place // by Target
		wide   map[*wide]struct{}
		// wideLast is the version in which wide was last woken.
		wideLast uint64
	}
}

// place is a Target that is watched.
type place struct {
	narrow   [resources]map[*narrow]struct{}
	subjects map[string]subjects // by Key
	last     [resources]uint64   // the version in which watchers of each were last told of something
}

// subjects are an AppliedToGroup as it is on one Target.
type subjects struct {
	name    string
	members []*policy.Workload // by ID
}

// New returns a Feed of an Engine, which nobody else may Update from then on.
func New(e *compile.Engine) *Feed {
	f := &Feed{source: rand.Text(), engine: e}
	f.made.policies, f.made.groups, f.made.names = map[string]*shared{}, map[string]*shared{}, map[string]string{}
	f.made.problems, f.made.parts = map[string][]convert.Problem{}, map[string]map[string]*shared{}
	f.watching.places, f.watching.wide = map[string]*place{}, map[*wide]struct{}{}
	return f
}

// Update takes a Snapshot to the Engine, tells the watchers what that changes, and returns
// the Targets whose Rulesets are others, sorted. It waits for nobody who reads slowly.
func (f *Feed) Update(s policy.Snapshot) (targets []string) {
	return f.UpdateAt(s, controlplanev1beta2.Position{})
}

// UpdateAt is Update with a Snapshot of which it is known where it stands.
func (f *Feed) UpdateAt(s policy.Snapshot, at controlplanev1beta2.Position) (targets []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.position = at.String()
	old := f.world
	objects := f.engine.UpdateWatched(s)
	f.world = s
	f.version++
	flipped := f.overlaps.update(old, s, f.engine)
	var flippedPolicies []string
	if len(flipped) > 0 {
		flippedPolicies = f.engine.PoliciesNaming(flipped)
	}

	before := map[string]*shared{}
	f.made.Lock()
	for _, id := range slices.Concat(objects.Policies, flippedPolicies) {
		if s := f.made.policies[id]; s != nil {
			before[id] = s
			delete(f.made.policies, id)
			delete(f.made.problems, id)
		}
		delete(f.made.parts, id)
	}
	for _, key := range objects.Groups {
		delete(f.made.groups, key)
	}
	f.made.Unlock()

	f.watching.Lock()
	defer f.watching.Unlock()
	f.tellArrivals(old, s)
	f.tellGroups(objects.Targets)
	f.tellPolicies(old, before, objects, flippedPolicies)
	if len(f.overlaps.less)+len(flipped) > 0 {
		for _, p := range f.watching.places {
			for w := range p.narrow[AddressGroups] {
				w.rethink()
			}
		}
	}
	if len(objects.Changed)+len(objects.Policies)+len(flipped) > 0 {
		f.watching.wideLast = f.version
		for w := range f.watching.wide {
			w.wake()
		}
	}
	return objects.Changed
}

// tellArrivals has the watchers of a Target told of the position that has a Pod of it, though nothing else
// may come of it: its agent waits for that, since it cannot tell who has no policies from who is
// not known yet.
func (f *Feed) tellArrivals(old, now policy.Snapshot) {
	if f.position == "" || len(f.watching.places) == 0 {
		return
	}
	policy.Diff(old.Workloads, now.Workloads, func(_ string, _, is **policy.Workload) {
		if is == nil || (*is).Kind != policy.KindPod {
			return
		}
		if p := f.watching.places[(*is).Target]; p != nil {
			for w := range p.narrow[NetworkPolicies] {
				if w.o.Marks {
					w.arrived.Store(true)
					w.wake()
				}
			}
		}
	})
}

// Advance takes that the Snapshot of the last Update stands there by now: more has been read,
// and nothing of it was news.
func (f *Feed) Advance(at controlplanev1beta2.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.position = at.String()
}

func (f *Feed) tellGroups(changes []compile.ObjectChange) {
	// Those who share a change share what it is sent as.
	type sent struct {
		name string
		*delta
	}
	all := map[*compile.GroupChange]sent{}
	for _, c := range changes {
		p := f.watching.places[c.Target]
		if p == nil || len(p.narrow[AddressGroups]) == 0 {
			continue
		}
		for _, g := range c.Groups {
			s, ok := all[g]
			if !ok {
				s.name = f.groupName(g.Key, *g.Selection)
				if !g.New && !g.Gone {
					s.delta = deltaOf(g)
				}
				all[g] = s
			}
			for w := range p.narrow[AddressGroups] {
				w.note(g.Key, pending{had: !g.New, name: s.name}, s.delta)
			}
		}
	}
}

func (f *Feed) tellPolicies(old policy.Snapshot, before map[string]*shared, objects compile.ObjectChanges, flipped []string) {
	for _, c := range objects.Targets {
		p := f.watching.places[c.Target]
		if p == nil {
			continue
		}
		for _, pc := range c.Policies {
			if len(p.narrow[NetworkPolicies]) == 0 {
				break
			}
			if _, isOther := slices.BinarySearch(objects.Policies, pc.ID); !isOther && !pc.Moved {
				continue // a workload has come or gone, and others of the Target are under the same rules
			}
			had := pending{had: pc.Had}
			if !pc.Moved {
				had.before = before[pc.ID]
			}
			if was, ok := old.Policies.Get(pc.ID); ok {
				had.name = convert.PolicyName(was)
			}
			for w := range p.narrow[NetworkPolicies] {
				w.note(pc.ID, had, nil)
			}
		}
		if c.Subjects {
			f.tellSubjects(c.Target, p)
		}
	}
	for _, id := range flipped {
		now, ok := f.world.Policies.Get(id)
		if !ok {
			continue
		}
		for target, p := range f.watching.places {
			if len(p.narrow[NetworkPolicies]) == 0 || !f.engine.IsAt(target, id) {
				continue
			}
			for w := range p.narrow[NetworkPolicies] {
				// Where it has just come, that has been noted.
				w.note(id, pending{had: true, name: convert.PolicyName(now), before: before[id]}, nil)
			}
		}
	}
}

// tellSubjects finds whom policies apply to on a Target, and tells its watchers what is
// different from before.
func (f *Feed) tellSubjects(target string, p *place) {
	now := f.subjectsAt(target)
	for _, key := range keysOf(p.subjects, now) {
		was, had := p.subjects[key]
		is, has := now[key]
		var d *delta
		if had && has {
			if d = deltaBetween(AppliedToGroups, was.members, is.members); d == nil {
				continue
			}
		}
		for w := range p.narrow[AppliedToGroups] {
			w.note(key, pending{had: had, name: was.name}, d)
		}
		if direction, ok := isolationOf(key); ok && had != has {
			for w := range p.narrow[NetworkPolicies] {
				w.note(key, pending{had: had, name: isolations[direction].name}, nil)
			}
		}
	}
	p.subjects = now
}

func keysOf[T any](a, b map[string]T) []string {
	out := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(out)
	return slices.Compact(out)
}

// isolations are the policies by which VMs deny the rest of a direction.
var isolations = func() map[policy.Direction]isolation {
	out := map[policy.Direction]isolation{}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		p, appliedTo := convert.IsolationPolicy(d)
		out[d] = isolation{p.Name, keep(NetworkPolicies, &p), appliedTo}
	}
	return out
}()

type isolation struct {
	name      string
	shared    *shared
	appliedTo string // name of the group
}

const isolationPrefix = "\x00isolation/" // of Keys; no Selection and no policy begins so

func isolationKey(d policy.Direction) string { return isolationPrefix + d.String() }

func isolationOf(key string) (policy.Direction, bool) {
	for d := range isolations {
		if key == isolationKey(d) {
			return d, true
		}
	}
	return 0, false
}

// subjectsAt returns the AppliedToGroups of a Target by Key. The reader's lock is held, or
// the writer's.
func (f *Feed) subjectsAt(target string) map[string]subjects {
	list := f.engine.SubjectsAt(target)
	out := make(map[string]subjects, len(list))
	for _, s := range list {
		out[s.Key] = subjects{f.groupName(s.Key, s.Selection), s.Workloads}
	}
	for d, i := range isolations {
		if denied := f.engine.DeniedAt(target, d); len(denied) > 0 {
			out[isolationKey(d)] = subjects{i.appliedTo, denied}
		}
	}
	return out
}

// most is how many names of groups are kept.
const most = 1 << 17

func (f *Feed) groupName(key string, sel policy.Selection) string {
	f.made.Lock()
	defer f.made.Unlock()
	name := f.made.names[key]
	if name == "" {
		if len(f.made.names) >= most {
			clear(f.made.names)
		}
		name = convert.SelectionName(sel)
		f.made.names[key] = name
	}
	return name
}

// groupNames is a [convert.GroupNames].
func (f *Feed) groupNames(key string, denies bool) (string, []netip.Addr) {
	sel, _ := f.engine.Selection(key)
	name, less := f.groupName(key, sel), f.overlaps.addresses(key)
	if len(less) > 0 && !denies {
		name = convert.Unambiguous(name)
	}
	return name, less
}

// policy returns the policy of an ID as all are told of it, or nil when there is none. The
// reader's lock is held.
func (f *Feed) policy(id string) *shared {
	if d, ok := isolationOf(id); ok {
		return isolations[d].shared
	}
	f.made.Lock()
	s := f.made.policies[id]
	f.made.Unlock()
	if s != nil {
		return s
	}
	p, ok := f.world.Policies.Get(id)
	if !ok {
		return nil
	}
	rules, isolates := f.engine.Policy(id)
	s, problems := f.makePolicy(p, rules, isolates)
	f.made.Lock()
	defer f.made.Unlock()
	if first := f.made.policies[id]; first != nil {
		return first // so that it is encoded once
	}
	f.made.policies[id] = s
	if len(problems) > 0 {
		f.made.problems[id] = problems
	}
	return s
}

// policyAt returns what is told of a policy to who sees these Targets: those rules that apply to workloads there,
// so that it has all groups that they name. Mostly that is all of them, and the same object.
func (f *Feed) policyAt(targets []string, id string) *shared {
	if _, ok := isolationOf(id); ok {
		return f.policy(id)
	}
	if f.engine.IsWholeAt(targets, id) {
		return f.policy(id)
	}
	rules, isolates := f.engine.PolicyAt(targets, id)
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(r.Rule.Key)
		b.WriteByte(0)
	}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		if len(isolates[d]) > 0 {
			b.WriteString(d.String())
		}
	}
	part := b.String()
	f.made.Lock()
	s := f.made.parts[id][part]
	f.made.Unlock()
	if s != nil {
		return s
	}
	p, ok := f.world.Policies.Get(id)
	if !ok {
		return nil
	}
	s, _ = f.makePolicy(p, rules, isolates)
	f.made.Lock()
	defer f.made.Unlock()
	if first := f.made.parts[id][part]; first != nil {
		return first
	}
	if f.made.parts[id] == nil {
		f.made.parts[id] = map[string]*shared{}
	}
	f.made.parts[id][part] = s
	return s
}

func (f *Feed) makePolicy(p *policy.Policy, rules []compile.PolicyRule, isolates map[policy.Direction][]policy.Selection) (*shared, []convert.Problem) {
	in := make([]convert.AppliedRule, len(rules))
	for i, r := range rules {
		in[i] = convert.AppliedRule{Rule: r.Rule, AppliedTo: f.names(r.AppliedTo)}
	}
	by := make(map[policy.Direction][]string, len(isolates))
	for d, sels := range isolates {
		by[d] = f.names(sels)
	}
	out, problems := convert.PolicyToControlPlane(p, in, by, f.groupNames)
	if out.TierPriority == nil && p.Dialect != policy.KubernetesNetworkPolicy { // none of its rules applies to anything
		tier, _ := f.world.TierNumber(p.Tier)
		out.TierPriority, out.Priority = &tier, new(p.Priority)
	}
	return keep(NetworkPolicies, &out), problems
}

func (f *Feed) names(sels []policy.Selection) []string {
	out := make([]string, len(sels))
	for i, sel := range sels {
		out[i] = f.groupName(sel.String(), sel)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addresses returns the AddressGroup of a Key, or nil when no rule names it. The reader's lock
// is held.
func (f *Feed) addresses(key string) *shared {
	f.made.Lock()
	s := f.made.groups[key]
	f.made.Unlock()
	if s != nil {
		return s
	}
	sel, members, held, ok := f.engine.Group(key)
	if !ok {
		return nil
	}
	s = keep(AddressGroups, AddressGroups.group(f.groupName(key, sel), AddressGroups.members(members)))
	if !held {
		return s // nobody tells when it changes
	}
	f.made.Lock()
	defer f.made.Unlock()
	if first := f.made.groups[key]; first != nil {
		return first
	}
	f.made.groups[key] = s
	return s
}

// Span is what a watcher sees: what concerns the Targets that a name of a node
// stands for.
type Span struct {
	all    bool
	clouds bool   // what no agent enforces
	target string // else
}

// SpanOf returns the Span of a watcher's nodeName: of a Node, of "namespace/name" of an
// ExternalNode, of the name by which cloud VMs go, or of all when it is empty.
func SpanOf(nodeName string) Span {
	switch {
	case nodeName == "":
		return Span{all: true}
	case nodeName == cloudv1alpha1.ExternalNodeController:
		return Span{clouds: true}
	}
	if ns, name, ok := strings.Cut(nodeName, "/"); ok {
		return Span{target: convert.AgentTarget(ns, name)}
	}
	return Span{target: convert.NodeTarget(nodeName)}
}

// targets returns the Targets of a Span that there are, sorted.
func (f *Feed) targets(s Span) []string {
	if !s.all && !s.clouds {
		return []string{s.target}
	}
	all := f.engine.Targets()
	if s.all {
		return all
	}
	return slices.DeleteFunc(all, func(t string) bool {
		_, _, isAgent := convert.OfAgentTarget(t)
		return isAgent || strings.HasPrefix(t, convert.NodeTarget(""))
	})
}

// near returns the network of everything on a Target; ok is false when that is several.
func near(workloads map[string]subjects) (network string, ok bool) {
	first := true
	for _, s := range workloads {
		for _, w := range s.members {
			if !first && w.Network != network {
				return "", false
			}
			network, first = w.Network, false
		}
	}
	return network, !first
}

// Problems returns what of a policy has no words on the wire, and so is sent as something stricter.
func (f *Feed) Problems(policyID string) []convert.Problem {
	f.mu.RLock()
	defer f.mu.RUnlock()
	f.policy(policyID)
	f.made.Lock()
	defer f.made.Unlock()
	return f.made.problems[policyID]
}

// Version is a resourceVersion of the world as it is now.
func (f *Feed) Version() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.versionText()
}

// moment is what bookmarks are of.
type moment struct {
	controlplanev1beta2.Moment
	position string // empty where it is not known
}

// moment is now, for a watcher whose resources have last changed in these versions.
func (f *Feed) moment(last [resources]uint64) moment {
	return moment{controlplanev1beta2.Moment{Source: f.source, Version: f.version, Last: last}, f.position}
}

func (f *Feed) versionText() string { return strconv.FormatUint(f.version, 10) }

// List returns all objects of a resource that a Span has, by name, and the version of the
// world that they are of.
func (f *Feed) List(r Resource, span Span) (objects []runtime.Object, version string) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, s := range f.view(r, span, "") {
		objects = append(objects, s.object())
	}
	slices.SortFunc(objects, func(a, b runtime.Object) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	return objects, f.versionText()
}

// Get returns an object by name; ok is false when there is none. It looks at the names of all that List returns,
// and makes no others of policies and AddressGroups.
func (f *Feed) Get(r Resource, span Span, name string) (runtime.Object, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, s := range f.view(r, span, name) {
		if s.name == name {
			return s.object(), true
		}
	}
	return nil, false
}
