package main

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/deploy/chart/charttest"
)

// fixed are the flags that the chart gives no choice of.
var fixed = map[string]string{
	"config":                 "the chart's ConfigMap",
	"enable-leader-election": "always: an update runs two",
	"enable-debug-log":       "logLevel is the same, and counts without a restart",
	"kubeconfig":             "the Pod's service account",
	"antrea-kubeconfig":      "a file, which the chart does not mount",
	"agent-server":           "the configuration's agentServers",
	"help":                   "cobra's",
}

// What an operator can set with flags and the configuration file he can set with values.
func TestChartReachesEverySetting(t *testing.T) {
	plain, _ := rendered(t, "")
	other, c := rendered(t, `
ports: {webhook: 1, api: 2, metrics: 3, probes: 4, console: 5}
console:
  url: https://isobar.example.org
  readOnly: true
  tlsSecret: own
  oidc: {issuer: "https://id.example.org", clientID: console, clientSecret: {name: oidc, key: secret}, ca: {name: ca, key: ca}, scopes: [email]}
certManager: {enabled: true}
cloudResourcePrefix: nephe
cloudSyncInterval: 61
cloudSecurityGroupVisibility: true
leavePolicyStatus: true
leaveExternalNodes: true
controlPlane: {enabled: true, agentNamespace: agents, agentServers: ["https://isobar.example.org:10443"], takeOver: true}
podNetwork: vpc-1
nodeNetwork: vpc-2
services: {api: a, webhook: w}
namespaces: [shop]
logLevel: debug
logFormat: text
`)
	changed := map[string]bool{}
	plain.VisitAll(func(f *pflag.Flag) {
		changed[f.Name] = f.Value.String() != other.Lookup(f.Name).Value.String()
		if _, ok := fixed[f.Name]; ok == changed[f.Name] {
			t.Errorf("no value sets --%s, and nothing says why", f.Name)
		}
	})
	for name := range fixed {
		if _, ok := changed[name]; !ok && name != "help" {
			t.Errorf("there is no flag --%s", name)
		}
	}
	want := config{
		CloudResourcePrefix: "nephe", CloudSyncInterval: 61, CloudSecurityGroupVisibility: true, LeavePolicyStatus: true, LeaveExternalNodes: true, ControlPlane: true, AgentNamespace: "agents", AgentServers: []string{"https://isobar.example.org:10443"}, TakeOver: true,
		PodNetwork: "vpc-1", NodeNetwork: "vpc-2",
		Service: service{"a", 443}, WebhookService: service{"w", 443}, Namespaces: []string{"shop"}, LogLevel: "debug", LogFormat: "text",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("the configuration (-want +got):\n%s", diff)
	}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "AntreaKubeconfig" { // a file, which the chart does not mount
			t.Errorf("the test sets no %s", name)
		}
	}
}

// Without values, the configuration is that of a controller without a file, but for
// what values.yaml says.
func TestChartDefaults(t *testing.T) {
	_, got := rendered(t, "")
	want, err := parseConfig([]byte("cloudSecurityGroupVisibility: true\nlogLevel: info\nnamespaces: []"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || got.every() != 5*time.Minute {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rendered returns the flags and the configuration that a Pod of the chart has.
func rendered(t *testing.T, values string) (*pflag.FlagSet, config) {
	t.Helper()
	flags := controllerCommand().Flags()
	var file string
	for _, o := range charttest.Render(t, "../..", "x", values) {
		switch o.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &d, true); err != nil {
				t.Fatal(err)
			}
			pod := d.Spec.Template.Spec.Containers[0]
			if i := slices.Index(pod.Args, "controller"); i != 0 {
				t.Fatalf("the arguments are %q", pod.Args)
			}
			if err := flags.Parse(pod.Args[1:]); err != nil {
				t.Fatal(err)
			}
			checkPorts(t, flags, pod.Ports)
		case "ConfigMap":
			var m corev1.ConfigMap
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &m, true); err != nil {
				t.Fatal(err)
			}
			if text, ok := m.Data["isobar-controller.conf"]; ok {
				file = text
			}
		}
	}
	c, err := parseConfig([]byte(file))
	if err != nil || file == "" {
		t.Fatalf("%v in:\n%s", err, file)
	}
	return flags, c
}

// checkPorts compares the ports that a container names with those that it listens at.
func checkPorts(t *testing.T, flags *pflag.FlagSet, ports []corev1.ContainerPort) {
	t.Helper()
	for name, flag := range map[string]string{"webhook": "webhook-addr", "api": "api-addr", "metrics": "metrics-addr", "probes": "health-probe-bind-address", "console": "console-addr"} {
		i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == name })
		if got := flags.Lookup(flag).Value.String(); name == "console" && got == "0" && i < 0 {
			continue // there is none unless it is asked for
		} else if i < 0 || strings.TrimPrefix(got, ":") != strconv.Itoa(int(ports[i].ContainerPort)) {
			t.Errorf("--%s %s, and the container's ports are %+v", flag, got, ports)
		}
	}
}
