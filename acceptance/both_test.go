package acceptance_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

// joined is AWS and Azure with a private way between their networks, each behind its own
// socket. A VM of the other cloud is an address, which may come in unchanged.
type joined struct {
	aws       awsCloud
	azure     *azureCloud
	addresses map[string]string // private ones of VMs, by ID
}

// is says whether something is Azure's.
func (c joined) is(id string) bool { return strings.HasPrefix(id, "/") }

// of is the cloud of a VM.
func (c joined) of(id string) cloud {
	if c.is(id) {
		return c.azure
	}
	return c.aws
}

func (c joined) provider() string           { return "aws" } // the account whose conditions are asked
func (c joined) regions() (one, two string) { return region1, location1 }
func (c joined) object(id string) string    { return c.of(id).object(id) }
func (c joined) state() any                 { return []any{c.aws.state(), c.azure.state()} }
func (c joined) ours() []string             { return append(c.aws.ours(), c.azure.ours()...) }
func (c joined) owners() []string           { return append(c.aws.owners(), c.azure.owners()...) }
func (c joined) ports() []string            { return append(c.aws.ports(), c.azure.ports()...) }
func (c joined) written() []string          { return append(c.aws.written(), c.azure.written()...) }
func (c joined) slow() error                { return fmt.Errorf("not in two clouds") }
func (c joined) ResetCalls()                { c.aws.ResetCalls(); c.azure.ResetCalls() }
func (c joined) ClearFaults(ids ...string)  { c.aws.ClearFaults(ids...); c.azure.ClearFaults(ids...) }

func (c joined) edit(vm string, f func(*labels)) error { return c.of(vm).edit(vm, f) }

// refuse is of the calls of Azure whose names have an underscore.
func (c joined) refuse(call string, count int) error {
	if strings.Contains(call, "_") {
		return c.azure.refuse(call, count)
	}
	return c.aws.refuse(call, count)
}

func (c joined) attached() map[string]string {
	out := c.aws.attached()
	maps.Copy(out, c.azure.attached())
	return out
}

func (c joined) calls() map[string]int {
	out := c.aws.calls()
	maps.Copy(out, c.azure.calls())
	return out
}

// verdicts asks both clouds about what goes from one to the other, and both must let it pass.
func (c joined) verdicts(flows []sim.Flow) []sim.Result {
	outer := func(name string, seenBy cloud) string { // as a cloud knows an end
		if a := c.addresses[name]; a != "" && c.of(name) != seenBy {
			return a
		}
		return name
	}
	var out []sim.Result
	for _, f := range flows {
		result := sim.Allowed
		asked := map[cloud]bool{}
		for _, end := range []string{f.From, f.To} {
			at := c.of(end)
			if c.addresses[end] == "" || asked[at] {
				continue // an address, of nobody
			}
			asked[at] = true
			here := f
			here.From, here.To = outer(f.From, at), outer(f.To, at)
			switch v := at.verdicts([]sim.Flow{here})[0]; {
			case v == sim.Denied, result == sim.Allowed:
				result = v
			}
		}
		if len(asked) == 0 {
			result = sim.Unreachable
		}
		out = append(out, result)
	}
	return out
}

// inBoth is a world of a network of each cloud, with a private way to each other and to
// pods, and everything imported.
func inBoth(t *testing.T, pods netip.Prefix, inAWS network, inAzure vnet) *world {
	t.Helper()
	inAzure.number = 1
	e := estate(inAWS)
	e.Accounts[0].Regions[0].VPCs[0].OnPremises = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), pods}
	w := newWorld(t, e)
	z := azureEstate(inAzure)
	z.Subscriptions[0].Uplinks = []azuresim.Uplink{{VirtualNetwork: inAzure.self(), OnPremises: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), pods}}}
	other := azureWorldOn(t, w.config, w.ns, w.cluster, z, atOnce, inAzure)
	w.azure = other.azure
	w.azure.OnChange(func() {
		if p := w.probe.Load(); p != nil {
			p.sample()
		}
	})
	maps.Copy(w.names, other.names)
	c := joined{w.cloud.(awsCloud), w.azure, map[string]string{}}
	for _, i := range w.sim.Estate().Accounts[0].Regions[0].Instances {
		c.addresses[i.ID] = i.Interfaces[0].PrivateIPs[0].String()
	}
	for _, m := range inAzure.vms {
		config := propertiesOf(azureInterface(w.azure.Estate().Subscriptions[0], m.name+"-0"))["ipConfigurations"].([]any)[0].(map[string]any)
		c.addresses[inAzure.vm(m.name)] = config["properties"].(map[string]any)["privateIPAddress"].(string)
	}
	w.cloud = c
	w.start()
	w.accountOf("aws", sim.SampleAccount)
	w.importOf("aws", "aws", "- vpcMatch: {}")
	w.azureAccount("azure", azuresim.SampleSubscription)
	w.importOf("azure", "azure", "- vpcMatch: {}")
	return w
}

