// Package kubelet stands in for the scheduler and the kubelets of a cluster that
// has no machines: Pods get a Node, an address and the phase Running, and go
// away when they are deleted. No container runs.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Options configure Run. The zero value is one Node, node-1, at 10.0.0.11, with
// Pods in 10.244.0.0/16.
type Options struct {
	Node     string
	NodeAddr netip.Addr
	Pods     netip.Prefix // the addresses of Pods, from the eleventh on
	// NodeAddrs are further addresses of the Node, and Ranges its spec.podCIDRs, which stay
	// empty by default.
	NodeAddrs []netip.Addr
	Ranges    []netip.Prefix
	// Takes says whether a Pod that has no Node yet comes to this one; nil means all do.
	Takes func(*corev1.Pod) bool
	// Runtime runs Pods that are not on the Node's own network; nil means that none is run, and
	// addresses of Pods are made up.
	Runtime Runtime
	// Failed is told what went wrong with a Pod, which is tried again; nil drops it.
	Failed func(error)
}

// Runtime runs Pods. A call for a Pod that runs, or that is gone, changes nothing.
type Runtime interface {
	// Start returns the Pod's addresses, the first of which is its main one.
	Start(context.Context, *corev1.Pod) ([]netip.Addr, error)
	Stop(context.Context, *corev1.Pod) error
}

// Run makes the Node and looks after Pods until ctx ends. Pods of other Nodes
// are left alone.
func Run(ctx context.Context, client kubernetes.Interface, o Options) error {
	if o.Node == "" {
		o.Node = "node-1"
	}
	if !o.NodeAddr.IsValid() {
		o.NodeAddr = netip.AddrFrom4([4]byte{10, 0, 0, 11})
	}
	if !o.Pods.IsValid() {
		o.Pods = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 0}), 16)
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	k := &kubelet{client: client, o: o}
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", o.Node, err)
	}
	return k.run(ctx)
}

type kubelet struct {
	client kubernetes.Interface
	o      Options
	pods   corelisters.PodLister
	// given are addresses that the cache may not show yet, by UID.
	given map[types.UID]netip.Addr
}

// register makes the Node if it is missing, and says its address.
func (k *kubelet) register(ctx context.Context) error {
	nodes := k.client.CoreV1().Nodes()
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: k.o.Node, Labels: map[string]string{corev1.LabelHostname: k.o.Node, corev1.LabelOSStable: "linux"},
	}}
	for i, r := range k.o.Ranges {
		if i == 0 {
			fresh.Spec.PodCIDR = r.String()
		}
		fresh.Spec.PodCIDRs = append(fresh.Spec.PodCIDRs, r.String())
	}
	node, err := nodes.Create(ctx, fresh, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, k.o.Node, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	addrs := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.o.NodeAddr.String()}}
	for _, a := range k.o.NodeAddrs {
		addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	if slices.Equal(node.Status.Addresses, addrs) {
		return nil
	}
	node.Status.Addresses = addrs
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated"}}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// run works through Pods one at a time: a demo has few, and addresses must not
// be given out twice.
func (k *kubelet) run(ctx context.Context) error {
	k.given = map[types.UID]netip.Addr{}
	factory := informers.NewSharedInformerFactory(k.client, 0)
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	add := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, now any) { add(now) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return ctx.Err()
	}
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		key, done := queue.Get()
		if done {
			return ctx.Err()
		}
		if err := k.sync(ctx, key); err != nil && ctx.Err() == nil {
			k.o.Failed(fmt.Errorf("pod %s: %w", key, err))
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func (k *kubelet) sync(ctx context.Context, key types.NamespacedName) error {
	pod, err := k.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != k.o.Node:
		return nil
	case pod.DeletionTimestamp != nil:
		if k.o.Runtime != nil && pod.Spec.NodeName != "" && !pod.Spec.HostNetwork {
			if err := k.o.Runtime.Stop(ctx, pod); err != nil {
				return err
			}
		}
		now := int64(0)
		err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it went by itself, or another one has its name
		}
		return err
	case pod.Spec.NodeName == "" && k.o.Takes != nil && !k.o.Takes(pod):
		return nil
	case pod.Spec.NodeName == "":
		err := k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: k.o.Node},
		}, metav1.CreateOptions{})
		return ignoreStale(err)
	case pod.Status.Phase == corev1.PodPending && pod.Status.PodIP == "" || pod.Status.Phase == "":
		return k.start(ctx, pod)
	}
	return nil
}

// start gives the Pod an address and says that it runs.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	addrs, err := k.addresses(ctx, pod)
	if err != nil {
		return err
	}
	pod = pod.DeepCopy()
	now := metav1.NewTime(time.Now())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.HostIP = k.o.NodeAddr.String()
	pod.Status.PodIP, pod.Status.PodIPs = addrs[0].String(), nil
	for _, a := range addrs {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	pod.Status.StartTime = &now
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return ignoreStale(err)
}

// addresses returns those of a Pod, which runs from then on.
func (k *kubelet) addresses(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error) {
	if pod.Spec.HostNetwork {
		return append([]netip.Addr{k.o.NodeAddr}, k.o.NodeAddrs...), nil
	}
	if k.o.Runtime != nil {
		return k.o.Runtime.Start(ctx, pod)
	}
	addr, err := k.free(pod.UID)
	return []netip.Addr{addr}, err
}

// ignoreStale drops the errors after which a newer Pod is on its way here.
func ignoreStale(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// free returns the lowest address that no Pod has.
func (k *kubelet) free(uid types.UID) (netip.Addr, error) {
	if a, ok := k.given[uid]; ok {
		return a, nil
	}
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		return netip.Addr{}, err
	}
	used, alive := map[netip.Addr]bool{}, map[types.UID]bool{}
	for _, p := range pods {
		alive[p.UID] = true
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil {
			used[a] = true
		}
	}
	for id, a := range k.given {
		if !alive[id] {
			delete(k.given, id)
			continue
		}
		used[a] = true
	}
	a := k.o.Pods.Masked().Addr()
	for i := 0; k.o.Pods.Contains(a); i, a = i+1, a.Next() {
		if i > 10 && !used[a] {
			k.given[uid] = a
			return a, nil
		}
	}
	return netip.Addr{}, errors.New("no address is left in " + k.o.Pods.String())
}
