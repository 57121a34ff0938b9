package convert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// convertText converts a spec in JSON, and returns the policy as text and the
// problems, warnings marked with "~".
func convertText(t *testing.T, dialect, spec string) (string, []string) {
	t.Helper()
	i := slices.IndexFunc(dialects, func(d dialectOfTests) bool { return d.name == dialect })
	if i < 0 {
		t.Fatalf("dialect %q is not known", dialect)
	}
	ns := ""
	if dialects[i].namespaced {
		ns = `"namespace":"x",`
	}
	p, problems, err := dialects[i].read([]byte(fmt.Sprintf(`{"metadata":{%s"name":"it"},"spec":%s}`, ns, spec)))
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	var out []string
	for _, x := range problems {
		text := x.String()
		if x.Warning {
			text = "~" + text
		}
		out = append(out, text)
	}
	text := policytest.Print(with(policy.Snapshot{}, p))
	return strings.TrimPrefix(text, "policy "+p.ID+" "), out
}

// Each row is one behaviour of one dialect: the spec as it is written, the policy
// that it becomes, and what is said of it; "~" marks a warning.
var conversions = []struct {
	name, dialect, spec, want string
	problems                  []string
}{
	{
		name: "selects, isolates and allows", dialect: "networkpolicy",
		spec: `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}],"ports":[{"port":5432}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {app in (db)}][] isolates true false
  ingress 0 Allow peers all=false [pod ns=x {app in (web)}][] blocks [] names [] services [] traffic ["TCP/5432"]`,
	},
	{
		name: "an empty list of peers is everyone", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[],"ports":[]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
	},
	{
		name: "a policyType without rules isolates", dialect: "networkpolicy",
		spec: `{"podSelector":{},"policyTypes":["Egress"],"ingress":[{}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates false true`,
	},
	{
		name: "an unknown policyType isolates both ways and allows nothing", dialect: "networkpolicy",
		spec: `{"podSelector":{},"policyTypes":["Ingres"],"ingress":[{}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true true`,
		problems: []string{
			`spec.policyTypes[0]: "Ingres": want Ingress or Egress`,
		},
	},
	{
		name: "a peer that says nothing is nobody", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0]: set ipBlock, podSelector or namespaceSelector`,
		},
	},
	{
		name: "a block excludes selectors", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"},"podSelector":{}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0]: ipBlock excludes podSelector and namespaceSelector`,
		},
	},
	{
		name: "a block without its exceptions would be wider", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/33"]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].ipBlock.except[0]: "10.0.0.0/33" is not a CIDR such as 10.0.0.0/8 or fd00::/64`,
		},
	},
	{
		name: "an exception must be a smaller part", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8","11.0.0.0/16","fd00::/64","10.9.0.0/16"]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].ipBlock.except[0]: 10.0.0.0/8 is not a part of 10.0.0.0/8`,
			`spec.ingress[0].from[0].ipBlock.except[1]: 11.0.0.0/16 is not a part of 10.0.0.0/8`,
			`spec.ingress[0].from[0].ipBlock.except[2]: fd00::/64 is not a part of 10.0.0.0/8`,
		},
	},
	{
		name: "one bad peer leaves the others", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0"}},{"namespaceSelector":{}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].ipBlock.cidr: "10.0.0.0" is not a CIDR such as 10.0.0.0/8 or fd00::/64`,
		},
	},
	{
		name: "mapped addresses are no blocks", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"::ffff:10.0.0.0/104"}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].ipBlock.cidr: "::ffff:10.0.0.0/104" is an IPv4 address in IPv6 form: write it as IPv4`,
		},
	},
	{
		name: "a selector of unknown operator picks nothing", dialect: "networkpolicy",
		spec: `{"podSelector":{"matchExpressions":[{"key":"app","operator":"Is","values":["db"]}]},"ingress":[{}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {<nothing>}][] isolates true false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.podSelector.matchExpressions[0].operator: "Is": want In, NotIn, Exists or DoesNotExist`,
		},
	},
	{
		name: "keys that no label has would make DoesNotExist match all", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"podSelector":{"matchExpressions":[{"key":"app ","operator":"DoesNotExist"}]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [pod ns=x {<nothing>}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].podSelector.matchExpressions[0].key: "app " is not the key of a label: want letters, digits, - _ and . between, after a DNS name and / if need be`,
		},
	},
	{
		name: "values that no label has would make NotIn match all", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"podSelector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a b"]}]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [pod ns=x {<nothing>}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].podSelector.matchExpressions[0].values[0]: "a b" is not the value of a label: want at most 63 letters, digits, - _ and . between`,
		},
	},
	{
		name: "In without values", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"podSelector":{"matchExpressions":[{"key":"app","operator":"In"}]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [pod ns=x {<nothing>}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].podSelector.matchExpressions[0].values: In needs at least one value`,
		},
	},
	{
		name: "Exists with values", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"from":[{"podSelector":{"matchExpressions":[{"key":"app","operator":"Exists","values":["x"]}]}}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=false [pod ns=x {<nothing>}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].podSelector.matchExpressions[0].values: Exists takes no values`,
		},
	},
	{
		name: "ports out of range, reversed, of unknown protocol, quoted and endless", dialect: "networkpolicy",
		spec: `{"podSelector":{},"ingress":[{"ports":[{"port":0},{"port":65536},{"port":90,"endPort":80},{"port":80,"protocol":"tcp"},{"port":"80"},{"endPort":80},{"port":"web","endPort":80},{"port":443}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["TCP/443"]`,
		problems: []string{
			`spec.ingress[0].ports[0].port: 0: ports are from 1 to 65535`,
			`spec.ingress[0].ports[1].port: 65536: ports are from 1 to 65535`,
			`spec.ingress[0].ports[2].port: 90-80: the end is below the start`,
			`spec.ingress[0].ports[3].protocol: "tcp": want TCP, UDP or SCTP`,
			`spec.ingress[0].ports[4].port: "80" is not the name of a port, which has a letter; write a number without quotes`,
			`spec.ingress[0].ports[5].endPort: needs port`,
			`spec.ingress[0].ports[6].endPort: needs a port number, not the name "web"`,
		},
	},
	{
		name: "rules that do not count are checked too", dialect: "networkpolicy",
		spec: `{"podSelector":{},"policyTypes":["Ingress"],"egress":[{"to":[{}]}]}`,
		want: `tier @kubernetes priority 0 to [pod ns=x {}][] isolates true false`,
		problems: []string{
			`spec.egress[0].to[0]: set ipBlock, podSelector or namespaceSelector`,
		},
	},
	{
		name: "tier and priority", dialect: "annp",
		spec: `{"tier":"SecurityOps","priority":2.5,"appliedTo":[{"podSelector":{}}],"ingress":[{"name":"r","action":"Reject","from":[{"podSelector":{}}]}]}`,
		want: `tier securityops priority 2.5 to [pod ns=x {}][] isolates false false
  ingress 0 Reject peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["ANY"]`,
	},
	{
		name: "VMs and groups of the namespace", dialect: "annp",
		spec: `{"priority":5,"appliedTo":[{"externalEntitySelector":{}},{"group":"g"}],"egress":[{"action":"Drop","to":[{"externalEntitySelector":{"matchLabels":{"app":"db"}}},{"group":"h"},{"fqdn":"*.example.com"}]}]}`,
		want: `tier application priority 5 to [ee ns=x {}][group/x/g] isolates false false
  egress 0 Drop peers all=false [ee ns=x {app in (db)}][group/x/h] blocks [] names [*.example.com] services [] traffic ["ANY"]`,
	},
	{
		name: "an entry that says nothing closes and does not open", dialect: "annp",
		spec: `{"priority":5,"appliedTo":[{},{"podSelector":{"matchLabels":{"app":"db"}}}],"ingress":[{"action":"Allow"},{"action":"Drop"},{"action":"Pass","appliedTo":[{}]},{"action":"Reject","appliedTo":[{}]}]}`,
		want: `tier application priority 5 to [pod ns=x {app in (db)} pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"] applied to [pod ns=x {app in (db)}][]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Pass peers all=true [][] blocks [] names [] services [] traffic ["ANY"] applied to [][]
  ingress 3 Reject peers all=true [][] blocks [] names [] services [] traffic ["ANY"] applied to [pod ns=x {}][]`,
		problems: []string{
			`~spec.appliedTo[0]: selects by nothing: Drop and Reject apply to every Pod of the namespace, Allow and Pass to none`,
			`~spec.ingress[2].appliedTo[0]: selects by nothing: Drop and Reject apply to every Pod of the namespace, Allow and Pass to none`,
			`~spec.ingress[3].appliedTo[0]: selects by nothing: Drop and Reject apply to every Pod of the namespace, Allow and Pass to none`,
		},
	},
	{
		name: "a policy of a namespace stays in it", dialect: "annp",
		spec: `{"priority":5,"appliedTo":[{"namespaceSelector":{}},{"nodeSelector":{}},{"serviceAccount":{"name":"a","namespace":"b"}}],"ingress":[{"action":"Drop","from":[{"namespaces":{"match":"Self"}}]}]}`,
		want: `tier application priority 5 to [][] isolates false false
  ingress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.appliedTo[0].namespaceSelector: a NetworkPolicy applies in its own namespace only`,
			`spec.appliedTo[1]: only a ClusterNetworkPolicy may apply to nodes, services or service accounts`,
			`spec.appliedTo[2]: only a ClusterNetworkPolicy may apply to nodes, services or service accounts`,
			`spec.ingress[0].from[0].namespaces: a ClusterNetworkPolicy only`,
		},
	},
	{
		name: "a rule that applies to what cannot be read does not apply to what the policy does", dialect: "annp",
		spec: `{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Allow","appliedTo":[{"podSelector":{"matchExpressions":[{"key":"a","operator":"?"}]}}]}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"] applied to [pod ns=x {<nothing>}][]`,
		problems: []string{
			`spec.ingress[0].appliedTo[0].podSelector.matchExpressions[0].operator: "?": want In, NotIn, Exists or DoesNotExist`,
		},
	},
	{
		name: "no action, and an unknown one, drop", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"from":[{"podSelector":{}}]},{"action":"allow"}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Drop peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].action: must be set to Allow, Drop, Reject or Pass`,
			`spec.ingress[1].action: "allow": want Allow, Drop, Reject or Pass`,
		},
	},
	{
		name: "priority out of bounds: denials first, the rest void", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Allow"},{"action":"Drop"}]}`,
		want: `tier application priority 0 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.priority: 0: want 1 to 10000`,
		},
	},
	{
		name: "a tier of the dialects", dialect: "annp",
		spec: `{"tier":"@kubernetes","priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Allow"}]}`,
		want: `tier @ priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.tier: "@kubernetes" is not the name of a tier`,
		},
	},
	{
		name: "an unread peer narrows Allow and Pass, and widens Drop and Reject to all", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","from":[{},{"podSelector":{}}]},{"action":"Drop","from":[{},{"podSelector":{}}]},{"action":"Reject","from":[{"ipBlock":{"cidr":"?"}}],"ports":[{"port":80}]},{"action":"Pass","from":[{"scope":"ClusterSet","podSelector":{}},{"podSelector":{}}]}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Reject peers all=true [][] blocks [] names [] services [] traffic ["TCP/80"]
  ingress 3 Pass peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0]: names no peer that is known here`,
			`spec.ingress[1].from[0]: names no peer that is known here`,
			`spec.ingress[2].from[0].ipBlock.cidr: "?" is not a CIDR such as 10.0.0.0/8 or fd00::/64`,
			`spec.ingress[3].from[0].scope: "ClusterSet": other clusters are not known here; want Cluster`,
		},
	},
	{
		name: "unread traffic alike", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","from":[{"podSelector":{}}],"ports":[{"port":-1},{"port":80}]},{"action":"Drop","from":[{"podSelector":{}}],"ports":[{"port":-1},{"port":80}]}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["TCP/80"]
  ingress 1 Drop peers all=false [pod ns=x {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].ports[0].port: -1: ports are from 1 to 65535`,
			`spec.ingress[1].ports[0].port: -1: ports are from 1 to 65535`,
		},
	},
	{
		name: "the peers of the other direction", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","to":[{"podSelector":{}}]},{"action":"Drop","toServices":[{"name":"s"}]}],"egress":[{"action":"Drop","from":[{"podSelector":{}}]}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0]: an ingress rule takes from only`,
			`spec.ingress[1]: an ingress rule takes from only`,
			`spec.egress[0]: an egress rule takes to only`,
		},
	},
	{
		name: "a name in an ingress rule", dialect: "annp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Drop","from":[{"fqdn":"a.b"}]}],"egress":[{"action":"Drop","to":[{"fqdn":"a b"}]}]}`,
		want: `tier application priority 5 to [pod ns=x {}][] isolates false false
  ingress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0].fqdn: egress rules only`,
			`spec.egress[0].to[0].fqdn: "a b": want letters, digits, - . and *`,
		},
	},
	{
		name: "namespaces, service accounts, nodes and services", dialect: "acnp",
		spec: `{"priority":5,"appliedTo":[{"namespaceSelector":{"matchLabels":{"team":"a"}}},{"serviceAccount":{"name":"robot","namespace":"x"}},{"nodeSelector":{}},{"service":{"name":"s","namespace":"x"}}],"ingress":[{"action":"Drop","from":[{"namespaces":{"match":"Self"}},{"namespaces":{"sameLabels":["b","a","b"]},"podSelector":{"matchLabels":{"app":"web"}}},{"nodeSelector":{}},{"serviceAccount":{"name":"r","namespace":"y"}}]}]}`,
		want: `tier application priority 5 to [pod ns{team in (a)} {} pod ns=x sa=robot {} node ns=* {}][] isolates false false
  ingress 0 Drop peers all=false [pod ns=self {} pod ns~a,b {app in (web)} node ns=* {} pod ns=y sa=r {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`~spec.appliedTo[3].service: traffic to a NodePort is not evaluated here: the entry applies to no workload`,
		},
	},
	{
		name: "appliedTo forms exclude each other", dialect: "acnp",
		spec: `{"priority":5,"appliedTo":[{"group":"g","podSelector":{}},{},{"serviceAccount":{"name":"r"}}],"ingress":[{"action":"Allow"}]}`,
		want: `tier application priority 5 to [][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.appliedTo[0]: podSelector with namespaceSelector, externalEntitySelector with namespaceSelector, group, serviceAccount, service and nodeSelector exclude each other`,
			`spec.appliedTo[1]: set podSelector, namespaceSelector, externalEntitySelector, group, serviceAccount, service or nodeSelector`,
			`spec.appliedTo[2].serviceAccount: needs name and namespace`,
		},
	},
	{
		name: "forms of peers exclude each other", dialect: "acnp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Drop","from":[{"group":"g","podSelector":{}}]},{"action":"Allow","from":[{"podSelector":{},"externalEntitySelector":{}},{"namespaces":{"match":"Self"},"namespaceSelector":{}},{"namespaces":{}},{"namespaces":{"match":"Other"}},{"namespaces":{"sameLabels":["&"]}},{"serviceAccount":{"name":"r"}}]}]}`,
		want: `tier application priority 5 to [pod ns=* {}][] isolates false false
  ingress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0]: ipBlock, group, fqdn, serviceAccount, nodeSelector and the other selectors exclude each other`,
			`spec.ingress[1].from[0]: podSelector and externalEntitySelector exclude each other`,
			`spec.ingress[1].from[1]: namespaces and namespaceSelector exclude each other`,
			`spec.ingress[1].from[2].namespaces: set match: Self or sameLabels with at least one key`,
			`spec.ingress[1].from[3].namespaces: set match: Self or sameLabels with at least one key`,
			`spec.ingress[1].from[4].namespaces.sameLabels[0]: "&" is not the key of a label: want letters, digits, - _ and . between, after a DNS name and / if need be`,
			`spec.ingress[1].from[5].serviceAccount: needs name and namespace`,
		},
	},
	{
		name: "services", dialect: "acnp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"egress":[{"action":"Drop","toServices":[{"name":"s","namespace":"x"}]},{"action":"Drop","toServices":[{"name":"s"}]},{"action":"Drop","toServices":[{"name":"s","namespace":"x"}],"ports":[{"port":1}]},{"action":"Allow","toServices":[]},{"action":"Allow","toServices":[{"name":"s","namespace":"x","scope":"ClusterSet"}]}]}`,
		want: `tier application priority 5 to [pod ns=* {}][] isolates false false
  egress 0 Drop peers all=false [][] blocks [] names [] services [x/s] traffic ["ANY"]
  egress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 2 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 3 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  egress 4 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.egress[1].toServices[0]: needs name and namespace`,
			`spec.egress[2].toServices: excludes to, ports and protocols`,
			`spec.egress[3].toServices: must name a Service, or be left out`,
			`spec.egress[4].toServices[0].scope: "ClusterSet": other clusters are not known here; want Cluster`,
		},
	},
	{
		name: "ports and protocols", dialect: "acnp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","ports":[{"protocol":"UDP","port":"dns"},{"port":80,"endPort":90,"sourcePort":1000,"sourceEndPort":2000},{"protocol":"SCTP"}],"protocols":[{"icmp":{}},{"icmp":{"icmpType":8,"icmpCode":0}},{"igmp":{"igmpType":17,"groupAddress":"224.0.0.1"}}]}]}`,
		want: `tier application priority 5 to [pod ns=* {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["UDP/dns" "TCP/80-90 from 1000-2000" "SCTP" "ICMP" "ICMP type 8 code 0" "IGMP igmp 17 group 224.0.0.1"]`,
	},
	{
		name: "ports and protocols that cannot be read", dialect: "acnp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","ports":[{"sourceEndPort":1},{"sourcePort":9,"sourceEndPort":1}],"protocols":[{},{"icmp":{"icmpType":256}},{"icmp":{},"igmp":{}},{"igmp":{"groupAddress":"x"}}]}]}`,
		want: `tier application priority 5 to [pod ns=* {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic []`,
		problems: []string{
			`spec.ingress[0].ports[0].sourceEndPort: needs sourcePort`,
			`spec.ingress[0].ports[1].sourcePort: 9-1: the end is below the start`,
			`spec.ingress[0].protocols[0]: set one of icmp and igmp`,
			`spec.ingress[0].protocols[1].icmp.icmpType: 256 is not from 0 to 255`,
			`spec.ingress[0].protocols[2]: set one of icmp and igmp`,
			`spec.ingress[0].protocols[3].igmp.groupAddress: "x" is not an IP address`,
		},
	},
	{
		name: "layer 7", dialect: "acnp",
		spec: `{"appliedTo":[{"podSelector":{}}],"priority":5,"ingress":[{"action":"Allow","l7Protocols":[{"http":{"host":"a"}},{"tls":{"sni":"b"}}]},{"action":"Allow","l7Protocols":[{}]},{"action":"Allow","l7Protocols":[]},{"action":"Pass","l7Protocols":[{"tls":{}}]}]}`,
		want: `tier application priority 5 to [pod ns=* {}][] isolates false false
  ingress 0 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"] with L7
  ingress 1 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"] with L7
  ingress 2 Allow peers all=true [][] blocks [] names [] services [] traffic ["ANY"] with L7
  ingress 3 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[1].l7Protocols[0]: set one of http and tls`,
			`spec.ingress[2].l7Protocols: must have an entry, or be left out`,
			`spec.ingress[3].l7Protocols: only with action Allow`,
		},
	},
	{
		name: "every form", dialect: "cnp",
		spec: `{"tier":"Baseline","priority":1000,"subject":{"pods":{"namespaceSelector":{"matchLabels":{"team":"a"}},"podSelector":{"matchLabels":{"app":"db"}}}},"ingress":[{"name":"r","action":"Accept","from":[{"namespaces":{}},{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"web"}}}}],"protocols":[{"tcp":{"destinationPort":{"number":80}}},{"udp":{"destinationPort":{"range":{"start":50,"end":60}}}}]}],"egress":[{"action":"Accept","to":[{"nodes":{}},{"networks":["10.0.0.0/8","fd00::/8"]},{"domainNames":["*.example.com."]}]},{"action":"Pass","to":[{"namespaces":{}}],"protocols":[{"destinationNamedPort":"web"}]}]}`,
		want: `tier @baselineadmin priority 1000 to [pod ns{team in (a)} {app in (db)}][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {} pod ns{} {app in (web)}][] blocks [] names [] services [] traffic ["TCP/80" "UDP/50-60"]
  egress 0 Allow peers all=false [node ns=* {}][] blocks [10.0.0.0/8 fd00::/8] names [*.example.com.] services [] traffic ["ANY"]
  egress 1 Pass peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["TCP/web" "UDP/web" "SCTP/web"]`,
	},
	{
		name: "an unread peer: Accept narrows, Deny and Pass deny all", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[{},{"namespaces":{}}]},{"action":"Deny","from":[{},{"namespaces":{}}]},{"action":"Pass","from":[{},{"namespaces":{}}]}],"egress":[{"action":"Pass","to":[{"networks":["10.0.0.0"]}]},{"action":"Accept","to":[{"domainNames":["a b"]}]}]}`,
		want: `tier @admin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 0 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  egress 1 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].from[0]: set one of namespaces and pods`,
			`spec.ingress[1].from[0]: set one of namespaces and pods`,
			`spec.ingress[2].from[0]: set one of namespaces and pods`,
			`spec.egress[0].to[0].networks[0]: "10.0.0.0" is not a CIDR such as 10.0.0.0/8 or fd00::/64`,
			`spec.egress[1].to[0].domainNames[0]: "a b": want a DNS name, or *. and a name`,
		},
	},
	{
		name: "an unread protocol alike", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}],"protocols":[{"tcp":{}},{},{"sctp":{"destinationPort":{"number":9}}}]},{"action":"Deny","from":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{}}}]},{"action":"Pass","from":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{"number":1,"range":{"start":1,"end":2}}}}]}]}`,
		want: `tier @admin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["SCTP/9"]
  ingress 1 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].protocols[0]: sets nothing that is known here: want destinationPort`,
			`spec.ingress[0].protocols[1]: set one of tcp, udp, sctp and destinationNamedPort`,
			`spec.ingress[1].protocols[0].destinationPort.number: 0: ports are from 1 to 65535`,
			`spec.ingress[2].protocols[0].destinationPort: set one of number and range`,
		},
	},
	{
		name: "empty lists", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[]},{"action":"Deny","from":[]},{"action":"Accept","from":[{"namespaces":{}}],"protocols":[]}]}`,
		want: `tier @admin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=true [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic []`,
		problems: []string{
			`spec.ingress[0].from: must have at least one peer`,
			`spec.ingress[1].from: must have at least one peer`,
			`spec.ingress[2].protocols: must have at least one entry, or be left out`,
		},
	},
	{
		name: "an unknown action denies", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Allow","from":[{"namespaces":{}}]},{"from":[{"namespaces":{}}]}]}`,
		want: `tier @admin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].action: "Allow" is not known`,
			`spec.ingress[1].action: "" is not known`,
		},
	},
	{
		name: "an unknown tier: what is denied comes first, the rest is void", dialect: "cnp",
		spec: `{"tier":"admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]},{"action":"Deny","from":[{"namespaces":{}}]}]}`,
		want: `tier @admin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.tier: "admin": want Admin or Baseline`,
		},
	},
	{
		name: "priority out of bounds", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1001,"subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]},{"action":"Deny","from":[{"namespaces":{}}]}]}`,
		want: `tier @admin priority -1 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.priority: 1001: want 0 to 1000`,
		},
	},
	{
		name: "no subject, and two", dialect: "cnp",
		spec: `{"tier":"Admin","priority":1,"subject":{},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}`,
		want: `tier @admin priority 1 to [][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.subject: set one of namespaces and pods`,
		},
	},
	{
		name: "every form", dialect: "anp",
		spec: `{"priority":30,"subject":{"namespaces":{}},"ingress":[{"action":"Allow","from":[{"pods":{"namespaceSelector":{},"podSelector":{}}}],"ports":[{"portNumber":{"protocol":"UDP","port":53}},{"portRange":{"start":80,"end":90}},{"namedPort":"web"}]}],"egress":[{"action":"Pass","to":[{"networks":["10.0.0.0/8"]}]}]}`,
		want: `tier @adminnetworkpolicy priority 30 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["UDP/53" "TCP/80-90" "TCP/web" "UDP/web" "SCTP/web"]
  egress 0 Pass peers all=false [][] blocks [10.0.0.0/8] names [] services [] traffic ["ANY"]`,
	},
	{
		name: "ports that cannot be read", dialect: "anp",
		spec: `{"priority":30,"subject":{"namespaces":{}},"ingress":[{"action":"Allow","from":[{"namespaces":{}}],"ports":[]},{"action":"Deny","from":[{"namespaces":{}}],"ports":[{}]},{"action":"Pass","from":[{"namespaces":{}}],"ports":[{"namedPort":""},{"portNumber":{"protocol":"X","port":1}}]}]}`,
		want: `tier @adminnetworkpolicy priority 30 to [pod ns{} {}][] isolates false false
  ingress 0 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic []
  ingress 1 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 2 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].ports: must have at least one port, or be left out`,
			`spec.ingress[1].ports[0]: set one of portNumber, namedPort and portRange`,
			`spec.ingress[2].ports[0].namedPort: "" is not the name of a port, which has a letter; write a number without quotes`,
			`spec.ingress[2].ports[1].portNumber.protocol: "X": want TCP, UDP or SCTP`,
		},
	},
	{
		name: "the baseline has no Pass", dialect: "banp",
		spec: `{"subject":{"namespaces":{}},"ingress":[{"action":"Pass","from":[{"namespaces":{}}]},{"action":"Allow","from":[{"namespaces":{}}]}]}`,
		want: `tier @baselineadmin priority 1 to [pod ns{} {}][] isolates false false
  ingress 0 Drop peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]
  ingress 1 Allow peers all=false [pod ns{} {}][] blocks [] names [] services [] traffic ["ANY"]`,
		problems: []string{
			`spec.ingress[0].action: "Pass" is not known`,
		},
	},
}

func TestPolicies(t *testing.T) {
	for _, tt := range conversions {
		t.Run(tt.dialect+"/"+tt.name, func(t *testing.T) {
			got, problems := convertText(t, tt.dialect, tt.spec)
			if got = strings.TrimSuffix(got, "\n"); got != tt.want {
				t.Errorf("%s:\ngot  %s\nwant %s", tt.spec, got, tt.want)
			}
			if !slices.Equal(problems, tt.problems) {
				t.Errorf("%s: problems\ngot  %q\nwant %q", tt.spec, problems, tt.problems)
			}
		})
	}
}
