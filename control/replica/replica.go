// Package replica wires one replica together: the loops of the controller, the
// webhooks, the runtime API, and what tells the API server of both servers.
package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/console"
	"isobar.dev/control/controller"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/enroll"
	"isobar.dev/control/identity"
	"isobar.dev/control/leader"
	"isobar.dev/control/machines"
	"isobar.dev/control/webhook"
)

// Certificates are what both servers show; *authority.Shared and
// *authority.Mounted are some.
type Certificates interface {
	webhook.Certificates
	// Refresh reads what others have changed. An error leaves what was known.
	Refresh(context.Context) error
}

// Options configure a Replica.
type Options struct {
	// Clouds makes the adapters of the cluster with that ID.
	Clouds func(cluster string) map[string]controller.Factory
	// Controller has the options of the loops, but for Clouds.
	Controller controller.Options
	// Certificates of both servers. nil means that each keeps an authority of its
	// own in its Dir.
	Certificates Certificates

	// WebhookListen and APIListen are addresses; empty means a free port of 127.0.0.1.
	WebhookListen, APIListen string
	// AgentsListen is a second address of the API, for agents that reach it directly.
	// Empty means none.
	AgentsListen string
	// Webhook and API are options of the servers, but for Certificates.
	Webhook webhook.Options
	API     apiserver.Options
	// WebhookTarget and APITarget are where the API server finds them; bundles are
	// added. A WebhookTarget without a Service is that of WebhookListen, and an
	// APITarget without a port has that of APIListen.
	WebhookTarget webhook.Target
	APITarget     apiserver.Target
	// ControlPlane: controlplane.antrea.io and stats.antrea.io are served. Where an
	// antrea-controller serves them, that is an error.
	ControlPlane bool
	// AgentNamespace is where upstream's agents look for whom to ask and to believe:
	// the Service antrea and the ConfigMap antrea-ca of kube-system, with upstream's
	// manifests. Empty means that agents are told otherwise.
	AgentNamespace string
	// TakeOver: the ConfigMap and the AntreaControllerInfo of an antrea-controller that
	// is no more become ours. They are left alone otherwise.
	TakeOver bool
	// AgentServers are URLs by which agents of machines outside the cluster reach the replicas, as https://isobar.example.com:10443. Where
	// the Certificates are made by others, they must be for these hosts. None: the hosts of the API at the port of
	// AgentsListen; without that the address of APIListen, where it is one of this machine's alone, or else people have to know.
	AgentServers []string
	// AgentLife is how long certificates of agents are good for, at most authority.MaxClientLife; 0 means 24 hours.
	AgentLife time.Duration
	// Pod and Node are the replica's own, and told in the AntreaControllerInfo.
	Pod, Node string
	// Tiers is the client's configuration for repairing built-in tiers; nil means
	// that of the replica, which then must be Webhook.Controller.
	Tiers *rest.Config
	// Every is the time between two looks at the certificates and at what the API
	// server has been told of the servers; 0 means a minute.
	Every time.Duration
}

// Replica is one process that serves, and writes while it holds the office.
type Replica struct {
	config *rest.Config
	o      Options
	log    *slog.Logger

	core          kubernetes.Interface
	client, tiers dynamic.Interface
	office        *leader.Office
	controller    *controller.Controller
	hooks         *webhook.Server
	api           *apiserver.Server
	hooksL, apiL  net.Listener
	agentsL       net.Listener          // nil without AgentsListen
	agents        *controlplane.Service // nil without a ControlPlane, as are the next two
	identities    *identity.Agents
	issuer        *authority.Clients
	moved         chan struct{} // holds one: endpoints of the replicas are others
	isTold        sync.Once
	told          chan struct{} // closed when machines outside the cluster can find this replica
}

