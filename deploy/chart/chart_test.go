package chart_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/deploy/chart/charttest"
	"isobar.dev/deploy/crd"
)

func TestMain(m *testing.M) { planetest.Main(m) }

const root = "../.."

var valueSets = map[string]string{
	"default":      ``,
	"one replica":  `{replicas: 1, logLevel: debug}`,
	"cert-manager": `{certManager: {enabled: true}}`,
	"own issuer":   `{certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: ours}}, roles: {create: false}}`,
	"as Nephe": `{services: {api: nephe-controller, webhook: nephe-controller-webhook}, cloudResourcePrefix: nephe, secrets: {clusterWide: true},
		serviceMonitor: {enabled: true, labels: {release: prometheus}}}`,
	"own ports": `{hostNetwork: true, ports: {webhook: 19443, api: 15443, metrics: 0, probes: 18081}, leavePolicyStatus: true, controlPlane: {enabled: true}, namespaces: [shop, lab]}`,
	"agents":    `{controlPlane: {enabled: true, agentNamespace: kube-public, takeOver: true}, certManager: {enabled: true}}`,
	"nodes":     `{controlPlane: {enabled: true, agentNamespace: kube-public}, agent: {enabled: true}}`,
	"nodes of another plugin": `{controlPlane: {enabled: true, agentNamespace: kube-public}, serviceMonitor: {enabled: true}, agent: {enabled: true, trafficMode: networkPolicyOnly, mtu: 1400,
		bypass: ["ingress,10.0.0.0/8,TCP/22-23", "egress,::/0,Any"], holdFor: 500ms, nameServers: [10.96.0.10, "fd00::/64"], cni: {binDir: /home/k/bin, confDir: /etc/k, confName: 05-isobar.conflist, version: 1.1.0, plugins: [], after: 10-aws.conflist},
		netnsDir: /run/docker/netns, ports: {health: 1, metrics: 0}, logLevel: debug, maxUnavailable: 3, resources: {limits: {memory: 1Gi}}, priorityClassName: "", tolerations: [],
		podAnnotations: {a: b}, podLabels: {c: d}, nodeSelector: {a: b}, affinity: {nodeAffinity: {}}, extraEnv: [{name: KUBERNETES_SERVICE_HOST, value: api.example}]}}`,
	"all else": `{image: {repository: r.example/isobar, tag: v1, pullPolicy: Always}, imagePullSecrets: [{name: pull}], serviceAccount: {create: true, name: mine, annotations: {a: b}},
		podAnnotations: {a: b}, podLabels: {c: d}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], priorityClassName: system-cluster-critical, drainSeconds: 0,
		affinity: {nodeAffinity: {}}, extraEnv: [{name: AWS_REGION, value: us-east-1}], secrets: {namespaces: [default]}, podDisruptionBudget: {enabled: false}}`,
}

func TestLint(t *testing.T) {
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			if out, err := charttest.Helm(t, root, values, "lint"); err != nil {
				t.Errorf("%s%v", out, err)
			}
		})
	}
}

