// Package awstest makes estates of the simulated AWS from worlds of policies, and asks it
// about their flows.
package awstest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/sim/aws"
)

// Distinct gives every interface of a VM an ID of its own: a cloud has no two of one.
func Distinct(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		c := *w
		c.Interfaces = slices.Clone(w.Interfaces)
		for i := range c.Interfaces {
			c.Interfaces[i].ID = fmt.Sprintf("eni-%x%d", fmt.Appendf(nil, "%s", id), i)
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// Estate is the sample's account and region with the VMs of a world: each Network is a
// VPC, and each VM has the groups that its VPC gives, and at times one of its own. An
// interface with an ID such as "lb/app/shop/1" or "rds/db-1" is of a service.
func Estate(s policy.Snapshot, q aws.Quotas) aws.Estate {
	r := &aws.Region{Name: aws.SampleRegion, Quotas: q}
	vpcs, spare := map[string]bool{}, 0
	for _, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		if !vpcs[w.Network] {
			vpcs[w.Network] = true
			AddVPC(r, w.Network)
		}
		if addService(r, w) {
			continue
		}
		i := &aws.Instance{ID: instanceID(w), Tags: map[string]string{"Name": w.Name}}
		for k, n := range w.Interfaces {
			x := interfaceOf(w, n)
			if k == 0 && len(w.Name)%2 == 0 {
				x.Groups = []string{OwnGroup(w.Network)}
			}
			if len(x.PrivateIPs) == 0 { // EC2 gives every interface one
				spare++
				x.PrivateIPs = []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 250, byte(spare)})}
			}
			i.Interfaces = append(i.Interfaces, x)
		}
		r.Instances = append(r.Instances, i)
	}
	key := &aws.AccessKey{ID: aws.SampleKeyID, Secret: aws.SampleKeySecret}
	return aws.Estate{Accounts: []*aws.Account{{ID: aws.SampleAccount, Keys: []*aws.AccessKey{key}, Regions: []*aws.Region{r}}}}
}

func interfaceOf(w *policy.Workload, n policy.Interface) *aws.Interface {
	x := &aws.Interface{ID: InterfaceID(n.ID), Subnet: SubnetOf(w.Network)}
	for _, a := range n.Addrs {
		if a.Is4() {
			x.PrivateIPs = append(x.PrivateIPs, a)
		} else {
			x.IPv6 = append(x.IPv6, a)
		}
	}
	return x
}

// SubnetOf is the ID of the one subnet of a VPC that AddVPC made, OwnGroup that of a
// security group that lets in SSH and out all.
func SubnetOf(vpc string) string { return "subnet-" + tail(vpc) }
func OwnGroup(vpc string) string { return "sg-own" + tail(vpc) }
func tail(vpc string) string     { return strings.TrimPrefix(vpc, "vpc-") }
func instanceID(w *policy.Workload) string {
	return "i-" + strings.TrimSuffix(strings.TrimPrefix(w.Interfaces[0].ID, "eni-"), "0")
}

// AddVPC adds a VPC with the prefixes of all that policytest draws.
func AddVPC(r *aws.Region, id string) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("fd01::/16")}
	r.VPCs = append(r.VPCs, &aws.VPC{ID: id, CIDRs: prefixes, Tags: map[string]string{"Name": "Name of " + id}})
	r.Subnets = append(r.Subnets, &aws.Subnet{ID: SubnetOf(id), VPC: id, CIDRs: prefixes})
	r.Groups = append(r.Groups, &aws.Group{ID: OwnGroup(id), VPC: id, Name: "own", Rules: []*aws.Rule{
		{Protocol: "tcp", From: 22, To: 22, CIDR: netip.MustParsePrefix("0.0.0.0/0")},
		{Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix("0.0.0.0/0")},
	}})
}

// InterfaceID is the interface of EC2 behind one that a world names.
func InterfaceID(id string) string {
	if !strings.HasPrefix(id, "lb/") && !strings.HasPrefix(id, "rds/") {
		return id
	}
	return "eni-" + strings.TrimLeft(strings.ToLower(id[strings.LastIndexAny(id, "/-")+1:]), "0")
}

// addService adds a database or load balancer to a region, if w is one.
func addService(r *aws.Region, w *policy.Workload) bool {
	if len(w.Interfaces) != 1 || InterfaceID(w.Interfaces[0].ID) == w.Interfaces[0].ID {
		return false
	}
	n := w.Interfaces[0]
	x := interfaceOf(w, n)
	groups := []string{OwnGroup(w.Network)}
	if id, ok := strings.CutPrefix(n.ID, "lb/"); ok {
		if strings.HasPrefix(id, "gwy/") || strings.HasPrefix(id, "net/bare") {
			groups = nil
		}
		r.LoadBalancers = append(r.LoadBalancers, &aws.LoadBalancer{ID: id, Subnets: []string{x.Subnet}, Groups: groups, Interfaces: []*aws.Interface{x}})
		return true
	}
	resource := strings.TrimPrefix(n.ID, "rds/")
	r.Databases = append(r.Databases, &aws.Database{ID: "id-" + strings.ToLower(resource), Resource: resource,
		Subnets: []string{x.Subnet}, Groups: groups, Interfaces: []*aws.Interface{x}})
	return true
}

// Flow asks about a flow between two ends as EC2 knows them; ok is false for what it does not.
func Flow(f policy.Flow, from, to policy.End) (out aws.Flow, ok bool) {
	out = aws.Flow{From: nameOf(from), To: nameOf(to), Port: int(f.Port), ICMPType: int(f.ICMPType), ICMPCode: int(f.ICMPCode), Family: "ipv4"}
	if from.Addr.Is6() {
		out.Family = "ipv6"
	}
	switch f.Protocol {
	case policy.TCP, policy.UDP, policy.SCTP, policy.ICMP:
		out.Protocol = strings.ToLower(f.Protocol.String())
	case policy.OtherProtocol:
		out.Protocol = "47"
	default:
		return out, false
	}
	return out, true
}

func nameOf(e policy.End) string {
	if e.Owner != nil {
		for _, n := range e.Owner.Interfaces {
			if slices.Contains(n.Addrs, e.Addr) {
				return InterfaceID(n.ID)
			}
		}
	}
	return e.Addr.String()
}