// New returns a Replica of the API server that config reaches, which it asks for the ID
// of the cluster. It listens, and starts nothing; call Start.
func New(ctx context.Context, config *rest.Config, o Options) (*Replica, error) {
	o.Every = cmp.Or(o.Every, time.Minute)
	r := &Replica{config: config, o: o, log: o.Controller.Log, office: o.Controller.Office, moved: make(chan struct{}, 1), told: make(chan struct{})}
	if r.log == nil {
		r.log = slog.Default()
	}
	var err error
	if r.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	// Admission waits for reads of this client: it has no limit of its own, the API
	// server has.
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	if r.client, err = dynamic.NewForConfig(unlimited); err != nil {
		return nil, err
	}
	r.tiers = r.client
	if o.Tiers != nil {
		if r.tiers, err = dynamic.NewForConfig(o.Tiers); err != nil {
			return nil, err
		}
	}
	if o.Certificates != nil {
		if err := o.Certificates.Refresh(ctx); err != nil {
			return nil, err
		}
		r.o.Webhook.Certificates, r.o.API.Certificates = o.Certificates, o.Certificates
	}
	if err := r.make(ctx); err != nil {
		return nil, err
	}
	return r, r.listen()
}

func (r *Replica) make(ctx context.Context) error {
	// The UID of this namespace is what identifies a cluster.
	system, err := r.core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("identify the cluster: %w", err)
	}
	r.o.Controller.Clouds = r.o.Clouds(string(system.UID))
	if r.o.ControlPlane {
		r.o.Controller.Reports = controlplane.NewReports(r.office)
		r.o.Controller.Machines = machines.New(machines.Options{Office: r.office})
	}
	if r.controller, err = controller.New(r.config, r.o.Controller); err != nil {
		return err
	}
	r.o.Webhook.Warn = r.controller.Warnings
	if r.hooks, err = webhook.New(r.client, r.o.Webhook); err != nil {
		return err
	}
	r.o.API.Planner = r.controller
	if r.o.ControlPlane {
		r.agents = controlplane.New(controlplane.Options{World: r.controller.KnownWorld, Feed: r.controller.Feed(), Reports: r.o.Controller.Reports, Office: r.office})
		r.o.API.Groups = r.agents.Groups()
		if err := r.identify(ctx); err != nil {
			return err
		}
		r.o.API.Machines, r.o.API.MachineGate = r.controller.Runtime(), controlplane.CheckVM
	}
	r.o.API.Groups = append(r.o.API.Groups, console.New(shown{r.controller, r.agents}).Group())
	r.api, err = apiserver.New(r.config, r.controller.Runtime(), r.o.API)
	return err
}

// agentsSecret has the authority of agents' certificates.
const agentsSecret = "isobar-agents-ca"

// identify has agents of machines taken that have certificates of ours.
func (r *Replica) identify(ctx context.Context) error {
	hosts, err := enroll.Hosts(r.o.AgentServers)
	if err != nil {
		return fmt.Errorf("servers of agents: %w", err)
	}
	if len(hosts) > 0 && r.o.API.Certificates == nil {
		if len(r.o.API.Hosts) == 0 {
			r.o.API.Hosts = apiserver.DefaultHosts()
		}
		r.o.API.Hosts = append(slices.Clone(r.o.API.Hosts), hosts...)
	}
	r.issuer = authority.NewClients(r.core, r.o.APITarget.Namespace, agentsSecret, "agents")
	if err := r.issuer.Refresh(ctx); err != nil {
		return err
	}
	r.identities, err = identity.New(r.config, r.issuer, identity.Options{Life: r.o.AgentLife, Log: r.log})
	r.o.API.Agents = r.identities
	return err
}

// agentServers are what machines are to join by.
func (r *Replica) agentServers() []string {
	l := r.agentsL
	if l == nil {
		l = r.apiL
	}
	at, ok := l.Addr().(*net.TCPAddr)
	switch {
	case len(r.o.AgentServers) > 0 || !ok:
		return r.o.AgentServers
	case !at.IP.IsUnspecified() && (r.agentsL != nil || at.IP.IsLoopback()):
		return []string{"https://" + at.String()}
	case r.agentsL == nil:
		return nil // behind a Service, of which nobody outside knows
	}
	var out []string
	for _, h := range r.o.API.Hosts {
		if a, err := netip.ParseAddr(h); err == nil && a.IsGlobalUnicast() || err != nil && h != "localhost" && h != r.o.APITarget.Host() {
			out = append(out, "https://"+net.JoinHostPort(h, strconv.Itoa(at.Port)))
		}
	}
	return out
}

