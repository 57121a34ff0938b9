package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/control/controller"
	"isobar.dev/control/plane/planetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // what the tests' client asks for
	planetest.Main(m)
}

// env is one test's namespace, cloud and controller.
type env struct {
	t      *testing.T
	ns     string
	client client.Client
	core   kubernetes.Interface
	config *rest.Config
	cloud  *fakeCloud
	o      controller.Options

	running *controller.Controller
	stop    func()
}

func newEnv(t *testing.T) *env {
	t.Helper()
	p := planetest.Start(t)
	p.ApplyCRDs(t, "../../deploy/crd")
	return newEnvOn(t, p.Config(), p.Namespace(t))
}

func newEnvOn(t *testing.T, config *rest.Config, ns string) *env {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cloudv1alpha1.AddToScheme, antreav1alpha1.AddToScheme, antreav1alpha2.AddToScheme, antreav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, ns: ns, client: c, core: kubernetes.NewForConfigOrDie(config), config: config, cloud: newFakeCloud()}
	e.o = controller.Options{
		PollEvery: 200 * time.Millisecond, Every: time.Second, Namespaces: []string{ns},
		Clouds: map[string]controller.Factory{"aws": e.cloud.account},
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return e
}

// start starts a controller, which ends with the test or when stop is called.
func (e *env) start() *controller.Controller {
	e.t.Helper()
	c, err := controller.New(e.config, e.o)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	e.running = c
	e.stop = func() { cancel(); <-done }
	e.t.Cleanup(e.stop)
	return c
}

func (e *env) create(objects ...client.Object) {
	e.t.Helper()
	for _, o := range objects {
		if err := e.client.Create(e.t.Context(), o); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *env) delete(o client.Object) {
	e.t.Helper()
	if err := e.client.Delete(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}
}

// get reads an object of the test's namespace.
func get[T any, P interface {
	*T
	client.Object
}](e *env, name string) (P, error) {
	o := P(new(T))
	return o, e.client.Get(context.Background(), types.NamespacedName{Namespace: e.ns, Name: name}, o)
}

// update changes an object of the test's namespace.
func update[T any, P interface {
	*T
	client.Object
}](e *env, name string, change func(P)) {
	e.t.Helper()
	e.eventually("update "+name, func() string { // the controller writes statuses meanwhile
		o, err := get[T, P](e, name)
		if err == nil {
			change(o)
			err = e.client.Update(context.Background(), o)
		}
		if err != nil && !apierrors.IsConflict(err) {
			e.t.Fatal(err)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// eventually polls until check returns "", which else says what is wrong.
func (e *env) eventually(what string, check func() string) {
	e.t.Helper()
	start := time.Now()
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Since(start) > 2*time.Minute {
			e.t.Fatalf("%s: %s", what, wrong)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// timed makes a change, and returns how long it takes from then on until check is met.
func (e *env) timed(what string, change func(), check func() string) time.Duration {
	e.t.Helper()
	start := time.Now()
	change()
	e.eventually(what, check)
	return time.Since(start).Round(time.Millisecond)
}

// quietly says that check stays "" for a while.
func (e *env) quietly(what string, check func() string) {
	e.t.Helper()
	for range 20 {
		if wrong := check(); wrong != "" {
			e.t.Fatalf("%s: %s", what, wrong)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

func (e *env) secret(keys string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "keys"}, Data: map[string][]byte{"credentials": []byte(keys)}}
}

const rightKeys = `{"accessKeyId":"AKIA1234","accessKeySecret":"right-key"}`

func (e *env) account(regions ...string) *cloudv1alpha1.CloudProviderAccount {
	return &cloudv1alpha1.CloudProviderAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: "acct"},
		Spec: cloudv1alpha1.CloudProviderAccountSpec{AWSConfig: &cloudv1alpha1.AWSConfig{
			SecretRef: &cloudv1alpha1.SecretReference{Namespace: e.ns, Name: "keys", Key: "credentials"}, Region: regions,
		}},
	}
}

func (e *env) selector(name string, entries ...cloudv1alpha1.VirtualMachineSelector) *cloudv1alpha1.CloudEntitySelector {
	return &cloudv1alpha1.CloudEntitySelector{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec:       cloudv1alpha1.CloudEntitySelectorSpec{AccountName: "acct", AccountNamespace: e.ns, VMSelector: entries},
	}
}

var everything = cloudv1alpha1.VirtualMachineSelector{VpcMatch: &cloudv1alpha1.EntityMatch{}}

// inVPC selects the VMs of a VPC.
func inVPC(id string) cloudv1alpha1.VirtualMachineSelector {
	return cloudv1alpha1.VirtualMachineSelector{VpcMatch: &cloudv1alpha1.EntityMatch{MatchID: id}}
}

// vm makes a VM with one NIC, whose last address byte is n.
func vm(region, network string, n int, tags map[string]string) cloud.VM {
	return cloud.VM{
		ID: fmt.Sprintf("i-%s%d", network, n), Name: tags["Name"], Region: region, NetworkID: network, NetworkName: "net " + network, State: "running", Tags: tags,
		Interfaces: []cloud.Interface{{
			ID: nic(network, n), MAC: "02:00:00:00:00:01",
			Private: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})}, Public: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})},
		}},
	}
}

