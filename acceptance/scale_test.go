package acceptance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

// scaleVMs is the environment variable that asks for a measurement with so many VMs.
const scaleVMs = "ISOBAR_SCALE"

// scale is a measurement.
type scale struct {
	*world
	apps   int
	clouds []*cloudOfScale // AWS first

	mu   sync.Mutex
	peak uint64
}

// TestScale measures an estate as docs/performance.md tells: set ISOBAR_SCALE to the number of
// VMs. Each app has 20 web, 20 app and 10 db VMs in one of 20 VPCs of four regions, and five
// policies. ISOBAR_SCALE_PROVIDER says in which clouds.
func TestScale(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv(scaleVMs))
	if n < 1000 {
		t.Skip("set " + scaleVMs + " to a number of VMs, such as 10000")
	}
	s := newScale(t, n/50)
	go s.watchHeap(t.Context())
	s.accounts()
	s.applyAll()

	s.describe("first realization", func() {
		s.start()
		s.realizedAll()
	})
	s.checkReach()
	s.fewest()
	s.describe("a rule of a policy changes", func() { s.policy("a000-app", s.appRule(0, 8081)); s.realized("a000-app") })
	s.describe("a rule for 50 VMs changes", func() { s.policy("a001-ops", s.opsRule(1, 9101)); s.realized("a001-ops") })
	s.describe("a VM has another tag", func() {
		s.patch(entities, s.entity(2, "w00"), `{"metadata": {"labels": {"nephe.antrea.io/tag-Tier": "db"}}}`)
		s.untilCalls(s.attach(2))
		s.eventually("synced", func() error { return unsynced(s.run.Targets()) })
	})
	s.describe("nothing, for 20 seconds", func() { time.Sleep(20 * time.Second) })
	s.describe("restart", func() {
		s.restart()
		s.eventually("synced", func() error { return unsynced(s.run.Targets()) })
	})
	s.realizedAll()
	if got := s.run.Stats(); got.EntityWrites+got.StatusWrites > 0 {
		t.Errorf("after a restart: %+v", got)
	}
	for action, n := range s.calls() {
		if !isRead(action) {
			t.Errorf("after a restart: %d calls of %s", n, action)
		}
	}
}

func newScale(t *testing.T, apps int) *scale {
	t.Helper()
	h := enter(t)
	w := &world{t: t, env: h.env, cluster: h.cluster}
	w.connect(h.env.Config(), h.env.Namespace(t))
	w.o.PollEvery, w.o.Every = time.Hour, time.Hour
	s := &scale{world: w, apps: apps}
	provider := cmp.Or(os.Getenv(scaleProvider), "aws")
	if !slices.Contains([]string{"aws", "azure", "mixed"}, provider) {
		t.Fatalf("%s=%s: want aws, azure or mixed", scaleProvider, provider)
	}
	s.serveAll(provider, scaleNetworks(apps))
	return s
}

var scaleRegions = []string{"us-east-1", "us-west-2", "eu-west-1", "ap-southeast-2"}

func appName(a int) string { return fmt.Sprintf("a%03d", a) }

// scaleNetworks are 20 VPCs; the tiers of an app have their addresses in turns.
func scaleNetworks(apps int) []network {
	networks := make([]network, 20)
	for i := range networks {
		networks[i] = network{id: fmt.Sprintf("vpc-%02d", i), region: scaleRegions[i%4], private: true, number: i, cidr: fmt.Sprintf("10.%d.0.0/16", i)}
	}
	for a := range apps {
		n := &networks[a%len(networks)]
		for i := range 20 {
			for _, tier := range []string{"web", "app", "db"} {
				if tier == "db" && i >= 10 {
					continue
				}
				n.vms = append(n.vms, vm{name: fmt.Sprintf("%s%c%02d", appName(a), tier[0], i), tags: map[string]string{
					"App": appName(a), "Tier": tier, "Env": []string{"prod", "stage"}[a%2], "Team": fmt.Sprint("team", a%17), "Cost-Center": fmt.Sprint(4000 + a%31),
				}})
			}
		}
	}
	for i := range networks {
		networks[i] = wide(networks[i])
	}
	return networks
}

// accounts are one of each cloud, with all regions, and selectors of all that they have.
func (s *scale) accounts() {
	for _, c := range s.clouds {
		if c.provider == "azure" {
			s.azureShop()
			continue
		}
		s.accountIn("aws", sim.SampleAccount, scaleRegions...)
		s.importOf("all-aws", "aws", "- vpcMatch: {}")
	}
}

func ofApp(a int, tier string) string {
	text := "nephe.antrea.io/tag-App: " + appName(a)
	if tier != "" {
		text += ", nephe.antrea.io/tag-Tier: " + tier
	}
	return "{externalEntitySelector: {matchLabels: {" + text + "}}}"
}

