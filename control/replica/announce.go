package replica

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/announce"
	"isobar.dev/control/apiserver"
)

// announce tells agents where the replicas are, and people that one leads. What cannot be
// told keeps nothing else from being told.
func (r *Replica) announce(ctx context.Context) error {
	if !r.o.ControlPlane {
		return nil
	}
	var errs []error
	if r.o.AgentNamespace != "" {
		errs = append(errs, announce.Agents(ctx, r.core, announce.Place{
			Namespace: r.o.AgentNamespace, Replicas: r.service(), Bundle: r.api.CABundle(), TakeOver: r.o.TakeOver,
		}))
	}
	err := announce.Servers(ctx, r.core, r.o.APITarget.Namespace, r.agentServers(), r.api.CABundle())
	if err == nil {
		r.isTold.Do(func() { close(r.told) })
	}
	errs = append(errs, err)
	return errors.Join(append(errs, r.beat(ctx))...)
}

// beat writes the AntreaControllerInfo. What deletes our APIService, as an uninstallation
// does, deletes that too.
func (r *Replica) beat(ctx context.Context) error {
	owner, err := apiserver.Reference(ctx, r.client, controlplanev1beta2.GroupVersion)
	if err != nil {
		return err
	}
	info := r.info()
	info.OwnerReferences = []metav1.OwnerReference{owner}
	return announce.Heartbeat(ctx, r.client, info, r.o.TakeOver)
}

func (r *Replica) service() types.NamespacedName {
	return types.NamespacedName{Namespace: r.o.APITarget.Namespace, Name: r.o.APITarget.Service}
}

// info is what this replica, which leads, says of itself.
func (r *Replica) info() antreav1beta1.AntreaControllerInfo {
	t := r.apiTarget()
	out := antreav1beta1.AntreaControllerInfo{
		Version:           version(),
		ServiceRef:        corev1.ObjectReference{Kind: "Service", Namespace: t.Namespace, Name: t.Service},
		ConnectedAgentNum: int32(r.agents.Agents()),
		APIPort:           t.Port,
	}
	if r.o.Pod != "" {
		out.PodRef = corev1.ObjectReference{Kind: "Pod", Namespace: t.Namespace, Name: r.o.Pod}
	}
	if r.o.Node != "" {
		out.NodeRef = corev1.ObjectReference{Kind: "Node", Name: r.o.Node}
	}
	if w, ok := r.controller.KnownWorld(); ok {
		out.NetworkPolicyControllerInfo.NetworkPolicyNum = int32(w.Policies.Len())
	}
	healthy := antreav1beta1.ControllerCondition{Type: antreav1beta1.ControllerHealthy, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}
	for _, c := range live(r.controller) {
		if c.err != nil {
			healthy.Status, healthy.Reason, healthy.Message = corev1.ConditionFalse, "Stuck", c.err.Error()
		}
	}
	out.ControllerConditions = []antreav1beta1.ControllerCondition{healthy}
	return out
}

// version is that of the module which the process was built of.
func version() string {
	const name = "isobar"
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return name + " " + b.Main.Version
	}
	return name
}

// mirrors says whether agents find the replicas' endpoints only when they are written down
// for them: a Service selects Pods of its own namespace alone.
func (r *Replica) mirrors() bool {
	return r.o.ControlPlane && r.o.AgentNamespace != "" && r.o.AgentNamespace != r.o.APITarget.Namespace
}

// follow tells of changes of the replicas' endpoints until ctx is done: an agent that knows
// of a replica which is no more has nobody to ask.
func (r *Replica) follow(ctx context.Context) error {
	s := r.service()
	factory := informers.NewSharedInformerFactoryWithOptions(r.core, 12*time.Hour, informers.WithNamespace(s.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = announce.SliceSelector(s.Name) }))
	tell := func() {
		select {
		case r.moved <- struct{}{}:
		default:
		}
	}
	_, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(_, _ any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
