package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/policy"
)

var topSorts = []string{"packets", "bytes", "sessions"}

type topFlags struct {
	onlineFlags
	all      bool // namespaces, as without a namespace
	sort     string
	limit    int
	denied   bool
	neverHit bool
	watch    bool
	interval time.Duration
	output   string
	what     string // of topWhat
}

// topWhat is what there are counts of.
var topWhat = []string{"rules", "policies"}

func topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top rules|policies",
		Short: "Show what policies and rules have matched",
		Long: `Top shows what the agents of a cluster have counted, most first: sessions, packets and bytes that
policies, or their rules, have matched. Rules are counted by their names, which Kubernetes
NetworkPolicies do not have: such a policy is counted as one, and so are together the rules of a policy
that have no name. The counts are those of the group stats.antrea.io, and begin anew when another
controller takes over. Clouds count nothing.

With --watch it shows how much a second it is, until it is interrupted. Agents tell what they have
counted about once a minute.

Where nothing was counted at all it says so: that says nothing of the rules.`,
		Example: `  isobar top rules
  isobar top rules --denied -n shop --sort sessions --limit 10
  isobar top rules --never-hit -o json
  isobar top policies --watch --interval 1m`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(topWhat, args[0]) {
				return fmt.Errorf("top %s: want %s", strings.Join(args, " "), strings.Join(topWhat, " or "))
			}
			return nil
		},
		ValidArgs: topWhat,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.what = args[0]
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.Lookup("namespace").Usage = "namespace of policies (default: all, and those of the cluster)"
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "all namespaces, as without -n")
	flags.StringVar(&f.sort, "sort", topSorts[0], strings.Join(topSorts, ", "))
	flags.IntVar(&f.limit, "limit", 0, "at most as many; 0 is all")
	flags.BoolVar(&f.denied, "denied", false, "only rules that drop or reject")
	flags.BoolVar(&f.neverHit, "never-hit", false, "only what has matched nothing")
	flags.BoolVarP(&f.watch, "watch", "w", false, "show rates, again and again")
	flags.DurationVar(&f.interval, "interval", 0, "with --watch: how often (default 1m)")
	addFormats(cmd, &f.output, formats...)
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(topSorts, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *topFlags) check() error {
	switch {
	case !slices.Contains(topSorts, f.sort):
		return fmt.Errorf("--sort %s: want %s", f.sort, strings.Join(topSorts, ", "))
	case f.limit < 0:
		return fmt.Errorf("--limit %d: want 0 or more", f.limit)
	case f.all && f.namespace != "":
		return errors.New("-n and --all-namespaces: want one of them")
	case f.interval != 0 && !f.watch:
		return errors.New("--interval needs --watch")
	case f.interval < 0 || f.watch && f.interval != 0 && f.interval < time.Second:
		return fmt.Errorf("--interval %v: want a second or more", f.interval)
	case f.watch && f.neverHit:
		return errors.New("--watch and --never-hit: want one of them")
	}
	return checkFormat(f.output, formats...)
}

func (f *topFlags) run(ctx context.Context, out, errOut io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	config, _, err := f.load()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	before, err := f.read(ctx, client)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if !f.watch {
		return f.print(out, f.choose(before))
	}
	every := cmp.Or(f.interval, time.Minute)
	fmt.Fprintf(errOut, "measuring for %v\n", every)
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		now, err := f.read(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("top: %w", err)
		}
		at := time.Now()
		if err := f.print(out, f.choose(now.rates(before, at.Sub(last)))); err != nil {
			return err
		}
		before, last = now, at
	}
}

// top is what was counted, as -o json has it.
type top struct {
	Items []topItem `json:"items"`
	// NoStatistics says why there are no items: nothing was counted of any policy.
	NoStatistics string `json:"noStatistics,omitempty"`
	// Unnamed are how many rules are not counted one by one, for they have no name.
	Unnamed int `json:"unnamedRules,omitempty"`
}

