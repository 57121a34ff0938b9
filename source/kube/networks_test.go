package kube

import (
	"fmt"
	"testing"

	"isobar.dev/policy"
)

// Pods and Nodes have the networks that they are said to have, a Pod on its Node's network
// that of the Node; without them the cluster's own.
func TestNetworks(t *testing.T) {
	const (
		pod  = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": %q}, "spec": {"nodeName": "node", "hostNetwork": %t}, "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}`
		node = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}`
		ee   = `{"apiVersion": "crd.antrea.io/v1alpha2", "kind": "ExternalEntity", "metadata": {"namespace": "n", "name": "onsite"}, "spec": {"externalNode": "x", "endpoints": [{"ip": "10.0.0.1"}]}}`
	)
	for _, n := range []Networks{{}, {Pods: "vpc-pods", Nodes: "vpc-nodes"}, {Nodes: "vpc-nodes"}} {
		l, err := NewLayer(n)
		if err != nil {
			t.Fatal(err)
		}
		s, notices := l.Lay(policy.Snapshot{}, []Write{
			{Manifest: fmt.Appendf(nil, pod, "own", false)}, {Manifest: fmt.Appendf(nil, pod, "shared", true)}, {Manifest: []byte(node)}, {Manifest: []byte(ee)},
		})
		for id, want := range map[string]string{"pod/n/own": n.Pods, "pod/n/shared": n.Nodes, "node/node": n.Nodes, "ee/n/onsite": ""} {
			if w, ok := s.Workloads.Get(id); !ok || w.Network != want {
				t.Errorf("with %+v %s is %+v; want it in %q (%v)", n, id, w, want, notices)
			}
		}
	}
}
