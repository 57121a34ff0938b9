package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"isobar.dev/embedded/datadir"
	"isobar.dev/embedded/pki"
)

// Service addresses. The first address of the first range is that of the
// Service kubernetes.default.
const serviceRanges = "10.96.0.0/16,fd00:10:96::/112"

var serviceIP = net.IPv4(10, 96, 0, 1)

// shutdownTimeout is what the API server gives to requests in flight; its own
// default is a minute, which a single long request would use up.
const shutdownTimeout = 2 * time.Second

// apiServer is a kube-apiserver that is made and not yet running.
type apiServer struct {
	run      func(context.Context) error
	loopback *rest.Config // of an administrator, by a token that lives in memory
}

// flags are kube-apiserver's own, so that they can be looked up in its manual.
func flags(dir *datadir.Dir, etcd string, addr *net.TCPAddr, authentication string) []string {
	advertise := addr.IP
	if advertise.IsUnspecified() || advertise.To4() == nil {
		advertise = net.IPv4(127, 0, 0, 1)
	}
	out := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + addr.IP.String(),
		fmt.Sprintf("--secure-port=%d", addr.Port),
		"--advertise-address=" + advertise.String(),
		// Endpoints may not be loopback addresses.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRanges,

		"--tls-cert-file=" + dir.Path(pki.Server),
		"--tls-private-key-file=" + dir.Path(pki.Server),
		"--client-ca-file=" + dir.Path(pki.CACert),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",

		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + dir.Path(pki.ServiceAccount),
		"--service-account-signing-key-file=" + dir.Path(pki.ServiceAccount),

		"--requestheader-client-ca-file=" + dir.Path(pki.FrontProxyCACert),
		"--requestheader-allowed-names=" + pki.FrontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + dir.Path(pki.FrontProxy),
		"--proxy-client-key-file=" + dir.Path(pki.FrontProxy),

		"--allow-privileged=true", // there is no kubelet that would run anything
		"--profiling=false",
	}
	if authentication != "" {
		out = append(out, "--authentication-config="+authentication)
	}
	return out
}

// newAPIServer makes a kube-apiserver that serves on listener.
func newAPIServer(ctx context.Context, dir *datadir.Dir, etcd string, listener net.Listener, authentication string) (*apiServer, error) {
	s := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := s.Flags()
	for _, f := range named.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse(flags(dir, etcd, listener.Addr().(*net.TCPAddr), authentication)); err != nil {
		return nil, err
	}
	s.SecureServing.Listener = listener
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // the server's warnings to itself interest nobody

	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, fmt.Errorf("options: %w", errs[0])
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	ready, err := config.Complete()
	if err != nil {
		return nil, err
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return nil, err
	}
	chain.GenericAPIServer.ShutdownTimeout = shutdownTimeout
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, err
	}
	return &apiServer{run: prepared.Run, loopback: chain.GenericAPIServer.LoopbackClientConfig}, nil
}

// waitReady waits until /readyz is true.
func (a *apiServer) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(a.loopback)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var status int
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Error()
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// furnish returns when what every cluster has is there: kube-apiserver makes it by and by when it is ready, and a
// namespace that it could not make a minute later.
func (a *apiServer) furnish(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(a.loopback)
	if err != nil {
		return err
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		_, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		// Without this nobody can serve a group of the API: it says by whom requests are sent on.
		const name = "extension-apiserver-authentication"
		m, err2 := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err2 == nil && (m.Data["client-ca-file"] == "" || m.Data["requestheader-client-ca-file"] == "") {
			err2 = fmt.Errorf("ConfigMap %s is not complete", name)
		}
		if err = errors.Join(err, err2); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
