package aws_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// pair is a db in vpc-a that lets in n webs of vpc-b, on addresses that make no
// prefix together, and what each of the two is to enforce.
func pair(n int) (a, b policy.Ruleset) {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("n", &policy.Namespace{Name: "n"})
	add := func(name, role, vpc, addr string) {
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "n", name), Kind: policy.KindExternal, Namespace: "n", Name: name,
			Labels: policy.Labels{{Key: "role", Value: role}}, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
			Network: vpc, Target: "aws/n/acc/r/" + vpc,
		}
		w.Interfaces = []policy.Interface{{ID: "eni-" + name, Addrs: w.Addrs}}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	add("db", "db", "vpc-a", "10.0.0.4")
	for i := range n {
		add(fmt.Sprint("web", i), "web", "vpc-b", fmt.Sprint("10.1.0.", 4+2*i))
	}
	of := func(role string) policy.Set {
		return policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces,
			Labels: policy.Selector{{Key: "role", Op: policy.In, Values: []string{role}}}}}}
	}
	s.Policies = s.Policies.Put("p", &policy.Policy{ID: "p", Tier: policy.DefaultTier, AppliedTo: of("db"), Ingress: []policy.Rule{{
		Action: policy.Allow, Peers: policy.Peers{Set: of("web")}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}}}}})
	all := compile.Rulesets(s)
	return all[0], all[1]
}

// ingress returns how many rules of a VPC name the group, and how many do not.
func ingress(objects map[string]aws.Object, group string) (named, other int) {
	for _, o := range objects {
		if o.Group == nil {
			continue
		}
		for _, r := range o.Group.Ingress {
			if r.Group == group {
				named++
			} else {
				other++
			}
		}
	}
	return named, other
}

var vpcA, vpcB = netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("10.1.0.0/16")

// The VPC whose VMs others name gives them a group where a rule may name it, and
// they have a place for it.
func TestShare(t *testing.T) {
	_, b := pair(10)
	refers := aws.Peer{VPC: "vpc-a", Prefixes: []netip.Prefix{vpcA}, Refers: true}
	only := refers
	only.Refers = false
	few := b
	few.Exports = nil
	full := map[string]int{}
	for i := range 3 {
		full[fmt.Sprint("eni-web", i)] = 5
	}
	for _, tt := range []struct {
		name  string
		place aws.Place
		rs    policy.Ruleset
		want  int // interfaces that get it
	}{
		{"named over a peering", aws.Place{Peers: []aws.Peer{refers}}, b, 10},
		{"no peering", aws.Place{}, b, 0},
		{"a peering over which nothing may be named", aws.Place{Peers: []aws.Peer{only}}, b, 0},
		{"nobody names them", aws.Place{Peers: []aws.Peer{refers}}, few, 0},
		{"too few to be worth it", aws.Place{Peers: []aws.Peer{refers}, ManyPeers: 11}, b, 0},
		{"three have no place", aws.Place{Peers: []aws.Peer{refers}, ManyPeers: 5, Own: full}, b, 7},
		{"too few have a place", aws.Place{Peers: []aws.Peer{refers}, ManyPeers: 8, Own: full}, b, 0},
		{"no group is left in the region", aws.Place{Peers: []aws.Peer{refers}, Quotas: aws.Quotas{GroupsPerRegion: 5}, Foreign: 5}, b, 0},
	} {
		tt.place.Prefixes = []netip.Prefix{vpcB}
		objects, refusals := aws.Lower(tt.place, tt.rs)
		got := 0
		for _, o := range objects {
			if o.NIC != nil {
				got++
			}
		}
		if got != tt.want || len(refusals) > 0 {
			t.Errorf("%s: %d interfaces get a group, want %d; refusals %v", tt.name, got, tt.want, refusals)
		}
	}
}

