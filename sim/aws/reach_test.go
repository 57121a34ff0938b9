package aws_test

import (
	"context"
	"net/netip"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"isobar.dev/sim/aws"
)

const everything = -1

func in(protocol string, from, to int, peer string) *aws.Rule {
	r := &aws.Rule{Protocol: protocol, From: from, To: to}
	switch p, err := netip.ParsePrefix(peer); {
	case err == nil:
		r.CIDR = p
	case peer[:2] == "pl":
		r.PrefixList = peer
	default:
		r.Group = peer
	}
	return r
}

func out(protocol string, from, to int, peer string) *aws.Rule {
	r := in(protocol, from, to, peer)
	r.Egress = true
	return r
}

// nic makes a machine with one interface; the ids share a tail.
func nic(tail, subnet string, groups []string, addrs ...string) *aws.Instance {
	n := &aws.Interface{ID: "eni-" + tail, Subnet: subnet, Groups: groups}
	for i, a := range addrs {
		switch addr := netip.MustParseAddr(a); {
		case addr.Is6():
			n.IPv6 = append(n.IPv6, addr)
		case i > 0 && !addr.IsPrivate():
			n.PublicIP = addr
		default:
			n.PrivateIPs = append(n.PrivateIPs, addr)
		}
	}
	return &aws.Instance{ID: "i-" + tail, Interfaces: []*aws.Interface{n}}
}

