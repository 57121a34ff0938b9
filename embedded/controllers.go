package embedded

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"

	"isobar.dev/embedded/datadir"
	"isobar.dev/embedded/pki"
)

const (
	resync         = 12 * time.Hour
	workers        = 5
	sliceEndpoints = 100 // endpoints in one EndpointSlice, as everywhere

	// gcResync is how soon the garbage collector sees a new kind. The
	// kube-controller-manager takes 30 seconds, longer than a demo or a test waits.
	gcResync = 5 * time.Second
)

// startControllers wires the six controllers by hand: the whole
// kube-controller-manager takes 28 seconds to stop. They run until ctx ends;
// startControllers returns when their informers have synced or within ends.
func startControllers(ctx, within context.Context, config *rest.Config, dir *datadir.Dir) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // one process: the server's own fairness is the limit
	config.UserAgent = "isobar-control-plane"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	rootCA, err := dir.ReadFile(pki.CACert)
	if err != nil {
		return fmt.Errorf("read authority: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	core := shared.Core().V1()

	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, rootCA)
	if err != nil {
		return fmt.Errorf("root CA publisher: %w", err)
	}
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("service account controller: %w", err)
	}
	namespaces := namespace.NewNamespaceController(ctx, client, meta, client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), resync, corev1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())
	slices := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(),
		shared.Discovery().V1().EndpointSlices(), sliceEndpoints, client, 0)

	informersStarted := make(chan struct{})
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, meta,
		restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(meta, resync)),
		informersStarted)
	if err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}

	shared.Start(ctx.Done())
	close(informersStarted)
	go publisher.Run(ctx, 1)
	go accounts.Run(ctx, 1)
	go namespaces.Run(ctx, workers)
	go roles.Run(ctx, workers)
	go slices.Run(ctx, workers)
	go collector.Run(ctx, workers, gcResync)
	go collector.Sync(ctx, client.Discovery(), gcResync)
	for kind, synced := range shared.WaitForCacheSync(within.Done()) {
		if !synced {
			return fmt.Errorf("controllers: informer of %s did not sync in time", kind)
		}
	}
	return nil
}