func (s *scale) appRule(a, port int) string {
	return "appliedTo: [" + ofApp(a, "app") + "]\ningress: [" + allow("ingress", ofApp(a, "web"), port) +
		"]\negress: [" + allow("egress", ofApp(a, "db"), 5432) + ", " + allow("egress", "{ipBlock: {cidr: 203.0.113.0/24}}", 443) + "]"
}

func (s *scale) opsRule(a, port int) string {
	return "appliedTo: [" + ofApp(a, "") + "]\ningress: [" + allow("ingress", "{group: bastions}", 22) + ", " +
		allow("ingress", "{ipBlock: {cidr: 10.250.0.0/16, except: [10.250.9.0/24]}}", port) + "]"
}

// applyAll writes five policies for each app, and the groups that they name.
func (s *scale) applyAll() {
	s.t.Helper()
	text := []string{`
apiVersion: crd.antrea.io/v1beta1
kind: Group
metadata: {name: bastions}
spec: {ipBlocks: [{cidr: 10.251.0.4/32}, {cidr: 10.251.1.4/32}]}
---
apiVersion: crd.antrea.io/v1beta1
kind: Group
metadata: {name: shared}
spec: {ipBlocks: [{cidr: 10.252.0.0/24}]}
`}
	for a := range s.apps {
		name, next := appName(a), (a+1)%s.apps // in another VPC and region
		text = append(text,
			"apiVersion: crd.antrea.io/v1beta1\nkind: Group\nmetadata: {name: "+name+"}\nspec: "+ofApp(a, "")+"\n",
			policyText(name+"-web", "appliedTo: ["+ofApp(a, "web")+"]\ningress: ["+allow("ingress", "", 443, 80)+"]\negress: ["+allow("egress", ofApp(a, "app"), 8080, 8081)+"]"),
			policyText(name+"-app", s.appRule(a, 8080)),
			policyText(name+"-db", "appliedTo: ["+ofApp(a, "db")+"]\ningress: ["+allow("ingress", ofApp(a, "app"), 5432)+", "+allow("ingress", ofApp(next, "app"), 5432)+"]"),
			policyText(name+"-ops", s.opsRule(a, 9100)),
			policyText(name+"-dns", "appliedTo: [{group: "+name+"}]\negress: [{action: Allow, to: [{group: shared}], ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]}]"))
	}
	s.apply(strings.Join(text, "---\n"))
}

// realizedAll waits until every policy says that it is realized in its generation.
func (s *scale) realizedAll() {
	s.t.Helper()
	end := time.Now().Add(30 * time.Minute)
	for {
		err := s.look()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // to look costs more than what is measured
	}
}

