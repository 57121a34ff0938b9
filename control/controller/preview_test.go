package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/control/controller"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
	"isobar.dev/source/kube"
)

// journal keeps what the syncs of an account's Targets reported, if anything
// was to be done.
type journal struct {
	mu      sync.Mutex
	reports map[string]plan.Report // by Target
}

// take returns what there is, and forgets it.
func (j *journal) take() map[string]plan.Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.reports
	j.reports = map[string]plan.Report{}
	return out
}

// regional compares what is used of quotas. Of that of a region, what a VPC finds used
// depends on whether another's Driver has written already.
var regional = cmp.Comparer(func(a, b plan.Usage) bool {
	if a.Quota == "security groups in the region" {
		a.Used, b.Used = 0, 0
	}
	return a == b
})

type journaled struct {
	cloud.Account
	*journal
}

func (a journaled) Enforcer(region, network string) cloud.Enforcer {
	return journaledEnforcer{a.Account.Enforcer(region, network), a.journal}
}

type journaledEnforcer struct {
	cloud.Enforcer
	*journal
}

func (e journaledEnforcer) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	r, err := e.Enforcer.Sync(ctx, rs)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, twice := e.reports[rs.Target]; twice && len(r.Changes) > 0 {
			err = fmt.Errorf("two syncs of %s for one change: %v", rs.Target, r.Changes)
		}
		if len(r.Changes) > 0 || e.reports[rs.Target].Target == "" {
			e.reports[rs.Target] = r
		}
	}
	return r, err
}

// previewEnv is a settled simEnv with few quotas, whose syncs are kept.
func previewEnv(t *testing.T) (*simEnv, *journal) {
	// Between peered VPCs one Target's sync is followed by another's, which sees
	// what the first has written: a preview tells the first.
	estate := sim.Sample()
	estate.Peerings = nil
	e, j := withEstate(t, newEnv(t), estate), &journal{reports: map[string]plan.Report{}}
	e.o.Every = time.Hour // no sync but for a change
	e.o.Clouds = map[string]controller.Factory{"aws": func(ctx context.Context, cpa *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
		keys, err := aws.ParseSecret(secret)
		if err != nil {
			return nil, err
		}
		spec := cpa.Spec.AWSConfig
		a, err := aws.NewAccount(ctx, aws.Config{
			Credentials: keys, Regions: spec.Region, Cluster: "test", Endpoint: spec.Endpoint, STSEndpoint: spec.Endpoint,
			Quotas: aws.Quotas{RulesPerGroup: 4, GroupsPerNIC: 3},
		}, aws.Options{ManyPeers: 3, Unlimited: true})
		return journaled{a, j}, err
	}}
	e.start()
	e.create(e.secret(simKeys), e.account("us-east-1", "eu-west-1"), e.selector("all", everything))
	e.policies()
	e.eventually("the policies are realized", all(e.phaseIs("db", antreav1beta1.PolicyRealized), e.phaseIs("app", antreav1beta1.PolicyRealized), e.settled))
	e.eventually("the entities are written", e.entity(web1))
	j.take()
	return e, j
}

func (e *simEnv) entity(vm string) func() string {
	return func() string {
		_, err := get[antreav1alpha2.ExternalEntity](e.env, cloudv1alpha1.ExternalEntityName(vm))
		if err != nil {
			return err.Error()
		}
		return ""
	}
}

// randomPolicy applies to a role or a group, and has rules enough to burst the
// quotas now and then.
func (e *simEnv) randomPolicy(rnd *rand.Rand, name string) *antreav1beta1.NetworkPolicy {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	role := func() string {
		return fmt.Sprintf(`{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": %q}}}`, pick("web", "app", "db", "none"))
	}
	var rules []string
	for range rnd.IntN(4) {
		peer := pick(role(), role(), `{"podSelector": {}}`, fmt.Sprintf(`{"ipBlock": {"cidr": "198.51.%d.0/24"}}`, rnd.IntN(4)), `{"group": "some"}`)
		rules = append(rules, fmt.Sprintf(`{"action": %q, "from": [%s], "ports": [{"protocol": "TCP", "port": %d}]}`,
			pick("Allow", "Allow", "Drop"), peer, []int{22, 80, 443, 5432, 8080}[rnd.IntN(5)]))
	}
	text := fmt.Sprintf(`{"priority": %d, "appliedTo": [%s], "ingress": [%s]}`, 1+rnd.IntN(20), role(), strings.Join(rules, ", "))
	p := &antreav1beta1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "crd.antrea.io/v1beta1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
	}
	if err := json.Unmarshal([]byte(text), &p.Spec); err != nil {
		e.t.Fatal(err)
	}
	return p
}

