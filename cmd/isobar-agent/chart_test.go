package main

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/deploy/chart/charttest"
)

// fixed are the flags that the chart gives no choice of.
var fixed = map[string]string{
	"node-name":         "the Pod's environment",
	"kubeconfig":        "the Pod's service account",
	"antrea-kubeconfig": "a file, which the chart does not mount",
	"state-dir":         "a folder of the Node",
	"cni-socket":        "the plugin's default",
	"cni-conf-dir":      "where the Node's folder is mounted",
	"sysctl-dir":        "where the Node's folder is mounted",
	"help":              "cobra's",
}

// daemon returns the flags, the container and the Pod that the chart has.
func daemon(t *testing.T, values string) (*pflag.FlagSet, *corev1.Container, *corev1.PodSpec) {
	t.Helper()
	for _, o := range charttest.Render(t, "../..", "x", values) {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		var d appsv1.DaemonSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &d, true); err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		flags := command().Flags()
		if err := flags.Parse(pod.Containers[0].Args); err != nil {
			t.Fatal(err)
		}
		return flags, &pod.Containers[0], &pod
	}
	t.Fatal("there is no DaemonSet")
	return nil, nil, nil
}

const nodes = "controlPlane: {enabled: true, agentNamespace: agents}\n"

// What can be set with flags can be set with values, and what a flag names of the Node is mounted.
func TestChart(t *testing.T) {
	plain, container, pod := daemon(t, nodes+"agent: {enabled: true}")
	other, _, _ := daemon(t, `
controlPlane: {enabled: true, agentNamespace: others}
agent: {enabled: true, trafficMode: networkPolicyOnly, mtu: 1400, bypass: ["ingress,::/0,Any"], holdFor: 1s, nameMinTTL: 1m, nameServers: [10.96.0.10], ports: {health: 1, metrics: 2}, logLevel: debug,
  cni: {confName: a.conflist, version: 1.1.0, plugins: [bandwidth], after: b.conf}}`)
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
	mounted := map[string]string{} // folders of the Node, by where they are
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || pod.Volumes[i].HostPath == nil {
			t.Fatalf("%s is no folder of the Node", m.Name)
		}
		mounted[m.MountPath] = pod.Volumes[i].HostPath.Path
	}
	for path, want := range map[string]string{
		plain.Lookup("state-dir").Value.String(): "/var/lib/isobar", "/var/run/isobar": "/var/run/isobar", "/var/lib/cni/networks/isobar": "/var/lib/cni/networks/isobar",
		plain.Lookup("cni-conf-dir").Value.String(): "/etc/cni/net.d", plain.Lookup("sysctl-dir").Value.String(): "/proc/sys/net", "/var/run/netns": "/var/run/netns",
	} {
		if mounted[path] != want {
			t.Errorf("at %s is %q of the Node, want %s", path, mounted[path], want)
		}
	}
	// As little as it takes; TestAgentRights runs it with that.
	want := corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "SYS_ADMIN"}}
	if got := container.SecurityContext.Capabilities; !slices.Equal(got.Add, want.Add) || !slices.Equal(got.Drop, want.Drop) || container.SecurityContext.Privileged != nil || pod.HostPID || !pod.HostNetwork {
		t.Errorf("rights of the container: %+v", container.SecurityContext)
	}
	if init := pod.InitContainers[0].SecurityContext; len(init.Capabilities.Add) > 0 || !slices.Equal(init.Capabilities.Drop, want.Drop) {
		t.Errorf("rights of the init container: %+v", init)
	}
}
