package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// entry is one entry of a selector: which VMs, and how they are taken.
type entry struct {
	at        string // the field that it is in
	match     cloud.Match
	agented   bool
	isolation policy.Isolation
}

// selector is what the inventory needs of a CloudEntitySelector.
type selector struct {
	key     types.NamespacedName
	created time.Time
	entries []entry
}

// compare orders selectors by age: a new one never takes over the VMs of an old one.
func (s selector) compare(o selector) int {
	return cmp.Or(s.created.Compare(o.created), cmp.Compare(s.key.String(), o.key.String()))
}

// imported is a VM that a selector has picked. It is not changed once made.
type imported struct {
	account   types.NamespacedName
	provider  string
	selector  types.NamespacedName
	vm        cloud.VM
	agented   bool
	isolation policy.Isolation

	cloud    string               // as cloudOf has it
	enforcer types.NamespacedName // the account that enforces in its network; none is its own
	created  time.Time            // its selector
}

func (i *imported) key() types.NamespacedName {
	name := cloudv1alpha1.ExternalEntityName(objectName(i.vm))
	if kind := entityKinds[i.vm.Kind]; kind != cloudv1alpha1.KindVirtualMachine {
		name = cloudv1alpha1.ServiceEntityName(kind, objectName(i.vm))
	}
	return types.NamespacedName{Namespace: i.selector.Namespace, Name: name}
}

// entityKinds are what labels call each kind.
var entityKinds = map[cloud.Kind]string{
	cloud.VirtualMachine: cloudv1alpha1.KindVirtualMachine,
	cloud.Database:       cloudv1alpha1.KindDatabase,
	cloud.LoadBalancer:   cloudv1alpha1.KindLoadBalancer,
}

// objectName is what the objects of a VM or service are called.
func objectName(vm cloud.VM) string {
	return strings.ReplaceAll(strings.ToLower(cmp.Or(vm.Object, vm.ID)), "/", "-")
}

func (i *imported) workloadID() string { return workloadID(i.key()) }

func workloadID(key types.NamespacedName) string {
	return policy.WorkloadID(policy.KindExternal, key.Namespace, key.Name)
}

func (i *imported) target() string {
	return targetName(i.provider, cmp.Or(i.enforcer, i.account), i.vm.Region, cmp.Or(i.vm.NetworkRef, i.vm.NetworkID))
}

// targetOf returns the name of an account's target of a network.
func (a *account) targetOf(region string, n cloud.Network) string {
	return targetName(a.provider, a.key, region, cmp.Or(n.Ref, n.ID))
}

// targetName is "provider/namespace/name/region/network".
func targetName(provider string, account types.NamespacedName, region, network string) string {
	return strings.Join([]string{provider, account.Namespace, account.Name, region, network}, "/")
}

