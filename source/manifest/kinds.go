package manifest

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// kind reads the objects of one kind.
type kind struct {
	namespaced bool
	read       func(*object)
}

// kinds are what a world is made of, by apiVersion and kind.
var kinds = map[string]kind{
	"v1 Namespace":                       {false, readNamespace},
	"v1 Pod":                             {true, readPod},
	"v1 Node":                            {false, readNode},
	"v1 Service":                         {true, readService},
	"networking.k8s.io/v1 NetworkPolicy": {true, policyReader(convert.NetworkPolicy)},

	"crd.antrea.io/v1beta1 NetworkPolicy":        {true, policyReader(convert.AntreaNetworkPolicy)},
	"crd.antrea.io/v1beta1 ClusterNetworkPolicy": {false, policyReader(convert.AntreaClusterNetworkPolicy)},
	"crd.antrea.io/v1beta1 Tier":                 {false, readTier},
	"crd.antrea.io/v1beta1 Group":                {true, groupReader(convert.Group)},
	"crd.antrea.io/v1beta1 ClusterGroup":         {false, groupReader(convert.ClusterGroup)},
	"crd.antrea.io/v1alpha2 ExternalEntity":      {true, readExternalEntity},

	"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy":       {false, policyReader(convert.ClusterNetworkPolicy)},
	"policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy":         {false, policyReader(convert.AdminNetworkPolicy)},
	"policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy": {false, policyReader(convert.BaselineAdminNetworkPolicy)},

	"runtime.cloud.antrea.io/v1alpha1 VirtualMachine": {true, readVirtualMachine},
}

func readNamespace(o *object) {
	var in corev1.Namespace
	if o.decode(&in) {
		o.r.world.Namespaces = o.r.world.Namespaces.Put(o.name, convert.Namespace(&in))
	}
}

// anyNode stands for the Node of a Pod that is written as it is applied.
const anyNode = "any"

func readPod(o *object) {
	var in corev1.Pod
	if !o.decode(&in) {
		return
	}
	// Without a status it is a Pod as a user writes it, which is taken to run:
	// the question is what the policies will do to it.
	bare := in.Status.Phase == "" && in.Status.PodIP == "" && len(in.Status.PodIPs) == 0
	if in.Status.Phase == "" && in.Spec.NodeName == "" {
		in.Spec.NodeName = anyNode
	}
	if in.Spec.ServiceAccountName == "" {
		in.Spec.ServiceAccountName = cmp.Or(in.Spec.DeprecatedServiceAccount, "default") // as admission sees to it
	}
	w, problems := convert.Pod(&in)
	if o.accept(problems) {
		o.workload(w)
		o.r.bare[w.ID] = bare
	}
}

func readNode(o *object) {
	var in corev1.Node
	if o.decode(&in) {
		o.workload(convert.Node(&in))
	}
}

func readService(o *object) {
	var in corev1.Service
	if o.decode(&in) {
		o.r.world.Services = o.r.world.Services.Put(policy.ServiceID(o.namespace, o.name), convert.Service(&in))
	}
}

// objectOf is a pointer to an API type.
type objectOf[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// policyReader reads policies of one kind.
func policyReader[T any, P objectOf[T]](read func(P) (*policy.Policy, []convert.Problem)) func(*object) {
	return func(o *object) {
		in := P(new(T))
		if !o.decode(in) || !o.validate(in) {
			return
		}
		p, problems := read(in)
		mode, more := convert.Mode(in.GetAnnotations())
		if o.accept(append(problems, more...)) {
			o.r.world = o.r.world.PutPolicy(p, mode)
		}
	}
}

// groupReader reads groups of one kind.
func groupReader[T any, P objectOf[T]](convert func(P) (*policy.Group, []convert.Problem)) func(*object) {
	return func(o *object) {
		in := P(new(T))
		if !o.decode(in) || !o.validate(in) {
			return
		}
		g, problems := convert(in)
		if o.accept(problems) {
			o.r.world.Groups = o.r.world.Groups.Put(g.ID, g)
		}
	}
}

func readTier(o *object) {
	var in antreav1beta1.Tier
	if !o.decode(&in) || !o.validate(&in) {
		return
	}
	if other, taken := o.r.tiers[in.Spec.Priority]; taken {
		o.fail("spec.priority", "%d: the tier %s has it", in.Spec.Priority, other)
		return
	}
	o.r.tiers[in.Spec.Priority] = o.name
	tier, problems := convert.Tier(&in)
	if o.accept(problems) {
		o.r.world.Tiers = o.r.world.Tiers.Put(tier.Name, tier)
	}
}

func readExternalEntity(o *object) {
	var in antreav1alpha2.ExternalEntity
	if !o.decode(&in) || !o.validate(&in) {
		return
	}
	w, problems := convert.ExternalEntity(&in)
	if o.accept(problems) {
		o.workload(w)
	}
}

func (o *object) workload(w *policy.Workload) {
	o.r.world.Workloads = o.r.world.Workloads.Put(w.ID, w)
}