// topItem is what was counted of a policy or of a rule.
type topItem struct {
	Kind      string `json:"kind"` // as in the ID of a policy
	Namespace string `json:"namespace,omitempty"`
	Policy    string `json:"policy"`
	// Rule is empty of what is counted of a Kubernetes NetworkPolicy, and of all rules
	// without a name together, which Direction and Action are not told of.
	Rule      string      `json:"rule,omitempty"`
	Unnamed   bool        `json:"unnamed,omitempty"` // all rules without a name together
	Direction string      `json:"direction,omitempty"`
	Action    string      `json:"action,omitempty"`
	Tier      string      `json:"tier,omitempty"`
	Priority  float64     `json:"priority,omitempty"`
	Since     metav1.Time `json:"since"`
	Sessions  int64       `json:"sessions"`
	Packets   int64       `json:"packets"`
	Bytes     int64       `json:"bytes"`
	Rate      *topRate    `json:"rate,omitempty"`
	Restarted bool        `json:"restarted,omitempty"` // the counting began anew: there is no rate

	uid string
}

// topRate is how much it was a second.
type topRate struct {
	Sessions float64 `json:"sessions"`
	Packets  float64 `json:"packets"`
	Bytes    float64 `json:"bytes"`
}

func (i topItem) key() string {
	return strings.Join([]string{i.Kind, i.Namespace, i.Policy, i.Rule, strconv.FormatBool(i.Unnamed)}, "\x00")
}

func (i topItem) isDenial() bool {
	return i.Action == policy.Drop.String() || i.Action == policy.Reject.String()
}

func (i topItem) isZero() bool { return i.Sessions == 0 && i.Packets == 0 && i.Bytes == 0 }

// id returns the policy's ID.
func (i topItem) id() string {
	if i.Namespace == "" {
		return i.Kind + "/" + i.Policy
	}
	return i.Kind + "/" + i.Namespace + "/" + i.Policy
}

// with returns i with counts.
func (i topItem) with(t statsv1alpha1.TrafficStats) topItem {
	i.Sessions, i.Packets, i.Bytes = t.Sessions, t.Packets, t.Bytes
	return i
}

// topPolicy is what a policy says of its rules.
type topPolicy struct {
	tier     string
	priority float64
	rules    []topItem // name, direction and action
}

func newTopPolicy(in antreav1beta1.NetworkPolicySpec) topPolicy {
	p := topPolicy{tier: antreav1beta1.TierName(in.Tier), priority: in.Priority}
	for d, rules := range map[policy.Direction][]antreav1beta1.Rule{policy.Ingress: in.Ingress, policy.Egress: in.Egress} {
		for _, r := range rules {
			x := topItem{Rule: r.Name, Direction: d.String()}
			if r.Action != nil {
				x.Action = string(*r.Action)
			}
			p.rules = append(p.rules, x)
		}
	}
	return p
}

// split returns what was counted of each rule that has a name, and of the others together, and
// how many others there are.
func (p topPolicy) split(whole topItem, counted []statsv1alpha1.RuleTrafficStats) (items []topItem, unnamed int) {
	counts := map[string]statsv1alpha1.TrafficStats{}
	rules := slices.Clone(p.rules)
	for _, c := range counted {
		counts[c.Name] = c.TrafficStats
		if !slices.ContainsFunc(rules, func(r topItem) bool { return r.Rule == c.Name }) {
			rules = append(rules, topItem{Rule: c.Name}) // the policy has changed since
		}
	}
	rest := whole
	for _, r := range rules {
		if r.Rule == "" {
			unnamed++
			continue
		}
		x := whole.with(counts[r.Rule])
		x.Rule, x.Direction, x.Action = r.Rule, r.Direction, r.Action
		items = append(items, x)
		rest.Sessions, rest.Packets, rest.Bytes = rest.Sessions-x.Sessions, rest.Packets-x.Packets, rest.Bytes-x.Bytes
	}
	if unnamed > 0 {
		rest.Unnamed = true
		rest.Sessions, rest.Packets, rest.Bytes = max(0, rest.Sessions), max(0, rest.Packets), max(0, rest.Bytes)
		items = append(items, rest)
	}
	return items, unnamed
}

