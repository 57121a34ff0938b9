package azure_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud/azure"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/azure"
)

const (
	subscriptionID = "aaaaaaaa-0000-4000-8000-000000000001"
	tenantID       = "11111111-2222-4333-8444-555555555555"
	clientID       = "cccccccc-0000-4000-8000-000000000001"
	clientKey      = "secretForTheSimulatorOnly00000000000001"
	location       = "westeurope"
	groupID        = "/subscriptions/" + subscriptionID + "/resourceGroups/rg1"
	networkID      = groupID + "/providers/Microsoft.Network/"
)

func vnetID(network string) string { return networkID + "virtualNetworks/" + network }
func subnetID(network string) string {
	return vnetID(network) + "/subnets/main"
}
func nicID(w *policy.Workload, i int) string {
	return fmt.Sprintf("%snetworkInterfaces/nic-%x-%d", networkID, w.ID, i)
}

// placed gives every VM of a world a place in one subscription: each Network is a VNet,
// whose Target and Network are known by its ID, as those of interfaces.
func placed(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		if slices.ContainsFunc(w.Addrs, isReserved) {
			s.Workloads = s.Workloads.Delete(id)
			continue
		}
		c := *w
		c.Network = strings.ToLower(vnetID(w.Network))
		c.Target = "azure/ns/account/" + location + "/" + c.Network
		c.Interfaces = slices.Clone(w.Interfaces)
		for i := range c.Interfaces {
			c.Interfaces[i].ID = strings.ToLower(nicID(w, i))
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// isReserved says whether Azure keeps an address of the subnet for itself.
func isReserved(a netip.Addr) bool {
	return a.Less(netip.MustParseAddr("172.16.0.4")) || a.Is6() && a.Less(netip.MustParseAddr("fd01::4"))
}

type object = map[string]any

// estate is a subscription that has the VMs of a placed world. Some interfaces have an
// NSG of their own.
func estate(s policy.Snapshot, q sim.Quotas) sim.Estate {
	sub := &sim.Subscription{ID: subscriptionID, Tenant: tenantID, Locations: []string{location}, Quotas: q,
		Groups: []*sim.ResourceGroup{{Name: "rg1", Location: location}}}
	add := func(id, kind string, properties object) {
		sub.Resources = append(sub.Resources, sim.Document{"id": id, "type": kind, "location": location, "properties": properties})
	}
	add(networkID+"networkSecurityGroups/own", "Microsoft.Network/networkSecurityGroups", object{"securityRules": []any{
		object{"name": "ssh", "properties": object{"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 100,
			"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22"}},
	}})
	seen, spare := map[string]bool{}, 0
	for _, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		if !seen[w.Network] {
			seen[w.Network] = true
			prefixes := []any{"172.16.0.0/16", "fd01::/16"}
			add(networkID+"virtualNetworks/"+w.Network[strings.LastIndexByte(w.Network, '/')+1:], "Microsoft.Network/virtualNetworks", object{
				"addressSpace": object{"addressPrefixes": prefixes},
				"subnets":      []any{object{"name": "main", "properties": object{"addressPrefixes": prefixes}}},
			})
		}
		var attached []any
		for i, n := range w.Interfaces {
			var configs []any
			config := func(a netip.Addr) {
				version := "IPv4"
				if a.Is6() {
					version = "IPv6"
				}
				configs = append(configs, object{"name": fmt.Sprint("ip", len(configs)), "properties": object{"primary": len(configs) == 0,
					"privateIPAddress": a.String(), "privateIPAllocationMethod": "Static", "privateIPAddressVersion": version, "subnet": object{"id": w.Network + "/subnets/main"}}})
			}
			if !slices.ContainsFunc(n.Addrs, netip.Addr.Is4) { // Azure gives every interface one
				spare++
				config(netip.AddrFrom4([4]byte{172, 16, 250, byte(spare + 4)}))
			}
			for _, a := range n.Addrs {
				if a.Is4() {
					config(a)
				}
			}
			for _, a := range n.Addrs {
				if a.Is6() {
					config(a)
				}
			}
			properties := object{"ipConfigurations": configs}
			if i == 0 && len(w.Name)%2 == 0 {
				properties["networkSecurityGroup"] = object{"id": networkID + "networkSecurityGroups/own"}
			}
			add(n.ID, "Microsoft.Network/networkInterfaces", properties)
			attached = append(attached, object{"id": n.ID, "properties": object{"primary": i == 0}})
		}
		add(fmt.Sprintf("%s/providers/Microsoft.Compute/virtualMachines/vm-%x", groupID, w.ID), "Microsoft.Compute/virtualMachines", object{"networkProfile": object{"networkInterfaces": attached}})
	}
	return sim.Estate{
		Tenants:       []*sim.Tenant{{ID: tenantID, Applications: []*sim.Application{{ClientID: clientID, Secrets: []sim.ClientSecret{{Value: clientKey}}}}}},
		Subscriptions: []*sim.Subscription{sub},
	}
}

// arm is a simulated cloud behind a socket.
type arm struct {
	*sim.Cloud
	server *httptest.Server
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
	return &arm{c, server}
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
	a, err := azure.NewAccount(c, azure.Options{Unlimited: true, Attempts: 3, MaxBackoff: time.Millisecond, PollEvery: time.Millisecond})
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
	isGoverned := governed(s)
	for _, f := range flows {
		from, to, err := s.Ends(f)
		if err != nil {
			continue
		}
		want, err := policy.Evaluate(s, f)
		if err != nil || want.Ingress.Reason == policy.ToItself {
			continue
		}
		flow, ok := simFlow(f, from, to)
		if !ok {
			continue
		}
		v := e.Reach(flow)
		for _, x := range []struct {
			d    policy.Direction
			w    *policy.Workload
			peer policy.End
			want policy.Decision
			got  sim.Side
		}{{policy.Ingress, to.Subject, from, want.Ingress, v.Ingress}, {policy.Egress, from.Subject, to, want.Egress, v.Egress}} {
			if x.w == nil || x.w.Kind != policy.KindExternal || x.got.Result == "" || isElsewhere(s, x.w, x.peer) {
				continue
			}
			report, enforced := reports[x.w.Target]
			if !enforced || !isGoverned[x.w.ID] {
				continue
			}
			// The simulator rewrites what comes from elsewhere; only flows that keep
			// the addresses of the question can be compared.
			if v.Source != from.Addr || v.Destination != to.Addr {
				continue
			}
			got := x.got.Result == sim.Allowed
			if got != (x.want.Action == policy.Allow) && (got || !isRefused(report.Refusals, x.w)) {
				return checked, fmt.Errorf("%v of %s, %v %s:%d: Azure says %+v, the meaning %v\nrefusals: %v", x.d, x.w.ID, f, f.Protocol, f.Port, v, x.want, report.Refusals)
			}
			checked++
		}
	}
	return checked, nil
}

// governed returns the IDs of the workloads that any policy has a say about:
// others keep what they have.
func governed(s policy.Snapshot) map[string]bool {
	out := map[string]bool{}
	for _, rs := range compile.Rulesets(s) {
		for _, e := range rs.Workloads {
			out[e.Workload.ID] = len(e.Ingress)+len(e.Egress) > 0 || e.IsolatedIngress != "" || e.IsolatedEgress != "" || e.DeniesIngress || e.DeniesEgress
		}
	}
	return out
}

// simFlow asks about a flow between two ends as Azure knows them.
func simFlow(f policy.Flow, from, to policy.End) (sim.Flow, bool) {
	out := sim.Flow{From: nameOf(from), To: nameOf(to), Port: int(f.Port), ICMPType: int(f.ICMPType), ICMPCode: int(f.ICMPCode), Family: "ipv4"}
	if from.Addr.Is6() {
		out.Family = "ipv6"
	}
	switch f.Protocol {
	case policy.TCP, policy.UDP, policy.SCTP:
		out.Protocol = strings.ToLower(f.Protocol.String())
	case policy.ICMP:
		out.Protocol = "icmp"
		if from.Addr.Is6() {
			out.Protocol = "icmpv6"
		}
	case policy.OtherProtocol:
		out.Protocol = "47"
	default:
		return out, false
	}
	return out, true
}

func nameOf(e policy.End) string {
	if e.Owner != nil {
		for _, n := range e.Owner.Interfaces {
			if slices.Contains(n.Addrs, e.Addr) {
				return n.ID
			}
		}
	}
	return e.Addr.String()
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
			if x, ok := simFlow(f, a, b); ok {
				out = append(out, x)
			}
		}
	}
	return out
}

// otherPolicies returns the workloads of s with the policies of o.
func otherPolicies(s, o policy.Snapshot) policy.Snapshot {
	s.Policies, s.Groups, s.Tiers = o.Policies, o.Groups, o.Tiers
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
