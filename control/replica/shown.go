package replica

import (
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/control/console"
	"isobar.dev/control/controller"
	"isobar.dev/control/controlplane"
	"isobar.dev/policy"
)

// shown is what the console shows: what the loops know, and what agents have counted.
type shown struct {
	*controller.Controller
	agents *controlplane.Service // nil where none are served
}

var _ console.Source = shown{}

// Hits returns what agents have counted of a policy, and of its rules by name; nil at a replica to which they do
// not report.
func (s shown) Hits(p *policy.Policy) (total *console.Hits, rules map[string]console.Hits) {
	if s.agents == nil {
		return nil, nil
	}
	sum, of, ok := s.agents.Counted(p)
	if !ok {
		return nil, nil
	}
	hits := hitsOf(sum)
	rules = map[string]console.Hits{}
	for _, r := range of {
		rules[r.Name] = hitsOf(r.TrafficStats)
	}
	return &hits, rules
}

func hitsOf(s statsv1alpha1.TrafficStats) console.Hits {
	return console.Hits{Sessions: s.Sessions, Packets: s.Packets, Bytes: s.Bytes}
}
