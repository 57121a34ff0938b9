package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"isobar.dev/cloud"
)

// A service has one interface, whose ID says what it is: "rds/" and the resource
// ID of a database, "lb/" and the end of a load balancer's ARN. Behind it are as
// many of EC2's as AWS likes, which it alone changes.
const (
	databasePrefix = "rds/"
	balancerPrefix = "lb/"
)

// most is how many groups an interface may have.
func (q Quotas) most(id string) int {
	switch kindOf(id) {
	case cloud.Database:
		return q.GroupsPerDatabase
	case cloud.LoadBalancer:
		return q.GroupsPerLoadBalancer
	}
	return q.GroupsPerNIC
}

func kindOf(id string) cloud.Kind {
	switch {
	case strings.HasPrefix(id, databasePrefix):
		return cloud.Database
	case strings.HasPrefix(id, balancerPrefix):
		return cloud.LoadBalancer
	}
	return cloud.VirtualMachine
}

// joins says whether an interface may carry membership groups. A database may
// not: it takes a group some minutes after it was told, or, while it is stopped,
// not at all, and rules that named the group would cut it off until then. Nor may
// what prefixes are delegated to: whatever has an address of these, as the Pods of a
// Node, would count as a member too.
func (l *lowering) joins(id string) bool {
	return kindOf(id) != cloud.Database && l.Fixed[id] == "" && !l.Delegated[id]
}

// service is a database or a load balancer as its own API tells of it.
type service struct {
	kind       cloud.Kind
	id         string // of its interface
	key        string // what its API changes it by: an identifier, or an ARN
	arn        string
	name       string
	vpc        string
	state      string
	isStarting bool
	groups     []string          // in force: those on their way to it are not
	isChanging bool              // groups are on their way
	fixed      string            // why no group can be attached, ever
	tags       map[string]string // of a load balancer, only where tagged has run
	endpoint   string            // of a database
}

