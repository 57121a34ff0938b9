package controlplane_test

import (
	"bufio"
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/control/plane/planetest"
)

// wide is the space between two columns, which depends on the length of names.
var wide = regexp.MustCompile(` {2,}`)

// printed is what kubectl has printed in a test, with NS for the site's namespace, and NOW for a time.
func (s *site) printed(out []byte) string {
	text := timestamp.ReplaceAllString(strings.ReplaceAll(string(out), s.ns, "NS"), "NOW")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		lines[i] = indent + wide.ReplaceAllString(strings.TrimSpace(l), "  ")
	}
	return strings.Join(lines, "\n")
}

// kubectl runs the real one, with NS in its arguments and input for the site's namespace, and returns what it prints.
func (s *site) kubectl(input, args string) string {
	s.t.Helper()
	cmd := s.env.Kubectl(s.t, strings.Fields(strings.ReplaceAll(args, "NS", s.ns))...)
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(input, "NS", s.ns))
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		s.t.Fatal(err)
	}
	return s.printed(out)
}

// TestKubectl runs the real kubectl, as people do.
func TestKubectl(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	web, db := groupOf(s.ns, "web"), groupOf(s.ns, "db")
	question := func(more string) string {
		return `{apiVersion: controlplane.antrea.io/v1beta2, kind: NetworkPolicyEvaluation, request: {source: {pod: {namespace: NS, name: web-1}}, destination: {pod: {namespace: NS, name: db}}` + more + `}}`
	}
	for _, tt := range []struct{ args, input, want string }{
		{args: "api-resources --api-group=controlplane.antrea.io --no-headers -o wide", want: `
addressgroups  controlplane.antrea.io/v1beta2  false  AddressGroup  get,list,watch
appliedtogroups  controlplane.antrea.io/v1beta2  false  AppliedToGroup  get,list,watch
clustergroupmembers  cgmbr  controlplane.antrea.io/v1beta2  false  ClusterGroupMembers  get
egressgroups  controlplane.antrea.io/v1beta2  false  EgressGroup  get,list,watch
groupassociations  controlplane.antrea.io/v1beta2  true  GroupAssociation  get
groupmembers  grpmbr  controlplane.antrea.io/v1beta2  true  GroupMembers  get
ipgroupassociations  controlplane.antrea.io/v1beta2  false  IPGroupAssociation  get
networkpolicies  controlplane.antrea.io/v1beta2  false  NetworkPolicy  get,list,watch
networkpolicyevaluation  controlplane.antrea.io/v1beta2  false  NetworkPolicyEvaluation  create
nodestatssummaries  controlplane.antrea.io/v1beta2  false  NodeStatsSummary  create
supportbundlecollections  controlplane.antrea.io/v1beta2  false  SupportBundleCollection  get,list,watch`},
		{args: "get networkpolicies.controlplane.antrea.io", want: `
NAME  SOURCE  TIER  PRIORITY  RULES
u1  AntreaNetworkPolicy:NS/db  250  5  2
u2  AntreaClusterNetworkPolicy:all  50  1  1
u3  K8sNetworkPolicy:NS/web  1
u4  AntreaNetworkPolicy:NS/vm  250  5  1`},
		{args: "get networkpolicy.controlplane.antrea.io u1 u2 -o wide", want: `
NAME  SOURCE  TIER  PRIORITY  RULES  APPLIED-TO
u1  AntreaNetworkPolicy:NS/db  250  5  2  ` + db + `
u2  AntreaClusterNetworkPolicy:all  50  1  1  ` + web},
		{args: "get networkpolicies.controlplane.antrea.io -o custom-columns=A:.metadata.name,B:.sourceRef.name --sort-by=.tierPriority --field-selector=nodeName=n1", want: `
A  B
u3  web
u2  all
u1  db
u4  vm`},
		{args: "get networkpolicies.controlplane.antrea.io --field-selector=metadata.name=u3 -o jsonpath={.items[0].rules}", want: `[{"direction":"In","enableLogging":false,"from":{},"priority":-1,"to":{}}]`},
		{args: "get networkpolicies.controlplane.antrea.io -l a=b", want: `Error from server (BadRequest): Unable to find "controlplane.antrea.io/v1beta2, Resource=networkpolicies" that match label selector "a=b", field selector "": these objects have no labels to select by`},
		{args: "get networkpolicies.controlplane.antrea.io --field-selector=a=b", want: `Error from server (BadRequest): Unable to find "controlplane.antrea.io/v1beta2, Resource=networkpolicies" that match label selector "", field selector "a=b": no field selector "a": there are metadata.name and nodeName`},
		{args: "get networkpolicies.controlplane.antrea.io u9", want: `Error from server (NotFound): networkpolicies.controlplane.antrea.io "u9" not found`},
		{args: "get appliedtogroup " + db + " -o yaml", want: `
apiVersion: controlplane.antrea.io/v1beta2
groupMembers:
- pod:
    name: db
    namespace: NS
kind: AppliedToGroup
metadata:
  name: ` + db + `
  uid: ` + db},
		{args: "get addressgroups,egressgroups", want: "NAME  MEMBERS  FIRST MEMBERS\naddressgroup.controlplane.antrea.io/" + web + "  2  NS/web-1,NS/web-2"},
		{args: "get egressgroups", want: "No resources found"},
		{args: "describe networkpolicies.controlplane.antrea.io u2", want: `
Name:  u2
Namespace:
Labels:  <none>
Annotations:  <none>
API Version:  controlplane.antrea.io/v1beta2
Applied To Groups:
  ` + web + `
Kind:  NetworkPolicy
Metadata:
  Generation:  1
  UID:  u2
Priority:  1
Rules:
  Action:  Allow
  Direction:  Out
  Enable Logging:  false
  From:
  Name:  out
  To:
    Ip Blocks:
      Cidr:
        Ip:  AAAAAA==
      Cidr:
        Ip:  AAAAAAAAAAAAAAAAAAAAAA==
Source Ref:
  Name:  all
  Type:  AntreaClusterNetworkPolicy
  UID:  u2
Tier Priority:  50
Events:  <none>`},
		{args: "get grpmbr web -n NS", want: "NAME  MEMBERS  IP-BLOCKS  FIRST MEMBERS\nweb  2  0  NS/web-1,NS/web-2"},
		{args: "get cgmbr nets", want: "NAME  MEMBERS  IP-BLOCKS  FIRST MEMBERS\nnets  0  1"},
		{args: "get groupassociation web-1 -n NS", want: "NAME  GROUPS\nweb-1  NS/web"},
		{args: "get ipgroupassociations 10.0.0.2", want: "NAME  GROUPS\n10.0.0.2  nets,NS/web"},
		{args: "get groupassociation gone -n NS", want: "Error from server (NotFound): Pod or ExternalEntity NS/gone: not found"},
		{args: "get acnpstats", want: "NAME  SESSIONS  PACKETS  BYTES  CREATED AT\nall  0  0  0  NOW"},
		{args: "get annpstats,netpolstats -n NS", want: `
NAME  SESSIONS  PACKETS  BYTES  CREATED AT
antreanetworkpolicystats.stats.antrea.io/db  0  0  0  NOW
antreanetworkpolicystats.stats.antrea.io/vm  0  0  0  NOW

NAME  SESSIONS  PACKETS  BYTES  CREATED AT
networkpolicystats.stats.antrea.io/web  0  0  0  NOW`},
		{args: "get multicastgroups", want: "No resources found"},
		{args: "get multicastgroups 224.0.0.9", want: `Error from server (NotFound): multicastgroup.stats.antrea.io "224.0.0.9" not found`},
		{args: "explain networkpolicyevaluation.response.rule --output=plaintext", want: `
GROUP:  controlplane.antrea.io
KIND:  NetworkPolicyEvaluation
VERSION:  v1beta2

FIELD: rule <RuleRef>


DESCRIPTION:
    RuleRef tells of a rule.
    
FIELDS:
  action	<string>
    <no description>

  direction	<string>
    <no description>

  name	<string>
    <no description>`},
		{args: "create -f -", input: question(""), want: "networkpolicyevaluation.controlplane.antrea.io/answer created"},
		{args: "create -o jsonpath={.response.answer.verdict}/{.response.rule.name} -f -", input: question(", flow: {protocol: TCP, port: 22}"), want: "Drop/no-ssh"},
		{args: "create -f -", input: question(", flow: {protocol: TCP}"), want: `Error from server (BadRequest): error when creating "STDIN": flow.port: missing; TCP has ports, from 1 to 65535`},
		{args: "create -f -", input: question(", flw: {}"), want: `error: error validating "STDIN": error validating data: ValidationError(NetworkPolicyEvaluation.request): unknown field "flw" in dev.isobar.api.controlplane.v1beta2.NetworkPolicyEvaluationRequest; if you choose to ignore these errors, turn validation off with --validate=false`},
		{args: "create -f - --validate=false", input: `{apiVersion: controlplane.antrea.io/v1beta2, kind: NetworkPolicy, metadata: {name: x}}`, want: `Error from server (MethodNotAllowed): error when creating "STDIN": the server does not allow this method on the requested resource`},
		{args: "create -f - --validate=false", input: `{apiVersion: controlplane.antrea.io/v1beta2, kind: GroupAssociation, metadata: {name: web-1, namespace: NS}}`, want: `Error from server (NotFound): error when creating "STDIN": the server could not find the requested resource`},
		{args: "get networkpolicies.controlplane.antrea.io --as=x", want: `Error from server (Forbidden): networkpolicies.controlplane.antrea.io is forbidden: User "x" cannot list resource "networkpolicies" in API group "controlplane.antrea.io" at the cluster scope`},
		{args: "get --raw " + base + "/networkpolicies --as=system:anonymous --as-group=system:unauthenticated", want: `Error from server (Forbidden): networkpolicies.controlplane.antrea.io is forbidden: User "system:anonymous" cannot list resource "networkpolicies" in API group "controlplane.antrea.io" at the cluster scope`},
	} {
		if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), s.kubectl(tt.input, tt.args)); diff != "" {
			t.Errorf("kubectl %s (-want +got):\n%s", tt.args, diff)
		}
	}
}

