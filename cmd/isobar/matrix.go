package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

var matrixFormats = []string{"table", "json", "yaml", "markdown", "dot", "mermaid", "svg"}

type matrixFlags struct {
	worldFlags
	by     string
	ports  []string
	with   []string
	staged stagedFlag
	output string
}

func matrixCommand() *cobra.Command {
	var f matrixFlags
	cmd := &cobra.Command{
		Use:   "matrix --port PROTO/PORT...",
		Short: "Show who reaches whom, group by group",
		Long: `Matrix counts, for each two groups of workloads, how many pairs of a workload of one and another of
the other may use all of the ports, none, or some. The counts are of single pairs, and exact. -o json
also says which rules decide, and names a pair for each.

The world is that of the cluster of the kubeconfig, which it reads as a whole, or with -f that of
manifests. It writes nothing.

Groups are by namespace (Nodes are one group), by the value of a label (label=KEY), or each workload
is one. --with adds an address that no workload has, such as one on the Internet, as a group.

The exit status is 0 when there is an answer, whatever it is.`,
		Example: `  isobar matrix --port TCP/443
  isobar matrix -f world/ --by label=app --port TCP/80 --port UDP/53 --with 198.51.100.7
  isobar matrix -f world/ --port TCP/5432 -o svg > reach.svg
  isobar matrix -f world/ --by workload --port TCP/22 -o json`,
		Args: cobra.ArbitraryArgs, // further paths: what a shell makes of -f world/*.yaml
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.files) == 0 {
				return fmt.Errorf("%q: paths follow -f", args[0])
			}
			f.files = append(f.files, args...)
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.add(cmd)
	flags.StringVar(&f.by, "by", "namespace", "what groups are by: namespace, label=KEY or workload")
	flags.StringArrayVar(&f.ports, "port", nil, "PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE; may be repeated")
	flags.StringArrayVar(&f.with, "with", nil, "address of nobody, as a group of its own; may be repeated")
	f.staged.add(cmd, "as if staged policies were enforced")
	addFormats(cmd, &f.output, matrixFormats...)
	_ = cmd.MarkFlagRequired("port")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"namespace", "label=", "workload"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func (f *matrixFlags) run(ctx context.Context, in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, matrixFormats...); err != nil {
		return err
	}
	group, err := groupBy(f.by)
	if err != nil {
		return err
	}
	m := matrix{By: f.by}
	var flows []policy.Flow
	for _, p := range f.ports {
		flow, name, err := parsePort(p)
		if err != nil {
			return fmt.Errorf("--port: %w", err)
		}
		flows, m.Ports = append(flows, flow), append(m.Ports, name)
	}
	var addrs []netip.Addr
	for _, text := range f.with {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return fmt.Errorf("--with %q: want an IP address", text)
		}
		addrs = append(addrs, a)
	}
	s, err := f.read(ctx, in, errOut)
	if err == nil {
		s, err = f.staged.apply(s)
	}
	if err != nil {
		return err
	}
	w, err := reach.New(s, addrs...)
	if err != nil {
		return fmt.Errorf("--with: %w", err)
	}
	if err := m.fill(ctx, w, group, flows); err != nil {
		return err
	}
	if isObject(f.output) {
		return writeObject(out, f.output, m)
	}
	return m.print(out, f.output)
}

// parsePort parses what --port takes.
func parsePort(s string) (policy.Flow, string, error) {
	ask := flowLine{From: "0.0.0.0", To: "0.0.0.0"} // which do not count
	if err := ask.ParseTraffic(s); err != nil {
		return policy.Flow{}, "", err
	}
	flow, err := ask.Flow()
	return flow, ask.Traffic(), err
}

// groupBy returns the group of an end, by what --by says.
func groupBy(by string) (func(reach.End) string, error) {
	key, isLabel := strings.CutPrefix(by, "label=")
	if by != "namespace" && by != "workload" && (!isLabel || key == "") {
		return nil, fmt.Errorf("--by %q: want namespace, label=KEY or workload", by)
	}
	return func(e reach.End) string {
		switch {
		case e.Workload == nil:
			return e.Name
		case isLabel:
			v, has := e.Workload.Labels.Value(key)
			if !has {
				return "(without " + key + ")"
			}
			return key + "=" + v
		case by == "workload":
			return verdict.EndOf(e.Workload)
		case e.Workload.Kind == policy.KindNode:
			return "(nodes)"
		}
		return e.Workload.Namespace
	}, nil
}

