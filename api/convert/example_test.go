package convert_test

import (
	"fmt"

	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// A Pod may look up port http of what is behind a DNS name: no agent can, since names of
// ports are those of workloads that it knows.
func ExampleToControlPlane() {
	var s policy.Snapshot
	pod := &policy.Workload{ID: "pod/x/web", Kind: policy.KindPod, Namespace: "x", Name: "web", Node: "n", Target: "node/n"}
	s.Workloads = s.Workloads.Put(pod.ID, pod)
	pods := policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces}
	p := &policy.Policy{ID: "acnp/p", Dialect: policy.AntreaClusterNetworkPolicy, Name: "p", UID: "u", Tier: "platform", Priority: 1,
		AppliedTo: policy.Set{Selections: []policy.Selection{pods}},
		Egress: []policy.Rule{
			{Action: policy.Allow, Peers: policy.Peers{Names: []string{"*.example.com"}}, Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "http"}}},
			{Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic},
		}}
	s.Policies = s.Policies.Put(p.ID, p)
	for _, rs := range compile.Rulesets(s) {
		sent, told, err := convert.ToControlPlane(rs, s.Policies, nil)
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, np := range sent.Policies {
			fmt.Println(np.Name, *np.TierPriority, len(np.Rules), *np.Rules[0].Action)
		}
		for _, t := range told {
			fmt.Println(t)
		}
	}
	// Output:
	// u 200 1 Drop
	// acnp/p/egress/0: names ports of what is in blocks or behind DNS names: left out
}
