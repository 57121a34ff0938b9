package aws_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/plan"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

const (
	databaseID   = "rds/db-0000000000000030"
	databaseName = "id-db-0000000000000030"
)

// stored is s with a database and a load balancer in place of shop's machines 3
// and 4.
func stored(s policy.Snapshot) policy.Snapshot {
	return asService(balanced(s), "ee/shop/vm-3", databaseID)
}

// selected asks for the services, as a controller does before it enforces.
func selected(t testing.TB, a *aws.Account) *aws.Account {
	t.Helper()
	for _, got := range a.VMs(context.Background(), regionID, []cloud.Match{{Kind: cloud.Database}, {Kind: cloud.LoadBalancer}}) {
		if got.Err != nil {
			t.Fatal(got.Err)
		}
	}
	return a
}

// until syncs until nothing is pending, and returns how often it was.
func (e *ec2) until(t testing.TB, a *aws.Account, s policy.Snapshot) int {
	t.Helper()
	for n := 0; ; n++ {
		_, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
		switch {
		case err == nil:
			return n
		case !plan.IsPending(err) || n > 1000:
			t.Fatal(err)
		}
		if e.clock != nil {
			e.clock.pass(settle)
		}
	}
}

// settle is how long a database takes in those tests that have a clock.
const settle = time.Second

// slowly serves an estate whose databases take their time by a clock that until moves.
func slowly(t testing.TB, e sim.Estate) *ec2 {
	t.Helper()
	now := &clock{at: time.Now()} // by which the SDK signs
	out := serve(t, e, sim.Options{NoThrottle: true, Settle: settle, Now: now.now})
	out.clock = now
	return out
}

// clock stands still until somebody moves it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (e *ec2) allows(from, to string, port int) bool {
	return e.Reach(sim.Flow{From: from, To: to, Protocol: "tcp", Port: port}).Result == sim.Allowed
}

// A database takes groups in its own time. Until then it is pending, everything
// else is done, and no flow blinks; another change waits its turn.
func TestDatabaseTakesItsTime(t *testing.T) {
	e := slowly(t, estate(stored(shop()), sim.Quotas{}))
	e.edit(t, func(r *sim.Region) { // what anybody writes makes it no database's
		r.Instances[0].Interfaces[0].Description = "RDSNetworkInterface"
	})
	before := e.Estate()
	a := selected(t, e.account(t, aws.Options{}))
	states := shopVPC.States()
	for _, name := range []string{"three", "edited", "mesh", "db", "nothing"} {
		s := stored(states[name])
		if name == "nothing" {
			a = selected(t, e.account(t, aws.Options{})) // which knows what it reads alone
		}
		_, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
		switch {
		case err == nil && (name == "three" || name == "nothing"):
			t.Fatalf("%s: a database has other groups at once", name)
		case err != nil && !plan.IsPending(err):
			t.Fatal(err)
		case name == "three" && (e.allows("eni-60", "eni-00", 22) || !e.allows("eni-60", "eni-00", 443) || e.allows("eni-60", "eni-40", 5432)):
			t.Error("the others have waited for the database")
		case name == "three" && !e.allows("eni-60", "eni-30", 22):
			t.Error("the simulated database takes groups at once: the test tells nothing")
		}
		e.until(t, a, s)
		if name == "three" && (e.allows("eni-60", "eni-30", 5432) || !e.allows("eni-00", "eni-30", 5432)) {
			t.Error("the database is not governed")
		}
		writes := e.writes()
		e.until(t, a, s)
		e.until(t, selected(t, e.account(t, aws.Options{})), s)
		if n := e.writes() - writes; n > 0 {
			t.Errorf("%s: %d writes when nothing has changed", name, n)
		}
	}
	if err := same(before, e.Estate()); err != nil {
		t.Error(err)
	}
}

// However a process dies between two calls, the next one ends it well.
func TestServicesCrash(t *testing.T) {
	states := shopVPC.States()
	for _, lost := range []bool{false, true} {
		for _, walk := range [][2]string{{"nothing", "three"}, {"three", "mesh"}, {"mesh", "nothing"}} {
			for n := 0; ; n++ {
				e := serve(t, estate(stored(shop()), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
				before := e.Estate()
				e.until(t, selected(t, e.account(t, aws.Options{})), stored(states[walk[0]]))
				writes := e.writes()
				if lost {
					e.fault(t, sim.Fault{Kind: sim.FaultCutAfter, Action: writesOnly, Skip: n, Count: 1})
				}
				e.fault(t, sim.Fault{Kind: sim.FaultError, Action: writesOnly, Skip: n + map[bool]int{true: 1}[lost]})
				a := selected(t, e.account(t, aws.Options{Attempts: 1}))
				for range 4 { // so that it dies in the second step of a database, too
					_, _ = a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, stored(states[walk[1]])))
				}
				died := e.writes()-writes > n
				e.ClearFaults()
				a = selected(t, e.account(t, aws.Options{Settle: 1}))
				e.until(t, a, stored(states[walk[1]]))
				if got, want := e.allows("eni-60", "eni-30", 22), walk[1] == "nothing"; got != want {
					t.Fatalf("%v, died at write %d, answer lost %t: a stranger reaches the database: %t", walk, n, lost, got)
				}
				e.until(t, a, stored(shop()))
				if err := same(before, e.Estate()); err != nil {
					t.Fatalf("%v, died at write %d, answer lost %t: %v", walk, n, lost, err)
				}
				if !died {
					break
				}
			}
		}
	}
}

