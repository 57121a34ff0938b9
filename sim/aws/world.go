package aws

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// world is an estate with indexes. The lock of its Cloud guards it.
type world struct {
	serial   uint64
	accounts map[string]*Account
	sites    map[siteKey]*site
	peerings map[string]*Peering
	sessions map[string]*Session // by access key id
	next     time.Time           // when advance has something to do; zero is never
	settle   time.Duration       // how long a passing state lasts
}

// siteKey names one account in one region.
type siteKey struct{ account, region string }

// site is what an account has in one region.
type site struct {
	siteKey
	disabled  bool
	quotas    Quotas
	vpcs      map[string]*VPC
	subnets   map[string]*Subnet
	groups    map[string]*Group
	lists     map[string]*PrefixList
	instances map[string]*Instance
	enis      map[string]*Interface
	databases map[string]*Database
	balancers map[string]*LoadBalancer
	carriers  map[string]map[string]*Interface // interfaces by group id
	addrs     map[vpcAddr]*Interface           // interfaces by private and IPv6 address
	delegated map[vpcPrefix]*Interface         // and by the prefixes that are delegated to them
	replays   map[string]replayed              // by action and client token
}

// vpcAddr is an address as it is known inside a VPC.
type vpcAddr struct {
	vpc  string
	addr netip.Addr
}

type vpcPrefix struct {
	vpc    string
	prefix netip.Prefix
}

var (
	accountRE = regexp.MustCompile(`^[0-9]{12}$`)
	regionRE  = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]+$`)
	idTailRE  = regexp.MustCompile(`^[0-9a-z]{1,32}$`)
)

// newWorld builds and checks a world. It works on a copy of e.
func newWorld(e Estate, now time.Time, settle time.Duration) (*world, error) {
	e = e.clone()
	w := &world{
		serial: e.Serial, settle: settle,
		accounts: map[string]*Account{}, sites: map[siteKey]*site{},
		peerings: map[string]*Peering{}, sessions: map[string]*Session{},
	}
	keys := map[string]bool{}
	for i, a := range e.Accounts {
		if a == nil || !accountRE.MatchString(a.ID) {
			return nil, fmt.Errorf("accounts[%d]: the id is not twelve digits", i)
		}
		if w.accounts[a.ID] != nil {
			return nil, fmt.Errorf("account %s: given twice", a.ID)
		}
		w.accounts[a.ID] = a
		for _, k := range a.Keys {
			if k == nil || k.ID == "" || k.Secret == "" || keys[k.ID] {
				return nil, fmt.Errorf("account %s: an access key is empty or given twice", a.ID)
			}
			keys[k.ID] = true
		}
		for _, r := range a.Roles {
			if r == nil || r.Name == "" {
				return nil, fmt.Errorf("account %s: a role without a name", a.ID)
			}
		}
		for _, r := range a.Regions {
			if r == nil || !regionRE.MatchString(r.Name) {
				return nil, fmt.Errorf("account %s: a region without a proper name", a.ID)
			}
			if w.sites[siteKey{a.ID, r.Name}] != nil {
				return nil, fmt.Errorf("account %s: region %s given twice", a.ID, r.Name)
			}
			s, err := w.newSite(a.ID, r, now)
			if err != nil {
				return nil, fmt.Errorf("account %s, region %s: %w", a.ID, r.Name, err)
			}
			w.sites[s.siteKey] = s
		}
		a.Regions = nil // the sites hold them now
	}
	for _, p := range e.Peerings {
		if err := w.addPeering(p, now); err != nil {
			return nil, err
		}
	}
	for _, s := range e.Sessions {
		if s == nil || w.accounts[s.Account] == nil {
			return nil, fmt.Errorf("a session of an unknown account")
		}
		w.sessions[s.KeyID] = s
	}
	return w, nil
}

// estate writes the world down again, sorted.
func (w *world) estate() Estate {
	e := Estate{Serial: w.serial, Peerings: sortedValues(w.peerings), Sessions: sortedValues(w.sessions)}
	for _, id := range sortedKeys(w.accounts) {
		a := *w.accounts[id]
		a.Regions = nil
		for _, k := range slices.SortedFunc(maps.Keys(w.sites), func(a, b siteKey) int { return cmp.Compare(a.region, b.region) }) {
			if k.account != id {
				continue
			}
			s := w.sites[k]
			r := &Region{
				Name: s.region, Disabled: s.disabled, Quotas: s.quotas,
				VPCs: sortedValues(s.vpcs), Subnets: sortedValues(s.subnets), Groups: sortedValues(s.groups),
				PrefixLists: slices.DeleteFunc(s.kept(), (*PrefixList).isGoing), Instances: sortedValues(s.instances),
				Databases: sortedValues(s.databases), LoadBalancers: sortedValues(s.balancers),
			}
			for _, n := range sortedValues(s.enis) {
				if n.instance == nil && n.manager == "" {
					r.Interfaces = append(r.Interfaces, n)
				}
			}
			a.Regions = append(a.Regions, r)
		}
		e.Accounts = append(e.Accounts, &a)
	}
	return e.clone()
}

func (s *site) groupNamed(vpc, name string) *Group {
	for _, g := range s.groups {
		if g.VPC == vpc && g.Name == name {
			return g
		}
	}
	return nil
}

// owner finds the interface that has a private or IPv6 address in a VPC.
func (s *site) owner(vpc string, a netip.Addr) *Interface {
	if n := s.addrs[vpcAddr{vpc, a}]; n != nil {
		return n
	}
	bits := 28
	if a.Is6() {
		bits = 80
	}
	return s.delegated[vpcPrefix{vpc, netip.PrefixFrom(a, bits).Masked()}]
}

// freeAddr finds an unused IPv4 address; the first four and the last are EC2's own.
func (s *site) freeAddr(sub *Subnet) (netip.Addr, error) {
	a := sub.CIDRs[0].Addr()
	for range 4 {
		a = a.Next()
	}
	for ; sub.CIDRs[0].Contains(a.Next()); a = a.Next() {
		if s.owner(sub.VPC, a) == nil {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no free address", sub.ID)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func sortedValues[V any](m map[string]V) []V {
	var out []V
	for _, k := range sortedKeys(m) {
		out = append(out, m[k])
	}
	return out
}
