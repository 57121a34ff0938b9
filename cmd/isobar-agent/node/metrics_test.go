package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/dataplane/cni/rpc"
)

// value is the sum of a metric's series that have the labels, as "name=value".
func value(t *testing.T, m *node.Metrics, name string, labels ...string) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, x := range f.Metric {
			has := func(l string) bool {
				return slices.ContainsFunc(x.Label, func(p *dto.LabelPair) bool { return p.GetName()+"="+p.GetValue() == l })
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !has(l) }) {
				sum += x.GetGauge().GetValue() + x.GetCounter().GetValue() + float64(x.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// What an agent tells is what is so: of its policies, its Pods, the kernel, and what others change there.
func TestMetrics(t *testing.T) {
	c := newCluster(t)
	m := node.NewMetrics()
	if _, err := m.Registry().Gather(); err != nil {
		t.Errorf("before there is an agent: %v", err)
	}
	c.run(func(o *node.Options) { o.Metrics = m })
	a := c.plug("a")
	c.plug("b")
	c.world(manifestsOf(map[string]string{"a": a.Addrs[0].String()}, `apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: web}
spec:
  priority: 1
  appliedTo: [{podSelector: {}}]
  ingress: [{action: Drop, ports: [{port: 22}]}, {action: Drop, ports: [{port: 23}]}]
  egress: [{action: Allow, l7Protocols: [{http: {}}]}, {action: Allow, to: [{fqdn: a.example}]}]
`))
	c.await("enforced", func() error {
		if s := c.agent.Status(); s.Realized+s.Failed != 1 || len(s.Held) > 0 {
			return errors.New(s.String())
		}
		return nil
	})
	want := `
# HELP antrea_agent_egress_networkpolicy_rule_count Rules of egress that apply on this Node.
# TYPE antrea_agent_egress_networkpolicy_rule_count gauge
antrea_agent_egress_networkpolicy_rule_count 2
# HELP antrea_agent_ingress_networkpolicy_rule_count Rules of ingress that apply on this Node.
# TYPE antrea_agent_ingress_networkpolicy_rule_count gauge
antrea_agent_ingress_networkpolicy_rule_count 2
# HELP antrea_agent_local_pod_count Pods that are attached.
# TYPE antrea_agent_local_pod_count gauge
antrea_agent_local_pod_count 2
# HELP antrea_agent_networkpolicy_count Policies that apply on this Node.
# TYPE antrea_agent_networkpolicy_count gauge
antrea_agent_networkpolicy_count 1
# HELP isobar_agent_addresses Addresses of the Node's ranges for Pods, by whether a Pod has them.
# TYPE isobar_agent_addresses gauge
isobar_agent_addresses{family="IPv4",state="free"} 252
isobar_agent_addresses{family="IPv4",state="taken"} 2
# HELP isobar_agent_failing 1 when the last try to enforce it failed.
# TYPE isobar_agent_failing gauge
isobar_agent_failing 0
# HELP isobar_agent_held_pods Pods that are closed until their policies are known.
# TYPE isobar_agent_held_pods gauge
isobar_agent_held_pods 0
# HELP isobar_agent_kept 1 when that is what was kept on disk, since the controller has not been reached since the start.
# TYPE isobar_agent_kept gauge
isobar_agent_kept 0
# HELP isobar_agent_known 1 when it is known what is to be enforced.
# TYPE isobar_agent_known gauge
isobar_agent_known 1
# HELP isobar_agent_policies Policies that apply on this Node, by whether they are enforced as they are now: realized, failed, or pending.
# TYPE isobar_agent_policies gauge
isobar_agent_policies{state="failed"} 1
isobar_agent_policies{state="pending"} 0
isobar_agent_policies{state="realized"} 0
# HELP isobar_agent_watches 1 when a watch of the controller is live.
# TYPE isobar_agent_watches gauge
isobar_agent_watches{resource="addressgroups"} 1
isobar_agent_watches{resource="appliedtogroups"} 1
isobar_agent_watches{resource="networkpolicies"} 1
`
	var names []string
	for line := range strings.Lines(want) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "TYPE" {
			names = append(names, f[2])
		}
	}
	if err := testutil.GatherAndCompare(m.Registry(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	conn, err := grpc.NewClient("unix://"+c.socket("node-1"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer, err := rpc.NewCNIClient(conn).Add(t.Context(), &rpc.Call{}); err != nil || answer.Error == nil {
		t.Errorf("nothing is attached: %v, %v", answer, err)
	}
	for result, want := range map[string]float64{"ok": 2, "error": 1} {
		if n := value(t, m, "isobar_agent_cni_duration_seconds", "command=Add", "result="+result); n != want {
			t.Errorf("%v ADDs %s, want %v", n, result, want)
		}
	}
	for _, name := range []string{"isobar_agent_transaction_duration_seconds", "isobar_agent_sync_duration_seconds", "isobar_agent_changes_total", "isobar_agent_last_sync_timestamp_seconds",
		"antrea_agent_conntrack_total_connection_count", "isobar_agent_refusals"} {
		if value(t, m, name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if n := value(t, m, "isobar_agent_repairs_total"); n != 0 {
		t.Errorf("%v repairs of what nobody had changed", n)
	}
	kernel, err := nftables.New(nftables.WithNetNSFd(int(c.lab.Nodes[0].Space.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	kernel.DelTable(&nftables.Table{Name: "isobar", Family: nftables.TableFamilyINet})
	if err := kernel.Flush(); err != nil {
		t.Fatal(err)
	}
	c.await("repaired", func() error {
		if n := value(t, m, "isobar_agent_repairs_total"); n < 10 {
			return fmt.Errorf("%v repairs", n)
		}
		return nil
	})
	if problems, err := testutil.GatherAndLint(m.Registry()); err != nil {
		t.Error(err)
	} else {
		for _, p := range problems {
			if !strings.HasPrefix(p.Metric, "antrea_") { // upstream's names are what they are
				t.Errorf("%+v", p)
			}
		}
	}
}
