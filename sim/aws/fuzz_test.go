package aws

import (
	"encoding/xml"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// FuzzRequest runs any form as a signed call: no panic, an answer that is XML, and a state that
// still makes an estate. It is inside the package because a fuzzer cannot sign.
func FuzzRequest(f *testing.F) {
	for _, form := range []string{
		"Action=DescribeVpcs",
		"Action=DescribeInstances&Filter.1.Name=tag:Role&Filter.1.Value.1=w*&MaxResults=5",
		"Action=CreateSecurityGroup&GroupName=a&GroupDescription=b&VpcId=vpc-0a100000000000001&TagSpecification.1.ResourceType=security-group&TagSpecification.1.Tag.1.Key=k",
		"Action=AuthorizeSecurityGroupIngress&GroupId=sg-0a10000000000001&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=1&IpPermissions.1.ToPort=2&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8&IpPermissions.1.Ipv6Ranges.1.CidrIpv6=::/0&IpPermissions.1.Groups.1.GroupId=sg-0a10000000000001",
		"Action=RevokeSecurityGroupEgress&GroupId=sg-0a10000000000001&IpPermissions.1.IpProtocol=-1&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0",
		"Action=ModifySecurityGroupRules&GroupId=sg-0a10000000000001&SecurityGroupRule.1.SecurityGroupRuleId=sgr-0a100000000000011&SecurityGroupRule.1.SecurityGroupRule.IpProtocol=6&SecurityGroupRule.1.SecurityGroupRule.FromPort=1&SecurityGroupRule.1.SecurityGroupRule.ToPort=1&SecurityGroupRule.1.SecurityGroupRule.CidrIpv4=1.2.3.4/8",
		"Action=ModifyNetworkInterfaceAttribute&NetworkInterfaceId=eni-0a100000000000001&SecurityGroupId.1=sg-0a10000000000001",
		"Action=ModifyNetworkInterfaceAttribute&NetworkInterfaceId=eni-0a100000000000001&Description.Value=x",
		"Action=RunInstances&ImageId=a&MinCount=1&MaxCount=2&NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId=subnet-0a10000000000001",
		"Action=TerminateInstances&InstanceId.1=i-0a100000000000001",
		"Action=CreateTags&ResourceId.1=vpc-0a100000000000001&Tag.1.Key=k&Tag.1.Value=%00",
		"Action=DeleteTags&ResourceId.1=vpc-0a100000000000001",
		"Action=CreateManagedPrefixList&PrefixListName=p&MaxEntries=2&AddressFamily=IPv6&Entry.1.Cidr=::/0",
		"Action=CreateVpc&CidrBlock=10.9.0.0/16&AmazonProvidedIpv6CidrBlock=true",
		"Action=CreateSubnet&VpcId=vpc-0a100000000000001&CidrBlock=10.10.99.0/24",
		"Action=CreateVpcPeeringConnection&VpcId=vpc-0a100000000000001&PeerVpcId=vpc-0b100000000000001&PeerRegion=eu-west-1",
		"Action=DescribeTags&NextToken=%%%",
		"a.1.2.3.4.5.6.7.8.9=1",
	} {
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, form string) {
		if len(form) > 1<<12 {
			return
		}
		now := time.Unix(1700000000, 0)
		c, err := New(Sample(), Options{Now: func() time.Time { return now }, NoThrottle: true, Latency: -1})
		if err != nil {
			t.Fatal(err)
		}
		p, fail := parseParams(form)
		if p == nil || p.kids == nil {
			return
		}
		if fail != nil {
			return
		}
		a := c.w.accounts[SampleAccount]
		q := &request{c: c, p: p, now: now, action: p.str("Action"), who: principal{account: a, arn: "arn"}, key: siteKey{a.ID, SampleRegion}}
		p.kids["Version"] = &params{value: ec2Version, set: true, root: p.root}
		if q.find("ec2") != nil {
			return
		}
		body, fail, _ := c.call(httptest.NewRequest("POST", "/", nil), q, "ec2")
		answer := render("ec2", q.action, "id", body, fail)
		for d := xml.NewDecoder(strings.NewReader(string(answer))); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in %s", form, err, answer)
			}
		}
		if _, err := New(c.Estate(), Options{}); err != nil {
			t.Errorf("%s: the state is broken: %v", form, err)
		}
	})
}

// FuzzWildcard compares the matcher with a plain recursive one.
func FuzzWildcard(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add(`\*\?`, "*?")
	f.Add("***", "")
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 12 || len(s) > 24 {
			return
		}
		if got, want := wildcard(p, s), slowWildcard(p, s); got != want {
			t.Errorf("wildcard(%q, %q) = %t, want %t", p, s, got, want)
		}
	})
}

func slowWildcard(p, s string) bool {
	switch {
	case p == "":
		return s == ""
	case p[0] == '*':
		return slowWildcard(p[1:], s) || s != "" && slowWildcard(p, s[1:])
	case s == "":
		return false
	case p[0] == '?':
		return slowWildcard(p[1:], s[1:])
	case p[0] == '\\' && len(p) > 1:
		return p[1] == s[0] && slowWildcard(p[2:], s[1:])
	}
	return p[0] == s[0] && slowWildcard(p[1:], s[1:])
}
