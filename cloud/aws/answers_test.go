package aws_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/policy/policytest"
)

// Answers of EC2, as far as they matter to what is read.
var answers = []string{
	`<DescribeVpcsResponse><vpcSet><item><vpcId>vpc-1</vpcId><cidrBlock>10.0.0.0/16</cidrBlock><cidrBlockAssociationSet><item><cidrBlock>10.0.0.0/16</cidrBlock>
		<cidrBlockState><state>associated</state></cidrBlockState></item></cidrBlockAssociationSet></item></vpcSet></DescribeVpcsResponse>`,
	`<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId><vpcId>vpc-1</vpcId><instanceState><code>16</code><name>running</name></instanceState>
		<networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><privateIpAddressesSet><item><privateIpAddress>10.0.0.1</privateIpAddress></item></privateIpAddressesSet>
		</item></networkInterfaceSet></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`,
	`<DescribeSecurityGroupsResponse><securityGroupInfo><item><groupId>sg-1</groupId><groupName>isobar-x</groupName><vpcId>vpc-1</vpcId><tagSet><item><key>isobar.dev/cluster</key>
		<value>test</value></item></tagSet><ipPermissions><item><ipProtocol>tcp</ipProtocol><fromPort>-7</fromPort><toPort>99999</toPort><ipRanges><item><cidrIp>10.0.0.0/99</cidrIp>
		</item></ipRanges></item></ipPermissions></item></securityGroupInfo></DescribeSecurityGroupsResponse>`,
	`<DescribeNetworkInterfacesResponse><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><groupSet><item><groupId>sg-1</groupId></item></groupSet>
		</item></networkInterfaceSet></DescribeNetworkInterfacesResponse>`,
	// A page that never ends.
	`<DescribeVpcsResponse><vpcSet></vpcSet><nextToken>again</nextToken></DescribeVpcsResponse>`,
	`<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>`,
	`<DescribeVpcsResponse><vpcSet><item>`,
	``,
	`not XML`,
}

// Whatever a cloud answers, reading it ends, without a panic; and what is no
// answer is an error, never an empty account.
func checkAnswer(t *testing.T, status int, body string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	a, err := aws.NewAccount(t.Context(), aws.Config{
		Credentials: aws.Credentials{AccessKeyID: keyID, AccessKeySecret: keySecret},
		Regions:     []string{regionID}, Cluster: "test", Endpoint: server.URL, STSEndpoint: server.URL,
	}, aws.Options{Attempts: 1, Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, networks := a.Networks(ctx, regionID)
	vms := a.VMs(ctx, regionID, []cloud.Match{{}})[0].Err
	_, read := a.Driver(regionID, "vpc-1").Read(ctx)
	if ctx.Err() != nil {
		t.Fatalf("status %d, %q: reading does not end", status, body)
	}
	noAnswer := status >= 300 || !strings.Contains(body, "Response>") || strings.Count(body, "<") != 2*strings.Count(body, "</")
	for what, err := range map[string]error{"networks": networks, "VMs": vms, "the VPC": read} {
		if noAnswer && err == nil {
			t.Errorf("status %d, %q: %s were read without an error", status, body, what)
		}
		if err != nil && strings.Contains(err.Error(), keySecret) {
			t.Errorf("the error for %s has the secret in it: %v", what, err)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for _, text := range answers {
		f.Add(uint16(200), text)
	}
	f.Add(uint16(500), answers[0])
	f.Add(uint16(403), answers[5])
	f.Fuzz(func(t *testing.T, status uint16, body string) {
		if status >= 200 && status < 600 && status != 204 && status != 304 { // which have no body
			checkAnswer(t, int(status), body)
		}
	})
}

// The fuzzer pays for the size of the SDK, so each run tries some breaks itself.
func TestBrokenAnswers(t *testing.T) {
	for seed := range policytest.Seeds(t, 400) {
		rnd := policytest.Rand(seed)
		body := []byte(answers[rnd.IntN(5)])
		switch i := rnd.IntN(len(body)); rnd.IntN(3) {
		case 0:
			body = body[:i]
		case 1:
			body[i] ^= byte(1 + rnd.IntN(255))
		default:
			j := i + rnd.IntN(len(body)-i)
			body = append(body[:i:i], body[j:]...)
		}
		checkAnswer(t, 200, string(body))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