// What is not given, or not known, is told, and means no default.
func TestValuesAreRefused(t *testing.T) {
	for _, tt := range []struct{ values, refused string }{
		{`image: {repository: ""}`, "image.repository: set it"},
		{`serviceMonitor: {enabled: true}
ports: {metrics: 0}`, "ports.metrics"},
		{`controlPlane: {agentNamespace: kube-system}`, "without controlPlane.enabled"},
		{`agent: {enabled: true}`, "controlPlane.agentNamespace"},
		{`controlPlane: {enabled: true, agentNamespace: x}
agent: {enabled: true, trafficMode: networkPolicyOnly}`, "agent.cni.after"},
		{`controlPlane: {enabled: true, agentNamespace: x}
agent: {enabled: true, cni: {after: 10-aws.conflist}}`, "agent.cni.after"},
		{`agent: {trafficMode: vxlan}`, "/agent/trafficMode"},
		{`agent: {nameServers: [dns.example]}`, "/agent/nameServers/0"},
		{`agent: {bypass: ["ingress,10.0.0.0/8,tcp/22"]}`, "/agent/bypass/0"},
		{`agent: {cni: {confName: 10-isobar.conf}}`, "/agent/cni/confName"},
		{`agent: {cni: {after: ../x}}`, "/agent/cni/after"},
		{`agent: {cni: {plugins: [sbr]}}`, "/agent/cni/plugins/0"},
		{`agent: {cni: {binDir: opt}}`, "/agent/cni/binDir"},
		{`agent: {mtu: 576}`, "/agent/mtu"},
		{`agent: {maxUnavailable: 0%}`, "/agent/maxUnavailable"},
		{`agent: {tolerations: [{operater: Exists}]}`, "operater"},
		{`controlPlane: {enabled: true, agentNamespace: Kube}`, "/controlPlane/agentNamespace"},
		{`cloudSyncIntervall: 60`, "cloudSyncIntervall"},
		{`secrets: {clusterwide: true}`, "clusterwide"},
		{`secrets: {namespaces: shop}`, "/secrets/namespaces"},
		{`secrets: {clusterWide: "false"}`, "/secrets/clusterWide"},
		{`cloudSyncInterval: 59`, "/cloudSyncInterval"},
		{`cloudSyncInterval: 1.5`, "/cloudSyncInterval"},
		{`cloudResourcePrefix: a--b`, "/cloudResourcePrefix"},
		{`logLevel: verbose`, "/logLevel"},
		{`replicas: -1`, "/replicas"},
		{`image: {repository: "r.example/isobar:v1"}`, "/image/repository"},
		{`ports: {probes: 0}`, "/ports/probes"},
		{`ports: {api: 70000}`, "/ports/api"},
		{`certManager: {issuerRef: {kind: ClusterIssuer}}`, "/certManager/issuerRef"},
		{`tolerations: [{operater: Exists}]`, "operater"},
		{`resources: {limit: {memory: 1Gi}}`, "limit"},
	} {
		if _, err := charttest.Helm(t, root, tt.values, "template", "isobar", "x"); err == nil || !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s\nis not refused with %q: %v", tt.values, tt.refused, err)
		}
	}
}

// The schema knows the keys of values.yaml and no others, at every level.
func TestSchemaKnowsTheValues(t *testing.T) {
	var schema, values map[string]any
	for name, into := range map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join("isobar", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	delete(schema["properties"].(map[string]any), "global")
	checkKeys(t, "values", schema, values)
	checkClosed(t, "values", schema)
}

// checkKeys compares the keys of values that have a default with those of a schema.
func checkKeys(t *testing.T, path string, schema, values map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if len(values) == 0 || properties == nil {
		return // what is empty by default, or has any keys
	}
	want, got := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(properties))
	if !slices.Equal(want, got) {
		t.Errorf("%s has the keys %v, and the schema %v", path, want, got)
	}
	for key, p := range properties {
		below, _ := values[key].(map[string]any)
		checkKeys(t, path+"."+key, p.(map[string]any), below)
	}
}

// checkClosed says where a schema with properties lets others pass.
func checkClosed(t *testing.T, path string, schema any) {
	t.Helper()
	switch x := schema.(type) {
	case []any:
		for i, y := range x {
			checkClosed(t, fmt.Sprint(path, "/", i), y)
		}
	case map[string]any:
		if _, ok := x["properties"].(map[string]any); ok && x["additionalProperties"] != false {
			t.Errorf("%s lets unknown keys pass", path)
		}
		for key, y := range x {
			checkClosed(t, path+"/"+key, y)
		}
	}
}

// others are kinds of operators that the test's API server does not have.
var others = []string{"monitoring.coreos.com", "cert-manager.io"}

func TestAPIServerAccepts(t *testing.T) {
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../crd")
	client := dynamic.NewForConfigOrDie(e.Config())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kubernetes.NewForConfigOrDie(e.Config()).Discovery()))
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			ns := e.Namespace(t)
			n := 0
			for _, o := range charttest.Render(t, root, ns, values) {
				if slices.Contains(others, o.GroupVersionKind().Group) || o.GetKind() == "APIService" || o.GetKind() == "CustomResourceDefinition" {
					continue // TestControllerRights applies the APIServices, which would break the discovery of other tests here
				}
				n++
				if err := charttest.Apply(t.Context(), client, mapper, o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			if n < 15 {
				t.Errorf("%d objects", n)
			}
		})
	}
}

// The definitions in the chart are those that the types give, all of them.
func TestCRDs(t *testing.T) {
	got := map[string]*unstructured.Unstructured{}
	for _, o := range charttest.Render(t, root, "x", "") {
		if o.GetKind() == "CustomResourceDefinition" {
			got[o.GetName()] = o
		}
	}
	files, err := fs.Glob(crd.FS, "*.yaml")
	if err != nil || len(files) != len(got) {
		t.Fatalf("the chart has %d definitions, the types %d (%v)", len(got), len(files), err)
	}
	for _, f := range files {
		text, err := fs.ReadFile(crd.FS, f)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		name := want["metadata"].(map[string]any)["name"].(string)
		a, _ := json.Marshal(want)
		if b, _ := json.Marshal(got[name]); got[name] == nil || string(a) != strings.TrimSpace(string(b)) {
			t.Errorf("%s differs in the chart", name)
		}
	}
}

