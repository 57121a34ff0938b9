package convert_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

var (
	tcp80    = policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}
	tcpHTTP  = policy.Traffic{Protocol: policy.TCP, PortName: "http"}
	tenSlash = policy.Block{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	getOnly  = []policy.L7{{HTTP: &policy.HTTP{Method: "GET"}}}
	webSvc   = []*policy.Service{{Namespace: "x", Name: "web"}}
)

// Each row is one rule and what it is sent as: every rule that goes out, and a part of
// what is told. The policy is of Antrea, or, in tier 252, of Kubernetes.
func TestToControlPlane(t *testing.T) {
	for _, tt := range []struct {
		name string
		rule policy.TargetRule
		want []string
		told string
	}{
		{"a group and a block", policy.TargetRule{Action: policy.Allow, Groups: []string{"web"}, Blocks: []policy.Block{tenSlash}, Traffic: []policy.Traffic{tcp80}},
			[]string{"In 3 Allow groups[web] blocks[10.0.0.0/8-10.1.0.0/16] TCP/80"}, ""},
		{"everyone", policy.TargetRule{Action: policy.Reject, AllPeers: true, Traffic: policy.AllTraffic},
			[]string{"In 3 Reject blocks[0.0.0.0/0 ::/0]"}, ""},
		{"nobody", policy.TargetRule{Action: policy.Drop, Traffic: policy.AllTraffic}, nil, ""},
		{"no traffic", policy.TargetRule{Action: policy.Drop, AllPeers: true, Traffic: []policy.Traffic{{}}}, nil, ""},
		{"a range, a source port and ICMP", policy.TargetRule{Action: policy.Drop, AllPeers: true, Traffic: []policy.Traffic{
			{Protocol: policy.UDP, Ports: policy.Ports{First: 1, Last: 9}, SourcePorts: policy.Ports{First: 5, Last: 6}}, {Protocol: policy.ICMP, ICMPType: new(uint8(8))}}},
			[]string{"In 3 Drop blocks[0.0.0.0/0 ::/0] UDP/1-9 from 5-6 ICMP type 8"}, ""},
		{"names and Services", policy.TargetRule{Direction: policy.Egress, Action: policy.Allow, Names: []string{"*.x"}, Services: webSvc, Traffic: policy.AllTraffic},
			[]string{"Out 3 Allow names[*.x]", "Out 3 Allow services[x/web]"}, ""},
		{"names and Services where it comes in", policy.TargetRule{Action: policy.Allow, Names: []string{"*.x"}, Services: webSvc, Traffic: policy.AllTraffic}, nil, ""},
		{"some traffic of Services, allowed", policy.TargetRule{Direction: policy.Egress, Action: policy.Allow, Services: webSvc, Traffic: []policy.Traffic{tcp80}},
			nil, "names Services with only some of their traffic: left out"},
		{"some traffic of Services, denied", policy.TargetRule{Direction: policy.Egress, Action: policy.Drop, Services: webSvc, Traffic: []policy.Traffic{tcp80}},
			[]string{"Out 3 Drop services[x/web]"}, "more is denied"},
		{"a port's name in a block, allowed", policy.TargetRule{Direction: policy.Egress, Action: policy.Allow, Groups: []string{"web"}, Blocks: []policy.Block{tenSlash}, Traffic: []policy.Traffic{tcpHTTP, tcp80}, PortGroups: []string{"pods"}},
			[]string{"Out 3 Allow blocks[10.0.0.0/8-10.1.0.0/16] TCP/80", "Out 3 Allow groups[web] TCP/http TCP/80"}, "names ports"},
		{"a port's name in a block, denied", policy.TargetRule{Direction: policy.Egress, Action: policy.Drop, Blocks: []policy.Block{tenSlash}, Traffic: []policy.Traffic{tcpHTTP}, PortGroups: []string{"pods"}},
			[]string{"Out 3 Drop blocks[10.0.0.0/8-10.1.0.0/16] TCP"}, "more is denied"},
		{"a port's name at everyone", policy.TargetRule{Direction: policy.Egress, Action: policy.Drop, AllPeers: true, Traffic: []policy.Traffic{tcpHTTP}, PortGroups: []string{"pods"}},
			[]string{"Out 3 Drop groups[pods] blocks[0.0.0.0/0 ::/0] TCP/http"}, ""},
		{"a port's name where it comes in", policy.TargetRule{Action: policy.Drop, Blocks: []policy.Block{tenSlash}, Traffic: []policy.Traffic{tcpHTTP}},
			[]string{"In 3 Drop blocks[10.0.0.0/8-10.1.0.0/16] TCP/http"}, ""},
		{"by payload", policy.TargetRule{Action: policy.Allow, Groups: []string{"web"}, Traffic: policy.AllTraffic, L7: getOnly},
			[]string{"In 3 Allow groups[web] payloads 1"}, ""},
		{"by payload, and a part has no words", policy.TargetRule{Direction: policy.Egress, Action: policy.Allow, Groups: []string{"web"}, Services: webSvc, Traffic: []policy.Traffic{tcp80}, L7: getOnly},
			[]string{"Out 3 Drop groups[web] TCP/80", "Out 3 Drop services[x/web]"}, "sent as a Drop"},
		{"dropped by payload", policy.TargetRule{Action: policy.Drop, Groups: []string{"web"}, Traffic: policy.AllTraffic, L7: getOnly},
			[]string{"In 3 Drop groups[web]"}, ""},
		{"passed by payload", policy.TargetRule{Action: policy.Pass, Groups: []string{"web"}, Traffic: policy.AllTraffic, L7: getOnly},
			[]string{"In 3 Drop groups[web]"}, "passes by payload"},
		{"passed", policy.TargetRule{Action: policy.Pass, Groups: []string{"web"}, Traffic: policy.AllTraffic},
			[]string{"In 3 Pass groups[web]"}, ""},
		{"passed from the baseline", policy.TargetRule{Tier: 253, Action: policy.Pass, Groups: []string{"web"}, Traffic: policy.AllTraffic},
			[]string{"In 3 Drop groups[web]"}, "sent as a Drop"},
		{"passed, and a part has no words", policy.TargetRule{Direction: policy.Egress, Action: policy.Pass, Services: webSvc, Traffic: []policy.Traffic{tcp80}},
			[]string{"Out 3 Drop services[x/web]"}, "sent as a Drop"},
		{"ports that there are not", policy.TargetRule{Action: policy.Allow, Groups: []string{"web"}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 0, Last: 9}}, tcp80}},
			[]string{"In 3 Allow groups[web] TCP/80"}, "has no words: left out"},
		{"allowed by Kubernetes", policy.TargetRule{Tier: 252, Action: policy.Allow, Groups: []string{"web"}, Traffic: policy.AllTraffic},
			[]string{"In -1 <nil>", "In -1 Allow groups[web]"}, ""},
		{"allowed by Kubernetes to what nothing isolates", policy.TargetRule{Tier: 252, Direction: policy.Egress, Action: policy.Allow, Groups: []string{"web"}, Traffic: policy.AllTraffic},
			[]string{"In -1 <nil>"}, "would isolate"},
	} {
		got, told := sendOne(t, tt.rule)
		if diff := gocmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +sent):\n%s", tt.name, diff)
		}
		if (tt.told == "") != (told == "") || !strings.Contains(told, tt.told) {
			t.Errorf("%s: told %q, want %q", tt.name, told, tt.told)
		}
	}
}

