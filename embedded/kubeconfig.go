package embedded

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"isobar.dev/embedded/datadir"
	"isobar.dev/embedded/pki"
)

// writeKubeconfig writes the administrator's kubeconfig for a server at url.
// It holds all that it needs, so that it can be copied elsewhere.
func writeKubeconfig(dir *datadir.Dir, url string) error {
	ca, err := dir.ReadFile(pki.CACert)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	cert, key, err := pki.Split(dir, pki.Admin)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	const name = "isobar"
	data, err := clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: url, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*api.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return dir.WriteFile(kubeconfigName, data)
}
