// Package embedded runs a whole Kubernetes control plane in one process: etcd,
// kube-apiserver, and the six controllers that give namespaces, ownership,
// service accounts and roles their meaning.
//
// It is the real kube-apiserver with RBAC, admission, aggregation and service
// account tokens on, not a model of one, so that what works against it works
// against a cluster. It needs no root, no container and no network beyond
// loopback. There is no kubelet, no scheduler and no workload controller: a Pod
// stays as it is written.
//
// # Who may talk to it
//
// Everything lives in one directory that only its user may enter. The API
// server asks for a client certificate or a token and does not know anonymous
// users. etcd asks for neither, so it has no port: it listens on a unix socket in
// a private directory, and on nothing for peers.
//
// # What survives
//
// A restart on the same directory has the same objects, authorities, service
// account key and, when it is still free, port. Certificates are renewed when
// less than 90 days are left, at the start and while running.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"isobar.dev/embedded/datadir"
	"isobar.dev/embedded/pki"
)

// Options configure Run. DataDir is required.
type Options struct {
	DataDir string
	Listen  string // "host" or "host:port"; empty means 127.0.0.1 and any free port, see datadir.Listen
	NoFsync bool   // do not wait for the disk: faster, and a power cut may lose the data
	Verbose int    // verbosity of the log, 0 to 10

	// Hosts are further DNS names and addresses by which clients call the server.
	Hosts []string

	// Authentication is the path of an AuthenticationConfiguration, which kube-apiserver
	// reads again when it changes: who else is known, by tokens of OpenID Connect
	// providers. Empty means nobody.
	Authentication string

	// Wait is how long to wait for another control plane to let go of DataDir: one
	// whose parent was killed takes a few seconds to end.
	Wait time.Duration

	// Ready is called once, when the server answers, the namespaces of every cluster are there and the controllers run.
	Ready func(Endpoint)
}

// An Endpoint is where a control plane answers, and to whom.
type Endpoint struct {
	URL        string
	Kubeconfig string // absolute path of an administrator's kubeconfig, mode 0600
}

const (
	kubeconfigName = "kubeconfig"
	logName        = "control-plane.log"

	readyTimeout = 5 * time.Minute // a healthy start takes 3 seconds; a loaded CI machine many more
	stopTimeout  = 4 * time.Second // for requests in flight; etcd is closed after it in any case
	renewEvery   = 12 * time.Hour  // how often a running control plane looks at its certificates
	pollEvery    = 20 * time.Millisecond
)

// Run runs a control plane until ctx ends, and returns nil when it stopped
// because of that. It may be called once in a process: klog, the feature gates
// and the metrics of Kubernetes are the process's own.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := open(ctx, o.DataDir, o.Wait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	listen := o.Listen
	if listen == "" {
		listen = "127.0.0.1"
	}
	host, _, err := datadir.SplitAddress(listen)
	if err != nil {
		return err
	}
	if err := dir.Describe(fmt.Sprintf("isobar-control-plane, pid %d, started %s", os.Getpid(), time.Now().UTC().Format(time.RFC3339))); err != nil {
		return err
	}
	names, err := serverNames(net.ParseIP(host), o.Hosts)
	if err != nil {
		return err
	}
	if err := pki.Ensure(dir, names, time.Now()); err != nil {
		return fmt.Errorf("certificates in %s: %w", dir.Path(""), err)
	}
	listener, err := dir.Listen(listen)
	if err != nil {
		return err
	}
	defer listener.Close() // the API server closes it, too, which does no harm
	closeLog := logTo(dir.Path(logName), o.Verbose)
	defer closeLog()
	if err := setVersion(); err != nil {
		return err
	}
	store, err := startEtcd(dir, o.NoFsync)
	if err != nil {
		return err
	}
	defer store.Close()
	return serve(ctx, dir, store, listener, names, o)
}