// sendOne sends a rule that applies to a Pod, and returns what is sent as text. A rule
// of Kubernetes is of a policy that isolates the Pod where it comes in.
func sendOne(t *testing.T, r policy.TargetRule) ([]string, string) {
	t.Helper()
	dialect := policy.AntreaClusterNetworkPolicy
	if r.Direction == 0 {
		r.Direction = policy.Ingress
	}
	if r.Tier == 0 {
		r.Tier = 100
	}
	w := &policy.Workload{ID: "pod/x/d", Kind: policy.KindPod, Namespace: "x", Name: "d", Node: "n", Target: "node/n"}
	r.Policy, r.Index, r.Priority = "p", 3, 5
	r.Key = policy.RuleKey("p", r.Direction, r.Index, "")
	e := policy.Enforced{Workload: w, Ingress: []string{r.Key}}
	if r.Tier == 252 {
		dialect = policy.KubernetesNetworkPolicy
		e.IsolatedIngress = "p"
	}
	rs := policy.Ruleset{Target: "node/n", Workloads: []policy.Enforced{e}, Rules: []policy.TargetRule{r}}
	policies := policy.Table[*policy.Policy]{}.Put("p", &policy.Policy{ID: "p", Dialect: dialect, Namespace: "x", Name: "p", UID: "u", Generation: 7})
	cp, problems, err := convert.ToControlPlane(rs, policies, func(key string) string { return key })
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, p := range problems {
		told = append(told, p.String())
	}
	var out []string
	for _, p := range cp.Policies {
		isPlaced := p.TierPriority != nil && *p.TierPriority == r.Tier && p.Priority != nil && *p.Priority == 5
		if p.Name != "u" || p.UID != "u" || p.Generation != 7 || p.SourceRef.UID != "u" || p.SourceRef.Name != "p" || isPlaced == (r.Tier == 252) || len(p.AppliedToGroups) != 1 {
			t.Errorf("%s: %+v", r.Key, p)
		}
		for _, x := range p.Rules {
			out = append(out, wireText(x))
		}
	}
	return out, strings.Join(told, "; ")
}

func wireText(r controlplanev1beta2.NetworkPolicyRule) string {
	action := "<nil>"
	if r.Action != nil {
		action = string(*r.Action)
	}
	text := fmt.Sprint(r.Direction, " ", r.Priority, " ", action)
	peer := r.From
	if r.Direction == controlplanev1beta2.DirectionOut {
		peer = r.To
	}
	var blocks, services []string
	for _, b := range peer.IPBlocks {
		s := netText(b.CIDR)
		for _, e := range b.Except {
			s += "-" + netText(e)
		}
		blocks = append(blocks, s)
	}
	for _, s := range peer.ToServices {
		services = append(services, s.Namespace+"/"+s.Name)
	}
	for _, x := range []struct {
		name string
		list []string
	}{{"groups", peer.AddressGroups}, {"blocks", blocks}, {"names", peer.FQDNs}, {"services", services}} {
		if len(x.list) > 0 {
			text += fmt.Sprint(" ", x.name, x.list)
		}
	}
	for _, s := range r.Services {
		text += " " + string(*s.Protocol)
		if s.Port != nil {
			text += "/" + s.Port.String()
		}
		if s.EndPort != nil {
			text += fmt.Sprint("-", *s.EndPort)
		}
		if s.SrcPort != nil {
			text += fmt.Sprint(" from ", *s.SrcPort, "-", *s.SrcEndPort)
		}
		if s.ICMPType != nil {
			text += fmt.Sprint(" type ", *s.ICMPType)
		}
	}
	if len(r.L7Protocols) > 0 {
		text += fmt.Sprint(" payloads ", len(r.L7Protocols))
	}
	return text
}

func netText(n controlplanev1beta2.IPNet) string {
	a, _ := netip.AddrFromSlice(n.IP)
	return netip.PrefixFrom(a, int(n.PrefixLength)).String()
}
