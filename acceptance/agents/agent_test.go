package agents_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/api/convert"
	"isobar.dev/source/antrea"
)

// agent is one Node's: it enforces its State at once, and reports all policies as realized.
type agent struct {
	node string
	src  *antrea.Source

	mu     sync.Mutex
	states int // that it has had
	fails  string
}

// startAgent runs an agent until the test ends, which p looks at.
func startAgent(t testing.TB, p *probe, node string, config *rest.Config, o antrea.Options) *agent {
	t.Helper()
	src, err := antrea.New(antrea.Fixed(config), node, o)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{node: node, src: src}
	p.expect(convert.NodeTarget(node))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = src.Run(ctx) }) // it has no error to give
	done.Go(func() {
		for last := (*antrea.State)(nil); ; {
			select {
			case <-ctx.Done():
				return
			case <-src.Changed():
				st := src.State()
				if st == last { // it was there by the time that another one was looked at
					continue
				}
				last = st
				a.mu.Lock()
				a.states++
				a.mu.Unlock()
				p.look(st.Ruleset)
				a.report()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return a
}

// report says that all policies are realized, or why not.
func (a *agent) report() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []antrea.Realized
	if st := a.src.State(); st != nil {
		for _, p := range st.Policies {
			list = append(list, antrea.Realized{UID: p.UID, Generation: p.Generation, Failure: a.fails})
		}
	}
	a.src.SetRealized(list)
}

// fail has the agent report from now on that it can realize nothing, for that reason.
func (a *agent) fail(why string) {
	a.mu.Lock()
	a.fails = why
	a.mu.Unlock()
	a.report()
}

// count is how many States the agent has had.
func (a *agent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.states
}

// agentsUser makes an account that may do what an agent does, for any Node, and returns its token.
func agentsUser(t testing.TB, core kubernetes.Interface, ns string) string {
	t.Helper()
	ctx := t.Context()
	if _, err := core.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agents"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const group = "controlplane.antrea.io"
	role, err := core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "agents-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"networkpolicies", "appliedtogroups", "addressgroups", "nodes"}, Verbs: []string{"get", "list", "watch", "create"}},
		{APIGroups: []string{group}, Resources: []string{"networkpolicies/status", "nodestatssummaries"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agents-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "agents"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = core.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
		_ = core.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
	token, err := core.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "agents", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// reach is how agents reach a server at an address, by a token, and believe it by its
// certificate's authority and name. Each call is another agent's: they share no connection.
func reach(addr, name, token string, ca []byte) *rest.Config {
	return &rest.Config{Host: "https://" + addr, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: name}, Proxy: http.ProxyURL(nil)}
}
