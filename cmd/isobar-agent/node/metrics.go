package node

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"isobar.dev/control/agent"
	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/cni/rpc"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Metrics are those of one agent. What upstream's agents tell has its names there, and else ours.
// Labels are bounded, and name no policy and no Pod.
type Metrics struct {
	registry *prometheus.Registry

	syncs        *prometheus.CounterVec
	syncSeconds  prometheus.Histogram
	transactions *prometheus.HistogramVec
	changes      prometheus.Counter
	repairs      prometheus.Counter
	commands     *prometheus.HistogramVec

	of atomic.Pointer[Told]
}

// Told is whom Metrics tell of.
type Told struct {
	Agent  *agent.Agent
	Source *antrea.Source
	Space  ns.NetNS // nil for the caller's

	names  *Names      // nil for a machine that looks at no answers of DNS
	server *cni.Server // nil for one without Pods
}

// Tell has m tell of t from now on.
func (m *Metrics) Tell(t Told) { m.of.Store(&t) }

// Driver returns d, its transactions counted.
func (m *Metrics) Driver(d *nft.Driver) plan.Driver[nft.Object] { return metered{d, m} }

var _ agent.Meter = (*Metrics)(nil)

// NewMetrics returns metrics that nothing has told of yet.
func NewMetrics() *Metrics {
	fast := []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_agent_syncs_total", Help: "Comparisons of the kernel with what it should enforce, and changes.",
		}, []string{"result"}),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "isobar_agent_sync_duration_seconds", Help: "How long a comparison took, with its changes.", Buckets: fast,
		}),
		transactions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isobar_agent_transaction_duration_seconds", Help: "How long changes of the kernel's rules took, by whether the kernel made or refused them.", Buckets: fast,
		}, []string{"result"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_agent_changes_total", Help: "Chains, sets, maps and counters made, changed and deleted.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "isobar_agent_repairs_total", Help: "Of those, made to what somebody else had changed.",
		}),
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "isobar_agent_cni_duration_seconds", Help: "How long commands of CNI took, by how they ended.", Buckets: append(fast, 90),
		}, []string{"command", "result"}),
	}
	for _, result := range []string{"ok", "error"} {
		m.syncs.WithLabelValues(result)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.syncs, m.syncSeconds, m.transactions, m.changes, m.repairs, m.commands, machine{m})
	return m
}

// Registry is what to serve.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Synced counts a comparison.
func (m *Metrics) Synced(took time.Duration, written int, isRepair bool, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(result).Inc()
	m.syncSeconds.Observe(took.Seconds())
	m.changes.Add(float64(written))
	if isRepair {
		m.repairs.Add(float64(written))
	}
}

// metered is a driver whose transactions are counted.
type metered struct {
	*nft.Driver
	m *Metrics
}

var (
	_ plan.Driver[nft.Object]    = metered{}
	_ plan.Describer[nft.Object] = metered{}
	_ plan.Observer              = metered{}
)

func (d metered) Apply(ctx context.Context, changes []plan.Change[nft.Object]) error {
	began := time.Now()
	err := d.Driver.Apply(ctx, changes)
	result := "ok"
	switch {
	case errors.Is(err, nft.ErrRefused):
		result = "refused"
	case err != nil:
		result = "error"
	}
	d.m.transactions.WithLabelValues(result).Observe(time.Since(began).Seconds())
	return err
}

// count counts a command of CNI.
func (m *Metrics) count(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := handle(ctx, request)
	result := "ok"
	if a, ok := answer.(*rpc.Answer); err != nil || ok && a.GetError() != nil {
		result = "error"
	}
	_, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	m.commands.WithLabelValues(method, result).Observe(time.Since(began).Seconds())
	return answer, err
}

