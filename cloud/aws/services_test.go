package aws_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"isobar.dev/policy"
)

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
