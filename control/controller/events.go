package controller

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// object is what an Event can be about.
type object interface {
	metav1.Object
	runtime.Object
}

// startEvents starts the recorder of Events, and returns what stops it. Of one
// object it writes 25 at once and then one each 5 minutes, and adds up equal ones.
func (c *Controller) startEvents(ctx context.Context) func() {
	// What client-go would log of Events that cannot be written is no use to anybody.
	// It ends by Shutdown, after the loops that record.
	ctx = klog.NewContext(context.WithoutCancel(ctx), logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.core.CoreV1().Events("")})
	c.events.Store(&recorder{broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "isobar"})})
	return broadcaster.Shutdown
}

// recorder exists to have one type for an atomic pointer.
type recorder struct{ record.EventRecorder }

// event records an Event about one of our kinds.
func (c *Controller) event(o object, kind, reason, message string) {
	var gvk schema.GroupVersionKind
	switch o.(type) {
	case *cloudv1alpha1.CloudProviderAccount:
		gvk = cloudv1alpha1.GroupVersion.WithKind("CloudProviderAccount")
	case *cloudv1alpha1.CloudEntitySelector:
		gvk = cloudv1alpha1.GroupVersion.WithKind("CloudEntitySelector")
	case *antreav1beta1.NetworkPolicy:
		gvk = antreav1beta1.GroupVersion.WithKind("NetworkPolicy")
	case *antreav1beta1.ClusterNetworkPolicy:
		gvk = antreav1beta1.GroupVersion.WithKind("ClusterNetworkPolicy")
	}
	c.eventOn(&corev1.ObjectReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}, kind, reason, message)
}

func (c *Controller) eventOn(ref *corev1.ObjectReference, kind, reason, message string) {
	if r := c.events.Load(); r != nil && c.leads() {
		r.Event(ref, kind, reason, bounded(message))
	}
}
