package agent

import (
	"context"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Count is how much a rule has counted since it was made: of an Allow or a Pass what
// begins connections, of a Drop or Reject all packets.
type Count struct{ Packets, Bytes uint64 }

// Counting is how an Agent tells the controller what rules have matched.
type Counting struct {
	Node string // as the controller knows it
	// Read returns what rules have counted, by Key.
	Read func(context.Context) (func(key string) (Count, bool), error)
	// Post tells the controller, as [antrea.Source.PostStats] does.
	Post func(context.Context, *controlplanev1beta2.NodeStatsSummary) error
	// Every is how often; 0 means 60 s.
	Every time.Duration
}

// RunCounting tells the controller what rules have matched, until ctx ends. What it could
// not be told is told the next time.
func (a *Agent) RunCounting(ctx context.Context, c Counting) error {
	if c.Every == 0 {
		c.Every = time.Minute
	}
	// What was counted before a restart has been told then.
	before, err := c.Read(ctx)
	if err != nil {
		a.o.Log.LogAttrs(ctx, slog.LevelInfo, "what rules have matched until now is not known", slog.String("error", err.Error()))
		before = func(string) (Count, bool) { return Count{}, false }
	}
	told := map[string]Count{} // by Key
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
		state := a.o.Source.State()
		if state == nil {
			continue
		}
		next, err := c.tell(ctx, state, func(key string) Count {
			if n, ok := told[key]; ok {
				return n
			}
			n, _ := before(key)
			return n
		})
		if err != nil && ctx.Err() == nil {
			a.o.Log.LogAttrs(ctx, slog.LevelInfo, "what rules have matched is told later", slog.String("error", err.Error()))
			continue
		}
		told = next
	}
}

// tell tells what is more than told, and returns what is told then.
func (c Counting) tell(ctx context.Context, state *antrea.State, told func(key string) Count) (map[string]Count, error) {
	of, err := c.Read(ctx)
	if err != nil {
		return nil, err
	}
	out := &controlplanev1beta2.NodeStatsSummary{ObjectMeta: metav1.ObjectMeta{Name: c.Node}}
	rules := map[string][]int{} // of Ruleset.Rules, by policy
	for i := range state.Rules {
		rules[state.Rules[i].Policy] = append(rules[state.Rules[i].Policy], i)
	}
	next := map[string]Count{}
	for _, p := range state.Policies {
		x := controlplanev1beta2.NetworkPolicyStats{NetworkPolicy: p.Source}
		for _, i := range rules[p.ID] {
			r := &state.Rules[i]
			now, ok := of(r.Key)
			if !ok {
				continue
			}
			next[r.Key] = now
			if more := now.since(told(r.Key), r.Action); more != (statsv1alpha1.TrafficStats{}) {
				addStats(&x, r.Name, more)
			}
		}
		if x.TrafficStats == (statsv1alpha1.TrafficStats{}) {
			continue
		}
		switch p.Source.Type {
		case controlplanev1beta2.K8sNetworkPolicy:
			x.RuleTrafficStats = nil // its rules have no names
			out.NetworkPolicies = append(out.NetworkPolicies, x)
		case controlplanev1beta2.AntreaNetworkPolicy:
			out.AntreaNetworkPolicies = append(out.AntreaNetworkPolicies, x)
		case controlplanev1beta2.AntreaClusterNetworkPolicy:
			out.AntreaClusterNetworkPolicies = append(out.AntreaClusterNetworkPolicies, x)
		}
	}
	if len(out.NetworkPolicies)+len(out.AntreaNetworkPolicies)+len(out.AntreaClusterNetworkPolicies) == 0 {
		return next, nil
	}
	return next, c.Post(ctx, out)
}

// since returns what has come to was; a counter that is less was made anew.
func (n Count) since(was Count, action policy.Action) statsv1alpha1.TrafficStats {
	if n.Packets < was.Packets || n.Bytes < was.Bytes {
		was = Count{}
	}
	out := statsv1alpha1.TrafficStats{Packets: int64(n.Packets - was.Packets), Bytes: int64(n.Bytes - was.Bytes)}
	if action == policy.Allow || action == policy.Pass {
		out.Sessions = out.Packets
	}
	return out
}

func addStats(x *controlplanev1beta2.NetworkPolicyStats, rule string, more statsv1alpha1.TrafficStats) {
	plus := func(to *statsv1alpha1.TrafficStats) {
		to.Packets, to.Bytes, to.Sessions = to.Packets+more.Packets, to.Bytes+more.Bytes, to.Sessions+more.Sessions
	}
	plus(&x.TrafficStats)
	i := slices.IndexFunc(x.RuleTrafficStats, func(r statsv1alpha1.RuleTrafficStats) bool { return r.Name == rule })
	if i < 0 {
		i = len(x.RuleTrafficStats)
		x.RuleTrafficStats = append(x.RuleTrafficStats, statsv1alpha1.RuleTrafficStats{Name: rule})
	}
	plus(&x.RuleTrafficStats[i].TrafficStats)
}