func nic(network string, n int) string { return fmt.Sprintf("eni-%s-%d", network, n) }

func entityName(network string, n int) string {
	return fmt.Sprintf("virtualmachine-i-%s%d", network, n)
}

// estate is two VPCs in two regions: vpca with a web and a db, vpcb with a web.
func (e *env) estate() {
	e.cloud.with(func(f *fakeCloud) {
		f.networks["us-east-1"] = []cloud.Network{{ID: "vpca", Name: "net vpca", Region: "us-east-1"}}
		f.networks["us-west-2"] = []cloud.Network{{ID: "vpcb", Name: "net vpcb", Region: "us-west-2"}}
		f.vms["us-east-1"] = []cloud.VM{
			vm("us-east-1", "vpca", 1, map[string]string{"Name": "web1", "Role": "web"}),
			vm("us-east-1", "vpca", 2, map[string]string{"Name": "db1", "Role": "db"}),
		}
		f.vms["us-west-2"] = []cloud.VM{vm("us-west-2", "vpcb", 1, map[string]string{"Name": "web2", "Role": "web"})}
	})
}

// allow makes a policy that lets web VMs reach those of a role on a port.
func (e *env) allow(name, role string, port int) *antreav1beta1.NetworkPolicy {
	spec := fmt.Sprintf(`{"priority": 5, "appliedTo": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": %q}}}],
		"ingress": [{"action": "Allow", "from": [{"externalEntitySelector": {"matchLabels": {"nephe.antrea.io/tag-Role": "web"}}}],
		"ports": [{"protocol": "TCP", "port": %d}]}]}`, role, port)
	p := &antreav1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
		e.t.Fatal(err)
	}
	return p
}

// setPort changes the port of a policy's only rule.
func (e *env) setPort(name string, port int32) {
	e.t.Helper()
	update[antreav1beta1.NetworkPolicy](e, name, func(p *antreav1beta1.NetworkPolicy) { p.Spec.Ingress[0].Ports[0].Port.IntVal = port })
}

// enforced returns what a NIC enforces.
func (e *env) enforced(network string, n int) string {
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	return e.cloud.nics[network][nic(network, n)]
}

// has is a check that a NIC enforces a text, or nothing when it is "".
func (e *env) has(network string, n int, want string) func() string {
	return func() string {
		got := e.enforced(network, n)
		if want == "" && got != "" || !strings.Contains(got, want) {
			return fmt.Sprintf("NIC %s enforces %q; want %q", nic(network, n), got, want)
		}
		return ""
	}
}

// all is a check that all checks are met.
func all(checks ...func() string) func() string {
	return func() string {
		for _, c := range checks {
			if wrong := c(); wrong != "" {
				return wrong
			}
		}
		return ""
	}
}

// accountIs is a check of the account's error and of one condition.
func (e *env) accountIs(text, condition, want string) func() string {
	return func() string {
		cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct")
		if err != nil {
			return err.Error()
		}
		if text == "" && cpa.Status.Error != "" || !strings.Contains(cpa.Status.Error, text) {
			return fmt.Sprintf("status.error = %q; want %q", cpa.Status.Error, text)
		}
		return conditionIs(cpa.Status.Conditions, condition, want)
	}
}

func conditionIs(conditions []metav1.Condition, name, want string) string {
	for _, c := range conditions {
		if c.Type == name && string(c.Status)+" "+c.Reason == want {
			return ""
		}
	}
	return fmt.Sprintf("conditions %+v; want %s %s", conditions, name, want)
}

// phaseIs is a check of a policy's phase.
func (e *env) phaseIs(name string, want antreav1beta1.PolicyPhase) func() string {
	return func() string {
		p, err := get[antreav1beta1.NetworkPolicy](e, name)
		if err != nil {
			return err.Error()
		}
		if p.Status.Phase != want || p.Status.ObservedGeneration != p.Generation {
			return fmt.Sprintf("status of %s at generation %d: %+v; want %s", name, p.Generation, p.Status, want)
		}
		return ""
	}
}

