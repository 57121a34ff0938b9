package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"isobar.dev/acceptance/process"
	"isobar.dev/acceptance/wire"
	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/deploy/chart/charttest"
	simlab "isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
)

// confined runs a command in a network namespace as a container's runtime would: with mounts of its own, in which the
// kernel's settings are read-only but where sysctls is, and with these capabilities and no others.
func confined(t testing.TB, space ns.NetNS, sysctls string, capabilities []uintptr, env []string, name string, args ...string) *process.Process {
	t.Helper()
	p := &process.Process{Cmd: exec.Command(name, args...), Ended: make(chan struct{})}
	p.Cmd.Env, p.Cmd.Stdout, p.Cmd.Stderr = env, &p.Log, &p.Log
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: nothing else may run on a thread like this
		err := func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			for _, m := range []struct {
				from, to string
				flags    uintptr
			}{
				{"", "/", unix.MS_SLAVE | unix.MS_REC},
				{"/proc/sys/net", sysctls, unix.MS_BIND},
				{"/proc/sys", "/proc/sys", unix.MS_BIND},
				{"", "/proc/sys", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
			} {
				if err := unix.Mount(m.from, m.to, "", m.flags, ""); err != nil {
					return fmt.Errorf("mount %s: %w", m.to, err)
				}
			}
			if err := netns.Set(netns.NsHandle(space.Fd())); err != nil {
				return err
			}
			for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
				if !slices.Contains(capabilities, c) {
					if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
						return fmt.Errorf("drop capability %d: %w", c, err)
					}
				}
			}
			return p.Cmd.Start()
		}()
		started <- err
		if err == nil {
			_ = p.Cmd.Wait() // or the process would end with the thread
		}
		close(p.Ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.Log.String())
		}
	})
	return p
}

