package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/authority"
	"isobar.dev/control/identity"
	"isobar.dev/policy"
)

// Certificates are what a Server shows, and what the API server is to believe
// them by.
type Certificates interface {
	Bundle() []byte // PEM
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// Options configure a Server. The zero value is ready to use.
type Options struct {
	// Dir keeps the certificate authority, so that what is installed stays right
	// after a restart, and for every replica that shares Dir. Empty means that it
	// lives as long as the Server.
	Dir string
	// Certificates are shown instead of those of an authority in Dir. nil means the latter.
	Certificates Certificates
	// Hosts are the DNS names and addresses that the API server dials: of a Target
	// that is "service.namespace.svc". None means DefaultTarget's.
	Hosts []string
	// Planner answers Plans, and tells of Targets; nil means that they are not served.
	Planner Planner
	// Groups are served besides.
	Groups []Group
	// Agents are taken besides those whom the API server knows. nil: there are none.
	Agents *identity.Agents
	// Machines has what the agents of VMs say of themselves; nil means that it is not served.
	// MachineGate says who may speak as which of them.
	Machines    Machines
	MachineGate Gate
}

// Server serves an Inventory.
type Server struct {
	inventory Inventory
	planner   Planner
	more      []Group
	agents    *identity.Agents
	authority Certificates
	client    kubernetes.Interface

	vms      *vmResource
	vpcs     *resource[*runtimev1alpha1.Vpc]
	groups   *resource[*runtimev1alpha1.SecurityGroup]
	policies *resource[*runtimev1alpha1.VirtualMachinePolicy]
	infos    *infoResource // nil without Machines
	gate     Gate
	// closing ends watches, which would else hold up the end of the server.
	closing chan struct{}
}

// New returns a Server of an Inventory behind the API server that config
// reaches, which it asks who a client is and what it may do. It makes the
// certificate authority, or reads it, and starts nothing; call Run.
func New(config *restclient.Config, inventory Inventory, o Options) (*Server, error) {
	if len(o.Hosts) == 0 {
		o.Hosts = DefaultHosts()
	}
	a := o.Certificates
	if a == nil {
		var err error
		if a, err = authority.New("runtime-api", o.Dir, o.Hosts); err != nil {
			return nil, err
		}
	}
	// Who asks first, and what each user may, is looked up by a review each: at client-go's five a second, a
	// thousand agents would wait for ten minutes. The API server has its own limits.
	unlimited := restclient.CopyConfig(config)
	unlimited.QPS = -1
	unlimited.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("client of reviews: %w", err)
	}
	s := &Server{inventory: inventory, planner: o.Planner, more: o.Groups, agents: o.Agents, authority: a, client: client, closing: make(chan struct{})}
	s.vms = &vmResource{resource: newResource(virtualMachines(), s.closing), setTags: inventory.SetTags}
	vpc, group, policies := newResource(vpcs(), s.closing), newResource(securityGroups(), s.closing), newResource(machinePolicies(), s.closing)
	s.vpcs, s.groups, s.policies = &vpc, &group, &policies
	if o.Machines != nil {
		infos := newResource(runtimeInfos(), s.closing)
		close(infos.ready) // whether all have spoken is asked each time
		s.infos, s.gate = &infoResource{resource: &infos, agents: o.Machines}, o.MachineGate
	}
	return s, nil
}

// DefaultHosts are those of Options without any.
func DefaultHosts() []string { return []string{DefaultTarget.Host(), "localhost", "127.0.0.1"} }

// CABundle is the PEM of the certificate authority, for [Install].
func (s *Server) CABundle() []byte { return s.authority.Bundle() }

// Run serves TLS on l until ctx is done, and closes l. It is called once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server, err := s.server(ctx, l)
	if err != nil {
		l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { close(s.closing) })()
	done := make(chan struct{})
	go func() { defer close(done); s.follow(ctx) }()
	err = server.PrepareRun().RunWithContext(ctx)
	cancel()
	<-done
	if err != nil {
		return fmt.Errorf("serve %s: %w", runtimev1alpha1.GroupVersion, err)
	}
	return nil
}

// follow brings the stores up to date with the inventory until ctx is done.
func (s *Server) follow(ctx context.Context) {
	synced, groups, policies := s.inventory.Synced(), s.inventory.SecurityGroupsSynced(), s.inventory.PoliciesSynced()
	for {
		s.vms.take(synced, s.inventory.VirtualMachines)
		s.vpcs.take(synced, s.inventory.Vpcs)
		s.groups.take(groups, s.inventory.SecurityGroups)
		s.policies.take(policies, s.inventory.VirtualMachinePolicies)
		if s.infos != nil {
			s.infos.update()
		}
		select {
		case <-ctx.Done():
			return
		case <-unless(isClosed(s.vms.ready) && isClosed(s.vpcs.ready), synced):
		case <-unless(isClosed(s.groups.ready), groups):
		case <-unless(isClosed(s.policies.ready), policies):
		case <-s.inventory.Changed():
		}
	}
}

// unless returns c, or what never receives when that has been seen to.
func unless(done bool, c <-chan struct{}) <-chan struct{} {
	if done {
		return nil
	}
	return c
}

