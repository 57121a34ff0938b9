package aws

import "strconv"

func itoa(n int) string { return strconv.Itoa(n) }

const pageParams = " Filter MaxResults NextToken"

// service is one of the services that are served.
type service struct {
	version    string
	namespace  string // of its answers
	operations func() map[string]operation
}

// services are known by what a signature calls them.
func services() map[string]service {
	return map[string]service{
		"ec2":                  {ec2Version, "http://ec2.amazonaws.com/doc/" + ec2Version + "/", ec2Operations},
		"sts":                  {stsVersion, "https://sts.amazonaws.com/doc/" + stsVersion + "/", stsOperations},
		"rds":                  {rdsVersion, "http://rds.amazonaws.com/doc/" + rdsVersion + "/", rdsOperations},
		"elasticloadbalancing": {elbVersion, "http://elasticloadbalancing.amazonaws.com/doc/" + elbVersion + "/", elbOperations},
	}
}

// serviceOf is the service whose API has that version; EC2 when none has.
func serviceOf(version string) string {
	for name, s := range services() {
		if s.version == version {
			return name
		}
	}
	return "ec2"
}

// ec2Operations are the actions of EC2 that are served, with the parameters that they understand.
func ec2Operations() map[string]operation {
	return map[string]operation{
		"DescribeRegions":               {"RegionName AllRegions Filter", false, describeRegions},
		"DescribeAccountAttributes":     {"AttributeName", false, describeAccountAttributes},
		"DescribeAvailabilityZones":     {"ZoneName AllAvailabilityZones Filter", false, describeZones},
		"DescribeVpcs":                  {"VpcId" + pageParams, false, describeVPCs},
		"CreateVpc":                     {"CidrBlock! AmazonProvidedIpv6CidrBlock InstanceTenancy TagSpecification", true, createVPC},
		"DeleteVpc":                     {"VpcId!", true, deleteVPC},
		"DescribeSubnets":               {"SubnetId" + pageParams, false, describeSubnets},
		"CreateSubnet":                  {"VpcId! CidrBlock! Ipv6CidrBlock AvailabilityZone TagSpecification", true, createSubnet},
		"DeleteSubnet":                  {"SubnetId!", true, deleteSubnet},
		"DescribeVpcPeeringConnections": {"VpcPeeringConnectionId" + pageParams, false, describePeerings},
		"CreateVpcPeeringConnection":    {"VpcId! PeerVpcId! PeerOwnerId PeerRegion TagSpecification", true, createPeering},
		"AcceptVpcPeeringConnection":    {"VpcPeeringConnectionId!", true, acceptPeering},
		"RejectVpcPeeringConnection":    {"VpcPeeringConnectionId!", true, rejectPeering},
		"DeleteVpcPeeringConnection":    {"VpcPeeringConnectionId!", true, deletePeering},

		"DescribeInstances":  {"InstanceId IncludeManagedResources" + pageParams, false, describeInstances},
		"RunInstances":       {runParams, true, runInstances},
		"StartInstances":     {"InstanceId! AdditionalInfo", true, changeInstances(start)},
		"StopInstances":      {"InstanceId! Force Hibernate SkipOsShutdown", true, changeInstances(stop)},
		"TerminateInstances": {"InstanceId! Force SkipOsShutdown", true, changeInstances(terminate)},

		"DescribeNetworkInterfaces":       {"NetworkInterfaceId IncludeManagedResources" + pageParams, false, describeInterfaces},
		"ModifyNetworkInterfaceAttribute": {"NetworkInterfaceId! SecurityGroupId Description", true, modifyInterface},

		"DescribeSecurityGroups":                     {"GroupId GroupName" + pageParams, false, describeGroups},
		"DescribeSecurityGroupRules":                 {"SecurityGroupRuleId" + pageParams, false, describeRules},
		"DescribeStaleSecurityGroups":                {"VpcId! MaxResults NextToken", false, describeStale},
		"CreateSecurityGroup":                        {"GroupName! GroupDescription! VpcId TagSpecification", true, createGroup},
		"DeleteSecurityGroup":                        {"GroupId GroupName", true, deleteGroup},
		"AuthorizeSecurityGroupIngress":              {"GroupId GroupName IpPermissions CidrIp IpProtocol FromPort ToPort TagSpecification", true, authorize(false)},
		"AuthorizeSecurityGroupEgress":               {"GroupId! IpPermissions CidrIp IpProtocol FromPort ToPort TagSpecification", true, authorize(true)},
		"RevokeSecurityGroupIngress":                 {"GroupId GroupName IpPermissions CidrIp IpProtocol FromPort ToPort SecurityGroupRuleId", true, revoke(false)},
		"RevokeSecurityGroupEgress":                  {"GroupId! IpPermissions CidrIp IpProtocol FromPort ToPort SecurityGroupRuleId", true, revoke(true)},
		"ModifySecurityGroupRules":                   {"GroupId! SecurityGroupRule!", true, modifyRules},
		"UpdateSecurityGroupRuleDescriptionsIngress": {"GroupId GroupName IpPermissions SecurityGroupRuleDescription", true, updateDescriptions(false)},
		"UpdateSecurityGroupRuleDescriptionsEgress":  {"GroupId GroupName IpPermissions SecurityGroupRuleDescription", true, updateDescriptions(true)},

		"DescribeTags": {"Filter MaxResults NextToken", false, describeTags},
		"CreateTags":   {"ResourceId! Tag!", true, createTags},
		"DeleteTags":   {"ResourceId! Tag", true, deleteTags},

		"DescribeManagedPrefixLists":  {"PrefixListId" + pageParams, false, describeLists},
		"GetManagedPrefixListEntries": {"PrefixListId! TargetVersion MaxResults NextToken", false, listEntries},
		"CreateManagedPrefixList":     {"PrefixListName! MaxEntries! AddressFamily! Entry TagSpecification ClientToken", true, createList},
		"ModifyManagedPrefixList":     {"PrefixListId! CurrentVersion PrefixListName AddEntry RemoveEntry MaxEntries", true, modifyList},
		"DeleteManagedPrefixList":     {"PrefixListId!", true, deleteList},
	}
}

func rdsOperations() map[string]operation {
	return map[string]operation{
		"DescribeDBInstances":    {"DBInstanceIdentifier Filters MaxRecords Marker", false, describeDatabases},
		"ModifyDBInstance":       {"DBInstanceIdentifier! VpcSecurityGroupIds! ApplyImmediately", true, modifyDatabase},
		"ListTagsForResource":    {"ResourceName!", false, listDatabaseTags},
		"AddTagsToResource":      {"ResourceName! Tags!", true, addDatabaseTags},
		"RemoveTagsFromResource": {"ResourceName! TagKeys!", true, removeDatabaseTags},
	}
}

func elbOperations() map[string]operation {
	return map[string]operation{
		"DescribeLoadBalancers": {"LoadBalancerArns Names PageSize Marker", false, describeBalancers},
		"SetSecurityGroups":     {"LoadBalancerArn! SecurityGroups!", true, setBalancerGroups},
		"DescribeTags":          {"ResourceArns!", false, describeBalancerTags},
		"AddTags":               {"ResourceArns! Tags!", true, addBalancerTags},
		"RemoveTags":            {"ResourceArns! TagKeys!", true, removeBalancerTags},
	}
}

func stsOperations() map[string]operation {
	return map[string]operation{
		"GetCallerIdentity": {"", false, callerIdentity},
		"AssumeRole":        {"RoleArn! RoleSessionName! ExternalId DurationSeconds", false, assumeRole},
	}
}
