package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	nimbessv1 "isobar.dev/api/nimbess/v1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
)

// newScheme registers every kind.
func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		antreav1alpha1.AddToScheme, antreav1alpha2.AddToScheme, antreav1beta1.AddToScheme,
		cloudv1alpha1.AddToScheme, runtimev1alpha1.AddToScheme,
		netpolv1alpha1.AddToScheme, netpolv1alpha2.AddToScheme, nimbessv1.AddToScheme,
		controlplanev1beta2.AddToScheme, statsv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestRoundTrip reads objects strictly and writes them again: no field is lost.
func TestRoundTrip(t *testing.T) {
	s := newScheme(t)
	for _, text := range []string{
		`{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: x}, spec: {tier: t, priority: 1.5,
			appliedTo: [{podSelector: {}}, {namespaceSelector: {matchLabels: {a: b}}}, {externalEntitySelector: {}}, {group: g},
				{serviceAccount: {name: a, namespace: b}}, {service: {name: a, namespace: b}}, {nodeSelector: {}}],
			ingress: [{action: Reject, name: r, enableLogging: true, logLabel: l, appliedTo: [{group: g}],
				from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {podSelector: {}, namespaces: {match: Self}}, {namespaces: {sameLabels: [k]}},
					{externalEntitySelector: {}, namespaceSelector: {}}, {serviceAccount: {name: a, namespace: b}}, {nodeSelector: {}}, {group: g, scope: ClusterSet}, {}],
				ports: [{protocol: UDP, port: web}, {port: 1, endPort: 2, sourcePort: 3, sourceEndPort: 4}],
				protocols: [{icmp: {icmpType: 0, icmpCode: 0}}, {igmp: {igmpType: 17, groupAddress: 224.0.0.1}}],
				l7Protocols: [{http: {host: h, method: GET, path: /p}}, {tls: {sni: s}}]}],
			egress: [{action: Pass, to: [{fqdn: "*.x"}], toServices: [{name: a, namespace: b, scope: Cluster}]}]},
			status: {phase: Failed, observedGeneration: 3, currentNodesRealized: 1, desiredNodesRealized: 2,
				conditions: [{type: Realizable, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z", reason: r, message: m}]}}`,
		`{apiVersion: crd.antrea.io/v1beta1, kind: Tier, metadata: {name: x}, spec: {priority: 0, description: d}}`,
		`{apiVersion: crd.antrea.io/v1beta1, kind: ClusterGroup, metadata: {name: x}, spec: {podSelector: {}, namespaceSelector: {}, externalEntitySelector: {},
			nodeSelector: {}, ipBlock: {cidr: a}, ipBlocks: [{cidr: a, except: [b]}], serviceReference: {name: a, namespace: b}, childGroups: [c]},
			status: {conditions: [{type: GroupMembersComputed, status: "False", lastTransitionTime: "2026-01-02T03:04:05Z", reason: r}]}}`,
		`{apiVersion: crd.antrea.io/v1beta1, kind: AntreaControllerInfo, metadata: {name: antrea-controller}, version: v, podRef: {kind: Pod, namespace: a, name: b}, nodeRef: {kind: Node, name: c},
			serviceRef: {kind: Service, name: d}, networkPolicyControllerInfo: {networkPolicyNum: 1, addressGroupNum: 2, appliedToGroupNum: 3}, connectedAgentNum: 4, apiPort: 10349,
			controllerConditions: [{type: ControllerHealthy, status: "True", lastHeartbeatTime: "2026-01-02T03:04:05Z", reason: r, message: m}]}`,
		`{apiVersion: crd.antrea.io/v1alpha2, kind: ExternalEntity, metadata: {name: x}, spec: {endpoints: [{ip: a, name: b}], ports: [{protocol: TCP, port: 80, name: web}], externalNode: node}}`,
		`{apiVersion: crd.antrea.io/v1alpha1, kind: ExternalNode, metadata: {name: x}, spec: {interfaces: [{name: a, ips: [b]}]}}`,
		`{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, metadata: {name: x}, spec: {pollIntervalInSeconds: 60, deletionPolicy: Orphan,
			awsConfig: {secretRef: {name: a, namespace: b, key: c}, region: [r], endpoint: e, stsEndpoint: s, rdsEndpoint: r, elbEndpoint: l}, azureConfig: {secretRef: {name: a, namespace: b, key: c}, region: [r]}},
			status: {error: e, observedGeneration: 1, conditions: [{type: T, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z", reason: r, message: m}]}}`,
		`{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector, metadata: {name: x}, spec: {accountName: a, accountNamespace: b,
			vmSelector: [{vpcMatch: {matchID: a, matchName: b}, vmMatch: [{matchID: a, matchName: b}, {}], agented: true, isolation: None}],
			serviceSelector: [{kind: Database, vpcMatch: {matchID: a}, serviceMatch: [{matchName: b}], tags: {a: b}, isolation: Both}]}, status: {error: e}}`,
		`{apiVersion: runtime.cloud.antrea.io/v1alpha1, kind: VirtualMachine, metadata: {name: x}, spec: {tags: {a: b}}, status: {provider: AWS, tags: {a: b},
			networkInterfaces: [{name: a, mac: b, ips: [{addressType: InternalIP, address: c}], securityGroupIds: [d], groups: [e]}],
			state: running, region: r, agented: false, cloudId: a, cloudName: b, cloudVpcId: c, cloudVpcName: d}}`,
		`{apiVersion: runtime.cloud.antrea.io/v1alpha1, kind: Vpc, metadata: {name: x}, status: {cloudName: a, cloudId: b, provider: Azure, region: r, tags: {a: b}, cidrs: [c], managed: false}}`,
		`{apiVersion: runtime.cloud.antrea.io/v1alpha1, kind: SecurityGroup, metadata: {name: x}, status: {cloudName: a, cloudId: b, provider: AWS, region: "",
			rules: [{action: a, description: b, destination: [c], id: d, ingress: false, name: e, port: "", priority: 0, protocol: "", source: [f]}]}}`,
		`{apiVersion: runtime.cloud.antrea.io/v1alpha1, kind: VirtualMachinePolicy, metadata: {name: x}, status: {realization: IN-PROGRESS, networkPolicyStatus: {p: {Realization: SUCCESS, Reason: ""}}}}`,
		`{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: x}, spec: {tier: Baseline, priority: 0, subject: {pods: {namespaceSelector: {}, podSelector: {}}},
			ingress: [{name: a, action: Pass, from: [{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {}}}, {}], protocols: [{tcp: {destinationPort: {number: 1}}},
				{udp: {destinationPort: {range: {start: 1, end: 2}}}}, {sctp: {}}, {destinationNamedPort: web}, {}]}],
			egress: [{action: Deny, to: [{nodes: {}}, {networks: [a]}, {domainNames: [b]}]}]}}`,
		`{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: x}, spec: {priority: 0, subject: {namespaces: {}},
			ingress: [{name: a, action: Allow, from: [{namespaces: {}}, {}], ports: [{portNumber: {protocol: TCP, port: 1}}, {namedPort: web}, {portRange: {protocol: UDP, start: 1, end: 2}}]}],
			egress: [{action: Pass, to: [{nodes: {}}, {networks: [a]}, {domainNames: [b]}], ports: []}]}}`,
		`{apiVersion: policy.networking.k8s.io/v1alpha1, kind: BaselineAdminNetworkPolicy, metadata: {name: default}, spec: {subject: {namespaces: {}},
			ingress: [{name: a, action: Allow, from: [{pods: {namespaceSelector: {}, podSelector: {}}}]}], egress: [{action: Deny, to: [{nodes: {}}]}]}}`,
		`{apiVersion: nimbess.com/v1, kind: UnifiedNetworkPolicy, metadata: {name: x}, spec: {podSelector: {matchLabels: {a: b}}, network: net, attributes: a,
			l7Policies: [{default: {action: allow}, urlFilter: {urls: [u], action: deny, podSelector: {}, network: m}}]}, status: {state: s, message: m}}`,
		`{apiVersion: controlplane.antrea.io/v1beta2, kind: NetworkPolicy, metadata: {name: x, generation: 1}, priority: 1.5, tierPriority: 0, appliedToGroups: [g],
			sourceRef: {type: AdminNetworkPolicy, namespace: a, name: b, uid: c}, rules: [{direction: In, priority: -1, action: Pass, enableLogging: true, appliedToGroups: [g], name: r, logLabel: l,
				from: {addressGroups: [a], ipBlocks: [{cidr: {ip: CgAAAA==, prefixLength: 8}, except: [{ip: CgEAAA==, prefixLength: 16}]}], fqdns: ["*.x"], toServices: [{name: a, namespace: b}], labelIdentities: [1]},
				services: [{protocol: TCP, port: web, endPort: 2, icmpType: 0, icmpCode: 0, igmpType: 17, groupAddress: a, srcPort: 3, srcEndPort: 4}],
				l7Protocols: [{http: {host: h, method: GET, path: /p}}, {tls: {sni: s}}]}]}`,
		`{apiVersion: controlplane.antrea.io/v1beta2, kind: EgressGroupPatch, name: x, AddedGroupMembers: [{pod: {name: a, namespace: b}}], RemovedGroupMembers: [{service: {name: a, namespace: b}}]}`,
		`{apiVersion: controlplane.antrea.io/v1beta2, kind: SupportBundleCollection, metadata: {name: x}, expiredAt: "2026-01-02T03:04:05Z", sinceTime: 2h, fileServer: {url: u, hostPublicKey: AQ==},
			authentication: {bearerToken: t, apiKey: k, basicAuthentication: {username: u, password: p}}}`,
		`{apiVersion: controlplane.antrea.io/v1beta2, kind: GroupMembers, metadata: {name: x}, effectiveMembers: [{node: {name: node}}], effectiveIPBlocks: [{ip: CgAAAA==, prefixLength: 8}], totalMembers: 1, totalPages: 2, currentPage: 3}`,
		`{apiVersion: controlplane.antrea.io/v1beta2, kind: IPGroupAssociation, metadata: {name: 10.0.0.1}, associatedGroups: [{namespace: a, name: b, uid: c}]}`,
		`{apiVersion: stats.antrea.io/v1alpha1, kind: AntreaNetworkPolicyStats, metadata: {name: x}, trafficStats: {packets: 1, bytes: 2, sessions: 3}, ruleTrafficStats: [{name: r, trafficStats: {packets: 1}}]}`,
		`{apiVersion: stats.antrea.io/v1alpha1, kind: NodeLatencyStats, metadata: {name: x}, peerNodeLatencyStats: [{nodeName: node, targetIPLatencyStats: [{targetIP: a, lastSendTime: "2026-01-02T03:04:05Z", lastRecvTime: "2026-01-02T03:04:05Z", lastMeasuredRTTNanoseconds: 4}]}]}`,
	} {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		roundTrip(t, s, data)
	}
}