// entityHas is a check of a label of a VM's ExternalEntity.
func (e *env) entityHas(network string, n int, label, want string) func() string {
	return func() string {
		ee, err := get[antreav1alpha2.ExternalEntity](e, entityName(network, n))
		if err != nil {
			return err.Error()
		}
		if got, ok := ee.Labels[label]; !ok || got != want {
			return fmt.Sprintf("labels of %s: %v; want %s=%s", ee.Name, ee.Labels, label, want)
		}
		return ""
	}
}

func (e *env) entityLacks(network string, n int, label string) func() string {
	return func() string {
		ee, err := get[antreav1alpha2.ExternalEntity](e, entityName(network, n))
		if err != nil {
			return err.Error()
		}
		if got, ok := ee.Labels[label]; ok {
			return fmt.Sprintf("%s has %s=%s", ee.Name, label, got)
		}
		return ""
	}
}

func (e *env) noEntity(network string, n int) func() string {
	return func() string {
		if _, err := get[antreav1alpha2.ExternalEntity](e, entityName(network, n)); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%s is there: %v", entityName(network, n), err)
		}
		return ""
	}
}

// label sets a label of an ExternalEntity as kubectl label does; nil takes it away.
func (e *env) label(name, key string, value any) {
	e.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	if err != nil {
		e.t.Fatal(err)
	}
	ee := &antreav1alpha2.ExternalEntity{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}}
	e.eventually("label of "+name, func() string { // a VM is enforced before its entity is written
		if err := e.client.Patch(e.t.Context(), ee, client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubectl-label")); err != nil {
			return err.Error()
		}
		return ""
	})
}

// selectorIs is a check of a selector's error and of its condition Imported.
func (e *env) selectorIs(name, text, want string) func() string {
	return func() string {
		ces, err := get[cloudv1alpha1.CloudEntitySelector](e, name)
		if err != nil {
			return err.Error()
		}
		if text == "" && ces.Status.Error != "" || !strings.Contains(ces.Status.Error, text) {
			return fmt.Sprintf("status.error = %q; want %q", ces.Status.Error, text)
		}
		return conditionIs(ces.Status.Conditions, "Imported", want)
	}
}

// events returns all Events of the namespace, each as one line.
func (e *env) events() []string {
	list, err := e.core.CoreV1().Events(e.ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, ev := range list.Items {
		out = append(out, ev.InvolvedObject.Name+" "+ev.Reason+" "+ev.Message)
	}
	return out
}

// hasEvent is a check that there is an Event about an object with that reason or message.
func (e *env) hasEvent(object, want string) func() string {
	return func() string {
		all := e.events()
		for _, ev := range all {
			if strings.HasPrefix(ev, object+" ") && strings.Contains(ev, want) {
				return ""
			}
		}
		return fmt.Sprintf("no Event about %s with %q among %q", object, want, all)
	}
}

func (e *env) cloudWrites() int {
	e.cloud.mu.Lock()
	defer e.cloud.mu.Unlock()
	return e.cloud.writes
}

// quiet waits until nothing has been written for a while, in which regions have been listed several times, however
// slow the machine is: each time what is to be told is looked at. It returns versions.
func (e *env) quiet() string {
	e.t.Helper()
	var since time.Time
	var polls uint64
	last := ""
	e.eventually("nothing is written any more", func() string {
		if now := e.versions(); now != last {
			last, since, polls = now, time.Now(), e.running.Stats().Polls
		}
		if time.Since(since) < 400*time.Millisecond || e.running.Stats().Polls < polls+6 {
			return last
		}
		return ""
	})
	return last
}

// versions returns the versions of all objects that a controller writes to.
func (e *env) versions() string {
	var out []string
	for _, list := range []client.ObjectList{&cloudv1alpha1.CloudProviderAccountList{}, &cloudv1alpha1.CloudEntitySelectorList{}, &antreav1alpha2.ExternalEntityList{}, &antreav1alpha1.ExternalNodeList{}, &antreav1beta1.NetworkPolicyList{}} {
		if err := e.client.List(context.Background(), list, client.InNamespace(e.ns)); err != nil {
			return err.Error()
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return err.Error()
		}
		for _, o := range items {
			m := o.(client.Object)
			out = append(out, m.GetName()+"@"+m.GetResourceVersion())
		}
	}
	return strings.Join(out, " ")
}