// The agent does all its work with the rights that the chart gives it and no others: those of its ServiceAccount at the
// API server, of its container in the kernel, and of its init container.
func TestAgentRights(t *testing.T) {
	paths := needs(t)
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	c := &cluster{t: t, config: e.Config(), dir: t.TempDir()}
	c.config.QPS = -1
	c.client, c.core = dynamic.NewForConfigOrDie(c.config), kubernetes.NewForConfigOrDie(c.config)
	c.startController()
	system, agents := e.Namespace(t), e.Namespace(t)

	var daemon appsv1.DaemonSet
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.core.Discovery()))
	for _, o := range charttest.Render(t, "../..", system, fmt.Sprintf("{controlPlane: {enabled: true, agentNamespace: %s}, agent: {enabled: true}}", agents)) {
		switch kind, name := o.GetKind(), o.GetName(); {
		case kind == "DaemonSet":
			if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &daemon); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(name, "isobar-agent") && name != "isobar-agents-of-namespace" && !(kind == "ClusterRole" && name == "isobar-agent"), // which is for agents of others
			o.GetNamespace() == agents && strings.HasPrefix(name, "antrea"):
			if err := charttest.Apply(t.Context(), c.client, mapper, o); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			if o.GetNamespace() == "" {
				t.Cleanup(func() {
					m, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind())
					if err == nil {
						err = c.client.Resource(m.Resource).Delete(t.Context(), name, metav1.DeleteOptions{})
					}
					_ = err // the API server goes with the tests
				})
			}
		}
	}
	capabilities := map[string]uintptr{"NET_ADMIN": unix.CAP_NET_ADMIN, "SYS_ADMIN": unix.CAP_SYS_ADMIN}
	var may []uintptr
	for _, name := range daemon.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		n, ok := capabilities[string(name)]
		if !ok {
			t.Fatalf("the chart gives the capability %s, which this test does not know", name)
		}
		may = append(may, n)
	}

	lab, err := simlab.New(simlab.Options{Nodes: 1, Dir: filepath.Join(c.dir, "runtimes")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	n := lab.Nodes[0]
	outside, addr, err := lab.Outside()
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	front := wire.NewProxy(t, listen(t, outside, netip.AddrPortFrom(addr, 6443)), host.Host)

	// The Pod of the DaemonSet on that Node, whose token says where it is.
	name := "of-" + system
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: n.Ranges[0].String(), PodCIDRs: []string{n.Ranges[0].String()}}}
	node, err = c.core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.core.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Addrs[0].String()}}
	if _, err := c.core.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	spec := daemon.Spec.Template.Spec
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "isobar-agent-x"}, Spec: spec}
	pod.Spec.NodeName = name
	if pod, err = c.core.CoreV1().Pods(system).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := c.core.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := &rest.Config{Host: c.config.Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.config.CAData, ServerName: c.config.ServerName}}

	// It finds the controller where the chart has it announced.
	ready, port := true, int32(5443)
	if _, err := c.core.DiscoveryV1().EndpointSlices(agents).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "ready", Labels: map[string]string{"kubernetes.io/service-name": "antrea"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ca, err := c.core.CoreV1().ConfigMaps(agents).Get(t.Context(), "antrea-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca.Data = map[string]string{"ca.crt": string(c.config.CAData)}
	if _, err := c.core.CoreV1().ConfigMaps(agents).Update(t.Context(), ca, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent finds its controller", func() string {
		found, err := antrea.InCluster(own, agents)(t.Context())
		if err == nil && found.Host != "https://10.0.0.9:5443" {
			return found.Host
		}
		return errorText(err)
	})

	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + front.Addr(), CertificateAuthorityData: c.config.CAData, TLSServerName: host.Hostname()}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	file := filepath.Join(c.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for _, d := range []string{"sysctl", "cni-conf", "cni-bin", "state", "none"} {
		dirs[d] = filepath.Join(c.dir, d)
		if err := os.Mkdir(dirs[d], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(c.dir, plugin.Name)
	if text, err := os.ReadFile(paths[plugin.Name]); err != nil || os.WriteFile(image, text, 0o755) != nil {
		t.Fatal(err)
	}
	install := confined(t, n.Space, dirs["none"], nil, nil, paths["isobar-agent"], "install", "--from="+image, "--to="+dirs["cni-bin"])
	<-install.Ended
	if !install.Cmd.ProcessState.Success() {
		t.Fatalf("install: %s", install.Log.String())
	}
	socket := filepath.Join(c.dir, "cni.sock")
	args := slices.DeleteFunc(slices.Clone(spec.Containers[0].Args), func(a string) bool {
		return strings.HasPrefix(a, "--controller-namespace") || strings.HasPrefix(a, "--metrics-addr")
	})
	for i, a := range args { // where the test has what the Pod has mounted
		for at, dir := range map[string]string{"/host/sysctl": dirs["sysctl"], "/host/cni-conf": dirs["cni-conf"]} {
			args[i] = strings.Replace(a, at, dir, 1)
			a = args[i]
		}
	}
	args = append(args, "--kubeconfig="+file, "--antrea-kubeconfig="+file, "--state-dir="+dirs["state"], "--cni-socket="+socket)
	agent := confined(t, n.Space, dirs["sysctl"], may, []string{"NODE_NAME=" + name}, paths["isobar-agent"], args...)

	conf := filepath.Join(dirs["cni-conf"], "10-isobar.conflist")
	eventually(t, "the network's configuration", func() string {
		if agent.IsOver() {
			t.Fatalf("the agent has ended: %s", agent.Log.String())
		}
		_, err := os.Stat(conf)
		return errorText(err)
	})
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	list["plugins"] = list["plugins"].([]any)[:1] // portmap is the Node's
	if text, err = json.Marshal(list); err != nil {
		t.Fatal(err)
	}
	network, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}

	// What a kubelet does, and what comes of it: the Pod is attached, known, under its policy, and reported on.
	if _, err := c.core.NetworkingV1().NetworkPolicies(system).Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web, err := c.core.CoreV1().Pods(system).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "web"}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	space, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		space.Close()
		if err := testutils.UnmountNS(space); err != nil {
			t.Error(err)
		}
	})
	rt := &libcni.RuntimeConf{ContainerID: string(web.UID), NetNS: space.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", system}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", string(web.UID)},
	}}
	cni := libcni.NewCNIConfigWithCacheDir([]string{dirs["cni-bin"]}, filepath.Join(c.dir, "cache"), nil)
	if _, err := cni.AddNetworkList(t.Context(), network, rt); err != nil {
		t.Fatalf("ADD: %v", err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		failed := n.Space.Do(func(ns.NetNS) error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return nil
		})
		return conn, errors.Join(err, failed)
	}}}
	eventually(t, "the Pod is under its policy", func() string {
		resp, err := client.Get("http://127.0.0.1:10351/status")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		var s struct {
			Pods, Policies, Realized int
			Held                     []string
			Error                    string
		}
		if err := json.Unmarshal(text, &s); err != nil || s.Pods != 1 || s.Policies != 1 || s.Realized != 1 || len(s.Held) > 0 || s.Error != "" {
			return fmt.Sprintf("%s %v", text, err)
		}
		return ""
	})
	if err := cni.CheckNetworkList(t.Context(), network, rt); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := cni.DelNetworkList(t.Context(), network, rt); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if log := agent.Log.String(); strings.Contains(log, "orbidden") || strings.Contains(log, "not permitted") || strings.Contains(log, "level=WARN") {
		t.Errorf("its log:\n%s", log)
	}
}