// open takes hold of the directory, for which it waits if another process holds it.
func open(ctx context.Context, path string, wait time.Duration) (*datadir.Dir, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		dir, err := datadir.Open(path)
		var inUse *datadir.InUseError
		if err == nil || !errors.As(err, &inUse) {
			return dir, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// serve runs the API server and the controllers on a running etcd.
func serve(ctx context.Context, dir *datadir.Dir, store *etcd, listener net.Listener, names pki.Names, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api, err := newAPIServer(ctx, dir, store.Endpoint(), listener, o.Authentication)
	if err != nil {
		return fmt.Errorf("make kube-apiserver: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- api.run(ctx) }()

	started := make(chan error, 1)
	go func() { started <- start(ctx, dir, api, listener, o.Ready) }()
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for {
		select {
		case err := <-started:
			if ctx.Err() == nil && err != nil {
				cancel()
				wait(ended)
				return err
			}
			started = nil
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("kube-apiserver ended, see %s: %w", dir.Path(logName), orUnknown(err))
		case err := <-store.Err():
			cancel()
			wait(ended)
			return fmt.Errorf("etcd ended, see %s: %w", dir.Path(logName), orUnknown(err))
		case <-renew.C:
			if err := refresh(dir, names, listener); err != nil {
				logError(err, "renew certificates")
			}
		case <-ctx.Done():
			wait(ended)
			return nil
		}
	}
}

// start waits until the API server answers, starts the controllers, and says so.
func start(ctx context.Context, dir *datadir.Dir, api *apiServer, listener net.Listener, ready func(Endpoint)) error {
	within, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := api.waitReady(within); err != nil {
		return fmt.Errorf("wait for kube-apiserver, see %s: %w", dir.Path(logName), err)
	}
	if err := api.furnish(within); err != nil {
		return fmt.Errorf("wait for kube-apiserver, see %s: %w", dir.Path(logName), err)
	}
	if err := startControllers(ctx, within, api.loopback, dir); err != nil {
		return err
	}
	url := endpointURL(listener)
	if err := writeKubeconfig(dir, url); err != nil {
		return err
	}
	if ready != nil {
		ready(Endpoint{URL: url, Kubeconfig: dir.Path(kubeconfigName)})
	}
	return nil
}

// refresh renews certificates that end soon. The API server reads its own
// again by itself.
func refresh(dir *datadir.Dir, names pki.Names, listener net.Listener) error {
	if err := pki.Ensure(dir, names, time.Now()); err != nil {
		return err
	}
	return writeKubeconfig(dir, endpointURL(listener))
}

// wait gives the API server its time to stop.
func wait(ended <-chan error) {
	select {
	case <-ended:
	case <-time.After(stopTimeout):
	}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// serverNames are the names and addresses that clients use for a server
// listening on host, and more of them.
func serverNames(host net.IP, more []string) (pki.Names, error) {
	n := pki.Names{
		DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, serviceIP},
	}
	switch {
	case host.IsUnspecified():
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return pki.Names{}, fmt.Errorf("list own addresses: %w", err)
		}
		for _, a := range addrs {
			if ipnet, ok := a.(*net.IPNet); ok {
				n.IPs = append(n.IPs, ipnet.IP)
			}
		}
		if name, err := os.Hostname(); err == nil {
			n.DNS = append(n.DNS, strings.ToLower(name))
		}
	default:
		n.IPs = append(n.IPs, host)
	}
	for _, name := range more {
		if ip := net.ParseIP(name); ip != nil {
			n.IPs = append(n.IPs, ip)
			continue
		}
		name = strings.ToLower(name)
		if len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
			return pki.Names{}, fmt.Errorf("host %q: want a DNS name or an address", name)
		}
		n.DNS = append(n.DNS, name)
	}
	slices.Sort(n.DNS)
	n.DNS = slices.Compact(n.DNS)
	slices.SortFunc(n.IPs, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	n.IPs = slices.CompactFunc(n.IPs, net.IP.Equal)
	return n, nil
}

// endpointURL is the URL for clients on this machine.
func endpointURL(listener net.Listener) string {
	addr := *listener.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		addr.IP = net.IPv4(127, 0, 0, 1)
	}
	return "https://" + addr.String()
}