func (e *simEnv) randomGroup(rnd *rand.Rand) *antreav1beta1.Group {
	g := &antreav1beta1.Group{
		TypeMeta:   metav1.TypeMeta{APIVersion: "crd.antrea.io/v1beta1", Kind: "Group"},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "some"},
	}
	text := []string{
		`{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "web"}}}`,
		`{"externalEntitySelector": {}}`,
		`{"ipBlocks": [{"cidr": "192.0.2.0/25"}, {"cidr": "192.0.2.192/26"}]}`,
	}[rnd.IntN(3)]
	if err := json.Unmarshal([]byte(text), &g.Spec); err != nil {
		e.t.Fatal(err)
	}
	return g
}

// step is one change: how it would be written, how it is, and whether the
// controller knows.
type step struct {
	what  string
	write kube.Write
	make  func() error
	known func(policy.Snapshot) bool
}

// randomStep makes a change of what there is.
func (e *simEnv) randomStep(rnd *rand.Rand) step {
	switch n := rnd.IntN(10); {
	case n == 0:
		return e.groupStep(rnd)
	case n == 1:
		return e.tagStep(rnd)
	}
	ctx, name := context.Background(), fmt.Sprint("p", rnd.IntN(4))
	id := policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, name)
	have, err := get[antreav1beta1.NetworkPolicy](e.env, name)
	want := e.randomPolicy(rnd, name)
	s := step{what: "create " + name, write: kube.Write{Manifest: asJSON(e.t, want)}}
	s.known = func(w policy.Snapshot) bool {
		p, ok := w.Policies.Get(id)
		now, err := get[antreav1beta1.NetworkPolicy](e.env, name)
		return ok && err == nil && p.UID == string(now.UID) && p.Generation == now.Generation
	}
	s.make = func() error { return e.client.Create(ctx, want.DeepCopy()) }
	if err != nil {
		return s
	}
	if rnd.IntN(3) == 0 {
		s.what, s.write.Delete = "delete "+name, true
		s.make = func() error { return e.client.Delete(ctx, have) }
		s.known = func(w policy.Snapshot) bool { _, ok := w.Policies.Get(id); return !ok }
		return s
	}
	s.what = "update " + name
	s.make = func() error {
		update(e.env, name, func(p *antreav1beta1.NetworkPolicy) { p.Spec = want.Spec })
		return nil
	}
	return s
}

func (e *simEnv) groupStep(rnd *rand.Rand) step {
	g, ctx := e.randomGroup(rnd), context.Background()
	return step{
		"group", kube.Write{Manifest: asJSON(e.t, g)},
		func() error {
			if _, err := get[antreav1beta1.Group](e.env, g.Name); err != nil {
				return e.client.Create(ctx, g.DeepCopy())
			}
			update(e.env, g.Name, func(now *antreav1beta1.Group) { now.Spec = g.Spec })
			return nil
		},
		func(w policy.Snapshot) bool {
			got, _ := w.Groups.Get(policy.GroupID(e.ns, g.Name))
			now, err := get[antreav1beta1.Group](e.env, g.Name)
			if err != nil {
				return false
			}
			want, _ := convert.Group(now)
			return reflect.DeepEqual(got, want)
		},
	}
}

// tagStep gives a VM another role.
func (e *simEnv) tagStep(rnd *rand.Rand) step {
	name, key := cloudv1alpha1.ExternalEntityName(web1), cloudv1alpha1.LabelTagPrefix+"Role"
	role := []string{"web", "app", "db"}[rnd.IntN(3)]
	ee, err := get[antreav1alpha2.ExternalEntity](e.env, name)
	if err != nil {
		e.t.Fatal(err)
	}
	ee.TypeMeta = metav1.TypeMeta{APIVersion: "crd.antrea.io/v1alpha2", Kind: "ExternalEntity"}
	ee.Labels[key] = role
	return step{
		"tag " + role, kube.Write{Manifest: asJSON(e.t, ee)},
		func() error { e.label(name, key, role); return nil },
		func(w policy.Snapshot) bool {
			vm, ok := w.Workloads.Get(policy.WorkloadID(policy.KindExternal, e.ns, name))
			got, _ := vm.Labels.Value(key)
			return ok && got == role
		},
	}
}

