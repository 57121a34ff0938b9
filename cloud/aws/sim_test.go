package aws_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
	"isobar.dev/sim/aws/awstest"
)

const (
	accountID = sim.SampleAccount
	regionID  = sim.SampleRegion
	keyID     = sim.SampleKeyID
	keySecret = sim.SampleKeySecret
)

// How worlds are in the simulator, by the short names that the tests here have for it.
var (
	estate   = awstest.Estate
	distinct = awstest.Distinct
	addVPC   = awstest.AddVPC
	subnetOf = awstest.SubnetOf
	ownGroup = awstest.OwnGroup
)

// ec2 is a simulated cloud behind a socket.
type ec2 struct {
	*sim.Cloud
	url    string
	probes []sim.Flow      // nil means shopFlows
	left   map[string]bool // groups that grafts name, by ID
	quotas aws.Quotas
	clock  *clock // nil means the real one
}

func (e *ec2) flows() []sim.Flow {
	if e.probes == nil {
		return shopFlows()
	}
	return e.probes
}

func serve(t testing.TB, e sim.Estate, o sim.Options) *ec2 {
	t.Helper()
	c, err := sim.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	return &ec2{Cloud: c, url: server.URL}
}

// account is a new process that has the account.
func (e *ec2) account(t testing.TB, o aws.Options, change ...func(*aws.Config)) *aws.Account {
	t.Helper()
	c := aws.Config{
		Credentials: aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret},
		Regions:     []string{regionID}, Cluster: "test", Endpoint: e.url, STSEndpoint: e.url, RDSEndpoint: e.url, ELBEndpoint: e.url, Quotas: e.quotas,
	}
	for _, f := range change {
		f(&c)
	}
	o.Unlimited = true
	if o.Resolver == nil {
		o.Resolver = e.Cloud
	}
	if o.Attempts == 0 {
		o.Attempts, o.MaxBackoff = 3, time.Millisecond
	}
	if o.ManyPeers == 0 {
		o.ManyPeers = 2
	}
	a, err := aws.NewAccount(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (e *ec2) writes() int { return len(e.Calls().Writes) }

// sync makes the cloud enforce what a world says, and returns the reports.
func (e *ec2) sync(t testing.TB, a cloud.Account, s policy.Snapshot) map[string]plan.Report {
	t.Helper()
	out := map[string]plan.Report{}
	for _, rs := range compile.Rulesets(s) {
		if rs.Workloads[0].Workload.Kind != policy.KindExternal {
			continue
		}
		enforcer := a.Enforcer(regionID, rs.Workloads[0].Workload.Network)
		report, err := enforcer.Sync(context.Background(), rs)
		for range 10 { // a database takes each change in its own time
			if !plan.IsPending(err) {
				break
			}
			report, err = enforcer.Sync(context.Background(), rs)
		}
		if err != nil {
			t.Fatalf("sync %s: %v", rs.Target, err)
		}
		out[rs.Target] = report
	}
	return out
}

// check holds what EC2 lets pass against Evaluate.
func (e *ec2) check(s policy.Snapshot, reports map[string]plan.Report, flows []policy.Flow) (checked int, err error) {
	n, err := cloudtest.Synced(s, compile.Rulesets(s), reports).Check(flows, e.told)
	return n.Exact + n.Stricter, err
}

// told is what the simulator says of a flow.
func (e *ec2) told(f policy.Flow, from, to policy.End) cloudtest.Told {
	flow, ok := awstest.Flow(f, from, to)
	if !ok {
		return cloudtest.Told{}
	}
	v := e.Reach(flow)
	told := cloudtest.Told{Egress: cloudtest.SideOf(string(v.Egress.Result)), Ingress: cloudtest.SideOf(string(v.Ingress.Result))}
	return told.Seen(from, to, v.Source, v.Destination)
}

// Over the real protocol: what EC2 lets pass is what Evaluate says, after each
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
		first := mixed(rnd, distinct(policytest.VMWorld(rnd, 4+rnd.IntN(10))))
		// As many places as by default seldom are enough to keep all old groups beside new ones.
		places := []int{16, 5, 5}[seed%3]
		e := serve(t, estate(first, sim.Quotas{GroupsPerInterface: places}), sim.Options{NoThrottle: true, Settle: -1})
		before := e.Estate()
		account := func() *aws.Account {
			return e.account(t, aws.Options{ManyPrefixes: 1 + int(seed%3)}, func(c *aws.Config) { c.Quotas.GroupsPerNIC = places })
		}
		a := account()
		s := first
		walk := policytest.Walk(rnd, first, 4)
		for step := range 6 {
			end := e.record(first, policytest.Flows(rnd, s, 60))
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
			e.sync(t, account(), s)
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
		if err := same(before, e.Estate()); err != nil {
			t.Fatalf("seed %d: not as before: %v", seed, err)
		}
	}
	t.Logf("%d decisions checked", checked)
}