// The VPC that names writes the group for those that are seen to carry it, and
// addresses for the others: never more than the members.
func TestNameRemote(t *testing.T) {
	a, b := pair(10)
	shared, _ := aws.Lower(aws.Place{Prefixes: []netip.Prefix{vpcB}, Peers: []aws.Peer{{VPC: "vpc-a", Refers: true}}}, b)
	class := ""
	for _, o := range shared {
		if o.Group != nil {
			class = o.Group.Class
		}
	}
	carriers := func(n int, more ...string) map[string][]netip.Addr {
		out := map[string][]netip.Addr{}
		for i := range n {
			out[fmt.Sprint("eni-web", i)] = []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.1.0.", 4+2*i))}
		}
		for _, x := range more {
			out["eni-stranger"+x] = []netip.Addr{netip.MustParseAddr(x)}
		}
		return out
	}
	second := carriers(10)
	second["eni-web3"] = append(second["eni-web3"], netip.MustParseAddr("10.1.9.9"))
	for _, tt := range []struct {
		name         string
		group        aws.PeerGroup
		refers       bool
		failing      bool
		named, other int
	}{
		{"all carry it", aws.PeerGroup{Class: class, Carriers: carriers(10)}, true, false, 1, 0},
		{"one does not yet", aws.PeerGroup{Class: class, Carriers: carriers(9)}, true, false, 1, 1},
		{"too few do", aws.PeerGroup{Class: class, Carriers: carriers(8)}, true, false, 0, 10},
		{"one carries it that leaves", aws.PeerGroup{Class: class, Carriers: carriers(10, "10.1.0.99")}, true, false, 1, 0},
		{"one carries it that nobody can take it from", aws.PeerGroup{Class: class, Carriers: carriers(10, "10.1.0.99")}, true, true, 0, 10},
		{"who cannot write has done it all", aws.PeerGroup{Class: class, Carriers: carriers(10)}, true, true, 1, 0},
		{"a carrier has an address that is no member's", aws.PeerGroup{Class: class, Carriers: second}, true, false, 0, 10},
		{"the group of something else", aws.PeerGroup{Class: "m-0000000000000000", Carriers: carriers(10)}, true, false, 0, 10},
		{"nothing may be named there", aws.PeerGroup{Class: class, Carriers: carriers(10)}, false, false, 0, 10},
	} {
		tt.group.ID = "sg-0123456789abcdef0"
		rs := a
		if tt.failing {
			rs.Failing = []string{b.Target}
		}
		objects, refusals := aws.Lower(aws.Place{Prefixes: []netip.Prefix{vpcA},
			Peers: []aws.Peer{{VPC: "vpc-b", Prefixes: []netip.Prefix{vpcB}, Refers: tt.refers, Groups: []aws.PeerGroup{tt.group}}}}, rs)
		if named, other := ingress(objects, tt.group.ID); named != tt.named || other != tt.other || len(refusals) > 0 {
			t.Errorf("%s: %d rules by group and %d by address, want %d and %d; refusals %v", tt.name, named, other, tt.named, tt.other, refusals)
		}
	}
}

// What a peered VPC's rules name stays: on all until its Driver has seen what is
// new, and on members for as long as it names them.
func TestKeepNamed(t *testing.T) {
	_, b := pair(10)
	class := "m-"
	for _, o := range func() map[string]aws.Object {
		objects, _ := aws.Lower(aws.Place{Prefixes: []netip.Prefix{vpcB}, Peers: []aws.Peer{{VPC: "vpc-a", Refers: true}}}, b)
		return objects
	}() {
		if o.Group != nil {
			class = o.Group.Class
		}
	}
	fewer := b
	fewer.Exports = slices.Clone(b.Exports)
	n := 0
	for id := range b.Exports[0].Workloads.All() {
		if n++; n > 5 {
			fewer.Exports[0].Workloads = fewer.Exports[0].Workloads.Delete(id)
		}
	}
	none := b
	none.Exports = nil
	carry := []string{"eni-web0", "eni-web1", "eni-web9"}
	for _, tt := range []struct {
		name    string
		rs      policy.Ruleset
		names   []string
		pending bool
		want    int
	}{
		{"too few are left, and they are named", fewer, []string{class}, false, 2},
		{"too few are left, and nobody names them any more", fewer, nil, false, 0},
		{"what is named may still be needed", fewer, []string{class}, true, 3},
		{"no policy names them, and a rule does", none, []string{class}, true, 3},
		{"a rule that is about to go", none, []string{class}, false, 0},
	} {
		if tt.pending {
			tt.rs.Pending = []string{"aws/n/acc/r/vpc-a"}
		}
		objects, _ := aws.Lower(aws.Place{Prefixes: []netip.Prefix{vpcB}, Carried: map[string][]string{class: carry},
			Peers: []aws.Peer{{VPC: "vpc-a", Refers: true, Names: tt.names}}}, tt.rs)
		got := 0
		for _, o := range objects {
			if o.NIC != nil && slices.Contains(o.NIC.Groups, aws.GroupKey(class)) {
				got++
			}
		}
		if got != tt.want {
			t.Errorf("%s: %d interfaces have it, want %d", tt.name, got, tt.want)
		}
	}
}
