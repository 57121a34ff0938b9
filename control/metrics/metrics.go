// Package metrics tells Prometheus how a controller fares.
//
// Labels are bounded: there are as many series as accounts, their regions and
// networks, and the names of calls and quotas are those of the adapters. Of
// policies the first maxPolicies that are refused something have a series of
// their own. What belongs to an account that has gone goes with it.
package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/control/controller"
	"isobar.dev/policy"
)

// maxPolicies bounds the policies that have a series of their own.
const maxPolicies = 200

// Metrics are those of one controller. It is its Meter.
type Metrics struct {
	registry *prometheus.Registry

	propagation *prometheus.HistogramVec
	drift       *prometheus.CounterVec
	polls       *prometheus.CounterVec
	polled      *prometheus.GaugeVec
	calls       *prometheus.CounterVec

	mu       sync.Mutex
	source   Source
	accounts map[types.NamespacedName]bool // that have series
}

var _ controller.Meter = (*Metrics)(nil)

// Source is what a controller tells of itself; *controller.Controller is one.
type Source interface {
	VMs() map[types.NamespacedName]int
	Targets() []controller.TargetStatus
	Health() []controller.LoopHealth
	Stats() controller.Stats
	Leads() bool
	Staged() map[policy.Dialect]int
}

var account = []string{"account_namespace", "account"}

func with(more ...string) []string { return append(slices.Clone(account), more...) }

// New returns metrics that nothing has told of yet.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), accounts: map[types.NamespacedName]bool{},
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isobar_propagation_seconds", Help: "Time from when a change of policies, groups or workloads is seen until a network that it concerns enforces it.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 900},
		}, account),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_drift_changes_total", Help: "Changes made in clouds to what somebody else had changed there.",
		}, account),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_inventory_polls_total", Help: "Listings of a region, by whether all of it could be read.",
		}, with("region", "result")),
		polled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "isobar_inventory_last_success_timestamp_seconds", Help: "When all of a region was last read.",
		}, with("region")),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_cloud_calls_total", Help: "Attempts of calls of a cloud, by how they ended.",
		}, with("region", "call", "result")),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m)
	return m
}

// Registry is what to serve.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Follow makes the metrics those of a controller.
func (m *Metrics) Follow(s Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source = s
}

// values are those of the labels of an account, before more.
func (m *Metrics) values(a types.NamespacedName, more ...string) []string {
	m.mu.Lock()
	m.accounts[a] = true
	m.mu.Unlock()
	return append([]string{a.Namespace, a.Name}, more...)
}

// Propagated counts how long a change took.
func (m *Metrics) Propagated(a types.NamespacedName, took time.Duration) {
	m.propagation.WithLabelValues(m.values(a)...).Observe(took.Seconds())
}

// Drifted counts what was repaired.
func (m *Metrics) Drifted(a types.NamespacedName, changes int) {
	m.drift.WithLabelValues(m.values(a)...).Add(float64(changes))
}

// Polled counts a listing.
func (m *Metrics) Polled(a types.NamespacedName, region string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	} else {
		m.polled.WithLabelValues(m.values(a, region)...).SetToCurrentTime()
	}
	m.polls.WithLabelValues(m.values(a, region, result)...).Inc()
}

// Called counts an attempt of a call. The words of call and result are bounded
// in number.
func (m *Metrics) Called(a types.NamespacedName, region, call, result string) {
	m.calls.WithLabelValues(m.values(a, region, call, result)...).Inc()
}

// What is read from the controller when it is asked for.
var (
	leader   = prometheus.NewDesc("isobar_leader", "1 when this replica may write.", nil, nil)
	stuck    = prometheus.NewDesc("isobar_stuck_loops", "Loops that have been in one round for longer than their calls can take.", nil, nil)
	vms      = prometheus.NewDesc("isobar_virtual_machines", "Imported VMs.", account, nil)
	targets  = prometheus.NewDesc("isobar_targets", "Networks, by whether they enforce what they should: synced, pending, failing, or held back until all that concerns them is known.", with("state"), nil)
	staged   = prometheus.NewDesc("isobar_staged_policies", "Policies that are staged: what they would do is shown, and nothing enforces them.", []string{"kind"}, nil)
	refusals = prometheus.NewDesc("isobar_refusals", "Refusals of now: what networks cannot enforce exactly, by policy.", []string{"policy", "reason"}, nil)
	used     = prometheus.NewDesc("isobar_quota_used", "How much of a quota is used, where it is fullest.", with("region", "quota"), nil)
	limit    = prometheus.NewDesc("isobar_quota_limit", "The quota, where it is fullest.", with("region", "quota"), nil)
	written  = prometheus.NewDesc("isobar_cloud_changes_total", "Changes made in clouds.", nil, nil)
	syncs    = prometheus.NewDesc("isobar_syncs_total", "Comparisons of a network with what it should enforce, and repairs.", []string{"result"}, nil)
)

