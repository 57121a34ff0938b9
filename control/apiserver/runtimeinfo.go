package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// Machines has what the agents of VMs say of themselves. It is heard, and told, by the leader
// alone. Methods may be called from several goroutines.
type Machines interface {
	// Report takes what an agent says, and returns it as it is shown.
	Report(ctx context.Context, says *runtimev1alpha1.VirtualMachineRuntimeInfo) (*runtimev1alpha1.VirtualMachineRuntimeInfo, error)
	// RuntimeInfos returns what agents say now, by "namespace/name".
	RuntimeInfos() policy.Table[*runtimev1alpha1.VirtualMachineRuntimeInfo]
	// AllSaid says whether all agents have had time to speak since this replica leads. Before
	// that, who is missing may have spoken to another one.
	AllSaid() bool
	// Leads returns an error where another replica hears agents, and LeadChanged is closed
	// when that may be another one than now.
	Leads() error
	LeadChanged() <-chan struct{}
}

// Errors that a Machines' Report returns, with others.
var (
	// ErrNoNode: there is no ExternalNode of that name.
	ErrNoNode = errors.New("there is no such ExternalNode")
	// ErrElsewhere: another replica hears agents. Trying again may help.
	ErrElsewhere = errors.New("another replica leads, and hears agents: try again")
)

// Gate returns nil when the user of a request may do what a verb says as the VM of that
// "namespace/name".
type Gate func(ctx context.Context, who authorizer.Authorizer, verb, machine string) error

func runtimeInfos() kind[*runtimev1alpha1.VirtualMachineRuntimeInfo] {
	type T = *runtimev1alpha1.VirtualMachineRuntimeInfo
	return kind[T]{
		resource: runtimev1alpha1.ResourceVirtualMachineRuntimeInfos, shortNames: []string{"vmri"}, notRead: notHeard,
		make:     func() T { return &runtimev1alpha1.VirtualMachineRuntimeInfo{} },
		makeList: func() runtime.Object { return &runtimev1alpha1.VirtualMachineRuntimeInfoList{} },
		list: func(items []T, meta metav1.ListMeta) runtime.Object {
			out := &runtimev1alpha1.VirtualMachineRuntimeInfoList{ListMeta: meta, Items: make([]runtimev1alpha1.VirtualMachineRuntimeInfo, len(items))}
			for i, x := range items {
				out.Items[i] = *x
			}
			return out
		},
		copy:   func(x T) T { y := *x; return &y },
		fields: func(x T) fields.Set { return fields.Set{"status.state": string(x.Status.State)} },
		columns: []metav1.TableColumnDefinition{
			{Name: "NAME", Type: "string", Format: "name", Description: "Name of the VM's ExternalNode"},
			{Name: "STATE", Type: "string", Description: "What the agent does with policies"},
			{Name: "CONNECTED", Type: "string", Description: "Whether the agent has said something lately"},
			{Name: "POLICIES", Type: "string", Description: "How many of the policies that it was told of are enforced"},
			{Name: "HEARTBEAT", Type: "date", Description: "Since when the agent has said nothing"},
			{Name: "VERSION", Type: "string", Description: "Version of the agent"},
			{Name: "OS", Type: "string", Priority: 1, Description: "Operating system"},
			{Name: "ERROR", Type: "string", Priority: 1, Description: "Why something is not enforced"},
		},
		cells: func(x T) []any {
			connected := string(metav1.ConditionUnknown)
			if c := meta.FindStatusCondition(x.Status.Conditions, runtimev1alpha1.ConditionConnected); c != nil {
				connected = string(c.Status)
			}
			return []any{
				x.Name, string(x.Status.State), connected, fmt.Sprintf("%d/%d", x.Status.RealizedPolicies, x.Status.Policies),
				metav1.Time.ToUnstructured(x.Status.HeartbeatTime), x.Status.AgentVersion, x.Status.OSImage, x.Status.LastError,
			}
		},
	}
}

const notHeard = "the agents have not had time yet to say how they are"

// infoResource serves VirtualMachineRuntimeInfos. What an agent creates replaces what it said
// before.
type infoResource struct {
	*resource[*runtimev1alpha1.VirtualMachineRuntimeInfo]
	agents Machines
	gate   func(ctx context.Context, verb, machine string) error

	mu sync.Mutex // orders what the store is given
}

var _ rest.Creater = (*infoResource)(nil)

// GetSingularName is what kubectl takes for the resource's name too.
func (r *infoResource) GetSingularName() string { return "virtualmachineruntimeinfo" }

// update brings the store up to date.
func (r *infoResource) update() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.put(r.agents.RuntimeInfos())
}

// isKnown returns an error while it is not known who is missing.
func (r *infoResource) isKnown() error {
	if !r.agents.AllSaid() {
		return apierrors.NewServiceUnavailable(r.notRead)
	}
	return nil
}

// Get returns what one agent says.
func (r *infoResource) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	r.update()
	out, err := r.resource.Get(ctx, name, o)
	if apierrors.IsNotFound(err) {
		if unknown := r.isKnown(); unknown != nil {
			return nil, unknown
		}
	}
	return out, err
}

// List returns what all agents say that a request asks for.
func (r *infoResource) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	if err := r.isKnown(); err != nil {
		return nil, err
	}
	r.update()
	return r.resource.List(ctx, o)
}

// Watch sends what agents say, until another replica may hear them.
func (r *infoResource) Watch(ctx context.Context, o *internalversion.ListOptions) (watch.Interface, error) {
	changed := r.agents.LeadChanged()
	if err := r.isKnown(); err != nil {
		return nil, err
	}
	r.update()
	w, err := r.resource.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	go func() {
		select {
		case <-changed:
			w.Stop()
		case <-ctx.Done():
		}
	}()
	return w, nil
}

// Create takes what an agent says of itself.
func (r *infoResource) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := o.(*runtimev1alpha1.VirtualMachineRuntimeInfo)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no VirtualMachineRuntimeInfo", o))
	}
	if in.Name == "" {
		return nil, apierrors.NewBadRequest("metadata.name: want that of the ExternalNode")
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	if in.Namespace != "" && in.Namespace != namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace: is %q, for %q", in.Namespace, namespace))
	}
	in.Namespace = namespace
	if err := r.gate(ctx, "create", namespace+"/"+in.Name); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if options != nil && len(options.DryRun) > 0 {
		return in, nil
	}
	out, err := r.agents.Report(ctx, in)
	switch {
	case errors.Is(err, ErrElsewhere):
		return nil, apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, ErrNoNode):
		return nil, apierrors.NewNotFound(runtimev1alpha1.Resource("externalnodes"), in.Name)
	case errors.Is(err, ErrNotReady):
		return nil, apierrors.NewServiceUnavailable("it is not known yet which ExternalNodes there are")
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	r.update()
	return r.copy(out), nil
}

// elsewhere returns an error for what only the leader can answer.
func (r *infoResource) elsewhere(info *genericapirequest.RequestInfo) error {
	if info.Resource != runtimev1alpha1.ResourceVirtualMachineRuntimeInfos || r.agents.Leads() == nil {
		return nil
	}
	return apierrors.NewServiceUnavailable(ErrElsewhere.Error())
}