func (r *Replica) listen() (err error) {
	const free = "127.0.0.1:0"
	if r.hooksL, err = net.Listen("tcp", cmp.Or(r.o.WebhookListen, free)); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	if r.apiL, err = net.Listen("tcp", cmp.Or(r.o.APIListen, free)); err != nil {
		r.hooksL.Close()
		return fmt.Errorf("runtime API: %w", err)
	}
	if r.o.AgentsListen == "" {
		return nil
	}
	if r.agentsL, err = net.Listen("tcp", r.o.AgentsListen); err != nil {
		r.hooksL.Close()
		r.apiL.Close()
		return fmt.Errorf("agents: %w", err)
	}
	return nil
}

// AgentsAddr is where agents reach the API directly; nil without AgentsListen.
func (r *Replica) AgentsAddr() net.Addr {
	if r.agentsL == nil {
		return nil
	}
	return r.agentsL.Addr()
}

// Controller returns the replica's loops.
func (r *Replica) Controller() *controller.Controller { return r.controller }

// Start starts everything, each part by spawn, which runs it in the background.
// A replica that holds the office has told the API server of its servers when
// Start returns, and its API is served.
func (r *Replica) Start(ctx context.Context, spawn func(name string, part func(context.Context) error)) error {
	spawn("webhooks", func(ctx context.Context) error { return r.hooks.Run(ctx, r.hooksL) })
	if r.office.IsHeld() {
		// Webhooks of the last start may stand at another address and refuse all
		// writes until they are replaced, so nothing may be written before.
		if err := r.ensureWebhooks(ctx); err != nil {
			return err
		}
	}
	spawn("controller", r.controller.Run)
	if r.identities != nil {
		spawn("identities of agents", r.identities.Run)
	}
	spawn("runtime API", func(ctx context.Context) error { return r.api.Run(ctx, merge(r.apiL, r.agentsL)) })
	if r.office.IsHeld() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := apiserver.Install(ctx, r.client, r.apiTarget()); err != nil {
			return err
		}
	}
	spawn("registrations", r.keep)
	if r.mirrors() {
		spawn("endpoints", r.follow)
	}
	return nil
}

// keep keeps the certificates fresh and, while the office is held, what the API
// server knows of the servers.
func (r *Replica) keep(ctx context.Context) error {
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	for {
		changed := r.office.Changed()
		if err := r.ensure(ctx); err != nil && ctx.Err() == nil {
			r.log.LogAttrs(ctx, slog.LevelWarn, "will try again", slog.String("part", "registrations"), slog.String("error", err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
		case <-r.moved:
		}
	}
}

func (r *Replica) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Every)
	defer cancel()
	if r.o.Certificates != nil {
		if err := r.o.Certificates.Refresh(ctx); err != nil {
			return err
		}
	}
	if r.issuer != nil {
		if err := r.issuer.Refresh(ctx); err != nil {
			return err
		}
	}
	write, done, err := r.office.Begin(ctx)
	if err != nil {
		return nil // its leader's work
	}
	defer done()
	if err := r.ensureWebhooks(write); err != nil {
		return err
	}
	if err := apiserver.Register(write, r.client, r.apiTarget()); err != nil {
		return err
	}
	return r.announce(write)
}

func (r *Replica) ensureWebhooks(ctx context.Context) error {
	t := r.o.WebhookTarget
	t.CABundle = r.hooks.CABundle()
	if t.Service == nil {
		t.URL = "https://" + r.hooksL.Addr().String()
	}
	if err := webhook.Install(ctx, r.client, t); err != nil {
		return err
	}
	return webhook.EnsureTiers(ctx, r.tiers)
}

func (r *Replica) apiTarget() apiserver.Target {
	t := r.o.APITarget
	t.CABundle, t.Plans = r.api.CABundle(), true
	for _, g := range r.o.API.Groups {
		t.Groups = append(t.Groups, g.Version)
	}
	if t.Port == 0 {
		t.Port = int32(r.apiL.Addr().(*net.TCPAddr).Port)
	}
	return t
}