// record looks at flows after every write. At the end all must have passed that
// passes before and after, and no end let pass what it does neither before nor after.
func (e *ec2) record(s policy.Snapshot, from []policy.Flow) (end func() error) {
	return e.recordFor(s, from, false)
}

// recordFor is record; where there may be no place for old and new together, only
// what opens counts.
func (e *ec2) recordFor(s policy.Snapshot, from []policy.Flow, tight bool) (end func() error) {
	var flows []sim.Flow
	for _, f := range from {
		a, b, err := s.Ends(f)
		if err == nil && !(a.Subject != nil && cloudtest.Elsewhere(s, a.Subject, b)) && !(b.Subject != nil && cloudtest.Elsewhere(s, b.Subject, a)) {
			if x, ok := awstest.Flow(f, a, b); ok {
				flows = append(flows, x)
			}
		}
	}
	ask := func() []sides {
		var out []sides
		for _, v := range e.ReachAll(flows) {
			out = append(out, sides{v.Egress.Result != sim.Denied, v.Ingress.Result != sim.Denied})
		}
		return out
	}
	var mu sync.Mutex
	seen := [][]sides{ask()}
	on := true
	e.OnChange(func() {
		mu.Lock()
		defer mu.Unlock()
		if on {
			seen = append(seen, ask())
		}
	})
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		on = false
		before, after := seen[0], seen[len(seen)-1]
		for n, now := range seen {
			for i, x := range now {
				cut := !tight && before[i].passes() && after[i].passes() && !x.passes()
				opened := x.out && !before[i].out && !after[i].out || x.in && !before[i].in && !after[i].in
				if !cut && !opened {
					continue
				}
				return fmt.Errorf("after write %d of %d: %+v is %+v; it was %+v and became %+v", n, len(seen)-1, flows[i], x, before[i], after[i])
			}
		}
		return nil
	}
}

// otherPolicies returns the workloads of s with the policies of o.
func otherPolicies(s, o policy.Snapshot) policy.Snapshot {
	s.Policies, s.Staged, s.Groups, s.Tiers = o.Policies, o.Staged, o.Groups, o.Tiers
	return s
}

// same says whether both clouds have the same groups and attachments.
func same(a, b sim.Estate) error {
	if x, y := text(a), text(b); x != y {
		return fmt.Errorf("was\n%s\nis\n%s", x, y)
	}
	return nil
}

func text(e sim.Estate) string {
	var b strings.Builder
	for _, r := range e.Accounts[0].Regions {
		for _, l := range r.PrefixLists {
			fmt.Fprintln(&b, l.ID, l.Tags, l.Entries)
		}
		for _, g := range r.Groups {
			if g.Name == "default" {
				fmt.Fprintf(&b, "%s default\n", g.VPC)
				continue
			}
			fmt.Fprintf(&b, "%s %v\n", g.ID, g.Tags)
			for _, x := range g.Rules {
				fmt.Fprintf(&b, "  %+v\n", *x)
			}
		}
		for _, d := range r.Databases {
			fmt.Fprintf(&b, "%s %v %v\n", d.ID, d.Groups, d.Tags)
		}
		for _, l := range r.LoadBalancers {
			fmt.Fprintf(&b, "%s %v %v\n", l.ID, l.Groups, l.Tags)
		}
		for _, i := range r.Instances {
			for _, n := range i.Interfaces {
				fmt.Fprintf(&b, "%s %v %v\n", n.ID, n.Groups, n.Tags)
			}
		}
	}
	return b.String()
}
