package flat_test

import (
	"fmt"
	"net/netip"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// An Allow after a Drop allows what the Drop does not match.
func ExampleFlattener_Flatten() {
	block := func(s string) []policy.Block { return []policy.Block{{Prefix: netip.MustParsePrefix(s)}} }
	rs := policy.Ruleset{Rules: []policy.TargetRule{
		{Key: "1", Direction: policy.Ingress, Tier: 250, Action: policy.Drop, Blocks: block("10.0.0.0/9"),
			Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 22}}}},
		{Key: "2", Direction: policy.Ingress, Tier: 250, Index: 1, Action: policy.Allow, Blocks: block("10.0.0.0/8"),
			Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 80}}}},
	}}
	allowed, _ := flat.New(rs, flat.Options{}).Flatten(flat.Input{Direction: policy.Ingress, Rules: []string{"1", "2"}, Denies: true})
	for _, c := range allowed {
		fmt.Println(c.Protocol, c.First, c.Last, c.Addrs)
	}
	// Output:
	// TCP 22 22 10.128.0.0/9
	// TCP 23 80 10.0.0.0/8
}