// read reads what was counted of rules, or of policies, and what these say.
func (f *topFlags) read(ctx context.Context, client dynamic.Interface) (top, error) {
	var kube []statsv1alpha1.NetworkPolicyStats
	var antrea []statsv1alpha1.AntreaNetworkPolicyStats
	var cluster []statsv1alpha1.AntreaClusterNetworkPolicyStats
	var policies []antreav1beta1.NetworkPolicy
	var clusterPolicies []antreav1beta1.ClusterNetworkPolicy
	stats, crd := statsv1alpha1.GroupVersion, antreav1beta1.GroupVersion
	err := errors.Join(
		list(ctx, client, stats.WithResource("networkpolicystats"), f.namespace, &kube),
		list(ctx, client, stats.WithResource("antreanetworkpolicystats"), f.namespace, &antrea),
		list(ctx, client, crd.WithResource("networkpolicies"), f.namespace, &policies))
	if f.namespace == "" {
		err = errors.Join(err, list(ctx, client, stats.WithResource("antreaclusternetworkpolicystats"), "", &cluster),
			list(ctx, client, crd.WithResource("clusternetworkpolicies"), "", &clusterPolicies))
	}
	if err != nil {
		return top{}, err
	}
	told := map[string]topPolicy{}
	for _, p := range policies {
		told[p.Namespace+"/"+p.Name] = newTopPolicy(p.Spec)
	}
	for _, p := range clusterPolicies {
		told["/"+p.Name] = newTopPolicy(p.Spec)
	}
	t := top{Items: []topItem{}}
	counted, all := false, 0
	add := func(d policy.Dialect, m metav1.ObjectMeta, total statsv1alpha1.TrafficStats, rules []statsv1alpha1.RuleTrafficStats, p topPolicy) {
		whole := topItem{Kind: d.String(), Namespace: m.Namespace, Policy: m.Name, Tier: p.tier, Priority: p.priority, Since: m.CreationTimestamp, uid: string(m.UID)}.with(total)
		counted = counted || !whole.isZero()
		all++
		items, unnamed := p.split(whole, rules)
		t.Unnamed += unnamed
		if f.denied {
			items = slices.DeleteFunc(items, func(i topItem) bool { return !i.isDenial() })
		}
		switch {
		case f.what == "rules" && (len(items) > 0 || f.denied):
			t.Items = append(t.Items, items...)
		case !f.denied:
			t.Items = append(t.Items, whole)
		case len(items) > 0:
			var sum statsv1alpha1.TrafficStats
			for _, i := range items {
				sum.Sessions, sum.Packets, sum.Bytes = sum.Sessions+i.Sessions, sum.Packets+i.Packets, sum.Bytes+i.Bytes
			}
			t.Items = append(t.Items, whole.with(sum))
		}
	}
	for _, x := range kube {
		add(policy.KubernetesNetworkPolicy, x.ObjectMeta, x.TrafficStats, nil, topPolicy{tier: policy.TierKubernetes})
	}
	for _, x := range antrea {
		add(policy.AntreaNetworkPolicy, x.ObjectMeta, x.TrafficStats, x.RuleTrafficStats, told[x.Namespace+"/"+x.Name])
	}
	for _, x := range cluster {
		add(policy.AntreaClusterNetworkPolicy, x.ObjectMeta, x.TrafficStats, x.RuleTrafficStats, told["/"+x.Name])
	}
	if !counted {
		t = top{Items: []topItem{}, NoStatistics: noStatistics(ctx, client, all)}
	}
	return t, nil
}

// noStatistics says what is known of why nothing was counted.
func noStatistics(ctx context.Context, client dynamic.Interface, policies int) string {
	if policies == 0 {
		return "there is no policy of a kind that agents count"
	}
	why := fmt.Sprintf("no agent has told that anything matched one of %s", count(policies, "policy", "policies"))
	if policies == 1 {
		why = "no agent has told that anything matched the one policy"
	}
	object, err := client.Resource(antreav1beta1.GroupVersion.WithResource("antreacontrollerinfos")).Get(ctx, "antrea-controller", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return why + "; how many agents there are is not told"
	}
	var info antreav1beta1.AntreaControllerInfo
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &info)
	}
	if err != nil {
		return why + "; how many agents there are cannot be read: " + err.Error()
	}
	return why + "; agents that are connected: " + strconv.Itoa(int(info.ConnectedAgentNum))
}

// rates returns t with what has come since before, over that time.
func (t top) rates(before top, over time.Duration) top {
	was := map[string]topItem{}
	for _, i := range before.Items {
		was[i.key()] = i
	}
	items := slices.Clone(t.Items)
	for k := range items {
		i := &items[k]
		old, known := was[i.key()]
		switch {
		case !known && before.NoStatistics != "":
			old = topItem{uid: i.uid, Since: i.Since} // all were zero
		case !known:
			i.Restarted = true
			continue
		}
		if old.uid != i.uid || !old.Since.Equal(&i.Since) || old.Sessions > i.Sessions || old.Packets > i.Packets || old.Bytes > i.Bytes {
			i.Restarted = true // of another object, or by another controller
			continue
		}
		s := over.Seconds()
		i.Rate = &topRate{float64(i.Sessions-old.Sessions) / s, float64(i.Packets-old.Packets) / s, float64(i.Bytes-old.Bytes) / s}
	}
	t.Items = items
	return t
}