// take brings the store up to date. It is ready once it has what there was after
// synced was closed.
func (r *resource[T]) take(synced <-chan struct{}, items func() policy.Table[T]) {
	isAll := isClosed(synced) // before it is asked, so that the answer is of then or later
	r.store.put(items())
	if isAll && !isClosed(r.ready) {
		close(r.ready)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stopTimeout is what requests under way have at the end. Connections on which nothing has
// been asked yet use it up, too: net/http waits 5 s for them.
const stopTimeout = 2 * time.Second

// server returns what Run runs.
func (s *Server) server(ctx context.Context, l net.Listener) (*genericapiserver.GenericAPIServer, error) {
	scheme, codecs, err := newScheme(s.more)
	if err != nil {
		return nil, err
	}
	config := genericapiserver.NewConfig(codecs)
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: hangups{l}, Cert: serving{s.authority}, MinTLSVersion: tls.VersionTLS12}
	config.ExternalAddress = l.Addr().String()
	config.LoopbackClientConfig = &restclient.Config{} // nothing calls itself here
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.EnableProfiling, config.EnableIndex = false, false
	// Watches without a timeout of their own last this long at least: to begin anew
	// costs an agent and us all that there is.
	config.MinRequestTimeout = int(minWatch.Seconds())
	config.BuildHandlerChainFunc = func(h http.Handler, c *genericapiserver.Config) http.Handler {
		all := genericapiserver.DefaultBuildHandlerChain(limitReports(h, s.reported()), c)
		if s.agents != nil {
			all = s.agents.Handler(all)
		}
		return newTurns(all)
	}
	if err := describe(config, s.more); err != nil {
		return nil, err
	}
	if err := authenticate(ctx, config, s.client); err != nil {
		return nil, err
	}
	if err := authorize(config, s.client, s.agents); err != nil {
		return nil, err
	}
	if s.agents != nil {
		s.agents.ServersBy(s.authority.Bundle)
		config.Authentication.Authenticator = s.agents.Authenticator(config.Authentication.Authenticator)
		if err := config.Authentication.ApplyClientCert(s.agents.ClientCA(), config.SecureServing); err != nil {
			return nil, fmt.Errorf("authenticate agents: %w", err)
		}
	}
	server, err := config.Complete(nil).New("isobar-runtime", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make API server: %w", err)
	}
	server.ShutdownTimeout = stopTimeout
	group := genericapiserver.NewDefaultAPIGroupInfo(runtimev1alpha1.GroupVersion.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[runtimev1alpha1.GroupVersion.Version] = map[string]rest.Storage{
		s.vms.resource.resource: s.vms, s.vpcs.resource: s.vpcs, s.groups.resource: s.groups, s.policies.resource: s.policies,
	}
	if s.infos != nil {
		who := config.Authorization.Authorizer
		s.infos.gate = func(ctx context.Context, verb, machine string) error { return s.gate(ctx, who, verb, machine) }
		group.VersionedResourcesStorageMap[runtimev1alpha1.GroupVersion.Version][s.infos.resource.resource] = s.infos
	}
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("serve %s: %w", runtimev1alpha1.GroupVersion, err)
	}
	for _, g := range s.more {
		group := genericapiserver.NewDefaultAPIGroupInfo(g.Version.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
		group.VersionedResourcesStorageMap[g.Version.Version] = g.Storage(config.Authorization.Authorizer, s.closing)
		if err := server.InstallAPIGroup(&group); err != nil {
			return nil, fmt.Errorf("serve %s: %w", g.Version, err)
		}
	}
	own := map[string]rest.Storage{}
	if s.planner != nil {
		own[isobarv1alpha1.ResourcePlans], own[isobarv1alpha1.ResourceTargets] = planResource{s.planner}, targetResource{s.planner}
	}
	if s.agents != nil {
		own[isobarv1alpha1.ResourceAgentCertificates] = s.agents.Certificates()
	}
	if len(own) == 0 {
		return server, nil
	}
	group = genericapiserver.NewDefaultAPIGroupInfo(isobarv1alpha1.GroupVersion.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[isobarv1alpha1.GroupVersion.Version] = own
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("serve %s: %w", isobarv1alpha1.GroupVersion, err)
	}
	return server, nil
}

// reported are the groups to which agents report.
func (s *Server) reported() []Group {
	if s.infos == nil {
		return s.more
	}
	return append(slices.Clip(s.more), Group{Version: runtimev1alpha1.GroupVersion, Elsewhere: s.infos.elsewhere})
}

// serving gives the certificate of an authority as API servers want it. They
// ask once a minute.
type serving struct{ Certificates }

var _ dynamiccertificates.CertKeyContentProvider = serving{}

// Name is for logs.
func (s serving) Name() string { return "runtime-api" }

// AddListener does nothing: being asked once a minute is enough.
func (s serving) AddListener(dynamiccertificates.Listener) {}

// CurrentCertKeyContent returns the PEM of the certificate and its key; nothing
// when they cannot be made, upon which those of before stay. The authorities come after the certificate: an
// agent that joins knows one by its hash alone.
func (s serving) CurrentCertKeyContent() (certificate, key []byte) {
	c, err := s.Certificate(nil)
	if err != nil {
		return nil, nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil
	}
	for _, der := range c.Certificate {
		certificate = append(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return append(certificate, s.Bundle()...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