// services lists the services of a kind in a region, by ID. Those in no VPC are
// left out.
func (r *region) services(ctx context.Context, kind cloud.Kind) ([]service, error) {
	var out []service
	var err error
	switch kind {
	case cloud.Database:
		out, err = r.databases(ctx)
	case cloud.LoadBalancer:
		out, err = r.balancers(ctx)
	default:
		return nil, fmt.Errorf("region %s: no services of kind %q", r.name, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("region %s: %w", r.name, err)
	}
	out = slices.DeleteFunc(out, func(s service) bool { return s.vpc == "" })
	slices.SortFunc(out, func(a, b service) int { return cmp.Compare(a.id, b.id) })
	return out, nil
}

func (r *region) databases(ctx context.Context) ([]service, error) {
	var out []service
	pages := rds.NewDescribeDBInstancesPaginator(r.rds, &rds.DescribeDBInstancesInput{MaxRecords: aws.Int32(100)})
	for page, err := range pagesOf(ctx, pages, func(p *rds.DescribeDBInstancesOutput) *string { return p.Marker }) {
		if err != nil {
			return nil, fmt.Errorf("describe DB instances: %w", err)
		}
		for _, d := range page.DBInstances {
			out = append(out, databaseOf(d))
		}
	}
	return out, nil
}

func databaseOf(d rdstypes.DBInstance) service {
	s := service{
		kind: cloud.Database, id: databasePrefix + aws.ToString(d.DbiResourceId), key: aws.ToString(d.DBInstanceIdentifier),
		arn: aws.ToString(d.DBInstanceArn), name: aws.ToString(d.DBInstanceIdentifier), state: aws.ToString(d.DBInstanceStatus), tags: map[string]string{},
	}
	s.isStarting = s.state == "creating"
	if d.DBSubnetGroup != nil {
		s.vpc = aws.ToString(d.DBSubnetGroup.VpcId)
	}
	for _, g := range d.VpcSecurityGroups {
		switch aws.ToString(g.Status) {
		case "active":
			s.groups = append(s.groups, aws.ToString(g.VpcSecurityGroupId))
		case "removing":
			s.groups = append(s.groups, aws.ToString(g.VpcSecurityGroupId))
			s.isChanging = true
		default:
			s.isChanging = true
		}
	}
	slices.Sort(s.groups)
	for _, t := range d.TagList {
		s.tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	if d.Endpoint != nil {
		s.endpoint = aws.ToString(d.Endpoint.Address)
	}
	if cluster := aws.ToString(d.DBClusterIdentifier); cluster != "" {
		s.fixed = fmt.Sprintf("the database %s has the groups of its cluster %s", s.name, cluster)
	}
	return s
}

func (r *region) balancers(ctx context.Context) ([]service, error) {
	var out []service
	pages := elb.NewDescribeLoadBalancersPaginator(r.elb, &elb.DescribeLoadBalancersInput{PageSize: aws.Int32(400)})
	for page, err := range pagesOf(ctx, pages, func(p *elb.DescribeLoadBalancersOutput) *string { return p.NextMarker }) {
		if err != nil {
			return nil, fmt.Errorf("describe load balancers: %w", err)
		}
		for _, b := range page.LoadBalancers {
			s, err := balancerOf(b)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
	return out, nil
}

func balancerOf(b elbtypes.LoadBalancer) (service, error) {
	arn := aws.ToString(b.LoadBalancerArn)
	_, id, ok := strings.Cut(arn, ":loadbalancer/")
	if !ok || strings.Count(id, "/") != 2 {
		return service{}, fmt.Errorf("load balancer %q: not the ARN of one", arn)
	}
	s := service{
		kind: cloud.LoadBalancer, id: balancerPrefix + id, key: arn, arn: arn, name: aws.ToString(b.LoadBalancerName),
		vpc: aws.ToString(b.VpcId), groups: slices.Sorted(slices.Values(b.SecurityGroups)),
	}
	if b.State != nil {
		s.state, s.isStarting = string(b.State.Code), b.State.Code == elbtypes.LoadBalancerStateEnumProvisioning
	}
	switch {
	case b.Type == elbtypes.LoadBalancerTypeEnumGateway:
		s.fixed = fmt.Sprintf("the load balancer %s is a gateway, which has no security groups", s.name)
	case len(s.groups) == 0:
		s.fixed = fmt.Sprintf("the load balancer %s was made without security groups, and cannot get any", s.name)
	}
	return s, nil
}

// maxDescribed is how many load balancers' tags one call tells.
const maxDescribed = 20

// tagged reads the tags of load balancers; those of databases come with them.
func (r *region) tagged(ctx context.Context, list []service) error {
	byARN := map[string]int{}
	var arns []string
	for i := range list {
		if list[i].kind == cloud.LoadBalancer {
			list[i].tags = map[string]string{}
			byARN[list[i].arn] = i
			arns = append(arns, list[i].arn)
		}
	}
	for chunk := range slices.Chunk(arns, maxDescribed) {
		out, err := r.elb.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: chunk})
		if err != nil {
			return fmt.Errorf("region %s: describe tags of load balancers: %w", r.name, err)
		}
		told := 0
		for _, d := range out.TagDescriptions {
			i, ok := byARN[aws.ToString(d.ResourceArn)]
			if !ok {
				continue
			}
			told++
			for _, t := range d.Tags {
				list[i].tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
			}
		}
		if told != len(chunk) { // what is not told would look like no tags
			return fmt.Errorf("region %s: describe tags of load balancers: %d of %d are told", r.name, told, len(chunk))
		}
	}
	return nil
}

// interfaceOf says which kind of service an interface of EC2 belongs to.
// A description alone is anybody's; that AWS manages the interface is not.
func interfaceOf(n types.NetworkInterface) cloud.Kind {
	if !aws.ToBool(n.RequesterManaged) {
		return cloud.VirtualMachine
	}
	switch text := aws.ToString(n.Description); {
	case text == databaseDescription:
		return cloud.Database
	case balancerOfInterface(text) != "":
		return cloud.LoadBalancer
	}
	return cloud.VirtualMachine
}

const databaseDescription = "RDSNetworkInterface"

// balancerOfInterface returns the ID of the load balancer that an interface with
// this description belongs to, or "".
func balancerOfInterface(description string) string {
	id, ok := strings.CutPrefix(description, "ELB ")
	if !ok || strings.Count(id, "/") != 2 { // a classic one has a name alone
		return ""
	}
	return balancerPrefix + id
}
