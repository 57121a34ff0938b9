package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"isobar.dev/policy"
)

type explainFlags struct {
	worldFlags
	toName     string
	sourcePort uint16
	all        bool
	output     string
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain FROM TO PROTO/PORT",
		Short: "Say why a flow passes or not: every rule, in order, and what became of it",
		Long: `Explain says what happens to one flow at both of its ends, and why: the rules that apply there in
the order in which they are asked, which one decided, and of each other one why it did not match. It
also says what would decide if that one were deleted.

The world is that of the cluster of the kubeconfig, which it reads as a whole, or with -f that of
manifests. It writes nothing.

FROM and TO are namespace/pod, node:name, vm:namespace/name, ee:namespace/name or an IP address.
The traffic is PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE.

The exit status is 0 when there is an answer, whatever it is.`,
		Example: `  isobar explain shop/web shop/db TCP/5432
  isobar explain shop/web 203.0.113.9 TCP/443 --to-name ads.tracker.example
  isobar explain -f world/ vm:prod/i-1 node:n1 ICMP/8 --all
  isobar explain -f world.yaml shop/web shop/db TCP/22 -o json`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return f.completeEnds(prefix)
		},
	}
	flags := cmd.Flags()
	f.add(cmd)
	flags.StringVar(&f.toName, "to-name", "", "DNS name by which FROM found TO")
	flags.Uint16Var(&f.sourcePort, "source-port", 0, "source port; without it the strictest answer over all")
	flags.BoolVar(&f.all, "all", false, "list the rules that apply to others, too")
	addFormats(cmd, &f.output, "table", "json")
	return cmd
}

// addFormats adds -o, whose default is the first format.
func addFormats(cmd *cobra.Command, output *string, formats ...string) {
	cmd.Flags().StringVarP(output, "output", "o", formats[0], strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(output string, formats ...string) error {
	if !slices.Contains(formats, output) {
		return fmt.Errorf("-o %s: want %s", output, strings.Join(formats, ", "))
	}
	return nil
}

func (f *explainFlags) run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, "table", "json"); err != nil {
		return err
	}
	ask := flowLine{From: args[0], To: args[1], ToName: f.toName}
	if err := ask.parseTraffic(args[2]); err != nil {
		return err
	}
	flow, err := ask.flow()
	if err != nil {
		return err
	}
	flow.SourcePort = f.sourcePort
	s, err := f.read(ctx, in, errOut)
	if err != nil {
		return err
	}
	x, err := policy.Explain(s, flow)
	if err != nil {
		return err
	}
	e := explained{From: endOf(ask.From, x.From), To: endOf(ask.To, x.To), Traffic: ask.traffic(), ToName: f.toName, Verdict: x.Verdict.Action.String(), Needs: x.Verdict.Needs}
	if e.Egress, err = f.walk(s, flow, policy.Egress, x.From, x.Egress); err != nil {
		return err
	}
	if e.Ingress, err = f.walk(s, flow, policy.Ingress, x.To, x.Ingress); err != nil {
		return err
	}
	if f.output == "json" {
		return writeObject(out, "json", e)
	}
	return e.print(out)
}

// explained is the answer, as -o json has it.
type explained struct {
	From    explainedEnd  `json:"from"`
	To      explainedEnd  `json:"to"`
	Traffic string        `json:"traffic"`
	ToName  string        `json:"toName,omitempty"`
	Verdict string        `json:"verdict"`
	Needs   []policy.Need `json:"needs,omitempty"`
	Egress  explainedWalk `json:"egress"`
	Ingress explainedWalk `json:"ingress"`
}

type explainedEnd struct {
	Asked    string `json:"asked"`
	Workload string `json:"workload,omitempty"` // who is there
	Address  string `json:"address"`
	// Peers are whom rules find at the address.
	Peers []string `json:"peers,omitempty"`
}