func (e *ec2) fault(t testing.TB, f sim.Fault) {
	t.Helper()
	if _, err := e.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// A database that is stopped takes no groups: that is told as what it is, and
// nothing else waits for it.
func TestStoppedDatabase(t *testing.T) {
	e := serve(t, estate(stored(shop()), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	e.edit(t, func(r *sim.Region) { r.Databases[0].State = "stopped" })
	a := selected(t, e.account(t, aws.Options{}))
	s := stored(shopVPC.States()["three"])
	_, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
	if err == nil || plan.IsPending(err) || !strings.Contains(err.Error(), "the database is stopped") {
		t.Errorf("got %v", err)
	}
	if e.allows("eni-60", "eni-00", 22) || e.allows("eni-60", "eni-40", 5432) {
		t.Error("the others have waited for the database")
	}
	e.edit(t, func(r *sim.Region) { r.Databases[0].State = "available" })
	e.until(t, a, s)
	if e.allows("eni-60", "eni-30", 5432) {
		t.Error("the database is not governed once it runs")
	}
}

// What cannot carry a group is refused by its name, and everything else is done.
func TestServicesWithoutGroups(t *testing.T) {
	for _, tt := range []struct{ name, service, text string }{
		{"network", "lb/net/bare/0000000000000030", "load balancer bare was made without security groups"},
		{"gateway", "lb/gwy/gate/0000000000000030", "load balancer gate is a gateway"},
		{"cluster", databaseID, "groups of its cluster aurora"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			world := func(s policy.Snapshot) policy.Snapshot { return asService(s, "ee/shop/vm-3", tt.service) }
			x := estate(world(shop()), sim.Quotas{})
			for _, d := range x.Accounts[0].Regions[0].Databases {
				d.Cluster = "aurora"
			}
			e := serve(t, x, sim.Options{NoThrottle: true})
			a := selected(t, e.account(t, aws.Options{}))
			report, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, world(shopVPC.States()["three"])))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(report.Refusals, func(r policy.Refusal) bool {
				return r.Reason == policy.RefusedIsolation && strings.Contains(r.Message, tt.text) && slices.Equal(r.Workloads, []string{"ee/shop/vm-3"})
			}) {
				t.Errorf("refusals: %+v", report.Refusals)
			}
			if e.allows("eni-60", "eni-40", 5432) || !e.allows("eni-00", "eni-40", 5432) {
				t.Error("the others are not governed")
			}
			if v := e.Reach(sim.Flow{From: "eni-00", To: "eni-30", Protocol: "tcp", Port: 5432}); v.Egress.Result != sim.Allowed {
				t.Error("it is no peer")
			}
			for _, c := range e.Calls().Writes {
				if c.Action == "ModifyDBInstance" || c.Action == "SetSecurityGroups" {
					t.Errorf("%s %v", c.Action, c.Params)
				}
			}
		})
	}
}

// A service has its own quota of groups, and one that is over it is refused, never
// opened by half.
func TestServiceQuota(t *testing.T) {
	var rules []policy.Rule
	for port := range uint16(50) {
		rules = append(rules, allow(policy.Peers{All: true}, tcp(1000+2*port)))
	}
	s := with(stored(shop()), &policy.Policy{Name: "many", AppliedTo: app("db"), Ingress: rules})
	for _, tt := range []struct {
		databases int
		refused   bool
	}{{3, false}, {1, true}} {
		e := slowly(t, estate(stored(shop()), sim.Quotas{RulesPerGroup: 20, GroupsPerDatabase: tt.databases}))
		a := selected(t, e.account(t, aws.Options{}, func(c *aws.Config) {
			c.Quotas = aws.Quotas{RulesPerGroup: 20, GroupsPerDatabase: tt.databases}
		}))
		e.until(t, a, with(stored(shop()), &policy.Policy{Name: "many", AppliedTo: app("db"), Ingress: rules[:1]}))
		e.until(t, a, s) // which only adds groups, if any
		if d := e.Estate().Accounts[0].Regions[0].Databases[0]; len(d.Pending) > 0 {
			t.Errorf("with %d groups: done before %v are in force", tt.databases, d.Pending)
		}
		report, err := a.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, s))
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.ContainsFunc(report.Refusals, func(r policy.Refusal) bool { return r.Reason == policy.RefusedQuota })
		if refused != tt.refused || e.allows("eni-60", "eni-30", 1000) == false || e.allows("eni-60", "eni-30", 1098) == tt.refused || e.allows("eni-60", "eni-30", 1001) {
			t.Errorf("with %d groups: refused %t, %s", tt.databases, refused, fmt.Sprint(e.Estate().Accounts[0].Regions[0].Databases[0].Groups))
		}
	}
}

// While databases cannot be listed, what is known of them counts, and machines
// are governed.
func TestServicesUnreadable(t *testing.T) {
	e := serve(t, estate(stored(shop()), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	a := selected(t, e.account(t, aws.Options{}))
	states := shopVPC.States()
	e.until(t, a, stored(states["three"]))
	e.fault(t, sim.Fault{Kind: sim.FaultError, Action: "DescribeDBInstances"})
	enforcer := a.Enforcer(regionID, "vpc-1")
	enforcer.Forget()
	report, err := enforcer.Sync(context.Background(), rulesetOf(t, stored(states["edited"])))
	if err != nil || !e.allows("eni-60", "eni-00", 8443) {
		t.Errorf("got %v", err)
	}
	if !slices.ContainsFunc(report.Notes, func(n plan.Note) bool { return strings.Contains(n.Text, "what was known counts") }) {
		t.Errorf("notes: %v", report.Notes)
	}
	writes := e.writes()
	b := e.account(t, aws.Options{Attempts: 1})
	if _, err := b.Enforcer(regionID, "vpc-1").Sync(context.Background(), rulesetOf(t, stored(shop()))); err == nil || e.writes() > writes {
		t.Errorf("a new process takes what it cannot read for nothing: %d writes, %v", e.writes()-writes, err)
	}
}