// TestKubectlDenied: who has the rights of an agent, and is a Node, is told what else is lacking.
func TestKubectlDenied(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	s.grant("system:node:n1", agentRules...)
	const (
		node   = " --as=system:node:n1 --as-group=system:nodes --as-group=system:authenticated"
		lacks  = `user "system:node:n1" stands for n1 alone; for more grant it the verb `
		of     = ` on the resource "nodes" of the API group "controlplane.antrea.io" `
		status = `{"apiVersion": "controlplane.antrea.io/v1beta2", "kind": "NetworkPolicyStatus", "nodes": [{"nodeName": "NODE", "generation": 1}]}`
	)
	planetest.Eventually(t, "the rights count", func(ctx context.Context) error {
		return s.env.Kubectl(t, strings.Fields("auth can-i watch networkpolicies.controlplane.antrea.io"+node)...).Run()
	})
	report := "create --raw " + base + "/networkpolicies/u2/status -f -" + node
	for _, tt := range []struct{ args, input, want string }{
		{"get networkpolicies.controlplane.antrea.io" + node, "", `Error from server (Forbidden): nodes.controlplane.antrea.io is forbidden: ` + lacks + `"list"` + of + `for all nodes`},
		{"get networkpolicies.controlplane.antrea.io u1" + node, "", `Error from server (Forbidden): nodes.controlplane.antrea.io is forbidden: ` + lacks + `"get"` + of + `for all nodes`},
		{"get --raw " + base + "/networkpolicies?watch=true&fieldSelector=nodeName%3Dn2" + node, "", `Error from server (Forbidden): nodes.controlplane.antrea.io "n2" is forbidden: ` + lacks + `"watch"` + of + `with the resource name "n2"`},
		{"get --raw " + base + "/networkpolicies?watch=true&fieldSelector=nodeName%3DNS%2Fvm-1" + node, "", `Error from server (Forbidden): nodes.controlplane.antrea.io "NS/vm-1" is forbidden: ` + lacks + `"watch"` + of + `with the resource name "vm-1" in the namespace "NS"`},
		{report, strings.Replace(status, "NODE", "n2", 1), `Error from server (Forbidden): nodes.controlplane.antrea.io "n2" is forbidden: ` + lacks + `"create"` + of + `with the resource name "n2"`},
		{"auth can-i list nodes.controlplane.antrea.io" + node, "", "Warning: the server doesn't have a resource type 'nodes' in group 'controlplane.antrea.io'\n\nno"},
	} {
		if diff := cmp.Diff(tt.want, s.kubectl(tt.input, tt.args)); diff != "" {
			t.Errorf("kubectl %s (-want +got):\n%s", tt.args, diff)
		}
	}
}

