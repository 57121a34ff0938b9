package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/identity"
)

// resourceNodes is what a right to ask for Nodes is of. It is served nowhere.
const resourceNodes = "nodes"

// gate says who may ask for, and report on, which Node.
type gate struct{ who authorizer.Authorizer }

// check returns nil when the user of a request may do what the verb says as the Node
// of that name; empty: as all of them. A VM is a Node "namespace/name".
func (g gate) check(ctx context.Context, verb, node string) error {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("who asks is not known")
	}
	if node != "" && slices.Contains(nodesOf(u), node) {
		return nil
	}
	a := authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: controlplanev1beta2.GroupVersion.Group, APIVersion: controlplanev1beta2.GroupVersion.Version,
		Resource: resourceNodes, Name: node, ResourceRequest: true,
	}
	if namespace, name, ok := strings.Cut(node, "/"); ok {
		a.Namespace, a.Name = namespace, name
	}
	decision, _, err := g.who.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("whether %q may %s the node %q cannot be said now", u.GetName(), verb, node))
	}
	return apierrors.NewForbidden(controlplanev1beta2.Resource(resourceNodes), node, errLacks(u, a))
}

// CheckVM returns nil when the user of a request may do what the verb says as the VM of that
// "namespace/name".
func CheckVM(ctx context.Context, who authorizer.Authorizer, verb, machine string) error {
	return gate{who}.check(ctx, verb, machine)
}

// errLacks says what right a user lacks.
func errLacks(u user.Info, a authorizer.AttributesRecord) error {
	stands := "no node"
	if nodes := nodesOf(u); len(nodes) > 0 {
		stands = strings.Join(nodes, " and ") + " alone"
	}
	what := "for all nodes"
	if a.Name != "" {
		what = fmt.Sprintf("with the resource name %q", a.Name)
	}
	if a.Namespace != "" {
		what += fmt.Sprintf(" in the namespace %q", a.Namespace)
	}
	return fmt.Errorf("user %q stands for %s; for more grant it the verb %q on the resource %q of the API group %q %s",
		u.GetName(), stands, a.Verb, resourceNodes, a.APIGroup, what)
}

// nodesOf returns the Nodes that a user stands for: a kubelet for its own; a
// ServiceAccount for the Node of the Pod that its token is bound to, which the API
// server vouches for, and for the VM that has its name; an agent for its VM.
func nodesOf(u user.Info) []string {
	if namespace, name, ok := identity.VM(u); ok {
		return []string{namespace + "/" + name}
	}
	if name, ok := strings.CutPrefix(u.GetName(), "system:node:"); ok {
		if name == "" || !slices.Contains(u.GetGroups(), user.NodesGroup) {
			return nil
		}
		return []string{name}
	}
	namespace, name, err := serviceaccount.SplitUsername(u.GetName())
	if err != nil {
		return nil
	}
	var out []string
	if bound := u.GetExtra()[serviceaccount.NodeNameKey]; len(bound) == 1 && bound[0] != "" && !strings.Contains(bound[0], "/") {
		out = append(out, bound[0])
	}
	return append(out, namespace+"/"+name)
}
