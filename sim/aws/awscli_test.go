package aws_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"isobar.dev/sim/aws"
)

// TestAWSCLI drives the simulator as a person would, with every aws command that is installed:
// Debian's is version 2 and must work, and so must version 1.
func TestAWSCLI(t *testing.T) {
	found := map[string]bool{}
	for _, name := range []string{"aws", "/usr/bin/aws"} {
		if p, err := exec.LookPath(name); err == nil {
			found[p] = true
		}
	}
	if len(found) == 0 {
		t.Skip("missing: the aws command (awscli)")
	}
	for p := range found {
		t.Run(p, func(t *testing.T) { t.Parallel(); driveCLI(t, p) })
	}
}

func driveCLI(t *testing.T, path string) {
	s := newSim(t, withServices(130), aws.Options{})
	run := func(args ...string) (string, string) {
		cmd := exec.Command(path, append([]string{"--endpoint-url", s.url, "--region", "us-east-1", "--output", "text"}, args...)...)
		cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+aws.SampleKeyID, "AWS_SECRET_ACCESS_KEY="+aws.SampleKeySecret,
			"AWS_PAGER=", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "AWS_MAX_ATTEMPTS=1")
		var out, msg bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &msg
		if err := cmd.Run(); err != nil && msg.Len() == 0 {
			msg.WriteString(err.Error())
		}
		return strings.TrimSpace(out.String()), strings.TrimSpace(msg.String())
	}
	vars := strings.NewReplacer()
	set := func(name, value string) { vars = strings.NewReplacer(name, value) }
	for _, tt := range []struct{ name, args, want, fail string }{
		{"who", "sts get-caller-identity --query Arn", "arn:aws:iam::111122223333:user/isobar", ""},
		{"role", "sts assume-role --role-arn " + aws.SampleRole + " --role-session-name me --external-id shop --query AssumedRoleUser.Arn", "arn:aws:sts::111122223333:assumed-role/isobar/me", ""},
		// With text output the client answers the query page by page.
		{"paging and filters", "ec2 describe-instances --page-size 5 --filters Name=tag:Role,Values=db,web,app --query length(Reservations[])", "5\n3", ""},
		{"create group", "ec2 create-security-group --group-name cli --description cli --vpc-id " + shopVPC + " --tag-specifications ResourceType=security-group,Tags=[{Key=a,Value=b}] --query GroupId", "sg-", ""},
		{"authorize", "ec2 authorize-security-group-ingress --group-id $G --protocol tcp --port 443 --cidr 10.0.0.1/8 --query SecurityGroupRules[].CidrIpv4", "10.0.0.0/8", ""},
		{"authorize again", "ec2 authorize-security-group-ingress --group-id $G --protocol tcp --port 443 --cidr 10.0.0.0/8", "", "InvalidPermission.Duplicate"},
		{"authorize a group", "ec2 authorize-security-group-ingress --group-id $G --protocol all --source-group " + shopSG + " --query Return", "True", ""},
		{"permissions as JSON", `ec2 authorize-security-group-egress --group-id $G --ip-permissions [{"IpProtocol":"udp","FromPort":53,"ToPort":53,"Ipv6Ranges":[{"CidrIpv6":"2001:db8::/32"}]}] --query Return`, "True", ""},
		{"attach right", "ec2 modify-network-interface-attribute --network-interface-id eni-0a100000000000001 --groups $G", "", ""},
		{"delete in use", "ec2 delete-security-group --group-id $G", "", "DependencyViolation"},
		{"revoke", "ec2 revoke-security-group-ingress --group-id $G --protocol tcp --port 443 --cidr 10.0.0.0/8", "", ""},
		{"run", "ec2 run-instances --image-id ami-1 --subnet-id subnet-0a10000000000001 --security-group-ids " + shopSG + " --query Instances[].State.Name", "pending", ""},
		{"databases", "rds describe-db-instances --query length(DBInstances)", "100\n32", ""},
		{"modify database", "rds modify-db-instance --db-instance-identifier orders --vpc-security-group-ids $G --apply-immediately --query DBInstance.DBInstanceStatus", "modifying", ""},
		{"modify it again", "rds modify-db-instance --db-instance-identifier orders --vpc-security-group-ids $G", "", "InvalidDBInstanceState"},
		{"tag database", "rds add-tags-to-resource --resource-name arn:aws:rds:us-east-1:111122223333:db:orders --tags Key=a,Value=b", "", ""},
		{"load balancers", "elbv2 describe-load-balancers --query LoadBalancers[].Type", "application\tgateway\tnetwork", ""},
		{"set groups", "elbv2 set-security-groups --load-balancer-arn arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/shop/0123456789abcdef --security-groups $G --query SecurityGroupIds", "$G", ""},
		{"tag load balancer", "elbv2 add-tags --resource-arns arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/shop/0123456789abcdef --tags Key=a,Value=b", "", ""},
		{"prefix list", "ec2 create-managed-prefix-list --prefix-list-name p --address-family IPv4 --max-entries 3 --entries Cidr=10.0.0.0/8 --query PrefixList.Version", "1", ""},
	} {
		out, msg := run(strings.Fields(vars.Replace(tt.args))...)
		if tt.name == "create group" && strings.HasPrefix(out, "sg-") {
			set("$G", out)
			tt.want = out
		}
		// The versions print different words around an empty answer; the state says what it did.
		tt.want = vars.Replace(tt.want)
		if tt.want != "" && out != tt.want || tt.fail == "" && msg != "" || !strings.Contains(msg, tt.fail) {
			t.Errorf("%s: %q, error %q; want %q, error %q", tt.name, out, msg, tt.want, tt.fail)
		}
	}
}