type explainedWalk struct {
	decisionLine
	Needs      []policy.Need `json:"needs,omitempty"`
	Subject    string        `json:"subject,omitempty"`    // whose policies apply
	SourcePort uint16        `json:"sourcePort,omitempty"` // that the answer is about, where it depends on it
	Steps      []step        `json:"steps"`
	// Without is what would decide if that which did were deleted.
	Without *decisionLine `json:"without,omitempty"`
	Others  int           `json:"others"`           // rules that have no say here
	Listed  []step        `json:"listed,omitempty"` // those, with --all
}

// step is one rule on the way.
type step struct {
	Policy    string      `json:"policy"` // ID
	Rule      string      `json:"rule"`   // its name, or its place; "isolation"
	Direction string      `json:"direction"`
	Tier      string      `json:"tier"`
	Number    int32       `json:"tierNumber"`
	Priority  float64     `json:"priority"`
	Action    string      `json:"action"`
	Outcome   string      `json:"outcome"`
	Why       string      `json:"why,omitempty"`   // what does not match
	Wants     []string    `json:"wants,omitempty"` // what would
	Needs     policy.Need `json:"needs,omitempty"` // what it depends on whether it matches
}

func endOf(asked string, e policy.End) explainedEnd {
	out := explainedEnd{Asked: asked, Address: e.Addr.String()}
	if e.Owner != nil {
		out.Workload = e.Owner.ID
	}
	for _, p := range e.Peers {
		out.Peers = append(out.Peers, p.ID)
	}
	return out
}

func (f *explainFlags) walk(s policy.Snapshot, flow policy.Flow, d policy.Direction, near policy.End, w policy.Walk) (explainedWalk, error) {
	out := explainedWalk{decisionLine: line(w.Decision, d), Needs: w.Decision.Needs, Steps: stepsOf(w.Steps), Others: len(w.Elsewhere)}
	if near.Subject != nil {
		out.Subject = near.Subject.ID
	}
	if slices.Contains(w.Decision.Needs, policy.NeedSource) {
		out.SourcePort = w.SourcePort
	}
	if f.all {
		out.Listed = stepsOf(w.Elsewhere)
	}
	if w.Decision.Reason != policy.ByRule && w.Decision.Reason != policy.ByIsolation {
		return out, nil
	}
	v, err := policy.Evaluate(s.Without(w.Decision, d), flow)
	if err != nil {
		return out, err
	}
	next := v.Ingress
	if d == policy.Egress {
		next = v.Egress
	}
	if next.Reason == policy.ByRule && next.Policy == w.Decision.Policy && next.Index >= w.Decision.Index {
		next.Index++ // its place as it is now
	}
	without := line(next, d)
	out.Without = &without
	return out, nil
}

func stepsOf(steps []policy.Step) []step {
	out := make([]step, len(steps))
	for i, st := range steps {
		out[i] = step{
			Policy: st.Policy.ID, Rule: ruleName(st), Direction: st.Direction.String(), Tier: st.Policy.Tier, Number: st.Tier, Priority: st.Policy.Priority,
			Action: st.Action.String(), Outcome: st.Outcome.String(), Why: st.Why.String(), Wants: wants(st), Needs: st.Need,
		}
	}
	return out
}

func ruleName(st policy.Step) string {
	switch {
	case st.Rule == nil:
		return "isolation"
	case st.Rule.Name != "":
		return st.Rule.Name
	}
	return fmt.Sprintf("%v[%d]", st.Direction, st.Index)
}

// wants says what a rule that does not match would match.
func wants(st policy.Step) []string {
	var out []string
	switch st.Why {
	case policy.MissProtocol, policy.MissPort, policy.MissPortName, policy.MissSourcePort:
		for _, t := range st.Rule.Traffic {
			out = append(out, t.String())
		}
	case policy.MissPeer, policy.MissName:
		p := st.Rule.Peers
		for _, sel := range p.Set.Selections {
			out = append(out, sel.String())
		}
		out = append(out, p.Set.Groups...)
		for _, b := range p.Blocks {
			out = append(out, b.String())
		}
		for _, id := range p.Services {
			out = append(out, "service/"+id)
		}
		for _, n := range p.Names {
			out = append(out, "name "+n)
		}
	case policy.MissAppliedTo:
		set := st.Policy.Applied(st.Rule)
		for _, sel := range set.Selections {
			out = append(out, sel.String())
		}
		out = append(out, set.Groups...)
	}
	return out
}

