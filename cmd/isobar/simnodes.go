package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/sim/nodes"
)

var simNodesFormats = []string{"table", "json", "yaml"}

type simNodesFlags struct {
	onlineFlags
	output string

	agents, perConnection, atOnce, reach int
	direct                               bool
	identity, change                     string
	account                              string
	names                                []string
	changes                              int
	every, quiet, hold, timeout          time.Duration
	reconnect, check                     bool
	pid                                  int
	metrics                              string
}

func simNodesCommand() *cobra.Command {
	var f simNodesFlags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Load a server of agents as thousands of Nodes do, and measure what it takes",
		Long: `Watches controlplane.antrea.io as the agents of many Nodes: three watches each, over a TLS connection each.
The server is that of the kubeconfig, Isobar's or an antrea-controller's; with --direct its own address.

It makes a namespace with a Pod on each of --agents Nodes, which need not be there and on which nothing runs, and
one policy for each --reach of them. Then it measures how long agents take to have all that there is; changes
labels of Pods, one after the other, and notes when each agent that this concerns is told; cuts all connections
at once, upon which agents begin anew; and compares what each agent has been told with what a fresh watch
begins with. In the end it takes the namespace away, also when it is interrupted. Use a cluster for tests: its
controllers delete Pods of Nodes that are not there, after a minute.

With --nodes it makes nothing and changes nothing, and watches as these Nodes.

Each agent is a user of its own. --identity token: a token bound to the Pod on its Node, as agents on Nodes have;
impersonate: the user of the kubeconfig passes for the account that such a token is of (always so with --nodes).

Exit status 0 means that every agent had what it should; 2 that one had not, or was told something after it had begun
anew with what it had; 1 that it could not be found out.`,
		Example: `  isobar sim nodes --agents 1000
  isobar sim nodes --agents 1000 --direct --server-pid $(pgrep -f 'isobar up') -o json
  isobar sim nodes --agents 5000 --per-connection 50 --changes 0 --hold 10m --kubeconfig antrea.conf
  isobar sim nodes --nodes worker-1,worker-2 --account kube-system/antrea-agent --hold 1m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := simNodesRun{flags: f, out: cmd.OutOrStdout(), progress: cmd.ErrOrStderr(), began: time.Now()}
			return r.run(cmd.Context())
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.agents, "agents", 100, "how many Nodes have an agent")
	flags.StringSliceVar(&f.names, "nodes", nil, "names of Nodes that are there, or namespace/name of VMs, to watch as without making anything")
	flags.StringVar(&f.account, "account", "kube-system/antrea-agent", "with --nodes: namespace/name of the agents' ServiceAccount, to impersonate")
	flags.StringVar(&f.identity, "identity", "token", "how an agent says who it is: token or impersonate")
	flags.IntVar(&f.perConnection, "per-connection", 1, "how many agents share a TLS connection")
	flags.IntVar(&f.atOnce, "at-once", 0, "how many watches may be about to begin at a time; 0 is all of them")
	flags.BoolVar(&f.direct, "direct", false, "reach the server itself, where its APIService says, rather than through the API server")
	flags.IntVar(&f.reach, "reach", 25, "how many Nodes a change concerns")
	flags.StringVar(&f.change, "change", "label", "what is changed: label of a Pod, or policy")
	flags.IntVar(&f.changes, "changes", 100, "how many changes are made")
	flags.DurationVar(&f.every, "every", 0, "time between two changes; 0 is at once when all have seen the last one")
	flags.DurationVar(&f.quiet, "quiet", 2*time.Second, "how long to look for events where nothing is changed, at the start and after agents have begun anew")
	flags.BoolVar(&f.reconnect, "reconnect", true, "cut all connections, upon which agents begin anew")
	flags.DurationVar(&f.hold, "hold", 0, "watch on for so long before the check; restart the server meanwhile, say")
	flags.BoolVar(&f.check, "check", true, "compare what agents have been told with fresh watches")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long agents may take to have all there is, or one change")
	flags.IntVar(&f.pid, "server-pid", 0, "process of the server on this machine, to measure its CPU and memory")
	flags.StringVar(&f.metrics, "server-metrics", "", "URL of the server's metrics, to measure its CPU and memory")
	addFormats(cmd, &f.output, simNodesFormats...)
	_ = cmd.Flags().MarkHidden("namespace")
	return cmd
}

// validate says what is wrong with the flags.
func (f *simNodesFlags) validate() error {
	for _, x := range []struct {
		flag, value string
		of          []string
	}{{"-o", f.output, simNodesFormats}, {"--identity", f.identity, []string{"token", "impersonate"}}, {"--change", f.change, []string{"label", "policy"}}} {
		if !slices.Contains(x.of, x.value) {
			return fmt.Errorf("%s %s: want %s", x.flag, x.value, strings.Join(x.of, " or "))
		}
	}
	for _, x := range []struct {
		flag       string
		value, min int
	}{{"--agents", f.agents, 1}, {"--per-connection", f.perConnection, 1}, {"--at-once", f.atOnce, 0}, {"--reach", f.reach, 1}, {"--changes", f.changes, 0}, {"--server-pid", f.pid, 0}} {
		if x.value < x.min {
			return fmt.Errorf("%s %d: want %d or more", x.flag, x.value, x.min)
		}
	}
	if f.agents > nodes.MaxNodes {
		return fmt.Errorf("--agents %d: want at most %d", f.agents, nodes.MaxNodes)
	}
	if f.pid > 0 && f.metrics != "" {
		return errors.New("--server-pid and --server-metrics: want one of them")
	}
	if namespace, name, ok := strings.Cut(f.account, "/"); len(f.names) > 0 && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("--account %s: want namespace/name", f.account)
	}
	return nil
}

// simNodesRun is one run of `isobar sim nodes`.
type simNodesRun struct {
	flags    simNodesFlags
	out      io.Writer
	progress io.Writer
	began    time.Time

	mu   sync.Mutex
	said time.Time // when how far it is was told last

	world  *nodes.World // nil with --nodes
	fleet  *nodes.Fleet
	report nodesReport
}

func (r *simNodesRun) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "[%5.1fs] %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// far tells how far it is, once in two seconds and at the end.
func (r *simNodesRun) far(what string, done, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done < of && time.Since(r.said) < 2*time.Second {
		return
	}
	r.said = time.Now()
	r.say("%s: %d of %d", what, done, of)
}

func (r *simNodesRun) run(ctx context.Context) (err error) {
	if err := r.flags.validate(); err != nil {
		return err
	}
	config, _, err := r.flags.load()
	if err != nil {
		return err
	}
	server := config
	if r.flags.direct {
		if server, err = nodes.Direct(ctx, config); err != nil {
			return err
		}
	}
	if err := isServedAt(ctx, config); err != nil {
		return err
	}
	list, err := r.makeNodes(ctx, config)
	if r.world != nil {
		defer func() {
			r.say("taking the namespace %s away", r.world.Namespace())
			err = errors.Join(err, r.world.Remove(context.WithoutCancel(ctx)))
		}()
	}
	if err != nil {
		return err
	}
	r.fleet, err = nodes.New(server, list, nodes.Options{PerConnection: r.flags.perConnection, AtOnce: r.flags.atOnce})
	if err != nil {
		return err
	}
	r.report.Server, r.report.Agents, r.report.Identity = server.Host, len(list), r.flags.identity
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.fleet.Run(watching) }()
	err = r.measure(ctx)
	stop()
	<-done
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	return r.finish()
}

// isServedAt says whether there is anything to watch.
func isServedAt(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := client.Discovery().ServerResourcesForGroupVersion(nodes.GroupVersion.String()); err != nil {
		return fmt.Errorf("%s does not serve %s: %w", config.Host, nodes.GroupVersion, err)
	}
	return ctx.Err()
}

// makeNodes returns whom to watch as.
func (r *simNodesRun) makeNodes(ctx context.Context, config *rest.Config) ([]nodes.Node, error) {
	if len(r.flags.names) > 0 {
		r.flags.identity, r.flags.changes = "impersonate", 0
		namespace, name, _ := strings.Cut(r.flags.account, "/")
		return nodes.Impersonating(r.flags.names, namespace, name), nil
	}
	names := make([]string, r.flags.agents)
	for i := range names {
		names[i] = fmt.Sprintf("sim-node-%d", i)
	}
	var err error
	if r.world, err = nodes.MakeWorld(ctx, config, nodes.WorldOptions{Nodes: names, Reach: r.flags.reach, Progress: r.far}); err != nil {
		return nil, err
	}
	if r.flags.identity == "impersonate" {
		return r.world.Impersonating(), nil
	}
	return r.world.WithTokens(ctx)
}

// usage is what the server has used, if that can be told.
func (r *simNodesRun) usage(ctx context.Context) (u nodes.Usage, err error) {
	switch {
	case r.flags.pid > 0:
		return nodes.UsageOf(r.flags.pid)
	case r.flags.metrics != "":
		return nodes.UsageAt(ctx, r.flags.metrics)
	}
	return u, nil
}

func (r *simNodesRun) measure(ctx context.Context) error {
	before, err := r.usage(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	first, err := r.wait(ctx, 1)
	if err != nil {
		return err
	}
	counts := r.fleet.Counts()
	r.report.Initial = initialReport{gapOf(first), counts.Initial, counts.Bytes}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	after, err := r.usage(ctx)
	if err != nil {
		return err
	}
	r.report.Quiet = quietReport{r.fleet.Counts().Events - counts.Events, ms(r.flags.quiet)}
	r.report.ServerInitial = usedOf(before, after, len(nodes.Resources)*r.report.Agents)
	if r.flags.changes > 0 {
		if err := r.change(ctx); err != nil {
			return err
		}
		changed, err := r.usage(ctx)
		if err != nil {
			return err
		}
		r.report.Changes.ServerCPU = ms(changed.CPU-after.CPU) / float64(r.flags.changes)
	}
	if r.flags.reconnect {
		if err := r.cut(ctx); err != nil {
			return err
		}
	}
	if r.flags.hold > 0 {
		if err := r.watch(ctx); err != nil {
			return err
		}
	}
	if r.flags.check {
		r.report.Check = &checkReport{Agents: r.report.Agents}
		if r.report.Check.Wrong, err = r.fleet.Check(ctx, func(done int) { r.far("agents checked", done, r.report.Agents) }); err != nil {
			return err
		}
	}
	r.report.Took = time.Since(began).Seconds()
	return nil
}

// wait waits until all watches have all that there is, after the n-th gap began.
func (r *simNodesRun) wait(ctx context.Context, n int) (nodes.Gap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.flags.timeout, fmt.Errorf("--timeout %v", r.flags.timeout))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	type result struct {
		nodes.Gap
		err error
	}
	done := make(chan result, 1)
	go func() {
		g, err := r.fleet.WaitLive(ctx, n)
		done <- result{g, err}
	}()
	for {
		select {
		case x := <-done:
			if x.err == nil {
				live, of := r.fleet.Live()
				r.far("watches with all there is", live, of)
			}
			return x.Gap, x.err
		case <-tick.C:
			live, of := r.fleet.Live()
			r.far("watches with all there is", live, of)
		}
	}
}

func (r *simNodesRun) quiet(ctx context.Context) error {
	select {
	case <-time.After(r.flags.quiet):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes labels or policies, one after the other.
func (r *simNodesRun) change(ctx context.Context) error {
	flip := r.world.FlipPeer
	if r.flags.change == "policy" {
		flip = r.world.FlipPort
	}
	var each, last []time.Duration
	stride := max(1, r.report.Agents/r.flags.changes)
	for n := range r.flags.changes {
		at, err := func() ([]time.Duration, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, r.flags.timeout, fmt.Errorf("--timeout %v", r.flags.timeout))
			defer cancel()
			s, reach, err := flip(ctx, r.fleet, n*stride%r.report.Agents)
			if err != nil {
				return nil, err
			}
			if err := s.Wait(ctx, reach); err != nil {
				return nil, fmt.Errorf("change %d: %w", n+1, err)
			}
			return s.Seen(), nil
		}()
		if err != nil {
			return err
		}
		each, last = append(each, at...), append(last, at[len(at)-1])
		r.far("changes", n+1, r.flags.changes)
		select {
		case <-time.After(r.flags.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.report.Changes = &changesReport{What: r.flags.change, N: r.flags.changes, Told: len(each), Each: spreadOf(each), Last: spreadOf(last)}
	return nil
}

// cut has all agents begin anew.
func (r *simNodesRun) cut(ctx context.Context) error {
	before := r.fleet.Counts()
	g, err := r.wait(ctx, r.fleet.Cut())
	if err != nil {
		return err
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	after := r.fleet.Counts()
	r.report.Reconnect = &reconnectReport{
		gapReport: gapOf(g), Equal: after.Equal - before.Equal, Unequal: after.Unequal - before.Unequal, After: after.Events - before.Events,
	}
	return nil
}

// watch watches on for a while, and until all have all again.
func (r *simNodesRun) watch(ctx context.Context) error {
	before, gaps := r.fleet.Counts(), len(r.fleet.Gaps())
	end := time.After(r.flags.hold)
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	r.say("watching for %v", r.flags.hold)
	for waiting := true; waiting; {
		select {
		case <-end:
			waiting = false
		case <-tick.C:
			live, of := r.fleet.Live()
			r.say("%d of %d watches have all there is, %d events", live, of, r.fleet.Counts().Events-before.Events)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if _, err := r.wait(ctx, 1); err != nil {
		return err
	}
	after := r.fleet.Counts()
	r.report.Hold = &holdReport{
		Events: after.Events - before.Events, Lost: after.Lost - before.Lost, Equal: after.Equal - before.Equal, Unequal: after.Unequal - before.Unequal,
	}
	for _, g := range r.fleet.Gaps()[gaps:] {
		r.report.Hold.Gaps = append(r.report.Hold.Gaps, gapOf(g))
	}
	return nil
}

// finish prints the report, and says whether all was right.
func (r *simNodesRun) finish() error {
	in, out, connections := r.fleet.Wire()
	counts := r.fleet.Counts()
	r.report.Wire = wireReport{connections, in, out, counts.Lost, counts.Odd}
	r.report.Errors = r.fleet.Errors()
	r.report.Own = ownUsage()
	if err := r.report.print(r.out, r.flags.output); err != nil {
		return err
	}
	if counts.Odd > 0 || r.report.Check != nil && len(r.report.Check.Wrong) > 0 ||
		r.world != nil && r.report.Reconnect != nil && (r.report.Reconnect.After > 0 || r.report.Reconnect.Unequal > 0) {
		return exitStatus(2)
	}
	return nil
}
