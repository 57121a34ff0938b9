package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/control/controller"
	sim "isobar.dev/sim/aws"
)

// The machines of the sample estate.
const (
	web1 = "i-0a100000000000001"
	app1 = "i-0a100000000000004"
	app2 = "i-0a100000000000005"
	db1  = "i-0a100000000000007"
	rep1 = "i-0a100000000000010" // in eu-west-1
)

const simKeys = `{"accessKeyId":"` + sim.SampleKeyID + `","accessKeySecret":"` + sim.SampleKeySecret + `"}`

// simEnv is an env whose cloud is the simulated AWS, behind a socket.
type simEnv struct {
	*env
	sim *sim.Cloud
	url string
}

func newSimEnv(t *testing.T) *simEnv {
	t.Helper()
	return withSim(t, newEnv(t))
}

func withSim(t *testing.T, e *env) *simEnv {
	t.Helper()
	return withEstate(t, e, sim.Sample())
}

func withEstate(t *testing.T, e *env, estate sim.Estate) *simEnv {
	t.Helper()
	c, err := sim.New(estate, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	e.o.Clouds = map[string]controller.Factory{"aws": awsAccount}
	e.o.PollEvery, e.o.Every = time.Second, 5*time.Second
	return &simEnv{e, c, server.URL}
}

// awsAccount is a controller.Factory, as a command has it.
func awsAccount(ctx context.Context, cpa *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
	keys, err := aws.ParseSecret(secret)
	if err != nil {
		return nil, err
	}
	spec := cpa.Spec.AWSConfig
	return aws.NewAccount(ctx, aws.Config{
		Credentials: keys, Regions: spec.Region, Cluster: "test", Endpoint: spec.Endpoint, STSEndpoint: cmp.Or(spec.STSEndpoint, spec.Endpoint),
	}, aws.Options{Attempts: 2})
}

func (e *simEnv) account(regions ...string) *cloudv1alpha1.CloudProviderAccount {
	cpa := e.env.account(regions...)
	cpa.Spec.AWSConfig.Endpoint = e.url
	return cpa
}

// reach is a check of whether a connection passes, asked of the simulator.
func (e *simEnv) reach(from, to string, port int, want sim.Result) func() string {
	return func() string {
		if v := e.sim.Reach(sim.Flow{From: from, To: to, Protocol: "tcp", Port: port}); v.Result != want {
			return fmt.Sprintf("%s to %s port %d: %s, want %s (%s)", from, to, port, v.Result, want, v.Reason)
		}
		return ""
	}
}

// attached returns the groups of each interface, and the groups that there are.
func (e *simEnv) attached() string {
	var out []string
	for _, a := range e.sim.Estate().Accounts {
		for _, r := range a.Regions {
			for _, i := range r.Instances {
				for _, n := range i.Interfaces {
					out = append(out, fmt.Sprint(n.ID, n.Groups, n.Tags))
				}
			}
			for _, g := range r.Groups {
				out = append(out, fmt.Sprint(g.ID, " ", g.Name, g.Tags))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (e *simEnv) settled() string {
	targets := e.running.Targets()
	for _, s := range targets {
		if !s.Synced {
			return fmt.Sprintf("%+v", s)
		}
	}
	if len(targets) == 0 {
		return "no targets yet"
	}
	return ""
}

// policies make db reachable from app on 5432, and app from web on 8080.
func (e *simEnv) policies() {
	for name, text := range map[string]string{
		"db":  `{"priority": 5, "appliedTo": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "db"}}}], "ingress": [{"action": "Allow", "from": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "app"}}}], "ports": [{"protocol": "TCP", "port": 5432}]}]}`,
		"app": `{"priority": 5, "appliedTo": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "app"}}}], "ingress": [{"action": "Allow", "from": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "web"}}}, {"podSelector": {"matchLabels": {"app": "checkout"}}}], "ports": [{"protocol": "TCP", "port": 8080}]}]}`,
	} {
		p := &antreav1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
		if err := json.Unmarshal([]byte(text), &p.Spec); err != nil {
			e.t.Fatal(err)
		}
		e.create(p)
	}
}

// The main job over EC2's protocol: policies, tags and labels reach the security
// groups, a restart writes nothing, and in the end all is as it was.
func TestAWS(t *testing.T) {
	e := newSimEnv(t)
	before := e.attached()
	e.start()
	closed := all(e.reach(web1, db1, 5432, sim.Denied), e.reach(app1, db1, 22, sim.Denied), e.reach(db1, app1, 8080, sim.Denied))
	open := all(e.reach(app1, db1, 5432, sim.Allowed), e.reach(web1, app1, 8080, sim.Allowed))
	t.Logf("from nothing to enforced in %v", e.timed("enforced", func() {
		e.create(e.secret(simKeys), e.account("us-east-1", "eu-west-1"), e.selector("all", everything))
		e.policies()
	}, all(open, closed, e.settled)))
	e.eventually("the policies are realized", all(e.phaseIs("db", antreav1beta1.PolicyRealized), e.phaseIs("app", antreav1beta1.PolicyRealized)))

	t.Run("policy", func(t *testing.T) {
		t.Logf("a policy's change in %v", e.timed("new port", func() { e.setPort("db", 5433) },
			all(e.reach(app1, db1, 5433, sim.Allowed), e.reach(app1, db1, 5432, sim.Denied))))
		e.setPort("db", 5432)
		e.eventually("old port", all(open, closed, e.settled))
	})
	t.Run("label", func(t *testing.T) {
		name, key := cloudv1alpha1.ExternalEntityName(web1), cloudv1alpha1.LabelTagPrefix+"Role"
		t.Logf("a VM's label in %v", e.timed("web is an app", func() { e.label(name, key, "app") }, e.reach(web1, db1, 5432, sim.Allowed)))
		t.Logf("and back in %v", e.timed("web is web", func() { e.label(name, key, nil) }, closed))
	})
	t.Run("pod", func(t *testing.T) {
		t.Logf("a Pod in %v", e.timed("the Pod may", func() { e.pod("checkout", "10.77.0.5") }, e.allows(app1, "10.77.0.5/32")))
		t.Logf("a Pod's label in %v", e.timed("the Pod may not", func() { e.labelPod("checkout", "app", "other") }, func() string {
			if e.allows(app1, "10.77.0.5/32")() == "" {
				return "it still may"
			}
			return ""
		}))
	})
	t.Run("restart", func(t *testing.T) {
		e.eventually("settled", e.settled)
		e.quiet() // statuses, too
		e.stop()
		e.sim.ResetCalls()
		versions := e.versions()
		c := e.start()
		e.eventually("settled", e.settled)
		e.quietly("nothing is written", func() string {
			if w := e.sim.Calls().Writes; len(w) > 0 {
				return fmt.Sprintf("%d writes in the cloud: %+v", len(w), w[0])
			}
			if s := c.Stats(); s.EntityWrites+s.StatusWrites > 0 || e.versions() != versions {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	})
	t.Run("delete", func(t *testing.T) {
		cpa, err := get[cloudv1alpha1.CloudProviderAccount](e.env, "acct")
		if err != nil {
			t.Fatal(err)
		}
		e.delete(cpa)
		e.eventually("all is as it was", func() string {
			if now := e.attached(); now != before {
				return fmt.Sprintf("before:\n%s\nnow:\n%s", before, now)
			}
			return e.noAccount()
		})
	})
}

// The faults of a cloud are told where they belong, and go away by themselves.
func TestAWSFaults(t *testing.T) {
	e := newSimEnv(t)
	e.start()
	e.create(e.secret(`{"accessKeyId":"AKIAWRONG00000000001","accessKeySecret":"wrongSecretForTheSimulator0000000000001"}`),
		e.account("us-east-1", "eu-west-1"), e.selector("all", everything))
	e.policies()
	e.eventually("wrong keys", all(e.accountIs("region us-east-1", "Inventory", "False ReadFailed"),
		e.accountIs("AuthFailure", "Connected", "False CredentialsRefused"), e.hasEvent("acct", "CredentialsRefused")))
	cpa, err := get[cloudv1alpha1.CloudProviderAccount](e.env, "acct")
	if err != nil || strings.Contains(fmt.Sprint(cpa.Status), "wrongSecret") {
		t.Fatal(err, cpa.Status)
	}
	t.Log(cpa.Status.Error)
	update[corev1.Secret](e.env, "keys", func(s *corev1.Secret) { s.Data = map[string][]byte{"credentials": []byte(simKeys)} })
	enforced := all(e.reach(app1, db1, 5432, sim.Allowed), e.reach(web1, db1, 5432, sim.Denied))
	e.eventually("right keys", all(enforced, e.accountIs("", "Enforced", "True Enforced"), e.accountIs("", "Connected", "True Connected")))

	fault := func(f sim.Fault) {
		t.Helper()
		if _, err := e.sim.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	fault(sim.Fault{Kind: sim.FaultError, Region: "eu-west-1"})
	e.eventually("a region answers 500", all(e.accountIs("region eu-west-1", "Inventory", "False ReadFailed"), e.accountIs("region eu-west-1", "Connected", "True Connected")))
	e.label(cloudv1alpha1.ExternalEntityName(web1), cloudv1alpha1.LabelTagPrefix+"Role", "app")
	e.eventually("the other goes on", e.reach(web1, db1, 5432, sim.Allowed))
	e.quietly("its VMs stay", func() string {
		_, err := get[antreav1alpha2.ExternalEntity](e.env, cloudv1alpha1.ExternalEntityName(rep1))
		if err != nil {
			return err.Error()
		}
		return ""
	})
	e.sim.ClearFaults()
	e.label(cloudv1alpha1.ExternalEntityName(web1), cloudv1alpha1.LabelTagPrefix+"Role", nil)
	e.eventually("it is back", all(enforced, e.accountIs("", "Inventory", "True Listed")))

	fault(sim.Fault{Kind: sim.FaultError, Code: "UnauthorizedOperation", Action: "DescribeInstances"})
	e.eventually("no permission to list VMs", e.selectorIs("all", "UnauthorizedOperation", "False ReadFailed"))
	e.quietly("nothing is undone", enforced)
	e.sim.ClearFaults()

	fault(sim.Fault{Kind: sim.FaultError, Code: "RequestLimitExceeded"})
	e.eventually("throttled", e.accountIs("RequestLimitExceeded", "Inventory", "False ReadFailed"))
	e.setPort("db", 5433)
	e.eventually("the policy says so", e.phaseIs("db", antreav1beta1.PolicyFailed))
	e.quietly("what was enforced stays", enforced)
	e.sim.ClearFaults()
	e.eventually("it catches up", all(e.reach(app1, db1, 5433, sim.Allowed), e.phaseIs("db", antreav1beta1.PolicyRealized), e.accountIs("", "Enforced", "True Enforced")))
}

// pod makes a running Pod with an address.
func (e *simEnv) pod(name, ip string) {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	e.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	if err := e.client.Status().Update(e.t.Context(), pod); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = e.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
}

func (e *simEnv) labelPod(name, key, value string) {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if err := e.client.Patch(e.t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		e.t.Fatal(err)
	}
}

// allows is a check that a group of a machine lets a prefix in.
func (e *simEnv) allows(instance, prefix string) func() string {
	return func() string {
		for _, a := range e.sim.Estate().Accounts {
			for _, r := range a.Regions {
				groups := map[string]bool{}
				for _, i := range r.Instances {
					for _, n := range i.Interfaces {
						for _, g := range n.Groups {
							groups[g] = groups[g] || i.ID == instance
						}
					}
				}
				for _, g := range r.Groups {
					if groups[g.ID] && slices.ContainsFunc(g.Rules, func(x *sim.Rule) bool { return !x.Egress && x.CIDR.String() == prefix }) {
						return ""
					}
				}
			}
		}
		return fmt.Sprintf("no group of %s lets %s in", instance, prefix)
	}
}
