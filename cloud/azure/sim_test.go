package azure_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/azure"
	"isobar.dev/sim/azure/azuretest"
)

const (
	subscriptionID = sim.SampleSubscription
	tenantID       = sim.SampleTenant
	clientID       = sim.SampleClientID
	clientKey      = sim.SampleSecret
	location       = sim.SampleLocation
	groupID        = azuretest.GroupID
	networkID      = azuretest.NetworkID
)

// How worlds are in the simulator, by the short names that the tests here have for it.
var (
	estate = azuretest.Estate
	placed = azuretest.Placed
	vnetID = azuretest.VNetID
)

type object = map[string]any

// arm is a simulated cloud behind a socket.
type arm struct {
	*sim.Cloud
	server *httptest.Server
	tls    *tls.Config // of all accounts, whose sessions are resumed: many have few calls to make
}

func serve(t testing.TB, e sim.Estate, o sim.Options) *arm {
	t.Helper()
	c, err := sim.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(c.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // what a test hangs up on
	server.StartTLS()
	t.Cleanup(server.Close)
	return &arm{c, server, &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1)}}
}

func (e *arm) writes() int { return len(e.Calls().Writes) }

// account is a new process that has the subscription.
func (e *arm) account(t testing.TB, change ...func(*azure.Config)) *azure.Account {
	t.Helper()
	c := azure.Config{
		Credentials: azure.Credentials{SubscriptionID: subscriptionID, TenantID: tenantID, ClientID: clientID, ClientKey: clientKey},
		Regions:     []string{location}, Cluster: "test", Endpoint: e.server.URL, AuthorityEndpoint: e.server.URL,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw}),
	}
	for _, f := range change {
		f(&c)
	}
	a, err := azure.NewAccount(c, azure.Options{TLS: e.tls, Unlimited: true, Attempts: 3, MaxBackoff: time.Millisecond, PollEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sync makes the cloud enforce what a world says, and returns the reports.
func (e *arm) sync(t testing.TB, a *azure.Account, s policy.Snapshot) map[string]plan.Report {
	t.Helper()
	out := map[string]plan.Report{}
	for _, rs := range compile.Rulesets(s) {
		w := rs.Workloads[0].Workload
		if w.Kind != policy.KindExternal {
			continue
		}
		report, err := a.Enforcer(location, w.Network).Sync(context.Background(), rs)
		if err != nil {
			t.Fatalf("sync %s: %v", rs.Target, err)
		}
		out[rs.Target] = report
	}
	return out
}

// check holds what Azure lets pass against Evaluate.
func (e *arm) check(s policy.Snapshot, reports map[string]plan.Report, flows []policy.Flow) (checked int, err error) {
	n, err := cloudtest.Synced(s, compile.Rulesets(s), reports).Check(flows, e.told)
	return n.Exact + n.Stricter, err
}

// told is what the simulator says of a flow.
func (e *arm) told(f policy.Flow, from, to policy.End) cloudtest.Told {
	flow, ok := azuretest.Flow(f, from, to)
	if !ok {
		return cloudtest.Told{}
	}
	v := e.Reach(flow)
	told := cloudtest.Told{Egress: cloudtest.SideOf(string(v.Egress.Result)), Ingress: cloudtest.SideOf(string(v.Ingress.Result))}
	return told.Seen(from, to, v.Source, v.Destination)
}

// sides is what the NSGs at both ends of a flow say.
type sides struct{ out, in bool }

func (s sides) passes() bool { return s.out && s.in }

func (e *arm) ask(flows []sim.Flow) []sides {
	var out []sides
	for _, v := range e.ReachAll(flows) {
		out = append(out, sides{v.Egress.Result != sim.Denied, v.Ingress.Result != sim.Denied})
	}
	return out
}

// record looks at flows after every write. At the end all must have passed that
// passes before and after, and no end let pass what it does neither before nor after.
func (e *arm) record(flows []sim.Flow) (end func() error) {
	var mu sync.Mutex
	seen := [][]sides{e.ask(flows)}
	on := true
	e.OnChange(func() {
		mu.Lock()
		defer mu.Unlock()
		if on {
			seen = append(seen, e.ask(flows))
		}
	})
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		on = false
		before, after := seen[0], e.ask(flows)
		for n, now := range seen {
			for i, x := range now {
				cut := before[i].passes() && after[i].passes() && !x.passes()
				opened := x.out && !before[i].out && !after[i].out || x.in && !before[i].in && !after[i].in
				if cut || opened {
					return fmt.Errorf("after write %d of %d: %+v is %+v; it was %+v and became %+v", n, len(seen)-1, flows[i], x, before[i], after[i])
				}
			}
		}
		return nil
	}
}

func simFlows(s policy.Snapshot, flows []policy.Flow) []sim.Flow {
	var out []sim.Flow
	for _, f := range flows {
		if a, b, err := s.Ends(f); err == nil {
			if x, ok := azuretest.Flow(f, a, b); ok {
				out = append(out, x)
			}
		}
	}
	return out
}

// otherPolicies returns the workloads of s with the policies of o.
func otherPolicies(s, o policy.Snapshot) policy.Snapshot {
	s.Policies, s.Staged, s.Groups, s.Tiers = o.Policies, o.Staged, o.Groups, o.Tiers
	return s
}

// text writes down the groups and interfaces of an estate that is picks, but for what
// each write changes.
func text(e sim.Estate, is func(sim.Document) bool) []string {
	var out []string
	for _, r := range e.Subscriptions[0].Resources {
		if kind := fmt.Sprint(r["type"]); !is(r) || strings.HasSuffix(kind, "virtualMachines") || strings.HasSuffix(kind, "virtualNetworks") {
			continue
		}
		b, _ := json.Marshal(plain(r))
		out = append(out, string(b))
	}
	return out
}

// plain returns v without ETags and what follows from others, and without tags where
// there are none.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			if tags, ok := x.(map[string]any); key != "etag" && key != "networkInterfaces" && key != "defaultSecurityRules" && !(key == "tags" && ok && len(tags) == 0) {
				out[key] = plain(x)
			}
		}
		return out
	case []any:
		var out []any
		for _, x := range v {
			out = append(out, plain(x))
		}
		return out
	}
	return v
}

