package announce

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// What a machine joins by, in the replicas' own namespace.
const (
	// ServersConfigMap is its name. It has two keys.
	ServersConfigMap = "isobar-agents"
	// KeyServers has the URLs of the replicas as agents of machines reach them, one a line; it may be empty.
	KeyServers = "servers"
	// KeyAuthorities has the PEM of the authorities of their certificates.
	KeyAuthorities = caKey
)

// Servers tells people by which servers machines may join. It writes nothing when all is as it should be.
func Servers(ctx context.Context, client kubernetes.Interface, namespace string, servers []string, bundle []byte) error {
	if namespace == "" || len(bundle) == 0 {
		return errors.New("announce the servers of agents: set the namespace and the bundle")
	}
	for _, s := range servers {
		if strings.ContainsAny(s, "\n\r ") {
			return fmt.Errorf("announce the servers of agents: %q is no URL", s)
		}
	}
	p := Place{Namespace: namespace}
	return p.tell(ctx, client, ServersConfigMap, map[string]string{KeyServers: strings.Join(servers, "\n"), KeyAuthorities: string(bundle)})
}
