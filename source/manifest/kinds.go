package manifest

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

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
	"networking.k8s.io/v1 NetworkPolicy": {true, readNetworkPolicy},
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

func readNetworkPolicy(o *object) {
	var in networkingv1.NetworkPolicy
	if o.decode(&in) {
		o.policy(convert.NetworkPolicy(&in))
	}
}

func (o *object) workload(w *policy.Workload) {
	o.r.world.Workloads = o.r.world.Workloads.Put(w.ID, w)
}

func (o *object) policy(p *policy.Policy, problems []convert.Problem) {
	if o.accept(problems) {
		o.r.world.Policies = o.r.world.Policies.Put(p.ID, p)
	}
}
