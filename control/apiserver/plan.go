package apiserver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// planTimeout bounds a Plan, which waits for syncs that are under way. It is less
// than what an API server gives a request.
const planTimeout = 20 * time.Second

// Planner says what writes would do; a *controller.Controller does. It writes
// nothing. Its error is that it cannot say now. It may be called from several
// goroutines.
type Planner interface {
	Plan(ctx context.Context, spec isobarv1alpha1.PlanSpec) (isobarv1alpha1.PlanStatus, error)
	// TargetStatuses returns how each Target fares.
	TargetStatuses() []isobarv1alpha1.TargetStatus
}

// planResource answers Plans. They are of the cluster, and who may create one learns
// of policies, addresses and VMs of all namespaces: see docs/plan.md.
type planResource struct{ planner Planner }

var (
	_ rest.Storage              = planResource{}
	_ rest.Scoper               = planResource{}
	_ rest.SingularNameProvider = planResource{}
	_ rest.Creater              = planResource{}
)

// New returns an empty Plan.
func (planResource) New() runtime.Object { return &isobarv1alpha1.Plan{} }

// Destroy does nothing: there is nothing to close.
func (planResource) Destroy() {}

// NamespaceScoped is false.
func (planResource) NamespaceScoped() bool { return false }

// GetSingularName is what kubectl takes for the resource's name too.
func (planResource) GetSingularName() string { return "plan" }

// Create answers a Plan.
func (r planResource) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := obj.(*isobarv1alpha1.Plan)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no Plan", obj))
	}
	if n := len(in.Spec.Manifests) + len(in.Spec.Delete); n > isobarv1alpha1.MaxPlanObjects {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%d objects: a Plan has at most %d", n, isobarv1alpha1.MaxPlanObjects))
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	out := in.DeepCopy()
	out.Status = isobarv1alpha1.PlanStatus{}
	if len(in.Spec.Manifests)+len(in.Spec.Delete) == 0 {
		return out, nil // as Install asks
	}
	ctx, cancel := context.WithTimeoutCause(ctx, planTimeout, fmt.Errorf("gave up after %v", planTimeout))
	defer cancel()
	status, err := r.planner.Plan(ctx, in.Spec)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	out.Status = status
	return out, nil
}