// world is two accounts, three VPCs in one region (a peered with b, c with nobody) and one abroad that
// is peered with a.
func world() aws.Estate {
	prefixes := func(ps ...string) (out []netip.Prefix) {
		for _, p := range ps {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	all := out("-1", everything, everything, "0.0.0.0/0")
	clone := func(r *aws.Rule) *aws.Rule { c := *r; return &c }
	east := &aws.Region{
		Name: "us-east-1",
		VPCs: []*aws.VPC{
			{ID: "vpc-a", CIDRs: prefixes("10.1.0.0/16", "2001:db8:1::/56"), OnPremises: prefixes("192.168.0.0/16")},
			{ID: "vpc-c", CIDRs: prefixes("10.3.0.0/16"), NAT: netip.MustParseAddr("198.51.100.99")},
		},
		Subnets: []*aws.Subnet{
			{ID: "subnet-a", VPC: "vpc-a", CIDRs: prefixes("10.1.1.0/24", "2001:db8:1::/64")},
			{ID: "subnet-c", VPC: "vpc-c", CIDRs: prefixes("10.3.1.0/24")},
		},
		PrefixLists: []*aws.PrefixList{{ID: "pl-office", Name: "office", Family: "IPv4", MaxEntries: 5, Entries: []aws.Entry{{CIDR: netip.MustParsePrefix("203.0.113.0/24")}}}},
		Groups: []*aws.Group{
			{ID: "sg-client", VPC: "vpc-a", Name: "client", Rules: []*aws.Rule{clone(all), out("-1", everything, everything, "::/0")}},
			{ID: "sg-server", VPC: "vpc-a", Name: "server", Rules: []*aws.Rule{
				in("tcp", 80, 90, "sg-client"), in("udp", 53, 53, "10.1.0.0/16"), in("icmp", 8, everything, "10.0.0.0/8"), in("icmp", 3, 4, "10.0.0.0/8"),
				in("tcp", 22, 22, "pl-office"), in("tcp", 443, 443, "2001:db8:1::/56"), in("icmpv6", everything, everything, "::/0"),
				in("132", everything, everything, "10.1.0.0/16"), in("tcp", 7000, 7000, "sg-gone"), in("tcp", 7001, 7001, "192.168.0.0/16"),
				in("tcp", 8000, 8000, "198.51.100.99/32"),
			}},
			{ID: "sg-extra", VPC: "vpc-a", Name: "extra", Rules: []*aws.Rule{in("tcp", 9000, 9000, "10.1.0.0/16")}},
			{ID: "sg-narrow", VPC: "vpc-a", Name: "narrow", Rules: []*aws.Rule{out("tcp", 80, 80, "sg-server")}},
			{ID: "sg-c", VPC: "vpc-c", Name: "c", Rules: []*aws.Rule{clone(all), in("tcp", 80, 80, "10.1.0.0/16")}},
		},
		Instances: []*aws.Instance{
			nic("client", "subnet-a", []string{"sg-client"}, "10.1.1.10", "198.51.100.10", "2001:db8:1::10"),
			nic("server", "subnet-a", []string{"sg-server", "sg-extra"}, "10.1.1.20", "198.51.100.20", "2001:db8:1::20"),
			nic("narrow", "subnet-a", []string{"sg-narrow"}, "10.1.1.30"),
			nic("stopped", "subnet-a", []string{"sg-server"}, "10.1.1.40"),
			nic("c", "subnet-c", []string{"sg-c"}, "10.3.1.10"),
		},
	}
	east.Instances[3].State = "stopped"
	other := &aws.Region{
		Name:      "us-east-1",
		VPCs:      []*aws.VPC{{ID: "vpc-b", CIDRs: prefixes("10.2.0.0/16")}},
		Subnets:   []*aws.Subnet{{ID: "subnet-b", VPC: "vpc-b", CIDRs: prefixes("10.2.1.0/24")}},
		Groups:    []*aws.Group{{ID: "sg-b", VPC: "vpc-b", Name: "b", Rules: []*aws.Rule{clone(all), {Protocol: "tcp", From: 5432, To: 5432, Group: "sg-client", GroupOwner: "111111111111"}}}},
		Instances: []*aws.Instance{nic("b", "subnet-b", []string{"sg-b"}, "10.2.1.10")},
	}
	abroad := &aws.Region{
		Name:    "eu-west-1",
		VPCs:    []*aws.VPC{{ID: "vpc-d", CIDRs: prefixes("10.4.0.0/16")}},
		Subnets: []*aws.Subnet{{ID: "subnet-d", VPC: "vpc-d", CIDRs: prefixes("10.4.1.0/24")}},
		Groups: []*aws.Group{{ID: "sg-d", VPC: "vpc-d", Name: "d", Rules: []*aws.Rule{clone(all), in("tcp", 80, 80, "10.1.1.10/32"),
			{Protocol: "tcp", From: 81, To: 81, Group: "sg-client", GroupOwner: "111111111111"}}}},
		Instances: []*aws.Instance{nic("d", "subnet-d", []string{"sg-d"}, "10.4.1.10")},
	}
	a, b, d := aws.End{Account: "111111111111", Region: "us-east-1", VPC: "vpc-a"}, aws.End{Account: "222222222222", Region: "us-east-1", VPC: "vpc-b"}, aws.End{Account: "111111111111", Region: "eu-west-1", VPC: "vpc-d"}
	return aws.Estate{
		Accounts: []*aws.Account{
			{ID: "111111111111", Keys: []*aws.AccessKey{{ID: aws.SampleKeyID, Secret: aws.SampleKeySecret}}, Regions: []*aws.Region{east, abroad}},
			{ID: "222222222222", Keys: []*aws.AccessKey{{ID: "AKIAB", Secret: "b"}}, Regions: []*aws.Region{other}},
		},
		Peerings: []*aws.Peering{{ID: "pcx-ab", Requester: a, Accepter: b}, {ID: "pcx-ad", Requester: a, Accepter: d}},
	}
}

// ask is a flow in short.
func ask(from, to, protocol string, port int) aws.Flow {
	return aws.Flow{From: from, To: to, Protocol: protocol, Port: port}
}

func TestReach(t *testing.T) {
	s := newSim(t, world(), aws.Options{})
	for _, tt := range []struct {
		name   string
		flow   aws.Flow
		result aws.Result
		path   string
		group  string // that let it in
	}{
		{"group reference", ask("i-client", "i-server", "tcp", 80), aws.Allowed, "vpc", "sg-server"},
		{"end of range", ask("i-client", "i-server", "tcp", 90), aws.Allowed, "vpc", "sg-server"},
		{"past the range", ask("i-client", "i-server", "tcp", 91), aws.Denied, "vpc", ""},
		{"other protocol", ask("i-client", "i-server", "udp", 80), aws.Denied, "vpc", ""},
		{"union of groups", ask("i-client", "i-server", "tcp", 9000), aws.Allowed, "vpc", "sg-extra"},
		{"by private address", ask("10.1.1.10", "10.1.1.20", "tcp", 80), aws.Allowed, "vpc", "sg-server"},
		{"by interface", ask("eni-client", "eni-server", "tcp", 80), aws.Allowed, "vpc", "sg-server"},
		{"peer without the group", ask("i-narrow", "i-server", "tcp", 80), aws.Denied, "vpc", ""},
		{"by network", ask("i-client", "i-server", "udp", 53), aws.Allowed, "vpc", "sg-server"},
		{"any code", aws.Flow{From: "i-client", To: "i-server", Protocol: "icmp", ICMPType: 8, ICMPCode: 7}, aws.Allowed, "vpc", "sg-server"},
		{"one code", aws.Flow{From: "i-client", To: "i-server", Protocol: "icmp", ICMPType: 3, ICMPCode: 4}, aws.Allowed, "vpc", "sg-server"},
		{"other code", aws.Flow{From: "i-client", To: "i-server", Protocol: "icmp", ICMPType: 3, ICMPCode: 3}, aws.Denied, "vpc", ""},
		{"other type", aws.Flow{From: "i-client", To: "i-server", Protocol: "icmp", ICMPType: 0}, aws.Denied, "vpc", ""},
		{"sctp by number, any port", ask("i-client", "i-server", "sctp", 7), aws.Allowed, "vpc", "sg-server"},
		{"another number", ask("i-client", "i-server", "47", 0), aws.Denied, "vpc", ""},
		{"stale reference", ask("i-client", "i-server", "tcp", 7000), aws.Denied, "vpc", ""},

		{"IPv6", ask("2001:db8:1::10", "i-server", "tcp", 443), aws.Allowed, "vpc", "sg-server"},
		{"IPv6 asked for", aws.Flow{From: "i-client", To: "i-server", Protocol: "tcp", Port: 443, Family: "ipv6"}, aws.Allowed, "vpc", "sg-server"},
		{"not over IPv4", ask("i-client", "i-server", "tcp", 443), aws.Denied, "vpc", ""},
		{"a group's IPv6 address", ask("2001:db8:1::10", "2001:db8:1::20", "tcp", 80), aws.Allowed, "vpc", "sg-server"},
		{"icmpv6", aws.Flow{From: "2001:db8:1::10", To: "i-server", Protocol: "icmp", ICMPType: 128}, aws.Allowed, "vpc", "sg-server"},
		{"IPv6 over the Internet", aws.Flow{From: "2001:db8:ffff::1", To: "i-server", Protocol: "icmpv6", ICMPType: 128}, aws.Allowed, "internet", "sg-server"},
		{"no IPv6", aws.Flow{From: "i-narrow", To: "i-server", Protocol: "tcp", Port: 443, Family: "ipv6"}, aws.Unreachable, "", ""},

		{"egress allowed", ask("i-narrow", "10.1.1.20", "tcp", 80), aws.Denied, "vpc", ""},
		{"egress denied", ask("i-narrow", "i-server", "udp", 53), aws.Denied, "vpc", "sg-server"},

		{"prefix list", ask("203.0.113.7", "i-server", "tcp", 22), aws.Allowed, "internet", "sg-server"},
		{"not in the list", ask("203.0.114.7", "i-server", "tcp", 22), aws.Denied, "internet", ""},
		{"by public address from outside", ask("203.0.113.7", "198.51.100.20", "tcp", 22), aws.Allowed, "internet", "sg-server"},
		{"no public address", ask("203.0.113.7", "i-narrow", "tcp", 22), aws.Unreachable, "", ""},
		{"out", ask("i-client", "203.0.113.7", "tcp", 443), aws.Allowed, "internet", ""},
		{"out without NAT", ask("i-narrow", "203.0.113.7", "tcp", 80), aws.Unreachable, "", ""},
		{"out by NAT", ask("i-c", "203.0.113.7", "tcp", 80), aws.Allowed, "internet", ""},
		{"references do not work by public address", ask("i-client", "198.51.100.20", "tcp", 80), aws.Denied, "internet", ""},
		{"from on premises", ask("192.168.7.7", "i-server", "tcp", 7001), aws.Allowed, "on-premises", "sg-server"},
		{"to on premises", ask("i-client", "192.168.7.7", "tcp", 1), aws.Allowed, "on-premises", ""},
		{"no private way", ask("192.168.7.7", "i-c", "tcp", 80), aws.Unreachable, "", ""},

		{"peering, other account", ask("i-client", "i-b", "tcp", 5432), aws.Allowed, "peering", "sg-b"},
		{"peering, not a member", ask("i-server", "i-b", "tcp", 5432), aws.Denied, "peering", ""},
		{"peering abroad by address", ask("i-client", "i-d", "tcp", 80), aws.Allowed, "peering", "sg-d"},
		{"no references abroad", ask("i-client", "i-d", "tcp", 81), aws.Denied, "peering", ""},
		{"peering does not pass on", ask("i-b", "i-d", "tcp", 80), aws.Unreachable, "", ""},
		{"not peered", ask("i-narrow", "i-c", "tcp", 80), aws.Unreachable, "", "sg-c"},
		{"not peered, by NAT to a public address", ask("i-c", "i-server", "tcp", 8000), aws.Allowed, "internet", "sg-server"},

		{"stopped", ask("i-client", "i-stopped", "tcp", 80), aws.Unreachable, "vpc", "sg-server"},
		{"to itself", ask("i-narrow", "i-narrow", "tcp", 1), aws.Allowed, "local", ""},
		{"Amazon's own", ask("i-narrow", "169.254.169.254", "tcp", 80), aws.Allowed, "amazon", ""},
		{"both outside", ask("192.0.2.1", "192.0.2.2", "tcp", 80), aws.Unreachable, "", ""},
		{"families mixed", ask("10.1.1.10", "2001:db8:1::20", "tcp", 80), aws.Unreachable, "", ""},
		{"unknown machine", ask("i-none", "i-server", "tcp", 80), aws.Invalid, "", ""},
		{"unknown protocol", ask("i-client", "i-server", "frob", 80), aws.Invalid, "", ""},
		{"port", ask("i-client", "i-server", "tcp", 65536), aws.Invalid, "", ""},
	} {
		v := s.Reach(tt.flow)
		if v.Result != tt.result || v.Path != tt.path || v.Ingress.Group != tt.group {
			t.Errorf("%s: %s by %q, let in by %q (%s); want %s by %q, let in by %q\n%+v",
				tt.name, v.Result, v.Path, v.Ingress.Group, v.Reason, tt.result, tt.path, tt.group, v)
		}
	}
	// Who decided, at both ends.
	v := s.Reach(ask("i-client", "i-server", "tcp", 80))
	if v.Egress.Group != "sg-client" || v.Egress.Rule == "" || v.Ingress.Rule == "" || v.Source.String() != "10.1.1.10" || v.Destination.String() != "10.1.1.20" {
		t.Errorf("verdict %+v", v)
	}
	// The reverse of an allowed flow is no new connection's right.
	if v := s.Reach(ask("i-server", "i-client", "tcp", 80)); v.Result != aws.Denied {
		t.Errorf("reverse: %+v", v)
	}
}

// TestStaleReference deletes a peering and a peer's group: the rules stay and match nobody.
func TestStaleReference(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, world(), aws.Options{})
	b := ec2.NewFromConfig(s.config("us-east-1", "AKIAB", "b", ""))
	stale := func() int {
		out, err := b.DescribeStaleSecurityGroups(ctx, &ec2.DescribeStaleSecurityGroupsInput{VpcId: sdk.String("vpc-b")})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.StaleSecurityGroupSet)
	}
	flow := ask("i-client", "i-b", "tcp", 5432)
	if v := s.Reach(flow); v.Result != aws.Allowed || stale() != 0 {
		t.Fatalf("before: %+v, %d stale", v, stale())
	}
	if err := errOf(b.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: sdk.String("pcx-ab")})); err != nil {
		t.Fatal(err)
	}
	if v := s.Reach(flow); v.Result != aws.Unreachable || v.Ingress.Result != aws.Denied {
		t.Errorf("after: %+v", v)
	}
	if n := stale(); n != 1 {
		t.Errorf("%d stale groups, want 1", n)
	}
	sg, err := b.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-b"}})
	if err != nil {
		t.Fatal(err)
	}
	if p := sg.SecurityGroups[0].IpPermissions; len(p) != 1 || sdk.ToString(p[0].UserIdGroupPairs[0].PeeringStatus) != "deleted" {
		t.Errorf("the rule went with the peering: %+v", p)
	}
	// A new reference over the deleted peering is refused.
	ref := ofGroup(tcp(1, 1), "sg-client")
	ref.UserIdGroupPairs[0].UserId = sdk.String("111111111111")
	if got := code(allow(b, "sg-b", ref)); got != "InvalidGroup.NotFound" {
		t.Errorf("reference without peering: %q", got)
	}
	// References from a peered VPC do not hold a group.
	a := s.ec2("us-east-1")
	g := newGroup(t, a, "vpc-c", "lone")
	if got := code(allow(a, "sg-server", ofGroup(tcp(1, 1), g))); got != "InvalidGroup.NotFound" {
		t.Errorf("reference to an unpeered VPC: %q", got)
	}
}
