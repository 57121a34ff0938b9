package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// WorldOptions configure a World.
type WorldOptions struct {
	// Nodes are the names of the Nodes, each of which gets a Pod.
	Nodes []string
	// Reach is how many Nodes a change concerns: so many make a group, whose Pods are under one policy. 0 means
	// that there are no policies, and Pods do not run: they only vouch for their Node.
	Reach int
	// Progress, where not nil, is told how far it is.
	Progress func(what string, done, of int)
}

// World is what a run needs in a cluster: a namespace with a Pod on each Node and policies on them, and an
// account for agents. Nothing runs there, and there need not be Nodes of those names.
type World struct {
	o      WorldOptions
	client kubernetes.Interface
	name   string // of the namespace, and of what is of the cluster
	pods   []types.UID
	isOn   []bool // the Pod is among the peers of its group
	ports  []int32
}

// requestsAtOnce is how many requests are under way at a time.
const requestsAtOnce = 16

// account is the name of the agents' ServiceAccount.
const account = "agent"

// Labels of Pods.
const (
	labelGroup = "isobar.dev/sim-group"
	labelPeer  = "isobar.dev/sim-peer"
)

// addresses are those of benchmarks of networks (RFC 2544): nobody else has them.
var addresses = netip.MustParsePrefix("198.18.0.0/15")

// MaxNodes is how many Nodes a World may have.
const MaxNodes = 100_000

// MakeWorld makes a World in the cluster that config reaches, whose user may make namespaces, accounts and roles. What
// was made when there is an error is taken away again.
func MakeWorld(ctx context.Context, config *rest.Config, o WorldOptions) (*World, error) {
	if len(o.Nodes) > MaxNodes {
		return nil, fmt.Errorf("%d Nodes are more than %d", len(o.Nodes), MaxNodes)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // requestsAtOnce bounds it
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &World{o: o, client: client, pods: make([]types.UID, len(o.Nodes)), isOn: make([]bool, len(o.Nodes))}
	ns, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "isobar-sim-nodes-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	w.name = ns.Name
	if err := w.make(ctx); err != nil {
		return nil, errors.Join(err, w.Remove(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// Namespace is where the Pods are.
func (w *World) Namespace() string { return w.name }

func (w *World) make(ctx context.Context) error {
	if err := w.makeAccount(ctx); err != nil {
		return fmt.Errorf("make the agents' account: %w", err)
	}
	if w.o.Reach > 0 {
		w.ports = make([]int32, (len(w.o.Nodes)+w.o.Reach-1)/w.o.Reach)
		if err := w.each(ctx, "policies", len(w.ports), func(ctx context.Context, g int) error {
			w.ports[g] = 80
			_, err := w.client.NetworkingV1().NetworkPolicies(w.name).Create(ctx, w.policy(g), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return w.each(ctx, "Pods", len(w.o.Nodes), w.makePod)
}

func (w *World) makeAccount(ctx context.Context) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}, AutomountServiceAccountToken: new(false)}
	if _, err := w.client.CoreV1().ServiceAccounts(w.name).Create(ctx, sa, metav1.CreateOptions{}); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: w.name}
	if _, err := w.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{GroupVersion.Group}, Resources: Resources, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := w.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.name, Name: account}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.name},
	}, metav1.CreateOptions{})
	return err
}

// each does something for each of n, several at a time, and stops at the first error.
func (w *World) each(ctx context.Context, what string, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var all sync.WaitGroup
	for range min(requestsAtOnce, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("%s, number %d: %w", what, i, err))
					return
				}
				w.o.Progress(what, int(done.Add(1)), n)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func podName(i int) string { return "node-" + strconv.Itoa(i) }

func (w *World) group(i int) string {
	if w.o.Reach == 0 {
		return ""
	}
	return "g" + strconv.Itoa(i/w.o.Reach)
}

func (w *World) makePod(ctx context.Context, i int) error {
	pods := w.client.CoreV1().Pods(w.name)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: map[string]string{labelGroup: w.group(i), labelPeer: "no"}},
		Spec: corev1.PodSpec{
			NodeName: w.o.Nodes[i], ServiceAccountName: account, TerminationGracePeriodSeconds: new(int64(0)), // no kubelet sees to its end
			Containers:  []corev1.Container{{Name: "none", Image: "isobar.dev/never-run"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	w.pods[i] = pod.UID
	if w.o.Reach == 0 {
		return nil
	}
	at := addresses.Addr().As4()
	n := i + 1
	addr := netip.AddrFrom4([4]byte{at[0], at[1] + byte(n>>16), byte(n >> 8), byte(n)}).String()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// policy is that of a group: its peers may reach its Pods.
func (w *World) policy(g int) *networkingv1.NetworkPolicy {
	name := "g" + strconv.Itoa(g)
	port := intstr.FromInt32(w.ports[g])
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelGroup: name}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelGroup: name, labelPeer: "yes"}}}},
			}},
		},
	}
}

