package crd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"isobar.dev/deploy/crd"
)

// kind is one kind's schema, with the API server's own code around it.
type kind struct {
	structural *structuralschema.Structural
	schema     apiservervalidation.SchemaValidator
	cel        *cel.Validator
}

// admit does what the API server does with a manifest: prune, default, validate.
func (k kind) admit(obj, old map[string]any) field.ErrorList {
	for _, o := range []map[string]any{obj, old} {
		if o != nil {
			pruning.Prune(o, k.structural, true)
			defaulting.Default(o, k.structural)
		}
	}
	var errs field.ErrorList
	if old == nil {
		errs = apiservervalidation.ValidateCustomResource(nil, obj, k.schema)
	} else {
		errs = apiservervalidation.ValidateCustomResourceUpdate(nil, obj, old, k.schema)
	}
	if k.cel == nil {
		return errs
	}
	var oldAny any // a nil map in an interface is not nil
	if old != nil {
		oldAny = old
	}
	more, _ := k.cel.Validate(context.Background(), nil, k.structural, obj, oldAny, celconfig.RuntimeCELCostBudget)
	return append(errs, more...)
}

// kinds reads every CRD, and fails the test unless the API server would accept it.
func kinds(t *testing.T) map[string]kind {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	files, err := fs.Glob(crd.FS, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	out := map[string]kind{}
	for _, name := range files {
		data, err := fs.ReadFile(crd.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		v1 := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, v1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		scheme.Default(v1)
		v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name} // as the API server sets it
		def := &apiextensions.CustomResourceDefinition{}
		if err := scheme.Convert(v1, def, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if errs := validation.ValidateCustomResourceDefinition(context.Background(), def); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
			continue
		}
		for _, v := range v1.Spec.Versions {
			props := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
				t.Fatal(err)
			}
			structural, err := structuralschema.NewStructural(props)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			schema, _, err := apiservervalidation.NewSchemaValidator(props)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out[v1.Spec.Group+"/"+v.Name+"/"+v1.Spec.Names.Kind] = kind{structural, schema, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
		}
	}
	return out
}

func TestEveryKindIsThere(t *testing.T) {
	got := kinds(t)
	for _, want := range []string{
		"crd.antrea.io/v1beta1/NetworkPolicy",
		"crd.antrea.io/v1beta1/ClusterNetworkPolicy",
		"crd.antrea.io/v1beta1/Tier",
		"crd.antrea.io/v1beta1/Group",
		"crd.antrea.io/v1beta1/ClusterGroup",
		"crd.antrea.io/v1alpha2/ExternalEntity",
		"crd.antrea.io/v1alpha1/ExternalNode",
		"crd.cloud.antrea.io/v1alpha1/CloudProviderAccount",
		"crd.cloud.antrea.io/v1alpha1/CloudEntitySelector",
		"policy.networking.k8s.io/v1alpha1/AdminNetworkPolicy",
		"policy.networking.k8s.io/v1alpha1/BaselineAdminNetworkPolicy",
		"policy.networking.k8s.io/v1alpha2/ClusterNetworkPolicy",
		"nimbess.com/v1/UnifiedNetworkPolicy",
		"isobar.dev/v1alpha2/AgentIdentity",
	} {
		if _, ok := got[want]; !ok {
			t.Errorf("no CRD for %s", want)
		}
	}
}

// Each row is a whole object in YAML; refused is a part of the message, empty
// when the object is admitted.
func TestSchemas(t *testing.T) {
	all := kinds(t)
	const (
		digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

		acnp = "crd.antrea.io/v1beta1/ClusterNetworkPolicy"
		cpa  = "crd.cloud.antrea.io/v1alpha1/CloudProviderAccount"
		ces  = "crd.cloud.antrea.io/v1alpha1/CloudEntitySelector"
		cnp  = "policy.networking.k8s.io/v1alpha2/ClusterNetworkPolicy"
		aid  = "isobar.dev/v1alpha2/AgentIdentity"
		banp = "policy.networking.k8s.io/v1alpha1/BaselineAdminNetworkPolicy"
	)
	for _, tt := range []struct{ name, kind, object, old, refused string }{
		{"whole policy", acnp, `{spec: {priority: 1.5, tier: x, appliedTo: [{externalEntitySelector: {}}], ingress: [{action: Reject, from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{protocol: TCP, port: http}]}]}}`, "", ""},
		{"priority 0", acnp, `{spec: {priority: 0}}`, "", "spec.priority"},
		{"priority beyond the last", acnp, `{spec: {priority: 10000.5}}`, "", "spec.priority"},
		{"no priority", acnp, `{spec: {tier: x}}`, "", "spec.priority: Required"},
		{"no action", acnp, `{spec: {priority: 5, ingress: [{from: [{podSelector: {}}]}]}}`, "", "spec.ingress[0].action: Required"},
		{"unknown action", acnp, `{spec: {priority: 5, ingress: [{action: Deny}]}}`, "", "spec.ingress[0].action"},
		{"icmp type too large", acnp, `{spec: {priority: 5, ingress: [{action: Drop, protocols: [{icmp: {icmpType: 256}}]}]}}`, "", "icmpType"},
		{"peer of a later version", acnp, `{spec: {priority: 5, ingress: [{action: Drop, from: [{planet: mars}]}]}}`, "", ""}, // pruned: convert sees an unknown peer
		{"tier out of range", "crd.antrea.io/v1beta1/Tier", `{spec: {priority: 256}}`, "", "spec.priority"},

		{"aws account", cpa, `{spec: {awsConfig: {region: [us-west-2], secretRef: {name: a, namespace: b, key: c}}}}`, "", ""},
		{"no provider", cpa, `{spec: {pollIntervalInSeconds: 60}}`, "", "exactly one of awsConfig and azureConfig"},
		{"two providers", cpa, `{spec: {awsConfig: {}, azureConfig: {}}}`, "", "exactly one of awsConfig and azureConfig"},
		{"hasty poll", cpa, `{spec: {pollIntervalInSeconds: 29, awsConfig: {}}}`, "", "pollIntervalInSeconds"},
		{"unknown deletion policy", cpa, `{spec: {deletionPolicy: Forget, awsConfig: {}}}`, "", "deletionPolicy"},

		{"selector", ces, `{spec: {accountName: a, accountNamespace: b, vmSelector: [{vpcMatch: {matchID: vpc-1}, isolation: Both, mode: Merge}]}}`, "", ""},
		{"same account", ces, `{spec: {accountName: a, accountNamespace: b, vmSelector: []}}`, `{spec: {accountName: a, accountNamespace: b, vmSelector: []}}`, ""},
		{"other account", ces, `{spec: {accountName: a2, accountNamespace: b, vmSelector: []}}`, `{spec: {accountName: a, accountNamespace: b, vmSelector: []}}`, "spec.accountName"},
		{"other account namespace", ces, `{spec: {accountName: a, accountNamespace: b2, vmSelector: []}}`, `{spec: {accountName: a, accountNamespace: b, vmSelector: []}}`, "spec.accountNamespace"},
		{"upgrade from no account", ces, `{spec: {accountName: a, accountNamespace: b, vmSelector: []}}`, `{spec: {accountName: "", accountNamespace: "", vmSelector: []}}`, ""},
		{"services alone", ces, `{spec: {accountName: a, accountNamespace: b, serviceSelector: [{kind: Database, serviceMatch: [{matchName: orders}], tags: {a: b}}]}}`, "", ""},
		{"neither VMs nor services", ces, `{spec: {accountName: a, accountNamespace: b}}`, "", "vmSelector or serviceSelector"},
		{"unknown kind of service", ces, `{spec: {accountName: a, accountNamespace: b, serviceSelector: [{kind: Cache}]}}`, "", "kind"},
		{"unknown isolation", ces, `{spec: {accountName: a, accountNamespace: b, vmSelector: [{isolation: Some}]}}`, "", "isolation"},

		{"whole cluster policy", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Accept, to: [{domainNames: ["*.example.com"]}, {networks: ["fd00::/64"]}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 65535}}}}]}]}}`, "", ""},
		{"empty peer", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{}]}]}}`, "", "ingress[0].from[0]"},
		{"pruned peer", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{planets: {}}]}]}}`, "", "ingress[0].from[0]"},
		{"two kinds of peer in one", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Accept, to: [{namespaces: {}, nodes: {}}]}]}}`, "", "egress[0].to[0]"},
		{"no peer", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Accept, from: []}]}}`, "", "ingress[0].from"},
		{"subject of nothing", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 0, subject: {}}}`, "", "spec.subject"},
		{"priority too large", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1001, subject: {namespaces: {}}}}`, "", "spec.priority"},
		{"port 0", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 0}}}]}]}}`, "", "number"},
		{"reversed range", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {range: {start: 2, end: 1}}}}]}]}}`, "", "end must not be below start"},
		{"mixed prefix", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: ["::ffff:1.2.3.4/128"]}]}]}}`, "", "networks[0]"},
		{"denied name", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{domainNames: ["example.com"]}]}]}}`, "", "domainNames can only be used with the action Accept"},
		{"port name of a network", cnp, `{metadata: {name: x}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: ["10.0.0.0/8"]}], protocols: [{destinationNamedPort: web}]}]}}`, "", "a port name cannot be used"},

		{"identity", aid, `{spec: {joinToken: {hash: "sha256:` + digest + `", expirationTimestamp: "2026-01-01T00:00:00Z"}}, status: {keys: [{fingerprint: "sha256:` + digest + `", issued: "2026-01-01T00:00:00Z", notAfter: "2026-01-01T00:00:00Z"}]}}`, "", ""},
		{"a secret in place of its hash", aid, `{spec: {joinToken: {hash: "` + digest + `", expirationTimestamp: "2026-01-01T00:00:00Z"}}}`, "", "spec.joinToken.hash"},
		{"a token for ever", aid, `{spec: {joinToken: {hash: "sha256:` + digest + `"}}}`, "", "expirationTimestamp: Required"},
		{"a key without an end", aid, `{status: {keys: [{fingerprint: "sha256:` + digest + `", issued: "2026-01-01T00:00:00Z"}]}}`, "", "notAfter: Required"},
		{"three keys", aid, `{status: {keys: [{fingerprint: a, issued: "2026-01-01T00:00:00Z", notAfter: "2026-01-01T00:00:00Z"}, {fingerprint: b, issued: "2026-01-01T00:00:00Z", notAfter: "2026-01-01T00:00:00Z"}, {fingerprint: c, issued: "2026-01-01T00:00:00Z", notAfter: "2026-01-01T00:00:00Z"}]}}`, "", "at most 2"},

		{"the baseline", banp, `{metadata: {name: default}, spec: {subject: {namespaces: {}}}}`, "", ""},
		{"another baseline", banp, `{metadata: {name: mine}, spec: {subject: {namespaces: {}}}}`, "", "named default"},
		{"baseline that passes", banp, `{metadata: {name: default}, spec: {subject: {namespaces: {}}, ingress: [{action: Pass, from: [{namespaces: {}}]}]}}`, "", "action"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := all[tt.kind]
			errs := k.admit(object(t, tt.kind, tt.object), object(t, tt.kind, tt.old))
			got := ""
			if len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if (got == "") != (tt.refused == "") || !strings.Contains(got, tt.refused) {
				t.Errorf("admit(%s) = %q, want refused with %q", tt.object, got, tt.refused)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	all := kinds(t)
	for _, tt := range []struct{ kind, in, want string }{
		{"crd.antrea.io/v1beta1/NetworkPolicy", `{spec: {priority: 1}}`, `{spec: {priority: 1, tier: application}}`},
		{"crd.cloud.antrea.io/v1alpha1/CloudProviderAccount", `{spec: {awsConfig: {}}}`, `{spec: {awsConfig: {}, pollIntervalInSeconds: 60, deletionPolicy: Restore}}`},
	} {
		got := object(t, tt.kind, tt.in)
		all[tt.kind].admit(got, nil)
		if diff := cmp.Diff(object(t, tt.kind, tt.want), got); diff != "" {
			t.Errorf("%s: defaults of %s (-want +got):\n%s", tt.kind, tt.in, diff)
		}
	}
}

// object reads one object; nil when there is no text.
func object(t *testing.T, kind, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := decode(t, data)
	i := strings.LastIndex(kind, "/")
	out["apiVersion"], out["kind"] = kind[:i], kind[i+1:]
	return out
}

// decode reads JSON with integers as int64, as the API server does.
func decode(t *testing.T, data []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	var whole func(v any) any
	whole = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = whole(v[k])
			}
		case []any:
			for i := range v {
				v[i] = whole(v[i])
			}
		case float64:
			if v == float64(int64(v)) {
				return int64(v)
			}
		}
		return v
	}
	return whole(out).(map[string]any)
}

// TestConformancePolicies admits the policies of the public suites, and prunes
// nothing of them.
func TestConformancePolicies(t *testing.T) {
	all := kinds(t)
	for _, name := range []string{"antrea-v4.jsonl", "antrea-v6.jsonl", "clusternetworkpolicy-v4.jsonl", "clusternetworkpolicy-v6.jsonl"} {
		seen := 0
		lines(t, name, func(line []byte) {
			var c struct {
				ID    string
				Steps []struct{ Policies []json.RawMessage }
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			for i, step := range c.Steps {
				for _, raw := range step.Policies {
					want, got := decode(t, raw), decode(t, raw)
					k, ok := all[want["apiVersion"].(string)+"/"+want["kind"].(string)]
					if !ok {
						continue // built in
					}
					seen++
					if unknown := pruning.PruneWithOptions(decode(t, raw), k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
						t.Errorf("%s step %d: pruned %v", c.ID, i+1, unknown)
					}
					if errs := k.admit(got, nil); len(errs) > 0 {
						t.Errorf("%s step %d: %v\n%s", c.ID, i+1, errs.ToAggregate(), raw)
					}
				}
			}
		})
		if seen == 0 {
			t.Errorf("%s: no policies", name)
		}
	}
}

// lines calls each with the lines of a file of public data, which lies beside the
// checkout or not at all.
func lines(t *testing.T, name string, each func([]byte)) {
	t.Helper()
	dir := os.Getenv("ISOBAR_SHARED")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs("../../../shared"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "conformance", name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("missing: %s", path)
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