// TestRoundTripOfPublicSuites does the same with the objects of the public suites.
func TestRoundTripOfPublicSuites(t *testing.T) {
	s := newScheme(t)
	for _, name := range []string{"antrea-v4.jsonl", "antrea-v6.jsonl", "clusternetworkpolicy-v4.jsonl", "clusternetworkpolicy-v6.jsonl"} {
		lines(t, name, func(line []byte) {
			var c struct {
				Steps []struct{ Policies []json.RawMessage }
			}
			unmarshal(t, line, &c)
			for _, step := range c.Steps {
				for _, raw := range step.Policies {
					roundTrip(t, s, raw)
				}
			}
		})
	}
	lines(t, "admission-antrea.jsonl", func(line []byte) {
		var d struct{ Object, OldObject json.RawMessage }
		unmarshal(t, line, &d)
		for _, raw := range []json.RawMessage{d.Object, d.OldObject} {
			if string(raw) != "null" {
				roundTrip(t, s, raw)
			}
		}
	})
}

// roundTrip decodes and encodes one object; built-in kinds are left out.
func roundTrip(t *testing.T, s *runtime.Scheme, data []byte) {
	t.Helper()
	var meta struct{ APIVersion, Kind string }
	unmarshal(t, data, &meta)
	obj, err := s.New(schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind))
	if runtime.IsNotRegisteredError(err) && meta.APIVersion == "networking.k8s.io/v1" {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	if unknown, err := kjson.UnmarshalStrict(data, obj); err != nil || len(unknown) > 0 {
		t.Errorf("%v %v\n%s", err, unknown, data)
		return
	}
	out, err := json.Marshal(obj.DeepCopyObject())
	if err != nil {
		t.Error(err)
		return
	}
	var in, back any
	unmarshal(t, data, &in)
	unmarshal(t, out, &back)
	if lost := missing("", in, back); lost != "" {
		t.Errorf("lost %s of\n%s", lost, data)
	}
}

// missing returns the path of something in a that is not in b; b may have more
// fields, null is nothing, and so is an empty list in a status.
func missing(path string, a, b any) string {
	switch a := a.(type) {
	case nil:
		return ""
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok {
			return path
		}
		for k := range a {
			if lost := missing(path+"."+k, a[k], m[k]); lost != "" {
				return lost
			}
		}
		return ""
	case []any:
		if len(a) == 0 && b == nil && strings.HasPrefix(path, ".status") {
			return ""
		}
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return path
		}
		for i := range a {
			if lost := missing(fmt.Sprintf("%s[%d]", path, i), a[i], l[i]); lost != "" {
				return lost
			}
		}
		return ""
	}
	if !reflect.DeepEqual(a, b) {
		return path
	}
	return ""
}

func unmarshal(t *testing.T, data []byte, out any) {
	t.Helper()
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
}

// lines calls each with the lines of a file of public data, which may not be here.
func lines(t *testing.T, name string, each func([]byte)) {
	t.Helper()
	dir := os.Getenv("ISOBAR_SHARED")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs("../../shared"); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "conformance", name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("missing: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		each(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}