// tokenLife is how long tokens are asked to be good, in seconds; API servers may give less.
const tokenLife = 24 * 60 * 60

// WithTokens returns the Nodes with tokens of the agents' account, each bound to the Pod on that Node: as
// an agent that runs in a Pod has one.
func (w *World) WithTokens(ctx context.Context) ([]Node, error) {
	out := make([]Node, len(w.o.Nodes))
	err := w.each(ctx, "tokens", len(out), func(ctx context.Context, i int) error {
		got, err := w.client.CoreV1().ServiceAccounts(w.name).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(tokenLife)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: podName(i), UID: w.pods[i]},
		}}, metav1.CreateOptions{})
		if err == nil {
			out[i] = Node{Name: w.o.Nodes[i], Token: got.Status.Token}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Impersonating returns the Nodes as users that the Fleet's user passes for: the agents' account, with the name of
// the Node as a token has it.
func (w *World) Impersonating() []Node { return Impersonating(w.o.Nodes, w.name, account) }

// Impersonating returns Nodes as users that the Fleet's user passes for: a ServiceAccount whose token is bound
// to a Pod on that Node.
func Impersonating(names []string, namespace, account string) []Node {
	out := make([]Node, len(names))
	for i, name := range names {
		out[i] = Node{Name: name, Impersonate: rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + namespace + ":" + account,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {name}},
		}}
	}
	return out
}

// FlipPeer makes the Pod of a Node a peer of its group, or takes that back. It returns what the event is about,
// and how many agents get one.
func (w *World) FlipPeer(ctx context.Context, f *Fleet, i int) (*Sighting, int, error) {
	value := "yes"
	if w.isOn[i] {
		value = "no"
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, labelPeer, value)
	s := f.Expect(Subject{Namespace: w.name, Pod: podName(i)})
	if _, err := w.client.CoreV1().Pods(w.name).Patch(ctx, podName(i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return nil, 0, fmt.Errorf("change a label of the Pod %s/%s: %w", w.name, podName(i), err)
	}
	w.isOn[i] = !w.isOn[i]
	return s, w.sizeOf(i / w.o.Reach), nil
}

// FlipPort has the policy of a Node's group allow another port. It returns as FlipPeer does.
func (w *World) FlipPort(ctx context.Context, f *Fleet, i int) (*Sighting, int, error) {
	g := i / w.o.Reach
	w.ports[g] = 80 + (w.ports[g]-79)%1000
	policies := w.client.NetworkingV1().NetworkPolicies(w.name)
	have, err := policies.Get(ctx, "g"+strconv.Itoa(g), metav1.GetOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("change the policy g%d: %w", g, err)
	}
	s := f.Expect(Subject{Policy: string(have.UID), Generation: have.Generation + 1})
	have.Spec = w.policy(g).Spec
	if _, err := policies.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return nil, 0, fmt.Errorf("change the policy g%d: %w", g, err)
	}
	return s, w.sizeOf(g), nil
}

// sizeOf is how many Nodes are in a group.
func (w *World) sizeOf(g int) int { return min(w.o.Reach, len(w.o.Nodes)-g*w.o.Reach) }

// removeIn bounds how long a World may take to go.
const removeIn = 2 * time.Minute

// Remove takes the World away; the namespace goes soon after.
func (w *World) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeIn)
	defer cancel()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	var errs []error
	for what, err := range map[string]error{
		"ClusterRoleBinding": w.client.RbacV1().ClusterRoleBindings().Delete(ctx, w.name, now),
		"ClusterRole":        w.client.RbacV1().ClusterRoles().Delete(ctx, w.name, now),
		"Pods of":            w.client.CoreV1().Pods(w.name).DeleteCollection(ctx, now, metav1.ListOptions{}),
		"namespace":          w.client.CoreV1().Namespaces().Delete(ctx, w.name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the %s %s: %w", what, w.name, err))
		}
	}
	return errors.Join(errs...)
}
