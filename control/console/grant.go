package console

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	consolev1alpha1 "isobar.dev/api/console/v1alpha1"
)

// roleName is that of the right to ask for views, and of its binding. The chart has both, too.
const roleName = "isobar-console"

// Grant lets everybody whom the API server knows ask for views. What a view says is of what that user may list,
// so the right gives nothing by itself.
func Grant(ctx context.Context, client kubernetes.Interface) error {
	o := metav1.ApplyOptions{FieldManager: roleName, Force: true}
	role := applyrbacv1.ClusterRole(roleName).WithRules(applyrbacv1.PolicyRule().
		WithAPIGroups(consolev1alpha1.GroupVersion.Group).WithResources(consolev1alpha1.ResourceViews).WithVerbs("get", "list", "watch", "create"))
	if _, err := client.RbacV1().ClusterRoles().Apply(ctx, role, o); err != nil {
		return fmt.Errorf("grant views: %w", err)
	}
	binding := applyrbacv1.ClusterRoleBinding(roleName).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(roleName)).
		WithSubjects(applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(user.AllAuthenticated))
	if _, err := client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, o); err != nil {
		return fmt.Errorf("grant views: %w", err)
	}
	return nil
}
