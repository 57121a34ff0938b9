package aws_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// eniOf is the interface of EC2 behind one that a world names.
func eniOf(id string) string {
	if !strings.HasPrefix(id, "lb/") && !strings.HasPrefix(id, "rds/") {
		return id
	}
	return "eni-" + strings.TrimLeft(strings.ToLower(id[strings.LastIndexAny(id, "/-")+1:]), "0")
}

// addService adds a database or load balancer to a region, if w is one.
func addService(r *sim.Region, w *policy.Workload) bool {
	if len(w.Interfaces) != 1 || eniOf(w.Interfaces[0].ID) == w.Interfaces[0].ID {
		return false
	}
	n := w.Interfaces[0]
	x := &sim.Interface{ID: eniOf(n.ID), Subnet: subnetOf(w.Network)}
	for _, a := range n.Addrs {
		if a.Is4() {
			x.PrivateIPs = append(x.PrivateIPs, a)
		} else {
			x.IPv6 = append(x.IPv6, a)
		}
	}
	groups := []string{ownGroup(w.Network)}
	if id, ok := strings.CutPrefix(n.ID, "lb/"); ok {
		if strings.HasPrefix(id, "gwy/") || strings.HasPrefix(id, "net/bare") {
			groups = nil
		}
		r.LoadBalancers = append(r.LoadBalancers, &sim.LoadBalancer{ID: id, Subnets: []string{x.Subnet}, Groups: groups, Interfaces: []*sim.Interface{x}})
		return true
	}
	resource := strings.TrimPrefix(n.ID, "rds/")
	r.Databases = append(r.Databases, &sim.Database{ID: "id-" + strings.ToLower(resource), Resource: resource,
		Subnets: []string{x.Subnet}, Groups: groups, Interfaces: []*sim.Interface{x}})
	return true
}

// asService returns s with a workload's interface replaced by that of a service.
func asService(s policy.Snapshot, id, service string) policy.Snapshot {
	w, _ := s.Workloads.Get(id)
	c := *w
	c.Interfaces = []policy.Interface{{ID: service, Addrs: w.Interfaces[0].Addrs}}
	s.Workloads = s.Workloads.Put(id, &c)
	return s
}

// mixed makes databases and load balancers of some machines of a world.
func mixed(rnd *rand.Rand, s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal || len(w.Interfaces) != 1 || !hasIPv4(w.Interfaces[0].Addrs) {
			continue
		}
		tail := fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:16]
		switch rnd.IntN(4) {
		case 0:
			s = asService(s, id, "lb/app/shop/"+tail)
		case 1:
			s = asService(s, id, "rds/db-"+strings.ToUpper(tail))
		}
	}
	return s
}

func hasIPv4(addrs []netip.Addr) bool {
	for _, a := range addrs {
		if a.Is4() {
			return true
		}
	}
	return false
}
