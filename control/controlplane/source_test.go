package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Our own client follows the server through a real API server: what a Node has to enforce
// is what the compiler says, from the first answer on and after changes, and what it
// says of that is heard.
func TestSource(t *testing.T) {
	s := newSite(t)
	src, err := antrea.New(antrea.Fixed(s.env.Config()), "n1", antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = src.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()

	until := func(what string, check func() string) {
		t.Helper()
		for end, wrong := time.Now().Add(time.Minute), ""; ; time.Sleep(10 * time.Millisecond) {
			if wrong = check(); wrong == "" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s\n%+v", what, wrong, src.Status())
			}
		}
	}
	until("before all is computed the server refuses", func() string {
		if src.State() != nil {
			t.Fatal("a State before all is computed")
		}
		if src.Status().Watches[0].Err == nil {
			return "no answer"
		}
		return ""
	})
	follows := func(w policy.Snapshot) func() string {
		var want []string
		for _, rs := range compile.Rulesets(w) {
			if rs.Target == "node/n1" {
				want = enforced(rs)
			}
		}
		return func() string {
			st := src.State()
			if st == nil {
				return "no State"
			}
			if got := enforced(st.Ruleset); !slices.Equal(got, want) {
				return fmt.Sprintf("enforces %q, want %q", got, want)
			}
			if len(st.Problems) > 0 {
				return fmt.Sprintf("told %v", st.Problems)
			}
			return ""
		}
	}
	w := smallWorld(s.ns)
	s.know(w)
	until("the first State", follows(w))

	more := pod(s.ns, "web-9", "n1", 9)
	w.Workloads = w.Workloads.Put(more.ID, more)
	s.know(w)
	until("another Pod", follows(w))
	p, _ := w.Policies.Get(policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "all"))
	next := *p
	next.Generation, next.Egress = 2, []policy.Rule{{Name: "out", Action: policy.Drop, Peers: policy.Peers{Set: selects(policy.KindPod, s.ns, "db")}, Traffic: policy.AllTraffic}}
	w.Policies = w.Policies.Put(p.ID, &next)
	s.know(w)
	until("another rule, of a group that was not there", follows(w))

	var realized []antrea.Realized
	for _, p := range src.State().Policies {
		realized = append(realized, antrea.Realized{UID: p.UID, Generation: p.Generation})
	}
	src.SetRealized(realized)
	until("what is realized is heard", func() string {
		if said := s.told.Of(p.ID, []string{"n1"}); fmt.Sprint(said) != "map[n1:{2 }]" {
			return fmt.Sprint(said)
		}
		return ""
	})
}

// enforced is a Ruleset as text, by what the wire tells.
func enforced(rs policy.Ruleset) []string {
	members := map[string]int{}
	for _, g := range rs.Groups {
		members[g.Key] = g.Workloads.Len()
	}
	var out []string
	for _, e := range rs.Workloads {
		out = append(out, fmt.Sprint(e.Workload.ID, " ", len(e.Ingress), " ", len(e.Egress), " ", e.IsolatedIngress, " ", e.IsolatedEgress))
	}
	for _, r := range rs.Rules {
		n := 0
		for _, key := range r.Groups {
			n += members[key]
		}
		out = append(out, fmt.Sprint(r.Policy, " ", r.Direction, " ", r.Tier, " ", r.Action, " ", r.AllPeers, " ", n, " ", r.Traffic))
	}
	return out
}