func anything(sim.Document) bool { return true }

// Over the real protocol: what Azure lets pass is what Evaluate says, after each
// change of the world; a second sync, and a new process, write nothing; and at
// the end all is as it was.
func TestSyncIsEvaluate(t *testing.T) {
	worlds := 40
	if testing.Short() {
		worlds = 8
	}
	checked := 0
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		first := placed(policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		e := serve(t, estate(first, sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
		before := text(e.Estate(), anything)
		a := e.account(t)
		s := first
		walk := policytest.Walk(rnd, first, 4)
		for step := range 6 {
			end := e.record(simFlows(first, policytest.Flows(rnd, s, 60)))
			reports := e.sync(t, a, s)
			if err := end(); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			n, err := e.check(s, reports, policytest.Flows(rnd, s, 80))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			checked += n
			writes := e.writes()
			e.sync(t, a, s)
			e.sync(t, e.account(t), s)
			if n := e.writes(); n != writes {
				t.Fatalf("seed %d, step %d: %d writes when nothing has changed: %+v", seed, step, n-writes, e.Calls().Writes[writes:])
			}
			if step < 4 {
				s = otherPolicies(first, walk[step+1]) // a few small edits
			} else {
				s = otherPolicies(first, policytest.VMWorld(policytest.Rand(seed*1000+uint64(step)), 12))
			}
		}
		e.sync(t, a, otherPolicies(first, policy.Snapshot{}))
		if d := cmp.Diff(before, text(e.Estate(), anything)); d != "" {
			t.Fatalf("seed %d: not as before: %s", seed, d)
		}
	}
	t.Logf("%d decisions checked", checked)
}