// Describe tells of no metric in advance: which there are depends on the accounts.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect gives all metrics.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	s := m.source
	m.mu.Unlock()
	if s != nil {
		m.collect(s, out)
	}
	for _, c := range []prometheus.Collector{m.propagation, m.drift, m.polls, m.polled, m.calls} {
		c.Collect(out)
	}
}

func (m *Metrics) collect(s Source, out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	byAccount := s.VMs()
	m.forget(byAccount)
	for a, n := range byAccount {
		gauge(vms, float64(n), a.Namespace, a.Name)
	}
	leads := 0.0
	if s.Leads() {
		leads = 1
	}
	gauge(leader, leads)
	byDialect := s.Staged()
	for d := policy.KubernetesNetworkPolicy; d <= policy.BaselineAdminNetworkPolicy; d++ {
		gauge(staged, float64(byDialect[d]), d.String())
	}
	n, now := 0, time.Now()
	for _, h := range s.Health() {
		if h.IsStuck(now) {
			n++
		}
	}
	gauge(stuck, float64(n))
	stats := s.Stats()
	count(written, stats.CloudWrites)
	count(syncs, stats.Syncs-min(stats.SyncErrors, stats.Syncs), "ok")
	count(syncs, stats.SyncErrors, "error")
	collectTargets(s.Targets(), gauge)
}

// forget drops the series of accounts that have gone.
func (m *Metrics) forget(now map[types.NamespacedName]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for a := range m.accounts {
		if _, ok := now[a]; ok {
			continue
		}
		labels := prometheus.Labels{account[0]: a.Namespace, account[1]: a.Name}
		for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.propagation, m.drift, m.polls, m.polled, m.calls} {
			v.DeletePartialMatch(labels)
		}
		delete(m.accounts, a)
	}
}

// stateOf says how a target fares, in one word.
func stateOf(t controller.TargetStatus) string {
	switch {
	case t.Err != "":
		return "failing"
	case t.Held:
		return "held"
	case t.Synced:
		return "synced"
	}
	return "pending"
}

type place struct{ namespace, account, region string }

// placeOf reads a target's name, which is provider/namespace/account/region/network.
func placeOf(target string) (place, bool) {
	parts := strings.SplitN(target, "/", 5)
	if len(parts) != 5 {
		return place{}, false
	}
	return place{parts[1], parts[2], parts[3]}, true
}

func collectTargets(all []controller.TargetStatus, gauge func(*prometheus.Desc, float64, ...string)) {
	type counted struct{ namespace, account, state string }
	type quota struct {
		place
		name string
	}
	type refused struct{ policy, reason string }
	states, refusedOf := map[counted]int{}, map[refused]int{}
	fullest := map[quota][2]int{}
	for _, t := range all {
		p, ok := placeOf(t.Name)
		if !ok {
			continue
		}
		for _, state := range []string{"synced", "pending", "failing", "held"} {
			states[counted{p.namespace, p.account, state}] += 0
		}
		states[counted{p.namespace, p.account, stateOf(t)}]++
		for _, u := range t.Report.Usage {
			key := quota{p, u.Quota}
			// a/b < c/d without dividing by a quota of none
			if was, ok := fullest[key]; !ok || was[0]*u.Limit < u.Used*was[1] {
				fullest[key] = [2]int{u.Used, u.Limit}
			}
		}
		for _, r := range t.Report.Refusals {
			refusedOf[refused{r.Policy, string(r.Reason)}]++
		}
	}
	for c, n := range states {
		gauge(targets, float64(n), c.namespace, c.account, c.state)
	}
	for q, n := range fullest {
		gauge(used, float64(n[0]), q.namespace, q.account, q.region, q.name)
		gauge(limit, float64(n[1]), q.namespace, q.account, q.region, q.name)
	}
	names := map[string]bool{}
	others := map[string]int{}
	for _, r := range slices.SortedFunc(maps.Keys(refusedOf), func(a, b refused) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.reason, b.reason))
	}) {
		if names[r.policy] = true; len(names) > maxPolicies {
			others[r.reason] += refusedOf[r]
			continue
		}
		gauge(refusals, float64(refusedOf[r]), r.policy, r.reason)
	}
	for reason, n := range others {
		gauge(refusals, float64(n), "others", reason)
	}
}