// print writes the answer for people.
func (e explained) print(out io.Writer) error {
	needs := ""
	if len(e.Needs) > 0 {
		needs = fmt.Sprintf(" (unknown: %s; this is the strictest answer)", joined(e.Needs))
	}
	name := ""
	if e.ToName != "" {
		name = " by the name " + printable(e.ToName)
	}
	fmt.Fprintf(out, "%s → %s %s%s: %s%s\n", e.From, e.To, e.Traffic, name, e.Verdict, needs)
	for _, x := range []struct {
		name string
		end  explainedEnd
		walk explainedWalk
	}{{"Egress", e.From, e.Egress}, {"Ingress", e.To, e.Ingress}} {
		if err := x.walk.print(out, x.name, x.end); err != nil {
			return err
		}
	}
	return nil
}

func (e explainedEnd) String() string {
	if e.Asked == e.Address && e.Workload == "" {
		return e.Asked
	}
	if e.Asked == e.Address {
		return fmt.Sprintf("%s (%s)", e.Asked, e.Workload)
	}
	return fmt.Sprintf("%s (%s)", e.Asked, e.Address)
}

func (w explainedWalk) print(out io.Writer, name string, end explainedEnd) error {
	fmt.Fprintf(out, "\n%s at %s: %s\n", name, end.Asked, w.decisionLine)
	if w.Subject != "" && w.Subject != end.Workload {
		fmt.Fprintf(out, "  it is on the network of %s, whose policies apply\n", w.Subject)
	}
	if w.SourcePort != 0 {
		fmt.Fprintf(out, "  the source port is not told: this is the answer for %d, the strictest\n", w.SourcePort)
	}
	if len(w.Ties) > 0 {
		fmt.Fprintf(out, "  a tie: %s would decide otherwise, with the same place in the order; the stricter action wins\n", strings.Join(w.Ties, ", "))
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, st := range w.Steps {
		st.print(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if w.Without != nil {
		fmt.Fprintf(out, "  Without it: %s\n", *w.Without)
	}
	if w.Subject == "" || len(w.Listed) == 0 {
		if w.Others > 0 {
			fmt.Fprintf(out, "  %d other rules have no say here (--all lists them)\n", w.Others)
		}
		return nil
	}
	fmt.Fprintln(out, "  No say here:")
	for _, st := range w.Listed {
		st.print(t)
	}
	return t.Flush()
}

// String says what decided.
func (d decisionLine) String() string {
	switch d.Reason {
	case policy.ByRule.String():
		return fmt.Sprintf("%s by %s %s", d.Verdict, d.id(), printable(d.Rule))
	case policy.ByIsolation.String():
		return fmt.Sprintf("%s by %s isolation", d.Verdict, d.id())
	}
	return d.Verdict + " (" + d.Reason + ")"
}

// id returns the ID of the policy.
func (d decisionLine) id() string {
	if d.Namespace == "" {
		return d.Kind + "/" + d.Policy
	}
	return d.Kind + "/" + d.Namespace + "/" + d.Policy
}

func (st step) print(out io.Writer) {
	place := fmt.Sprintf("%d %s", st.Number, printable(st.Tier))
	what := st.Outcome
	if st.Why != "" {
		what += ": " + st.Why
	}
	if len(st.Wants) > 0 {
		wants := make([]string, len(st.Wants))
		for i, w := range st.Wants {
			wants[i] = printable(w)
		}
		what += ": it is of " + strings.Join(wants, ", ")
	}
	if st.Needs != "" {
		what += fmt.Sprintf(" (unknown: %s)", st.Needs)
	}
	fmt.Fprintf(out, "  %s\t%s\t%s %s\t%s\t%s\n", place, strconv.FormatFloat(st.Priority, 'g', -1, 64), st.Policy, printable(st.Rule), st.Action, what)
}

func joined(needs []policy.Need) string {
	out := make([]string, len(needs))
	for i, n := range needs {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

// printable returns s as it may go to a terminal or into a line of text: what moves a
// cursor, breaks a line or turns its direction is escaped.
func printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
