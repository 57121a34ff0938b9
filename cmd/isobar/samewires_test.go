package main

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	awssim "isobar.dev/sim/aws"
	"isobar.dev/sim/aws/awstest"
	azuresim "isobar.dev/sim/azure"
	"isobar.dev/sim/azure/azuretest"
)

// wired is a simulated cloud behind its protocol.
type wired struct {
	inCloud
	place   func(policy.Snapshot) policy.Snapshot
	restore func(policy.Snapshot) error // makes the VMs of a placed world all that there is
	account func() (cloud.Account, error)
	told    func(f policy.Flow, from, to policy.End) cloudtest.Told
	hangUp  func()
}

func wiredAWS(t *testing.T) wired {
	c, err := awssim.New(awstest.Estate(policy.Snapshot{}, awssim.Quotas{}), awssim.Options{NoThrottle: true, Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	config := aws.Config{
		Credentials: aws.Credentials{AccessKeyID: awssim.SampleKeyID, AccessKeySecret: awssim.SampleKeySecret},
		Regions:     []string{awssim.SampleRegion}, Cluster: "test", Endpoint: server.URL, STSEndpoint: server.URL, RDSEndpoint: server.URL, ELBEndpoint: server.URL,
	}
	return wired{
		inCloud: bothClouds[0], place: awstest.Distinct, hangUp: server.CloseClientConnections,
		restore: func(s policy.Snapshot) error { return c.Restore(awstest.Estate(s, awssim.Quotas{})) },
		account: func() (cloud.Account, error) {
			return aws.NewAccount(context.Background(), config, aws.Options{Unlimited: true, Attempts: 2, MaxBackoff: time.Millisecond, Resolver: c, ManyPeers: 2, ManyPrefixes: 2})
		},
		told: func(f policy.Flow, from, to policy.End) cloudtest.Told {
			flow, ok := awstest.Flow(f, from, to)
			if !ok {
				return cloudtest.Told{}
			}
			v := c.Reach(flow)
			told := cloudtest.Told{Egress: cloudtest.SideOf(string(v.Egress.Result)), Ingress: cloudtest.SideOf(string(v.Ingress.Result))}
			return told.Seen(from, to, v.Source, v.Destination)
		},
	}
}

func wiredAzure(t *testing.T) wired {
	c, err := azuresim.New(azuretest.Estate(policy.Snapshot{}, azuresim.Quotas{}), azuresim.Options{NoThrottle: true, Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	plain, tokens := httptest.NewServer(c.Handler()), httptest.NewTLSServer(c.Handler())
	t.Cleanup(plain.Close)
	t.Cleanup(tokens.Close)
	config := azure.Config{
		Credentials: azure.Credentials{SubscriptionID: azuresim.SampleSubscription, TenantID: azuresim.SampleTenant, ClientID: azuresim.SampleClientID, ClientKey: azuresim.SampleSecret},
		Regions:     []string{azuresim.SampleLocation}, Cluster: "test", Endpoint: plain.URL, AuthorityEndpoint: tokens.URL,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tokens.Certificate().Raw}),
	}
	return wired{
		inCloud: bothClouds[1], place: azuretest.Placed, hangUp: func() { plain.CloseClientConnections(); tokens.CloseClientConnections() },
		restore: func(s policy.Snapshot) error { return c.Restore(azuretest.Estate(s, azuresim.Quotas{})) },
		account: func() (cloud.Account, error) {
			return azure.NewAccount(config, azure.Options{Unlimited: true, Attempts: 2, MaxBackoff: time.Millisecond, PollEvery: time.Millisecond})
		},
		told: func(f policy.Flow, from, to policy.End) cloudtest.Told {
			flow, ok := azuretest.Flow(f, from, to)
			if !ok {
				return cloudtest.Told{}
			}
			v := c.Reach(flow)
			told := cloudtest.Told{Egress: cloudtest.SideOf(string(v.Egress.Result)), Ingress: cloudtest.SideOf(string(v.Ingress.Result))}
			return told.Seen(from, to, v.Source, v.Destination)
		},
	}
}

// sync makes the cloud enforce a placed world.
func (c wired) sync(a cloud.Account, s policy.Snapshot) (cloudtest.Enforced, error) {
	rulesets, reports := compile.Rulesets(s), map[string]plan.Report{}
	for _, rs := range rulesets {
		w := rs.Workloads[0].Workload
		if w.Kind != policy.KindExternal {
			continue
		}
		report, err := a.Enforcer(a.Regions()[0], w.Network).Sync(context.Background(), rs)
		if err != nil {
			return cloudtest.Enforced{}, err
		}
		reports[rs.Target] = report
	}
	e := cloudtest.Synced(s, rulesets, reports)
	e.May = c.mayRefuse
	if len(reports) > 1 { // networks with the same prefixes: who has an address elsewhere, nobody can tell
		e.May = append(slices.Clone(e.May), policy.RefusedPeers)
	}
	return e, nil
}

// One world that is written to both clouds over their protocols lets the same flows pass, by the
// rules of each; where one lets less pass, it has said so in a Refusal for that VM.
func TestCloudsAgreeOverTheWire(t *testing.T) {
	estates := 120
	if testing.Short() {
		estates = 20
	}
	ran, same, denied, stricter := 0, 0, 0, map[string]int{}
	clouds := []wired{wiredAWS(t), wiredAzure(t)}
	for seed := range policytest.Seeds(t, estates) {
		rnd := policytest.Rand(seed)
		first := policytest.VMWorld(rnd, 4+rnd.IntN(10))
		for id := range first.Workloads.All() {
			if _, ok := azuretest.Placed(first).Workloads.Get(id); !ok {
				first.Workloads = first.Workloads.Delete(id) // Azure cannot give it that address
			}
		}
		var accounts []cloud.Account
		for _, c := range clouds {
			err := c.restore(c.place(first))
			var a cloud.Account
			if err == nil {
				a, err = c.account()
			}
			if err != nil {
				t.Fatalf("seed %d: %s: %v\n%s", seed, c.name, err, policytest.Print(first))
			}
			accounts = append(accounts, a)
		}
		for range 3 { // each time with other policies
			ran++
			flows := policytest.Flows(rnd, first, 60)
			told := make([]map[policy.Flow]cloudtest.Told, len(clouds))
			enforced := make([]cloudtest.Enforced, len(clouds))
			for i, c := range clouds {
				var err error
				if enforced[i], err = c.sync(accounts[i], c.place(first)); err != nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, c.name, err, policytest.Print(first))
				}
				told[i] = map[policy.Flow]cloudtest.Told{}
				n, err := enforced[i].Check(flows, func(f policy.Flow, from, to policy.End) cloudtest.Told {
					told[i][f] = c.told(f, from, to)
					return told[i][f]
				})
				if err != nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, c.name, err, policytest.Print(first))
				}
				stricter[c.name] += n.Stricter
			}
			for f, a := range told[0] {
				b := told[1][f]
				for _, x := range []struct {
					d    policy.Direction
					w    string
					a, b cloudtest.Side
				}{{policy.Egress, f.From.Workload, a.Egress, b.Egress}, {policy.Ingress, f.To.Workload, a.Ingress, b.Ingress}} {
					w, ok := enforced[0].Snapshot.Workloads.Get(x.w)
					if !ok || !enforced[0].Governed[x.w] || x.a == cloudtest.Unasked || x.b == cloudtest.Unasked {
						continue
					}
					if x.a == x.b {
						same++
						if x.a == cloudtest.Denied {
							denied++
						}
						continue
					}
					strict := 0
					if x.a == cloudtest.Allowed {
						strict = 1
					}
					own, _ := enforced[strict].Snapshot.Workloads.Get(w.ID)
					if !enforced[strict].MayBeStricter(own) {
						t.Fatalf("seed %d: %s denies %v of %s, %v %s:%d, which the other lets pass\n%s", seed, clouds[strict].name, x.d, w.ID, f, f.Protocol, f.Port, policytest.Print(first))
					}
				}
			}
			other := policytest.VMWorld(rnd, 4+rnd.IntN(10))
			first.Policies, first.Groups, first.Tiers = other.Policies, other.Groups, other.Tiers
		}
		for _, c := range clouds {
			c.hangUp()
		}
	}
	t.Logf("%d worlds, %d decisions are the same, %d of them denials; stricter by a Refusal: %v", ran, same, denied, stricter)
	if ran >= 60 && (same < ran*10 || denied < ran || stricter["Azure"] == 0) {
		t.Error("the worlds are not telling")
	}
}