// TestKubectlWatches: kubectl lists first and then watches, and what it is told twice it prints twice, as of
// upstream's controller; the bookmark is no line.
func TestKubectlWatches(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	web := groupOf(s.ns, "web")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := s.env.Kubectl(t, "get", "addressgroups", "-w", "--output-watch-events")
	cmd := exec.CommandContext(ctx, all.Path, all.Args[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- s.printed(in.Bytes())
		}
	}()
	defer func() {
		cancel()
		for range lines {
		}
		_ = cmd.Wait() // it was killed
	}()
	take := func(n int) []string {
		var got []string
		for range n {
			select {
			case l := <-lines:
				got = append(got, l)
			case <-time.After(2 * time.Minute):
				return append(got, "nothing in two minutes")
			}
		}
		return got
	}
	added := "ADDED  " + web + "  2  NS/web-1,NS/web-2"
	if got, want := take(3), []string{"EVENT  NAME  MEMBERS  FIRST MEMBERS", added, added}; !slices.Equal(got, want) {
		t.Fatalf("kubectl prints %q, want %q", got, want)
	}
	more := smallWorld(s.ns)
	w := pod(s.ns, "web-3", "n1", 9)
	more.Workloads = more.Workloads.Put(w.ID, w)
	s.know(more)
	s.know(smallWorld(s.ns))
	// Two changes at once are one difference, which is nothing.
	s.know(more)
	if got, want := take(1), []string{"MODIFIED  " + web + "  +1 -0  NS/web-3"}; !slices.Equal(got, want) {
		t.Errorf("kubectl prints %q, want %q", got, want)
	}
}