// What is read when it is asked for. The first are upstream's.
var (
	policies   = prometheus.NewDesc("antrea_agent_networkpolicy_count", "Policies that apply on this Node.", nil, nil)
	ingress    = prometheus.NewDesc("antrea_agent_ingress_networkpolicy_rule_count", "Rules of ingress that apply on this Node.", nil, nil)
	egress     = prometheus.NewDesc("antrea_agent_egress_networkpolicy_rule_count", "Rules of egress that apply on this Node.", nil, nil)
	pods       = prometheus.NewDesc("antrea_agent_local_pod_count", "Pods that are attached.", nil, nil)
	tracked    = prometheus.NewDesc("antrea_agent_conntrack_total_connection_count", "Connections that the kernel knows of, in the Node's network.", nil, nil)
	trackable  = prometheus.NewDesc("antrea_agent_conntrack_max_connection_count", "Connections that the kernel can know of.", nil, nil)
	nameCount  = prometheus.NewDesc("antrea_agent_fqdn_cache_size", "DNS names that are known.", nil, nil)
	nameGone   = prometheus.NewDesc("antrea_agent_fqdn_cache_eviction_count", "DNS names that had to go for others.", nil, nil)
	nameAddrs  = prometheus.NewDesc("isobar_agent_name_addresses", "Addresses of DNS names that are known.", nil, nil)
	answers    = prometheus.NewDesc("isobar_agent_dns_answers_total", "Answers of DNS to Pods that policies with names apply to, by what was done: passed, dropped.", []string{"result"}, nil)
	byState    = prometheus.NewDesc("isobar_agent_policies", "Policies that apply on this Node, by whether they are enforced as they are now: realized, failed, or pending.", []string{"state"}, nil)
	refused    = prometheus.NewDesc("isobar_agent_refusals", "What the kernel does not enforce exactly, but more strictly, by reason.", []string{"reason"}, nil)
	held       = prometheus.NewDesc("isobar_agent_held_pods", "Pods that are closed until their policies are known.", nil, nil)
	known      = prometheus.NewDesc("isobar_agent_known", "1 when it is known what is to be enforced.", nil, nil)
	kept       = prometheus.NewDesc("isobar_agent_kept", "1 when that is what was kept on disk, since the controller has not been reached since the start.", nil, nil)
	failing    = prometheus.NewDesc("isobar_agent_failing", "1 when the last try to enforce it failed.", nil, nil)
	lastGood   = prometheus.NewDesc("isobar_agent_last_sync_timestamp_seconds", "When the kernel was last as it should be.", nil, nil)
	watchState = prometheus.NewDesc("isobar_agent_watches", "1 when a watch of the controller is live.", []string{"resource"}, nil)
	addressUse = prometheus.NewDesc("isobar_agent_addresses", "Addresses of the Node's ranges for Pods, by whether a Pod has them.", []string{"family", "state"}, nil)
)

// machine reads how the agent is when it is asked for.
type machine struct{ m *Metrics }

func (machine) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{policies, ingress, egress, pods, tracked, trackable, nameCount, nameGone, nameAddrs, answers, byState, refused, held, known, kept, failing, lastGood, watchState, addressUse} {
		out <- d
	}
}

func (c machine) Collect(out chan<- prometheus.Metric) {
	r := c.m.of.Load()
	if r == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	is := func(d *prometheus.Desc, b bool, labels ...string) {
		v := 0.0
		if b {
			v = 1
		}
		gauge(d, v, labels...)
	}
	s := r.Agent.Status()
	gauge(pods, float64(s.Pods))
	gauge(held, float64(len(s.Held)))
	is(known, s.Known)
	is(kept, s.Kept)
	is(failing, s.Err != nil)
	if !s.LastGood.IsZero() {
		gauge(lastGood, float64(s.LastGood.UnixNano())/1e9)
	}
	reasons := map[policy.RefusalReason]int{}
	for _, x := range s.Report.Refusals {
		reasons[x.Reason]++
	}
	for reason, n := range reasons {
		gauge(refused, float64(n), string(reason))
	}
	gauge(policies, float64(s.Policies))
	gauge(byState, float64(s.Realized), "realized")
	gauge(byState, float64(s.Failed), "failed")
	gauge(byState, float64(s.Policies-s.Realized-s.Failed), "pending")
	c.rules(r.Source, gauge)
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	if r.names != nil {
		n := r.names.Counts()
		gauge(nameCount, float64(n.Names))
		gauge(nameAddrs, float64(n.Addrs))
		counter(nameGone, n.Evicted+n.EvictedByPattern)
		counter(answers, n.Answers, "passed")
		counter(answers, n.Dropped, "dropped")
	}
	for _, w := range r.Source.Status().Watches {
		is(watchState, w.Live, w.Resource)
	}
	var ranges []cni.Taken
	if r.server != nil {
		ranges, _ = r.server.Addresses()
	}
	for _, x := range ranges {
		family := "IPv4"
		if x.Range.Addr().Is6() {
			family = "IPv6"
		}
		gauge(addressUse, float64(x.Taken), family, "taken")
		gauge(addressUse, cni.Size(x.Range)-float64(x.Taken), family, "free")
	}
	for d, name := range map[*prometheus.Desc]string{tracked: "nf_conntrack_count", trackable: "nf_conntrack_max"} {
		if n, err := conntrack(r.Space, name); err == nil {
			gauge(d, float64(n))
		}
	}
}

func (machine) rules(source *antrea.Source, gauge func(*prometheus.Desc, float64, ...string)) {
	var in, out int
	if state := source.State(); state != nil {
		for i := range state.Rules {
			if state.Rules[i].Direction == policy.Ingress {
				in++
			} else {
				out++
			}
		}
	}
	gauge(ingress, float64(in))
	gauge(egress, float64(out))
}

// conntrack reads a number of the kernel, of a network namespace; nil is the caller's.
func conntrack(space ns.NetNS, name string) (n uint64, err error) {
	read := func(ns.NetNS) error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
		if err == nil {
			n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		}
		return err
	}
	if space == nil {
		err = read(nil)
	} else {
		err = space.Do(read)
	}
	return n, err
}