// choose returns what was asked for, in order.
func (f *topFlags) choose(t top) top {
	items := slices.Clone(t.Items)
	if f.neverHit {
		// Of rules without a name it is known together alone: all of them, or some.
		items = slices.DeleteFunc(items, func(i topItem) bool { return !i.isZero() })
	}
	value := func(i topItem) float64 {
		n := map[string]int64{"packets": i.Packets, "bytes": i.Bytes, "sessions": i.Sessions}[f.sort]
		if !f.watch {
			return float64(n)
		}
		if i.Rate == nil {
			return -1
		}
		return map[string]float64{"packets": i.Rate.Packets, "bytes": i.Rate.Bytes, "sessions": i.Rate.Sessions}[f.sort]
	}
	slices.SortStableFunc(items, func(a, b topItem) int { return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a.key(), b.key())) })
	if f.limit > 0 {
		items = items[:min(f.limit, len(items))]
	}
	t.Items = items
	return t
}

func (f *topFlags) print(out io.Writer, t top) error {
	switch f.output {
	case "json":
		if !f.watch {
			return writeObject(out, "json", t)
		}
		return json.NewEncoder(out).Encode(t) // one on a line
	case "yaml":
		if f.watch {
			fmt.Fprintln(out, "---")
		}
		return writeObject(out, "yaml", t)
	}
	if t.NoStatistics != "" {
		_, err := fmt.Fprintf(out, "No statistics: %s.\n", t.NoStatistics)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var head []string
	for _, c := range f.columns() {
		head = append(head, c.name)
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, i := range t.Items {
		var row []string
		for _, c := range f.columns() {
			row = append(row, c.of(i))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(t.Items) == 0 {
		fmt.Fprintln(out, "None.")
	}
	if f.neverHit && t.Unnamed > 0 {
		fmt.Fprintf(out, "Rules without a name are not counted one by one: %d.\n", t.Unnamed)
	}
	if f.watch {
		fmt.Fprintln(out)
	}
	return nil
}

// topColumn is one of the table.
type topColumn struct {
	name string
	of   func(topItem) string
}

func (f *topFlags) columns() []topColumn {
	out := []topColumn{{"POLICY", topItem.id}}
	if f.what == "rules" {
		out = append(out, topColumn{"RULE", func(i topItem) string {
			if i.Unnamed {
				return "(without a name)"
			}
			return printable(cmp.Or(i.Rule, "-"))
		}}, topColumn{"ACTION", func(i topItem) string { return cmp.Or(i.Action, "-") }})
	}
	if f.what == "rules" && f.output == "wide" {
		out = append(out, topColumn{"DIRECTION", func(i topItem) string { return cmp.Or(i.Direction, "-") }})
	}
	if f.output == "wide" {
		out = append(out, topColumn{"TIER", func(i topItem) string { return printable(cmp.Or(i.Tier, "-")) }},
			topColumn{"PRIORITY", func(i topItem) string { return strconv.FormatFloat(i.Priority, 'g', -1, 64) }},
			topColumn{"SINCE", func(i topItem) string {
				if i.Since.IsZero() {
					return "-"
				}
				return i.Since.UTC().Format(time.RFC3339)
			}})
	}
	if f.watch {
		rate := func(of func(topRate) float64) func(topItem) string {
			return func(i topItem) string {
				if i.Rate == nil {
					return "-" // counted anew
				}
				return strconv.FormatFloat(of(*i.Rate), 'f', 1, 64)
			}
		}
		return append(out, topColumn{"SESSIONS/S", rate(func(r topRate) float64 { return r.Sessions })}, topColumn{"PACKETS/S", rate(func(r topRate) float64 { return r.Packets })},
			topColumn{"BYTES/S", rate(func(r topRate) float64 { return r.Bytes })})
	}
	number := func(of func(topItem) int64) func(topItem) string {
		return func(i topItem) string { return strconv.FormatInt(of(i), 10) }
	}
	return append(out, topColumn{"SESSIONS", number(func(i topItem) int64 { return i.Sessions })}, topColumn{"PACKETS", number(func(i topItem) int64 { return i.Packets })},
		topColumn{"BYTES", number(func(i topItem) int64 { return i.Bytes })})
}