// addrs returns all addresses of a VM, sorted.
func addrs(vm cloud.VM) []netip.Addr {
	var out []netip.Addr
	for _, n := range vm.Interfaces {
		out = append(out, interfaceAddrs(n)...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// interfaceAddrs returns the addresses of an interface, sorted.
func interfaceAddrs(n cloud.Interface) []netip.Addr {
	var out []netip.Addr
	for _, a := range slices.Concat(n.Private, n.Public) {
		out = append(out, a.Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// picks says whether m picks vm. An account's own answer counts; this one is for
// a Match that it has not answered yet.
func picks(m cloud.Match, vm cloud.VM) bool {
	if m.Kind != vm.Kind || m.NetworkID != "" && !strings.EqualFold(m.NetworkID, vm.NetworkID) ||
		m.NetworkName != "" && m.NetworkName != vm.NetworkName {
		return false
	}
	for key, value := range m.Tags {
		if have, ok := vm.Tags[key]; !ok || have != value {
			return false
		}
	}
	in := func(n cloud.Interface) bool {
		return slices.ContainsFunc(m.Subnets, func(s string) bool { return strings.EqualFold(s, n.Subnet) })
	}
	if len(m.Subnets) > 0 && !slices.ContainsFunc(vm.Interfaces, in) {
		return false
	}
	return len(m.VMs) == 0 || rank(m, vm) > 1
}

// rank says how closely m names vm, which it picks: by ID, by name, or by its
// network or not at all.
func rank(m cloud.Match, vm cloud.VM) int {
	best := 1
	for _, v := range m.VMs {
		switch {
		case v.ID != "" && strings.EqualFold(v.ID, vm.ID):
			best = max(best, 3)
		case v.ID == "" && v.Name != "" && strings.EqualFold(v.Name, vm.Name): // whether case counts, its cloud has said
			best = max(best, 2)
		}
	}
	return best
}

// entryOf returns the entry of s that decides how vm is taken: the one that
// names it most closely, then one that has tags or subnets, then one that names
// its network, then the first.
func (s selector) entryOf(view regionView, vm cloud.VM) (entry, bool) {
	var best entry
	score := 0
	for _, e := range s.entries {
		if !view.picks(e.match, vm) {
			continue
		}
		n := 4 * rank(e.match, vm)
		if len(e.match.Tags)+len(e.match.Subnets) > 0 {
			n += 2
		}
		if e.match.NetworkID != "" || e.match.NetworkName != "" {
			n++
		}
		if n > score {
			best, score = e, n
		}
	}
	return best, score > 0
}

// regionView is what is known of a region.
type regionView struct {
	networks     []cloud.Network // by ID, as last read
	networksRead bool
	networksErr  error
	vms          map[string]cloud.VM // by ID, as last read
	// picked has, by matchKey, the IDs of the VMs that the cloud told of last; a
	// match that has never been read is not there.
	picked map[string]map[string]bool
	errs   map[string]error // by matchKey: what could not be read last time
	// doubted has the IDs of VMs that a good answer has left out for the first
	// time. They stay until a second one does: clouds lose pages at times.
	doubted map[string]bool
}

// matchKey is equal for matches that are the same.
func matchKey(m cloud.Match) string { return fmt.Sprintf("%q", m) }

// picks says whether m picks vm, as the cloud has told or else would tell.
func (v regionView) picks(m cloud.Match, vm cloud.VM) bool {
	if picked, ok := v.picked[matchKey(m)]; ok {
		return picked[vm.ID]
	}
	return picks(m, vm)
}

// hasRead says whether m has been read at least once.
func (v regionView) hasRead(m cloud.Match) bool { return v.picked[matchKey(m)] != nil }

// matchesOf returns the matches of all selectors, each once, in order.
func matchesOf(selectors []selector) []cloud.Match {
	byKey := map[string]cloud.Match{}
	for _, s := range selectors {
		for _, e := range s.entries {
			byKey[matchKey(e.match)] = e.match
		}
	}
	var out []cloud.Match
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, byKey[k])
	}
	return out
}

// with returns the view after a read. A VM that no answer tells of is kept when
// a match that picks it could not be read and no other answer should have told
// of it, or when it is missing for the first time.
func (v regionView) with(networks []cloud.Network, networksErr error, matches []cloud.Match, answers []cloud.VMs) regionView {
	next := regionView{
		networks: v.networks, networksRead: v.networksRead, networksErr: networksErr,
		vms: map[string]cloud.VM{}, picked: map[string]map[string]bool{}, errs: map[string]error{}, doubted: map[string]bool{},
	}
	if networksErr == nil {
		next.networks, next.networksRead = slices.Clone(networks), true
		slices.SortFunc(next.networks, func(a, b cloud.Network) int { return cmp.Compare(a.ID, b.ID) })
	}
	var failed, good []cloud.Match
	for i, m := range matches {
		key := matchKey(m)
		err := fmt.Errorf("no answer")
		if i < len(answers) {
			err = answers[i].Err
		}
		if err != nil {
			failed = append(failed, m)
			next.errs[key] = err
			if v.hasRead(m) {
				next.picked[key] = v.picked[key]
			}
			continue
		}
		good = append(good, m)
		next.picked[key] = map[string]bool{}
		for _, vm := range answers[i].VMs {
			// A VM that was stopped and starts again keeps its policies meanwhile.
			if _, known := v.vms[vm.ID]; vm.Starting && !known {
				continue
			}
			next.vms[vm.ID], next.picked[key][vm.ID] = vm, true
		}
	}
	for id, vm := range v.vms {
		if _, has := next.vms[id]; has {
			continue
		}
		pickedBy := func(m cloud.Match) bool { return v.picks(m, vm) }
		switch {
		case !slices.ContainsFunc(good, pickedBy):
			if slices.ContainsFunc(failed, pickedBy) {
				next.vms[id] = vm
			}
		case !v.doubted[id]:
			next.vms[id], next.doubted[id] = vm, true
			for _, m := range good {
				if pickedBy(m) {
					next.picked[matchKey(m)][id] = true
				}
			}
		}
	}
	return next
}

// knows says whether everything has been read once that may tell of VMs in the
// network, given the matches of now.
func (v regionView) knows(network cloud.Network, matches []cloud.Match) bool {
	for _, m := range matches {
		if !v.hasRead(m) &&
			(m.NetworkID == "" || strings.EqualFold(m.NetworkID, network.ID)) &&
			(m.NetworkName == "" || strings.EqualFold(m.NetworkName, network.Name)) {
			return false
		}
	}
	return v.networksRead
}

// overlap is a VM that a selector picks and another one has.
type overlap struct {
	vm    string
	owner types.NamespacedName
}

// assignment is which VMs of an account are imported, and by which selector.
type assignment struct {
	vms      map[string]*imported // by workload ID
	overlaps map[types.NamespacedName][]overlap
	counts   map[types.NamespacedName]int
	services map[types.NamespacedName]int      // how many of counts are services
	unknown  map[types.NamespacedName][]string // the services whose addresses are not known, and why
}

// assign gives each VM to the oldest selector that picks it. What has not
// changed since before is the same pointer.
func assign(before map[string]*imported, from origin, regions map[string]regionView, selectors []selector) assignment {
	selectors = slices.Clone(selectors)
	slices.SortFunc(selectors, selector.compare)
	out := assignment{map[string]*imported{}, map[types.NamespacedName][]overlap{}, map[types.NamespacedName]int{},
		map[types.NamespacedName]int{}, map[types.NamespacedName][]string{}}
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		view := regions[region]
		for _, id := range slices.Sorted(maps.Keys(view.vms)) {
			out.add(before, from, view, view.vms[id], selectors)
		}
	}
	return out
}

func (a *assignment) add(before map[string]*imported, from origin, view regionView, vm cloud.VM, selectors []selector) {
	var owner *types.NamespacedName
	for _, s := range selectors {
		e, ok := s.entryOf(view, vm)
		if !ok {
			continue
		}
		if owner != nil {
			a.overlaps[s.key] = append(a.overlaps[s.key], overlap{vm.ID, *owner})
			continue
		}
		owner = &s.key
		a.counts[s.key]++
		if vm.Kind != cloud.VirtualMachine {
			a.services[s.key]++
		}
		if vm.Unknown != "" {
			a.unknown[s.key] = append(a.unknown[s.key], fmt.Sprintf("%s %s: %s", vm.Kind, vm.Name, vm.Unknown))
		}
		i := &imported{
			account: from.account, provider: from.provider, selector: s.key, vm: vm, agented: e.agented, isolation: e.isolation,
			cloud: from.cloud, enforcer: from.enforcer[networkKey(vm.Region, vm.NetworkID)], created: s.created,
		}
		id := i.workloadID()
		if was, ok := before[id]; ok && reflect.DeepEqual(was, i) {
			i = was
		}
		a.vms[id] = i
	}
}
