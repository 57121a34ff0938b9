package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/control/controller"
	"isobar.dev/control/metrics"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// told is a controller that says what it is told to.
type told struct {
	vms     map[types.NamespacedName]int
	targets []controller.TargetStatus
	health  []controller.LoopHealth
}

func (s *told) VMs() map[types.NamespacedName]int  { return s.vms }
func (s *told) Targets() []controller.TargetStatus { return s.targets }
func (s *told) Health() []controller.LoopHealth    { return s.health }
func (s *told) Stats() controller.Stats {
	return controller.Stats{Syncs: 5, SyncErrors: 1, CloudWrites: 7}
}
func (s *told) Leads() bool { return true }
func (s *told) Staged() map[policy.Dialect]int {
	return map[policy.Dialect]int{policy.AntreaNetworkPolicy: 2}
}

var prod = types.NamespacedName{Namespace: "shop", Name: "prod"}

func all() (*metrics.Metrics, *told) {
	m := metrics.New()
	s := &told{
		vms: map[types.NamespacedName]int{prod: 3},
		targets: []controller.TargetStatus{
			{Name: "aws/shop/prod/us-east-1/vpc-1", Synced: true, Report: plan.Report{
				Usage:    []plan.Usage{{Quota: "rules in a security group", Used: 30, Limit: 60}},
				Refusals: []policy.Refusal{{Policy: "annp/shop/p", Reason: "QuotaExceeded"}, {Policy: "annp/shop/p", Reason: "QuotaExceeded"}},
			}},
			{Name: "aws/shop/prod/us-east-1/vpc-2", Err: "no", Report: plan.Report{Usage: []plan.Usage{{Quota: "rules in a security group", Used: 10, Limit: 15}}}},
		},
		health: []controller.LoopHealth{{Name: "world", Busy: time.Now().Add(-time.Hour), Most: time.Minute}, {Name: "accounts 0"}},
	}
	m.Follow(s)
	m.Propagated(prod, 300*time.Millisecond)
	m.Drifted(prod, 2)
	m.Polled(prod, "us-east-1", nil)
	m.Polled(prod, "us-east-1", errors.New("no"))
	m.Called(prod, "us-east-1", "CreateSecurityGroup", "throttled")
	return m, s
}

func TestMetrics(t *testing.T) {
	m, s := all()
	const want = `
# HELP isobar_cloud_calls_total Attempts of calls of a cloud, by how they ended.
# TYPE isobar_cloud_calls_total counter
isobar_cloud_calls_total{account="prod",account_namespace="shop",call="CreateSecurityGroup",region="us-east-1",result="throttled"} 1
# HELP isobar_drift_changes_total Changes made in clouds to what somebody else had changed there.
# TYPE isobar_drift_changes_total counter
isobar_drift_changes_total{account="prod",account_namespace="shop"} 2
# HELP isobar_leader 1 when this replica may write.
# TYPE isobar_leader gauge
isobar_leader 1
# HELP isobar_quota_limit The quota, where it is fullest.
# TYPE isobar_quota_limit gauge
isobar_quota_limit{account="prod",account_namespace="shop",quota="rules in a security group",region="us-east-1"} 15
# HELP isobar_quota_used How much of a quota is used, where it is fullest.
# TYPE isobar_quota_used gauge
isobar_quota_used{account="prod",account_namespace="shop",quota="rules in a security group",region="us-east-1"} 10
# HELP isobar_refusals Refusals of now: what networks cannot enforce exactly, by policy.
# TYPE isobar_refusals gauge
isobar_refusals{policy="annp/shop/p",reason="QuotaExceeded"} 2
# HELP isobar_staged_policies Policies that are staged: what they would do is shown, and nothing enforces them.
# TYPE isobar_staged_policies gauge
isobar_staged_policies{kind="acnp"} 0
isobar_staged_policies{kind="annp"} 2
isobar_staged_policies{kind="anp"} 0
isobar_staged_policies{kind="banp"} 0
isobar_staged_policies{kind="cnp"} 0
isobar_staged_policies{kind="networkpolicy"} 0
# HELP isobar_stuck_loops Loops that have been in one round for longer than their calls can take.
# TYPE isobar_stuck_loops gauge
isobar_stuck_loops 1
# HELP isobar_targets Networks, by whether they enforce what they should: synced, pending, failing, or held back until all that concerns them is known.
# TYPE isobar_targets gauge
isobar_targets{account="prod",account_namespace="shop",state="failing"} 1
isobar_targets{account="prod",account_namespace="shop",state="held"} 0
isobar_targets{account="prod",account_namespace="shop",state="pending"} 0
isobar_targets{account="prod",account_namespace="shop",state="synced"} 1
# HELP isobar_virtual_machines Imported VMs.
# TYPE isobar_virtual_machines gauge
isobar_virtual_machines{account="prod",account_namespace="shop"} 3
`
	if err := testutil.GatherAndCompare(m.Registry(), strings.NewReader(want), "isobar_cloud_calls_total", "isobar_drift_changes_total", "isobar_leader", "isobar_quota_limit",
		"isobar_quota_used", "isobar_refusals", "isobar_staged_policies", "isobar_stuck_loops", "isobar_targets", "isobar_virtual_machines"); err != nil {
		t.Error(err)
	}

	// What was told of an account goes with it.
	s.vms, s.targets = nil, nil
	for _, name := range []string{"isobar_cloud_calls_total", "isobar_propagation_seconds", "isobar_inventory_polls_total", "isobar_inventory_last_success_timestamp_seconds", "isobar_drift_changes_total"} {
		if n, err := testutil.GatherAndCount(m.Registry(), name); n > 0 || err != nil {
			t.Errorf("%d series of %s outlive their account (%v)", n, name, err)
		}
	}
}

func TestLint(t *testing.T) {
	m, _ := all()
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("%+v, %v", problems, err)
	}
}

func TestPoliciesAreBounded(t *testing.T) {
	m, s := all()
	var refusals []policy.Refusal
	for i := range 1000 {
		refusals = append(refusals, policy.Refusal{Policy: fmt.Sprintf("annp/shop/p%03d", i), Reason: "QuotaExceeded"})
	}
	s.targets = []controller.TargetStatus{{Name: "aws/shop/prod/us-east-1/vpc-1", Report: plan.Report{Refusals: refusals}}}
	if n, err := testutil.GatherAndCount(m.Registry(), "isobar_refusals"); n != 201 || err != nil {
		t.Errorf("%d series, %v; want 200 and one for the others", n, err)
	}
}