func asJSON(t *testing.T, o any) []byte {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What a preview of a change tells is what the sync then does: the same changes,
// refusals and use of quotas at the same Targets, whatever came before. It asks
// nothing of the cloud.
func TestPreviewEqualsSync(t *testing.T) {
	e, j := previewEnv(t)
	changes, refusals := 0, 0
	for seed := range policytest.Seeds(t, 40) {
		s := e.randomStep(policytest.Rand(seed))
		calls := len(e.sim.Calls().Writes)
		p, err := e.running.Preview(t.Context(), []kube.Write{s.write}, controller.PreviewOptions{Quick: true})
		if err != nil || p.Notices[0] != nil {
			t.Fatalf("seed %d: %s: Preview = %v, %v", seed, s.what, p.Notices, err)
		}
		if n := len(e.sim.Calls().Writes); n != calls {
			t.Fatalf("seed %d: %s: Preview made %d writes", seed, s.what, n-calls)
		}
		want := map[string]plan.Report{}
		for _, target := range p.Targets {
			if target.Err != nil || target.Pending {
				t.Fatalf("seed %d: %s: %+v", seed, s.what, target)
			}
			target.Report.Written = len(target.Report.Changes)
			want[target.Name] = target.Report
			changes, refusals = changes+len(target.Report.Changes), refusals+len(target.Report.Refusals)
		}
		if err := s.make(); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, s.what, err)
		}
		e.eventually(s.what, func() string {
			if !s.known(e.running.World()) {
				return "the controller does not know"
			}
			return e.settled()
		})
		if d := cmp.Diff(want, j.take(), regional); d != "" {
			t.Fatalf("seed %d: %s %s: -preview +sync:\n%s", seed, s.what, s.write.Manifest, d)
		}
	}
	if changes < 20 || refusals == 0 {
		t.Errorf("%d changes and %d refusals were compared, which is not enough to tell", changes, refusals)
	}
}

// A write is warned of what the cloud will refuse of it, and of what it makes the
// cloud refuse of others: by name only within its namespace.
func TestWarnings(t *testing.T) {
	e, _ := previewEnv(t)
	spec := func(namespace, name, role string, ports ...int) []byte {
		var rules []string
		for _, port := range ports {
			rules = append(rules, fmt.Sprintf(`{"action": "Allow", "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"protocol": "TCP", "port": %d}]}`, port))
		}
		meta := fmt.Sprintf(`"kind": "NetworkPolicy", "metadata": {"namespace": %q, "name": %q}`, namespace, name)
		selector := fmt.Sprintf(`{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": %q}}}`, role)
		if namespace == "" {
			meta = fmt.Sprintf(`"kind": "ClusterNetworkPolicy", "metadata": {"name": %q}`, name)
			selector = fmt.Sprintf(`{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": %q}}, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}}}`, role, e.ns)
		}
		return []byte(fmt.Sprintf(`{"apiVersion": "crd.antrea.io/v1beta1", %s, "spec": {"priority": 5, "appliedTo": [%s], "ingress": [%s]}}`, meta, selector, strings.Join(rules, ",")))
	}
	many := []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25} // a VM has room for 12
	e.sim.ResetCalls()
	for _, tt := range []struct {
		name     string
		manifest []byte
		want     []string // in one warning each
	}{
		{"what fits", spec(e.ns, "p", "db", 80), nil},
		{"of no VM", spec(e.ns, "p", "none", many...), nil},
		{"another namespace's", spec("elsewhere", "p", "db", many...), nil},
		{"too many rules", spec(e.ns, "p", "db", many...), []string{"annp/" + e.ns + "/p/ingress/"}},
		{"of the cluster", spec("", "p", "db", many...), []string{"acnp/p/ingress/"}},
		{"no JSON", []byte("spec"), nil},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var got []string
		e.eventually("no pause", func() string { // after what took long
			got = e.running.Warnings(ctx, tt.manifest)
			if len(got) < len(tt.want) {
				return "none"
			}
			return ""
		})
		cancel()
		text := strings.Join(got, "\n")
		for _, want := range tt.want {
			if !strings.Contains(text, want) || !strings.Contains(text, "QuotaExceeded") || !strings.Contains(text, "most is needed by") {
				t.Errorf("%s: warned of %q; want %q, the quota, and what needs most", tt.name, got, want)
			}
		}
		if len(tt.want) == 0 && len(got) > 0 || len(got) > 7 {
			t.Errorf("%s: warned of %q; want %q", tt.name, got, tt.want)
		}
	}
	if calls := e.sim.Calls(); len(calls.Writes) > 0 {
		t.Errorf("%d writes: %+v", len(calls.Writes), calls.Writes[0])
	}
}
