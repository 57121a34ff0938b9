package identity

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/enroll"
)

const (
	// Group is the group of all agents, and the organization in their certificates.
	Group = "isobar.dev:agents"
	// namePrefix begins their names; namespace and name of the ExternalNode follow.
	namePrefix = "isobar:vm:"
	// joining is the name of who has nothing yet but a join token.
	joining = "isobar:joining"
)

// agent is who has a certificate of ours that is not revoked. Only this package makes one, so
// its type tells it from whoever claims its name or group.
type agent struct {
	of          types.NamespacedName
	fingerprint string // of the public key
}

// joiner is who has a join token.
type joiner struct{ token enroll.Token }

var _, _ user.Info = (*agent)(nil), (*joiner)(nil)

// GetName is the common name in the certificate.
func (a *agent) GetName() string { return namePrefix + a.of.String() }

// GetUID is empty.
func (*agent) GetUID() string { return "" }

// GetGroups are those of all agents.
func (*agent) GetGroups() []string { return []string{Group, user.AllAuthenticated} }

// GetExtra is empty.
func (*agent) GetExtra() map[string][]string { return nil }

// GetName tells nobody which token it is.
func (*joiner) GetName() string { return joining }

// GetUID is empty.
func (*joiner) GetUID() string { return "" }

// GetGroups is empty: a token alone makes nobody an agent.
func (*joiner) GetGroups() []string { return nil }

// GetExtra is empty.
func (*joiner) GetExtra() map[string][]string { return nil }

// VM returns namespace and name of the ExternalNode whose agent a user is. ok is false for everybody
// else, whatever name or group he claims.
func VM(u user.Info) (namespace, name string, ok bool) {
	a, ok := u.(*agent)
	if !ok {
		return "", "", false
	}
	return a.of.Namespace, a.of.Name, true
}

// claims says whether a user that this package has not made goes by the names of its own.
func claims(u user.Info) bool {
	switch u.(type) {
	case nil, *agent, *joiner:
		return false
	}
	return strings.HasPrefix(u.GetName(), namePrefix) || u.GetName() == joining || slices.Contains(u.GetGroups(), Group)
}

// Authorize says what agents may, which is this and nothing else, and has no opinion on others. Of which
// machine they may is said by who serves the resource, by VM.
func (a *Agents) Authorize(_ context.Context, at authorizer.Attributes) (authorizer.Decision, string, error) {
	switch u := at.GetUser().(type) {
	case *agent:
		if u.may(at) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "agents may watch what concerns their own machine, report on it, and renew their certificate", nil
	case *joiner:
		if isRequest(at, u.token.Namespace) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "a join token is for joining alone", nil
	default:
		if u != nil && claims(u) {
			return authorizer.DecisionDeny, "names of agents are theirs alone", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// isRequest says whether a certificate is asked for in a namespace.
func isRequest(at authorizer.Attributes, namespace string) bool {
	return at.IsResourceRequest() && at.GetVerb() == "create" && at.GetAPIGroup() == isobarv1alpha1.GroupVersion.Group &&
		at.GetResource() == isobarv1alpha1.ResourceAgentCertificates && at.GetSubresource() == "" && at.GetNamespace() == namespace
}

func (u *agent) may(at authorizer.Attributes) bool {
	if !at.IsResourceRequest() {
		return false
	}
	resource := at.GetResource()
	if s := at.GetSubresource(); s != "" {
		resource += "/" + s
	}
	switch at.GetAPIGroup() {
	case controlplanev1beta2.GroupVersion.Group:
		switch resource {
		case "networkpolicies", "appliedtogroups", "addressgroups":
			return at.GetVerb() == "watch"
		case "networkpolicies/status", "nodestatssummaries":
			return at.GetVerb() == "create"
		}
	case runtimev1alpha1.GroupVersion.Group:
		return resource == runtimev1alpha1.ResourceVirtualMachineRuntimeInfos && at.GetVerb() == "create" && at.GetNamespace() == u.of.Namespace
	}
	return isRequest(at, u.of.Namespace)
}
