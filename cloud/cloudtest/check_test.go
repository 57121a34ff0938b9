package cloudtest_test

import (
	"net/netip"
	"testing"

	"isobar.dev/cloud/cloudtest"
	"isobar.dev/policy"
)

// A check that nothing fails proves nothing.
func TestCheck(t *testing.T) {
	shop := cloudtest.Network{ID: "net", Target: "cloud/net", NIC: func(int) string { return "nic" }}.Shop()
	s := cloudtest.With(shop, &policy.Policy{Name: "db", AppliedTo: cloudtest.App("db"), Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App("web")}, cloudtest.TCP(5432))}})
	const web, db = "ee/shop/vm-0", "ee/shop/vm-3"
	flow := func(port uint16) []policy.Flow {
		return []policy.Flow{{From: policy.Endpoint{Workload: web}, To: policy.Endpoint{Workload: db}, Protocol: policy.TCP, Port: port}}
	}
	told := func(egress, ingress cloudtest.Side) cloudtest.Told {
		return cloudtest.Told{Egress: egress, Ingress: ingress}
	}
	refused := func(reason policy.RefusalReason, workload string) map[string][]policy.Refusal {
		return map[string][]policy.Refusal{"cloud/net": {{Reason: reason, Workloads: []string{workload}}}}
	}
	none := refused(policy.RefusedQuota, "somebody")
	const allowed, denied = cloudtest.Allowed, cloudtest.Denied
	for _, tt := range []struct {
		name     string
		told     cloudtest.Told
		port     uint16
		refusals map[string][]policy.Refusal
		may      []policy.RefusalReason
		governed map[string]bool
		want     cloudtest.Tally
		ok       bool
	}{
		{"the same", told(allowed, allowed), 5432, none, nil, nil, cloudtest.Tally{Exact: 2}, true},
		{"the same, denied", told(allowed, denied), 22, none, nil, nil, cloudtest.Tally{Exact: 2}, true},
		{"looser", told(allowed, allowed), 22, none, nil, nil, cloudtest.Tally{}, false},
		{"looser, with a Refusal", told(allowed, allowed), 22, refused(policy.RefusedQuota, db), nil, nil, cloudtest.Tally{}, false},
		{"stricter", told(allowed, denied), 5432, none, nil, nil, cloudtest.Tally{}, false},
		{"stricter where it goes out", told(denied, allowed), 5432, refused(policy.RefusedQuota, db), nil, nil, cloudtest.Tally{Exact: 1}, false},
		{"stricter by a Refusal", told(allowed, denied), 5432, refused(policy.RefusedQuota, db), nil, nil, cloudtest.Tally{Exact: 1, Stricter: 1}, true},
		{"by one for a reason that is not listed", told(allowed, denied), 5432, refused(policy.RefusedPeers, db), []policy.RefusalReason{policy.RefusedQuota}, nil, cloudtest.Tally{}, false},
		{"by a Reject that is a Drop", told(allowed, denied), 5432, refused(policy.RefusedReject, db), nil, nil, cloudtest.Tally{}, false},
		{"of nobody who is governed", told(denied, denied), 5432, none, nil, map[string]bool{}, cloudtest.Tally{}, true},
		{"of another network", told(denied, denied), 5432, nil, nil, nil, cloudtest.Tally{}, true},
		{"not asked", told(cloudtest.Unasked, cloudtest.SideOf("")), 5432, none, nil, nil, cloudtest.Tally{}, true},
	} {
		e := cloudtest.Enforced{Snapshot: s, Refusals: tt.refusals, May: tt.may, Governed: tt.governed}
		got, err := e.Check(flow(tt.port), func(_ policy.Flow, from, to policy.End) cloudtest.Told {
			return tt.told.Seen(from, to, cloudtest.Addr(0), cloudtest.Addr(3))
		})
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v, ok %t", tt.name, got, err, tt.want, tt.ok)
		}
	}
	a, b := policy.End{Addr: cloudtest.Addr(0)}, policy.End{Addr: cloudtest.Addr(3)}
	if got := told(allowed, allowed).Seen(a, b, netip.MustParseAddr("198.51.100.1"), b.Addr); got != (cloudtest.Told{}) {
		t.Errorf("a flow that is translated was asked: %+v", got)
	}
}
