package intern

import (
	"fmt"
	"testing"

	"isobar.dev/policy"
)

func TestInternerForgets(t *testing.T) {
	in := New()
	for i := range 5 * generationOfStrings {
		name := fmt.Sprint(i)
		own := policy.Selector{{Key: "name", Op: policy.In, Values: []string{name}}}
		p := &policy.Policy{
			ID: "annp/ns/" + name, Namespace: "ns", Name: name, AppliedTo: policy.Set{Selections: []policy.Selection{{Namespace: name, Labels: own}}},
			Ingress: []policy.Rule{{Name: name, Traffic: []policy.Traffic{{PortName: name}}}},
		}
		in.Policy(p)
		in.Workload(&policy.Workload{
			ID: "pod/ns/" + name, Namespace: "ns", Name: name, Labels: policy.Labels{{Key: "name", Value: name}},
			Ports: []policy.NamedPort{{Name: name}}, Target: name,
		})
	}
	for what, n := range map[string]int{
		"strings": len(in.strings.now) + len(in.strings.old), "labels": len(in.labels.now) + len(in.labels.old),
		"ports": len(in.ports.now) + len(in.ports.old), "selectors": len(in.selectors.now) + len(in.selectors.old),
		"selections": len(in.selections.now) + len(in.selections.old), "traffic": len(in.traffic.now) + len(in.traffic.old),
		"rules": len(in.rules.now) + len(in.rules.old),
	} {
		most := 2 * generation
		if what == "strings" {
			most = 2 * generationOfStrings
		}
		if n > most || n < most/2 {
			t.Errorf("%d %s are kept, want at most %d", n, what, most)
		}
	}
}