// The Service that agents look for selects the replicas where it can; elsewhere the leader says where
// they are.
func TestAgents(t *testing.T) {
	for namespace, want := range map[string]string{"kube-system": "selects 0", "elsewhere": "selects nothing 2"} {
		slices, got := 0, ""
		for _, o := range charttest.Render(t, root, namespace, "controlPlane: {enabled: true, agentNamespace: kube-system}") {
			switch {
			case o.GetKind() == "EndpointSlice":
				slices++
			case o.GetKind() == "Service" && o.GetName() == "antrea":
				got = "selects nothing"
				if selector, _, _ := unstructured.NestedMap(o.Object, "spec", "selector"); len(selector) > 0 {
					got = "selects"
				}
			}
		}
		if got = fmt.Sprint(got, " ", slices); got != want {
			t.Errorf("installed in %s: %s, want %s", namespace, got, want)
		}
	}
}

// A change of the log level restarts nothing; any other change of the configuration does.
func TestChecksum(t *testing.T) {
	sum := func(values string) string {
		for _, o := range charttest.Render(t, root, "x", values) {
			if o.GetKind() == "Deployment" {
				s, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", "checksum/config")
				return s
			}
		}
		return ""
	}
	if sum("") == "" || sum("") != sum("logLevel: debug") || sum("") == sum("cloudSyncInterval: 60") {
		t.Errorf("checksums %q, %q, %q", sum(""), sum("logLevel: debug"), sum("cloudSyncInterval: 60"))
	}
}

