package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/cmd/isobar/clouds"
	"isobar.dev/control/announce"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/controller"
	"isobar.dev/control/enroll"
	"isobar.dev/control/leader"
	"isobar.dev/control/metrics"
	"isobar.dev/control/replica"
	"isobar.dev/control/web"
	"isobar.dev/control/webhook"
	"isobar.dev/source/antrea"
	"isobar.dev/source/kube"
)

type controllerFlags struct {
	config, kubeconfig, antrea, certDir   string
	metrics, health, webhookAddr, apiAddr string
	elect, debug                          bool
	agentServers                          []string
	console                               consoleServing
}

func controllerCommand() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run Isobar in a cluster: the loops, the webhooks and the runtime API",
		Long: `Runs one replica of the controller until it is told to end. Its namespace is that in the
environment's POD_NAMESPACE, or else that of the kubeconfig or the service account.

SIGHUP reads the log level in the configuration file anew, as does a change of that file.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&replicaRun{flags: f, logTo: cmd.ErrOrStderr()}).run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file, YAML")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the service account)")
	flags.StringVar(&f.antrea, "antrea-kubeconfig", "", "kubeconfig file of an antrea-controller, or of another Isobar, whose computed policies are enforced in place of our own (default: antreaKubeconfig of the configuration)")
	flags.StringVar(&f.certDir, "cert-dir", "", "folder with tls.crt, tls.key and ca.crt of both servers (default: Isobar makes its own)")
	flags.StringVar(&f.metrics, "metrics-addr", ":8080", "address of /metrics; 0 for none")
	flags.StringVar(&f.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&f.webhookAddr, "webhook-addr", ":9443", "address of the webhooks")
	flags.StringVar(&f.apiAddr, "api-addr", ":5443", "address of the runtime API")
	flags.StringSliceVar(&f.agentServers, "agent-server", nil, "URL by which agents of machines outside the cluster reach this server, as https://isobar.example.com:10443; may be given often (default: agentServers of the configuration)")
	flags.BoolVar(&f.elect, "enable-leader-election", false, "write only while this replica leads; needed with more than one")
	f.console.add(flags, "console-addr")
	flags.BoolVar(&f.debug, "enable-debug-log", false, "log level debug, where the configuration names none")
	return cmd
}

// replicaRun is one run of `isobar controller`.
type replicaRun struct {
	flags controllerFlags
	logTo io.Writer

	config config
	rest   *rest.Config
	ns     string
	level  slog.LevelVar
	log    *slog.Logger

	agentHosts []string // of the configuration's AgentServers

	consoleOptions web.Options
	consoleHost    string               // of its URL
	certificates   replica.Certificates // of all servers

	background
}

func (r *replicaRun) run(parent context.Context) error {
	var err error
	if r.config, err = readConfig(r.flags.config); err != nil {
		return err
	}
	if len(r.flags.agentServers) > 0 {
		if r.config.AgentServers = r.flags.agentServers; !r.config.ControlPlane {
			return errors.New("--agent-server: no agents are served without controlPlane")
		}
	}
	if r.agentHosts, err = enroll.Hosts(r.config.AgentServers); err != nil {
		return fmt.Errorf("--agent-server: %w", err)
	}
	if r.consoleOptions, r.consoleHost, err = r.flags.console.options(); err != nil {
		return err
	}
	if err := r.openLog(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(parent)
	r.failed = make(chan error, 1)
	err = r.start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-r.failed:
		}
	}
	if parent.Err() != nil {
		err = nil // told to end
	}
	cancel()
	r.parts.Wait()
	r.log.Info("ended")
	return err
}

func (r *replicaRun) defaultLevel() slog.Level {
	if r.flags.debug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (r *replicaRun) openLog() error {
	level, err := r.config.level(r.defaultLevel())
	if err != nil {
		return err
	}
	r.level.Set(level)
	o := &slog.HandlerOptions{Level: &r.level}
	var h slog.Handler = slog.NewJSONHandler(r.logTo, o)
	if r.config.LogFormat == "text" {
		h = slog.NewTextHandler(r.logTo, o)
	}
	r.log = slog.New(h)
	klog.SetSlogLogger(r.log) // client libraries write there too
	return nil
}

// followLevel sets the log level that the configuration file has, whenever it
// changes or a SIGHUP comes.
func (r *replicaRun) followLevel(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(5 * time.Second) // a ConfigMap's file is replaced by its folder
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
		case <-tick.C:
		}
		c, err := readConfig(r.flags.config)
		if err != nil {
			continue // it may be half written; a start would tell
		}
		level, err := c.level(r.defaultLevel())
		if err == nil && level != r.level.Level() {
			r.level.Set(level)
			r.log.Log(ctx, level, "log level", slog.String("level", level.String()))
		}
	}
}

// connect finds the API server, and the namespace of the replica.
func (r *replicaRun) connect() error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = r.flags.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	var err error
	if r.rest, err = loader.ClientConfig(); err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	r.rest.UserAgent = "isobar-controller"
	if r.ns = os.Getenv("POD_NAMESPACE"); r.ns == "" {
		if r.ns, _, err = loader.Namespace(); err != nil {
			return fmt.Errorf("find the namespace: %w", err)
		}
	}
	return nil
}

// start starts all parts of a replica.
func (r *replicaRun) start(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(r.rest)
	if err != nil {
		return err
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask who we are: %w", err)
	}
	var office *leader.Office
	if r.flags.elect {
		office = &leader.Office{}
	}
	told := metrics.New()
	o := r.options(client, office, told, me.Status.UserInfo.Username)
	if o.Controller.Computed, err = computedBy(cmp.Or(r.flags.antrea, r.config.AntreaKubeconfig)); err != nil {
		return err
	}
	made, err := replica.New(ctx, r.rest, o)
	if err != nil {
		return err
	}
	told.Follow(made.Controller())
	if err := r.serve(ctx, r.log, "metrics", r.flags.metrics, map[string]http.Handler{"/metrics": metricsOf(told)}); err != nil {
		return err
	}
	if err := r.serve(ctx, r.log, "probes", r.flags.health, map[string]http.Handler{"/": made.Health()}); err != nil {
		return err
	}
	if err := made.Start(ctx, func(name string, part func(context.Context) error) { r.spawn(ctx, name, part) }); err != nil {
		return err
	}
	if r.flags.console.isOn() {
		at, err := r.flags.console.start(ctx, &r.background, r.log, r.rest, r.consoleOptions, r.certificates)
		if err != nil {
			return err
		}
		r.log.Info("console", slog.String("address", at.String()))
	}
	if office != nil {
		election, err := leader.New(r.rest, r.ns, identity(), office, leader.Options{Log: r.log})
		if err != nil {
			return err
		}
		r.spawn(ctx, "leader election", election.Run)
	}
	if r.flags.config != "" {
		r.spawn(ctx, "log level", r.followLevel)
	}
	r.log.Info("running", slog.String("namespace", r.ns), slog.String("user", me.Status.UserInfo.Username))
	return nil
}

// computedBy returns what the controller of a kubeconfig file computes for the VMs of
// clouds, or nil where no file is named. The file's server is the controller's own
// address, or an API server in front of it.
func computedBy(file string) (*antrea.Source, error) {
	if file == "" {
		return nil, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("find the controller of computed policies: %w", err)
	}
	config.UserAgent = "isobar-controller"
	return antrea.New(antrea.Fixed(config), cloudv1alpha1.ExternalNodeController, antrea.Options{})
}

// identity is a name that no other process has, and that tells which Pod it is.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "isobar"
	}
	return host + "_" + uuid.NewString()
}

func (r *replicaRun) options(client kubernetes.Interface, office *leader.Office, told *metrics.Metrics, user string) replica.Options {
	api := apiserver.Target{Namespace: r.ns, Service: r.config.Service.Name, Port: r.config.Service.Port}
	hooks := &admissionregistrationv1.ServiceReference{Namespace: r.ns, Name: r.config.WebhookService.Name, Port: &r.config.WebhookService.Port}
	hosts := []string{api.Host(), hooks.Name + "." + r.ns + ".svc"}
	if r.config.AgentNamespace != "" {
		hosts = append(hosts, announce.Hosts(r.config.AgentNamespace)...)
	}
	hosts = append(hosts, r.agentHosts...)
	if r.flags.console.isOn() {
		if hosts = append(hosts, consoleService+"."+r.ns+".svc"); r.consoleHost != "" {
			hosts = append(hosts, r.consoleHost)
		}
	}
	r.certificates = authority.NewShared(client, r.ns, "isobar-controller-tls", hosts)
	if r.flags.certDir != "" {
		r.certificates = authority.NewMounted(r.flags.certDir)
	}
	adapters := clouds.Options{Prefix: r.config.CloudResourcePrefix, Observe: told.Called, AWS: aws.Options{MayWrite: office.Check}, Azure: azure.Options{MayWrite: office.Check}}
	return replica.Options{
		Clouds: func(cluster string) map[string]controller.Factory { return clouds.Factories(cluster, adapters) },
		Controller: controller.Options{
			Every: r.config.every(), Namespaces: r.config.Namespaces, ShowSecurityGroups: r.config.CloudSecurityGroupVisibility,
			LeavePolicyStatus: r.config.LeavePolicyStatus, LeaveExternalNodes: r.config.LeaveExternalNodes, Networks: kube.Networks{Pods: r.config.PodNetwork, Nodes: r.config.NodeNetwork},
			Office: office, Meter: told, Log: r.log,
		},
		Certificates: r.certificates, WebhookListen: r.flags.webhookAddr, APIListen: r.flags.apiAddr,
		Webhook:       webhook.Options{Controller: user, Log: r.log},
		WebhookTarget: webhook.Target{Service: hooks}, APITarget: api,
		ControlPlane: r.config.ControlPlane, AgentNamespace: r.config.AgentNamespace, TakeOver: r.config.TakeOver, AgentServers: r.config.AgentServers,
		Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"),
	}
}
