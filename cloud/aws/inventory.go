package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
)

const (
	pageSize = 1000 // of every listing, the most that EC2 gives
	// maxValues is how many values EC2 takes in a filter.
	maxValues = 200
)

// Networks lists every VPC of a region, by ID.
func (a *Account) Networks(ctx context.Context, regionName string) ([]cloud.Network, error) {
	r, err := a.region(regionName)
	if err != nil {
		return nil, err
	}
	vpcs, err := r.vpcs(ctx)
	if err != nil {
		return nil, scrub(a.config.Credentials, err)
	}
	out := make([]cloud.Network, 0, len(vpcs))
	for _, v := range vpcs {
		tags := tagsOf(v.Tags)
		out = append(out, cloud.Network{ID: aws.ToString(v.VpcId), Name: tags["Name"], Region: regionName, Prefixes: prefixesOf(v), Tags: tags})
	}
	slices.SortFunc(out, func(a, b cloud.Network) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// vpcs lists the VPCs of a region that all filters match.
func (r *region) vpcs(ctx context.Context, filters ...types.Filter) ([]types.Vpc, error) {
	var out []types.Vpc
	pages := ec2.NewDescribeVpcsPaginator(r.api, &ec2.DescribeVpcsInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeVpcsOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe VPCs: %w", r.name, err)
		}
		out = append(out, page.Vpcs...)
	}
	return out, nil
}

// prefixesOf returns the prefixes of a VPC that are in use, sorted.
func prefixesOf(v types.Vpc) []netip.Prefix {
	var out []netip.Prefix
	add := func(s *string) {
		if p, err := netip.ParsePrefix(aws.ToString(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	for _, x := range v.CidrBlockAssociationSet {
		if x.CidrBlockState == nil || x.CidrBlockState.State == types.VpcCidrBlockStateCodeAssociated {
			add(x.CidrBlock)
		}
	}
	for _, x := range v.Ipv6CidrBlockAssociationSet {
		if x.Ipv6CidrBlockState == nil || x.Ipv6CidrBlockState.State == types.VpcCidrBlockStateCodeAssociated {
			add(x.Ipv6CidrBlock)
		}
	}
	add(v.CidrBlock)
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func tagsOf(tags []types.Tag) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// VMs lists the VMs, or services, of a region that each Match picks. Names are exact, as EC2's
// are; IDs count in any case. VMs that are terminated are left out, those that are pending
// are Starting.
func (a *Account) VMs(ctx context.Context, regionName string, matches []cloud.Match) []cloud.VMs {
	out := make([]cloud.VMs, len(matches))
	fail := func(err error) []cloud.VMs {
		for i := range out {
			out[i].Err = scrub(a.config.Credentials, err)
		}
		return out
	}
	r, err := a.region(regionName)
	if err != nil || len(matches) == 0 {
		return fail(err)
	}
	vpcs, err := r.vpcs(ctx)
	if err != nil {
		return fail(err)
	}
	names := map[string]string{}
	for _, v := range vpcs {
		names[aws.ToString(v.VpcId)] = tagsOf(v.Tags)["Name"]
	}
	known := map[string][]cloud.VM{} // equal queries are asked once
	services := &picker{Account: a, region: r, names: names, matches: matches, known: map[cloud.Kind]*listed{}}
	for i, m := range matches {
		if m.Kind != cloud.VirtualMachine {
			out[i].VMs, out[i].Err = services.pick(ctx, m)
			out[i].Err = scrub(a.config.Credentials, out[i].Err)
			continue
		}
		m.NetworkID, m.VMs = strings.ToLower(m.NetworkID), slices.Clone(m.VMs)
		for j := range m.VMs {
			m.VMs[j].ID = strings.ToLower(m.VMs[j].ID)
		}
		m.Subnets = slices.Clone(m.Subnets)
		for j := range m.Subnets {
			m.Subnets[j] = strings.ToLower(m.Subnets[j])
		}
		out[i].VMs, out[i].Err = r.match(ctx, m, names, known)
		out[i].Err = scrub(a.config.Credentials, out[i].Err)
	}
	return out
}

// match lists the VMs that m picks, by ID.
func (r *region) match(ctx context.Context, m cloud.Match, names map[string]string, known map[string][]cloud.VM) ([]cloud.VM, error) {
	networks, any := networksOf(m, names)
	if !any && len(networks) == 0 {
		return nil, nil // a network of that name or ID is not there
	}
	if any {
		networks = nil
	}
	queries, err := queriesOf(m, networks)
	if err != nil {
		return nil, err
	}
	found := map[string]cloud.VM{}
	for _, q := range queries {
		key := fmt.Sprint(textOf(q))
		vms, ok := known[key]
		if !ok {
			var err error
			if vms, err = r.instances(ctx, q, names); err != nil {
				return nil, err
			}
			known[key] = vms
		}
		for _, vm := range vms {
			found[vm.ID] = vm
		}
	}
	out := make([]cloud.VM, 0, len(found))
	for _, vm := range found {
		out = append(out, vm)
	}
	slices.SortFunc(out, func(a, b cloud.VM) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// queriesOf returns the queries that together find what m picks in those
// networks, or in all when there are none: each is the filters of one call.
func queriesOf(m cloud.Match, networks []string) ([][]types.Filter, error) {
	var base []types.Filter
	for _, key := range slices.Sorted(maps.Keys(m.Tags)) {
		base = append(base, filter("tag:"+key, literal(m.Tags[key])))
	}
	// A VM is in every subnet that one of its interfaces is in.
	queries := times(times([][]types.Filter{base}, "vpc-id", networks), "network-interface.subnet-id", m.Subnets)
	if len(m.VMs) == 0 {
		return queries, nil
	}
	var ids, names []string
	wanted, hasName := m.Tags["Name"]
	var out [][]types.Filter
	for _, v := range m.VMs {
		switch {
		case v.ID != "" && v.Name != "":
			return nil, fmt.Errorf("match of VM %q named %q: want one of ID and name", v.ID, v.Name)
		case v.ID != "":
			ids = append(ids, v.ID)
		case v.Name != "" && !hasName:
			names = append(names, literal(v.Name))
		case v.Name != "" && v.Name == wanted: // it is asked for already
			out = append(out, queries...)
		}
	}
	if len(ids) > 0 {
		out = append(out, times(queries, "instance-id", ids)...)
	}
	if len(names) > 0 {
		out = append(out, times(queries, "tag:Name", names)...)
	}
	return out, nil
}

// times gives each query one more filter with any of the values, in as many
// queries as that needs. Without values they stay as they are.
func times(queries [][]types.Filter, name string, values []string) [][]types.Filter {
	if len(values) == 0 {
		return queries
	}
	var out [][]types.Filter
	for _, q := range queries {
		for chunk := range slices.Chunk(values, maxValues) {
			out = append(out, append(slices.Clip(q), filter(name, chunk...)))
		}
	}
	return out
}

// networksOf returns the IDs of the VPCs that m names, sorted; any is set when
// it names none.
func networksOf(m cloud.Match, names map[string]string) (ids []string, any bool) {
	if m.NetworkID == "" && m.NetworkName == "" {
		return nil, true
	}
	for id, name := range names {
		if (m.NetworkID == "" || m.NetworkID == id) && (m.NetworkName == "" || m.NetworkName == name) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, false
}

// literal returns s so that a filter's wildcards in it mean themselves.
func literal(s string) string {
	var b []byte
	for _, c := range []byte(s) {
		if c == '*' || c == '?' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

func textOf(filters []types.Filter) []string {
	var out []string
	for _, f := range filters {
		out = append(out, aws.ToString(f.Name))
		out = append(out, f.Values...)
	}
	return out
}

// instances lists the VMs that all filters match and that count.
func (r *region) instances(ctx context.Context, filters []types.Filter, names map[string]string) ([]cloud.VM, error) {
	filters = append(slices.Clip(filters), filter("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped"))
	var out []cloud.VM
	pages := ec2.NewDescribeInstancesPaginator(r.api, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeInstancesOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe instances: %w", r.name, err)
		}
		for _, reservation := range page.Reservations {
			for _, i := range reservation.Instances {
				out = append(out, r.vm(i, names))
			}
		}
	}
	return out, nil
}

func (r *region) vm(i types.Instance, names map[string]string) cloud.VM {
	vpc := aws.ToString(i.VpcId)
	tags := tagsOf(i.Tags)
	vm := cloud.VM{ID: aws.ToString(i.InstanceId), Name: tags["Name"], Region: r.name, NetworkID: vpc, NetworkName: names[vpc], Tags: tags}
	if i.State != nil {
		vm.State, vm.Starting = string(i.State.Name), i.State.Name == types.InstanceStateNamePending
	}
	for _, n := range i.NetworkInterfaces {
		x := cloud.Interface{ID: aws.ToString(n.NetworkInterfaceId), MAC: aws.ToString(n.MacAddress), Subnet: aws.ToString(n.SubnetId)}
		for _, p := range n.PrivateIpAddresses {
			x.Private = appendAddr(x.Private, p.PrivateIpAddress)
			if p.Association != nil {
				x.Public = appendAddr(x.Public, p.Association.PublicIp)
			}
		}
		if len(n.PrivateIpAddresses) == 0 {
			x.Private = appendAddr(x.Private, n.PrivateIpAddress)
			if n.Association != nil {
				x.Public = appendAddr(x.Public, n.Association.PublicIp)
			}
		}
		// An IPv6 address is both: it belongs to the VPC, and the world reaches it.
		for _, p := range n.Ipv6Addresses {
			x.Public = appendAddr(x.Public, p.Ipv6Address)
		}
		for _, g := range n.Groups {
			x.Groups = append(x.Groups, aws.ToString(g.GroupId))
		}
		slices.Sort(x.Groups)
		vm.Interfaces = append(vm.Interfaces, x)
	}
	slices.SortFunc(vm.Interfaces, func(a, b cloud.Interface) int { return cmp.Compare(a.ID, b.ID) })
	return vm
}

func appendAddr(addrs []netip.Addr, s *string) []netip.Addr {
	a, err := netip.ParseAddr(aws.ToString(s))
	if err != nil || slices.Contains(addrs, a.Unmap()) {
		return addrs
	}
	return append(addrs, a.Unmap())
}