// What people may do, and what their objects may name.
func TestRoles(t *testing.T) {
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../crd")
	core := kubernetes.NewForConfigOrDie(e.Config())
	client := dynamic.NewForConfigOrDie(e.Config())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery()))
	own, other := e.Namespace(t), e.Namespace(t)
	for _, o := range charttest.Render(t, root, own, "") {
		switch o.GetKind() {
		case "ClusterRole", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if err := charttest.Apply(t.Context(), client, mapper, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	bind := func(kind, ns, role, user string) {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "test-" + user},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
		}}
		o.SetNamespace(ns)
		if err := charttest.Apply(t.Context(), client, mapper, o); err != nil {
			t.Fatal(err)
		}
	}
	bind("RoleBinding", own, "isobar-tenant-admin", "tenant")
	bind("ClusterRoleBinding", "", "isobar-cloud-admin", "cloud")
	bind("ClusterRoleBinding", "", "isobar-cluster-admin", "cluster")

	const cloud, antrea, shown = "crd.cloud.antrea.io", "crd.antrea.io", "runtime.cloud.antrea.io"
	for _, tt := range []struct {
		user, ns, verb, group, resource string
		may                             bool
	}{
		{"tenant", own, "create", cloud, "cloudprovideraccounts", true},
		{"tenant", own, "create", cloud, "cloudentityselectors", true},
		{"tenant", own, "create", antrea, "networkpolicies", true},
		{"tenant", own, "create", "", "secrets", true},
		{"tenant", own, "get", "", "secrets", false},
		{"tenant", own, "list", "", "secrets", false},
		{"tenant", own, "patch", shown, "virtualmachine", true},
		{"tenant", own, "create", antrea, "clusternetworkpolicies", false},
		{"tenant", own, "create", antrea, "tiers", false},
		{"tenant", own, "update", antrea, "externalentities", false},
		{"tenant", other, "get", cloud, "cloudprovideraccounts", false},
		{"tenant", other, "create", antrea, "networkpolicies", false},
		{"tenant", other, "get", "", "secrets", false},
		{"tenant", other, "list", shown, "virtualmachine", false},
		{"tenant", "", "list", shown, "virtualmachine", false},
		{"cloud", other, "create", cloud, "cloudprovideraccounts", true},
		{"cloud", "", "list", shown, "vpc", true},
		{"cloud", other, "get", "", "secrets", false},
		{"cloud", other, "create", antrea, "networkpolicies", false},
		{"cluster", other, "create", antrea, "networkpolicies", true},
		{"cluster", "", "create", antrea, "tiers", true},
		{"cluster", "", "create", "", "namespaces", true},
		{"cluster", other, "create", "rbac.authorization.k8s.io", "rolebindings", true},
		{"cluster", other, "get", "", "secrets", false},
		{"tenant", "", "list", "isobar.dev", "targets", false},
		{"cloud", "", "list", "isobar.dev", "targets", true},
		{"cluster", "", "list", "isobar.dev", "targets", true},
		{"cluster", "", "create", "rbac.authorization.k8s.io", "clusterroles", false},
	} {
		planetest.Eventually(t, tt.user+" "+tt.verb+" "+tt.resource+" in "+tt.ns, func(ctx context.Context) error {
			got, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: tt.user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: tt.ns, Verb: tt.verb, Group: tt.group, Resource: tt.resource},
			}}, metav1.CreateOptions{})
			if err == nil && got.Status.Allowed != tt.may {
				err = apierrors.NewBadRequest("allowed is wrong")
			}
			return err
		})
	}

	// By impersonation: what is not a right of a kind but of what an object names.
	as := func(user string) dynamic.Interface {
		c := rest.CopyConfig(e.Config())
		c.Impersonate = rest.ImpersonationConfig{UserName: user}
		return dynamic.NewForConfigOrDie(c)
	}
	accounts := schema.GroupVersionResource{Group: cloud, Version: "v1alpha1", Resource: "cloudprovideraccounts"}
	selectors := accounts.GroupVersion().WithResource("cloudentityselectors")
	account := func(secretNS string, more map[string]any) map[string]any {
		aws := map[string]any{"region": []any{"us-east-1"}, "secretRef": map[string]any{"namespace": secretNS, "name": "keys", "key": "k"}}
		for k, v := range more {
			aws[k] = v
		}
		return map[string]any{"awsConfig": aws}
	}
	azure := func(key, url string) map[string]any {
		return map[string]any{"azureConfig": map[string]any{"region": []any{"westus2"}, "secretRef": map[string]any{"namespace": own, "name": "keys", "key": "k"}, key: url}}
	}
	for _, tt := range []struct {
		what, user, ns string
		gvr            schema.GroupVersionResource
		kind           string
		spec           map[string]any
		refused        string // part of the message; empty when it is admitted
	}{
		{"own Secret", "tenant", own, accounts, "CloudProviderAccount", account(own, nil), ""},
		{"another's Secret", "tenant", own, accounts, "CloudProviderAccount", account(other, nil), "another namespace"},
		{"another's namespace", "tenant", other, accounts, "CloudProviderAccount", account(other, nil), "forbidden"},
		{"an endpoint", "tenant", own, accounts, "CloudProviderAccount", account(own, map[string]any{"endpoint": "http://evil.example"}), "endpoints"},
		{"an endpoint of Azure", "tenant", own, accounts, "CloudProviderAccount", azure("endpoint", "https://evil.example"), "azureConfig: endpoints"},
		{"an authority of Azure", "tenant", own, accounts, "CloudProviderAccount", azure("authorityEndpoint", "https://evil.example"), "azureConfig: endpoints"},
		{"an endpoint of Azure by who may", "cloud", own, accounts, "CloudProviderAccount", azure("endpoint", "https://lab.example"), ""},
		{"own account", "tenant", own, selectors, "CloudEntitySelector", map[string]any{"accountName": "a", "accountNamespace": own, "vmSelector": []any{}}, ""},
		{"another's account", "tenant", own, selectors, "CloudEntitySelector", map[string]any{"accountName": "a", "accountNamespace": other, "vmSelector": []any{}}, "another namespace"},
		{"an endpoint by who may", "cloud", own, accounts, "CloudProviderAccount", account(own, map[string]any{"endpoint": "http://lab.example"}), ""},
		{"a Secret that a cloud admin cannot read", "cloud", own, accounts, "CloudProviderAccount", account(other, nil), "another namespace"},
		{"another's account by who may", "cloud", own, selectors, "CloudEntitySelector", map[string]any{"accountName": "a", "accountNamespace": other, "vmSelector": []any{}}, ""},
	} {
		planetest.Eventually(t, tt.what, func(ctx context.Context) error { // a policy of admission takes a moment
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": accounts.GroupVersion().String(), "kind": tt.kind, "metadata": map[string]any{"generateName": "a-"}, "spec": tt.spec}}
			_, err := as(tt.user).Resource(tt.gvr).Namespace(tt.ns).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tt.refused == "" {
				return err
			}
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				return apierrors.NewBadRequest("it was not refused with " + tt.refused + ": " + errString(err))
			}
			return nil
		})
	}
}

func errString(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