func (s *scale) look() error {
	if err := unsynced(s.run.Targets()); err != nil {
		return err
	}
	if err := s.behind(); err != nil {
		return err
	}
	l, err := s.client.Resource(policies).Namespace(s.ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range l.Items {
		o := &l.Items[i]
		status, _ := o.Object["status"].(map[string]any)
		if status["phase"] != "Realized" || fmt.Sprint(status["observedGeneration"]) != fmt.Sprint(o.GetGeneration()) {
			return fmt.Errorf("%s: %v", o.GetName(), status)
		}
	}
	if n := len(s.list(entities)); n != s.apps*50 {
		return fmt.Errorf("%d ExternalEntities", n)
	}
	return nil
}

func (s *scale) untilCalls(action string) {
	s.t.Helper()
	s.eventually(action, func() error {
		if s.calls()[action] == 0 {
			return fmt.Errorf("not called yet")
		}
		return nil
	})
}

func (s *scale) calls() map[string]int {
	out := map[string]int{}
	for _, c := range s.clouds {
		for _, x := range c.counts() {
			out[x.name()] += x.Calls
		}
	}
	return out
}

// checkReach asks each cloud for a few flows of each kind.
func (s *scale) checkReach() {
	s.t.Helper()
	for _, a := range []int{0, 19} {
		var got []struct{ Result, Reason string }
		flows := []sim.Flow{
			{From: s.vm(a, "w00"), To: s.vm(a, "a19"), Protocol: "tcp", Port: 8080}, {From: s.vm(a, "a00"), To: s.vm(a, "d09"), Protocol: "tcp", Port: 5432},
			{From: s.vm(a, "w00"), To: s.vm(a, "d09"), Protocol: "tcp", Port: 5432}, {From: s.vm(a, "w00"), To: s.vm(a, "a19"), Protocol: "tcp", Port: 22},
		}
		body, err := json.Marshal(flows)
		if err != nil {
			s.t.Fatal(err)
		}
		s.cloudOf(a).ask(http.MethodPost, "/_sim/reach", strings.NewReader(string(body)), &got)
		for i, want := range []string{"allowed", "allowed", "denied", "denied"} {
			if got[i].Result != want {
				s.t.Errorf("%+v: %s, want %s (%s)", flows[i], got[i].Result, want, got[i].Reason)
			}
		}
	}
}

// fewest compares the writes so far with the fewest that make the groups which there are:
// one to make each and one for each direction in which it has other rules than EC2's, one
// for each interface, and one for each 500 interfaces that are tagged alike. In Azure, where
// tags and rules are part of what is written, one for each group and interface.
func (s *scale) fewest() {
	s.t.Helper()
	for _, c := range s.clouds {
		groups, least := 0, 0
		if c.provider == "azure" {
			groups, least = c.fewestAzure()
		} else {
			groups, least = c.fewestAWS()
		}
		writes := 0
		for _, x := range c.counts() {
			if !isRead(x.name()) {
				writes += x.Calls
			}
		}
		s.t.Logf("%s: %d groups: %d writes; the fewest are %d (%.3f times)", c.provider, groups, writes, least, float64(writes)/float64(least))
	}
}

func (c *cloudOfScale) fewestAzure() (groups, least int) {
	c.t.Helper()
	var e azuresim.Estate
	c.ask(http.MethodGet, "/_sim/state", nil, &e)
	interfaces := 0
	for _, s := range e.Subscriptions {
		for _, d := range s.Resources {
			tags, _ := d["tags"].(map[string]any)
			switch id, _ := d["id"].(string); {
			case strings.Contains(id, "/networkInterfaces/"):
				interfaces++
			case strings.Contains(id, "/networkSecurityGroups/") && tags["isobar.dev-cluster"] != nil:
				groups++
			}
		}
	}
	return groups, groups + interfaces
}

func (c *cloudOfScale) fewestAWS() (groups, least int) {
	c.t.Helper()
	var e sim.Estate
	c.ask(http.MethodGet, "/_sim/state", nil, &e)
	rules, interfaces, tags := 0, 0, 0
	for _, r := range e.Accounts[0].Regions {
		for _, g := range r.Groups {
			if g.Tags["isobar.dev/cluster"] == "" {
				continue
			}
			groups++
			directions := map[bool]bool{}
			keeps := false // EC2's own rule
			for _, x := range g.Rules {
				if isEC2s := x.Egress && x.Protocol == "-1" && x.CIDR.IsValid() && x.CIDR.Bits() == 0; isEC2s {
					keeps = true
				} else {
					directions[x.Egress] = true
				}
			}
			rules += len(directions)
			if !keeps {
				rules++
			}
		}
		alike := map[string]int{}
		for _, i := range r.Instances {
			interfaces += len(i.Interfaces)
			for _, n := range i.Interfaces {
				alike[fmt.Sprint(n.Tags)]++
			}
		}
		for _, n := range alike {
			tags += (n + 499) / 500
		}
	}
	return groups, groups + rules + interfaces + tags
}

// describe measures f, and forgets the calls of before.
func (s *scale) describe(what string, f func()) {
	s.t.Helper()
	for _, c := range s.clouds {
		c.ask(http.MethodDelete, "/_sim/calls", nil, nil)
	}
	retained := heap(true)
	s.mu.Lock()
	s.peak = 0
	s.mu.Unlock()
	began, cpu := time.Now(), cpuTime()
	f()
	took, used := time.Since(began), cpuTime()-cpu
	s.mu.Lock()
	peak := s.peak
	s.mu.Unlock()
	after := heap(true)
	var parts []string
	counts := s.calls()
	for _, action := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", action, counts[action]))
	}
	s.t.Logf("%s: %v, CPU %v, heap %d to %d MB, at most %d MB; under the clouds' buckets at least %v; calls: %s", what, took.Round(time.Millisecond),
		used.Round(time.Millisecond), retained>>20, after>>20, peak>>20, s.floor().Round(time.Second), strings.Join(parts, ", "))
}

// floor is how long the calls take at least, in the cloud that takes longest.
func (s *scale) floor() time.Duration {
	var most time.Duration
	for _, c := range s.clouds {
		most = max(most, c.floor())
	}
	return most
}

func heap(collect bool) uint64 {
	if collect {
		runtime.GC()
		runtime.GC()
	}
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (s *scale) watchHeap(ctx context.Context) {
	for ctx.Err() == nil {
		now := heap(false)
		s.mu.Lock()
		s.peak = max(s.peak, now)
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// cpuTime is what this process has used: controller and test, and neither API server nor cloud.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