// matrix is the answer, as -o json has it.
type matrix struct {
	By     string        `json:"by"`
	Ports  []string      `json:"ports"`
	Groups []matrixGroup `json:"groups"`
	Cells  []matrixCell  `json:"cells"` // row by row
	// Without are the workloads that no flow can have.
	Without []string `json:"without,omitempty"`
}

type matrixGroup struct {
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
}

type matrixCell struct {
	From    string       `json:"from"`
	To      string       `json:"to"`
	Pairs   int          `json:"pairs"`
	Apart   int          `json:"apart,omitempty"` // pairs without a common address family
	Allowed int          `json:"allowed"`
	Denied  int          `json:"denied"`
	Partial int          `json:"partial"`
	Asked   []matrixPort `json:"asked,omitempty"`
}

type matrixPort struct {
	Port    string     `json:"port"`
	Allowed int        `json:"allowed"`
	Denied  int        `json:"denied"`
	Depends int        `json:"depends,omitempty"` // of the denied: on what is not known
	By      []matrixBy `json:"by"`
}

// matrixBy is what decides for some pairs, of which it names one.
type matrixBy struct {
	verdict.Answer
	Pairs int    `json:"pairs"`
	From  string `json:"from"`
	To    string `json:"to"`
}

func (m *matrix) fill(ctx context.Context, w *reach.World, group func(reach.End) string, flows []policy.Flow) error {
	names := map[string]string{}
	for _, e := range w.Ends {
		names[e.Name] = e.Name
		if e.Workload != nil {
			names[e.Name] = verdict.EndOf(e.Workload)
		}
	}
	m.Without = w.Without
	in, err := w.Matrix(group, flows, reach.Options{Stop: ctx.Err})
	if err != nil {
		return err
	}
	for _, g := range in.Groups {
		m.Groups = append(m.Groups, matrixGroup{g.Name, g.Ends})
	}
	for i, row := range in.Cells {
		for k, c := range row {
			cell := matrixCell{From: in.Groups[i].Name, To: in.Groups[k].Name, Pairs: c.Pairs, Apart: c.Apart, Allowed: c.Allowed, Denied: c.Denied, Partial: c.Partial}
			for n, a := range c.Asked {
				p := matrixPort{Port: m.Ports[n], Allowed: a.Allowed, Denied: a.Denied, Depends: a.Depends, By: []matrixBy{}}
				for _, by := range a.By {
					v := by.Verdict
					p.By = append(p.By, matrixBy{verdict.AnswerOf(v), by.Pairs, names[by.From], names[by.To]})
				}
				cell.Asked = append(cell.Asked, p)
			}
			m.Cells = append(m.Cells, cell)
		}
	}
	return nil
}

// depends says whether another answer is possible for any pair.
func (c matrixCell) depends() bool {
	for _, a := range c.Asked {
		if a.Depends > 0 {
			return true
		}
	}
	return false
}

// text is the cell in a few characters.
func (c matrixCell) text() string {
	s := "X"
	switch {
	case c.Pairs == 0:
		return "-"
	case c.Allowed == c.Pairs:
		s = "."
	case c.Denied == c.Pairs:
	case c.Partial == 0:
		s = fmt.Sprintf("%d/%d", c.Allowed, c.Pairs)
	default:
		s = fmt.Sprintf("%d+%d/%d", c.Allowed, c.Partial, c.Pairs)
	}
	if c.depends() {
		s += "?"
	}
	return s
}

// legend says what the texts of cells mean.
func (m matrix) legend() string {
	s := strings.Join(m.Ports, ", ") + ": . allowed, X denied, 3/4 allowed for 3 of 4 pairs, - no pairs"
	for _, c := range m.Cells {
		if c.Partial > 0 {
			s += ", 3+1/4 and for 1 in part"
			break
		}
	}
	for _, c := range m.Cells {
		if c.depends() {
			s += ", ? depends on more: isobar explain tells"
			break
		}
	}
	return s
}