// One policy is of VMs of both clouds, which are each other's peers by their addresses, and
// Pods are peers of both: in both directions, as VMs come and go, with a status for each VM.
func TestP20_BothClouds(t *testing.T) {
	w := inBoth(t, netip.MustParsePrefix("10.66.0.0/16"),
		wide(network{id: "vpc-1", vms: []vm{{name: "weba", role: "web"}, {name: "dba", role: "db"}, {name: "othera", role: "other"}}}),
		vnet{name: "vnet", vms: []azureVM{{name: "webz", role: "web"}, {name: "dbz", role: "db"}, {name: "otherz", role: "other"}}})
	before := w.attached()
	const reports = "{podSelector: {matchLabels: {app: report}}}"
	w.pod(w.ns, "report", "10.66.0.9", map[string]string{"app": "report"})
	w.pod(w.ns, "clean", "10.66.0.8", map[string]string{"app": "clean"})
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432), allow("ingress", reports, 5433)))
	w.policy("web", onRole("web", "egress", allow("egress", byRole("db"), 5432, 5433), allow("egress", reports, 8080)))
	w.settle()
	w.mustReach(`
		FROM \ TO      dba:5432  dba:5433  dbz:5432  dbz:5433  dbz:22  othera:443  otherz:443
		weba           .         X         .         X         X       X           X
		webz           .         X         .         X         X       X           X
		othera         X         X         X         X         X       .           .
		otherz         X         X         X         X         X       .           .
		10.66.0.9      X         .         X         .         X       .           .
		10.66.0.8      X         X         X         X         X       .           .
		198.51.100.77  X         X         X         X         X       .           .
	`)
	w.mustReach(`
		FROM \ TO  10.66.0.9:8080  10.66.0.9:443  10.66.0.8:8080
		weba       .               X              X
		webz       .               X              X
		otherz     .               .              .
	`)
	w.realized("db", "web")
	w.eventually("policies of VMs", func() error {
		return w.vmPolicies(map[string]string{w.object("dba"): "SUCCESS db", w.object("dbz"): "SUCCESS db", w.object("weba"): "SUCCESS web", w.object("webz"): "SUCCESS web"})
	})
	w.cloud.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()

	// Who is in a group changes in one cloud, and both follow.
	p := w.watch(w.flows("5432", "443"))
	p.change("one of Azure leaves, one of AWS comes", func() {
		w.edit("webz", func(l *labels) { l.tags["Role"] = "other" })
		w.edit("othera", func(l *labels) { l.tags["Role"] = "web" })
		w.settle()
	})
	w.pod(w.ns, "report2", "10.66.0.7", map[string]string{"app": "report"})
	const after = `
		FROM \ TO  dba:5432  dba:5433  dbz:5432  dbz:5433  otherz:443
		weba       .         X         .         X         X
		othera     .         X         .         X         X
		webz       X         X         X         X         .
		10.66.0.7  X         .         X         .         .
	`
	w.eventuallyReach(after)
	w.settle()
	w.realized("db", "web")

	// What one cloud refuses is told of its VM, and the other one goes on.
	if err := w.cloud.refuse("NetworkSecurityGroups_CreateOrUpdate", 0); err != nil {
		t.Fatal(err)
	}
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5434)))
	w.failed("db", "InternalServerError")
	w.eventually("policies of VMs", func() error {
		return w.vmPolicies(map[string]string{w.object("dba"): "SUCCESS db", w.object("dbz"): "FAILED db", w.object("weba"): "SUCCESS web", w.object("othera"): "SUCCESS web"})
	})
	w.mustReach(`
		FROM \ TO  dba:5432  dba:5433  dbz:5432  dbz:5434
		weba       X         X         .         X
		10.66.0.9  X         X         X         X
	`)
	w.cloud.ClearFaults()
	w.eventually("it is realized", func() error { return w.hasPhase("db", antreav1beta1.PolicyRealized) })
	w.settle()
	for _, name := range []string{"db", "web"} {
		w.removeNamed(policies, name)
	}
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}
