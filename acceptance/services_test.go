package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud/aws"
	sim "isobar.dev/sim/aws"
)

const (
	balancer = "app/shop/0123456789abcdef"
	plain    = "net/plain/0123456789abcdef" // made without security groups
)

// serviced is a network of VMs with a database that has two interfaces, and two
// load balancers.
func serviced() sim.Estate {
	e := estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "job", role: "job"}}}))
	r := e.Accounts[0].Regions[0]
	r.Subnets = append(r.Subnets, &sim.Subnet{ID: "subnet-second", VPC: "vpc-1", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/24")}})
	r.VPCs[0].CIDRs = append(r.VPCs[0].CIDRs, netip.MustParsePrefix("10.200.0.0/24"))
	r.Databases = []*sim.Database{{ID: "orders", Resource: "db-ORDERS", Subnets: []string{"subnet-1", "subnet-second"}, Groups: []string{"sg-wide1"}, Tags: map[string]string{"Role": "db"}}}
	r.LoadBalancers = []*sim.LoadBalancer{
		{ID: balancer, Subnets: []string{"subnet-1", "subnet-second"}, Groups: []string{"sg-wide1"}, Tags: map[string]string{"Role": "edge"}},
		{ID: plain, Subnets: []string{"subnet-1"}},
	}
	return e
}

// newServiced is a world whose selector, "all", imports the VMs and the services.
func newServiced(t *testing.T, resolver aws.Resolver) *world {
	t.Helper()
	w := newWorld(t, serviced(), sim.Options{Settle: 300 * time.Millisecond})
	w.aws.Resolver = resolver
	if resolver == nil {
		w.aws.Resolver = w.sim
	}
	w.start()
	w.account()
	w.patch(accounts, "aws", fmt.Sprintf(`{"spec": {"awsConfig": {"rdsEndpoint": %[1]q, "elbEndpoint": %[1]q}}}`, w.url))
	w.apply(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudEntitySelector
metadata: {name: all}
spec:
  accountName: aws
  accountNamespace: $NS
  vmSelector: [{vpcMatch: {}}]
  serviceSelector:
  - {kind: Database, vpcMatch: {}}
  - {kind: LoadBalancer, vpcMatch: {}}
`)
	return w
}

// services returns the groups and tags of the services, those of users by ID.
func (w *world) services() string {
	var out []string
	r := w.sim.Estate().Accounts[0].Regions[0]
	for _, d := range r.Databases {
		out = append(out, fmt.Sprint(d.ID, d.Groups, d.Pending, d.Tags))
	}
	for _, b := range r.LoadBalancers {
		out = append(out, fmt.Sprint(b.ID, b.Groups, b.Tags))
	}
	return strings.Join(out, "\n")
}

func (w *world) endpoints(entity string) ([]string, map[string]string) {
	w.t.Helper()
	e, err := read[antreav1alpha2.ExternalEntity](w, entities, entity)
	if err != nil {
		return nil, nil
	}
	var out []string
	for _, x := range e.Spec.Endpoints {
		out = append(out, x.IP)
	}
	return out, e.Labels
}

// Services of the cloud are peers of policies, and policies apply to them; what they
// had comes back when no policy does any more, and a restart writes nothing.
func TestServices_ArePeersAndEnforced(t *testing.T) {
	w := newServiced(t, nil)
	w.eventually("entities", func() error {
		if got := w.list(entities); len(got) != 6 {
			return fmt.Errorf("entities: %v", got)
		}
		return nil
	})
	db, labels := w.endpoints("database-db-orders")
	lb, _ := w.endpoints("loadbalancer-app-shop-0123456789abcdef")
	bare, _ := w.endpoints("loadbalancer-net-plain-0123456789abcdef")
	if len(db) != 1 || len(lb) != 2 || len(bare) != 1 || !slices.IsSorted(lb) {
		t.Errorf("endpoints: database %v, load balancers %v and %v; want 1, 2 and 1, sorted", db, lb, bare)
	}
	for key, want := range map[string]string{
		"kind": "database", "namespace": strings.ToLower(w.ns), "owner-service": "db-orders", "owner-service-vpc": "vpc-1", "cloud-region": region1,
		"cloud-vpc-uid": "vpc-1", "cloud-service-uid": "db-orders", "cloud-service-name": "orders", "tag-Role": "db",
	} {
		if got := labels[cloudv1alpha1.LabelPrefix+key]; got != want {
			t.Errorf("label %s of the database is %q; want %q", key, got, want)
		}
	}
	before := w.services()
	w.mustReach(`
	FROM \ TO  orders:5432  orders:22  app/shop/0123456789abcdef:443  web:80
	app        .            .          .                              .
	job        .            .          .                              .
	` + balancer + `  .     .          .                              .
	`)
	probe := w.watch(append(w.flows("80"), w.flow("app", "orders:5432"), w.flow("job", "orders:5432"), w.flow("app", balancer+":443"), w.flow(balancer, "web:80")))
	probe.change("the policies", func() {
		w.policy("db", "appliedTo: ["+byLabel("kind", "database")+"]\ningress: ["+allow("ingress", byRole("app"), 5432)+"]")
		w.policy("edge", "appliedTo: ["+byRole("edge")+"]\ningress: ["+allow("ingress", byRole("app"), 443)+"]\negress: ["+allow("egress", byRole("web"), 80)+"]")
		w.policy("web", "appliedTo: ["+byRole("web")+"]\ningress: ["+allow("ingress", byLabel("owner-service", "app-shop-0123456789abcdef"), 80)+"]")
		w.settle()
	})
	enforced := `
	FROM \ TO  orders:5432  orders:22  app/shop/0123456789abcdef:443  web:80  web:22
	app        .            X          .                              X       X
	job        X            X          X                              X       X
	` + balancer + `  X     X          .                              .       X
	` + plain + `  X        X          X                              X       X
	`
	w.mustReach(enforced)
	w.realized("db", "edge", "web")
	probe.change("a rule of the database's policy", func() {
		w.policy("db", "appliedTo: ["+byLabel("kind", "database")+"]\ningress: ["+allow("ingress", byRole("app"), 5432)+", "+allow("ingress", byRole("job"), 5433)+"]")
		w.settle()
	})
	w.mustReach(`
	FROM \ TO  orders:5432  orders:5433
	app        .            X
	job        X            .
	`)
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()

	probe.change("the policies go", func() {
		for _, name := range []string{"db", "edge", "web"} {
			w.removeNamed(policies, name)
		}
		w.settle()
	})
	if now := w.services(); now != before {
		t.Errorf("it was\n%s\nand is\n%s", before, now)
	}
	if all := w.securityGroups(); len(all) != 2 {
		t.Errorf("%d groups are left; want the default one and the user's", len(all))
	}
}

// What cannot carry groups is a peer alone, and a policy for it says so by its name.
func TestServices_WithoutGroupsRefuse(t *testing.T) {
	w := newServiced(t, nil)
	w.policy("bare", "appliedTo: ["+byLabel("cloud-service-name", "plain")+"]\ningress: ["+allow("ingress", byRole("app"), 443)+"]")
	w.policy("web", "appliedTo: ["+byRole("web")+"]\ningress: ["+allow("ingress", byLabel("cloud-service-name", "plain"), 80)+"]")
	w.failed("bare", "load balancer plain was made without security groups")
	w.realized("web")
	w.mustReach(`
	FROM \ TO   web:80  ` + plain + `:443
	` + plain + `  .    .
	job         X       .
	`)
}

// A database that is busy is waited for, and nothing else waits for it.
func TestServices_BusyDatabaseHoldsUpNothing(t *testing.T) {
	w := newServiced(t, nil)
	w.settle()
	w.fault(sim.Fault{ID: "busy", Kind: sim.FaultError, Action: "ModifyDBInstance", Code: "InvalidDBInstanceState"})
	w.policy("both", "appliedTo: ["+byRole("web")+", "+byRole("db")+"]\ningress: ["+allow("ingress", byRole("app"), 80)+"]")
	w.eventuallyReach(`
	FROM \ TO  web:80  web:22  orders:22
	app        .       X       .
	job        X       X       .
	`)
	w.eventually("it is not a failure", func() error { return w.hasPhase("both", antreav1beta1.PolicyRealizing) })
	w.policy("both", "appliedTo: ["+byRole("web")+", "+byRole("db")+"]\ningress: ["+allow("ingress", byRole("job"), 80)+"]")
	w.eventuallyReach(`
	FROM \ TO  web:80
	app        X
	job        .
	`)
	w.sim.ClearFaults("busy")
	w.realized("both")
	w.mustReach(`
	FROM \ TO  web:80  web:22  orders:80  orders:22
	app        X       X       X          X
	job        .       X       .          X
	`)
}

// A database moves to its other interface, and those that may reach it follow.
func TestServices_FailOver(t *testing.T) {
	w := newServiced(t, nil)
	w.policy("app", "appliedTo: ["+byRole("app")+"]\negress: ["+allow("egress", byRole("db"), 5432)+"]")
	w.policy("db", "appliedTo: ["+byRole("db")+"]\ningress: ["+allow("ingress", byRole("app"), 5432)+"]")
	const want = `
	FROM \ TO  orders:5432
	app        .
	job        X
	`
	w.settle()
	w.mustReach(want)
	now, err := w.sim.FailOver(sim.SampleAccount, region1, "orders")
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the new address", func() error {
		if got, _ := w.endpoints("database-db-orders"); !slices.Equal(got, []string{now.String()}) {
			return fmt.Errorf("endpoints %v; want %v", got, now)
		}
		return nil
	})
	w.settle()
	w.mustReach(want)
}

// switchable is a resolver that can be told to fail or to lie.
type switchable struct {
	answer atomic.Pointer[func(host string) ([]netip.Addr, error)]
}

func (s *switchable) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return (*s.answer.Load())(host)
}

func (s *switchable) set(f func(host string) ([]netip.Addr, error)) { s.answer.Store(&f) }

// A database whose name leads nowhere, or to what is not a database, has no address
// and says so; policies are enforced on it all the same.
func TestServices_Unresolved(t *testing.T) {
	var dns switchable
	var app netip.Addr
	for _, i := range serviced().Accounts[0].Regions[0].Instances {
		if i.ID == "i-app" {
			app = i.Interfaces[0].PrivateIPs[0]
		}
	}
	dns.set(func(string) ([]netip.Addr, error) { return []netip.Addr{app}, nil })
	w := newServiced(t, &dns)
	w.policy("db", "appliedTo: ["+byLabel("kind", "database")+"]\ningress: ["+allow("ingress", byRole("app"), 5432)+"]")
	unresolved := func(text string) func() error {
		return func() error {
			s, err := read[cloudv1alpha1.CloudEntitySelector](w, selectors, "all")
			if err != nil {
				return err
			}
			for _, c := range s.Status.Conditions {
				if c.Type == "Unresolved" && text != "" && strings.Contains(c.Message, text) {
					return nil
				}
				if c.Type == "Unresolved" && text == "" {
					return errors.New(c.Message)
				}
			}
			if text != "" {
				return fmt.Errorf("conditions: %+v", s.Status.Conditions)
			}
			return nil
		}
	}
	w.eventually("it says so", unresolved("leads to no interface of a database"))
	w.settle()
	if got, labels := w.endpoints("database-db-orders"); len(got) > 0 || labels == nil {
		t.Errorf("endpoints %v, labels %v; want no endpoint", got, labels)
	}
	w.realized("db")
	w.mustReach(`
	FROM \ TO  orders:5432
	app        .
	job        X
	`)
	dns.set(func(host string) ([]netip.Addr, error) { return w.sim.LookupNetIP(context.Background(), "ip", host) })
	w.eventually("it is found", unresolved(""))
	w.settle()
	found, _ := w.endpoints("database-db-orders")
	if len(found) != 1 {
		t.Fatalf("endpoints %v; want one", found)
	}
	dns.set(func(string) ([]netip.Addr, error) { return nil, errors.New("nobody answers") })
	w.eventually("it says so again", unresolved("where it was last counts"))
	if got, _ := w.endpoints("database-db-orders"); !slices.Equal(got, found) {
		t.Errorf("endpoints %v; want %v, as before", got, found)
	}
}
