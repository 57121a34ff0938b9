package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
)

var explainFormats = []string{"table", "json", "yaml"}

type explainFlags struct {
	worldFlags
	toName     string
	sourcePort uint16
	all        bool
	staged     stagedFlag
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

Staged policies have no say. Where they would make the verdict another one, a line tells which and
what it would be; --staged explains that.

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
	f.staged.add(cmd, "as if staged policies were enforced")
	addFormats(cmd, &f.output, explainFormats...)
	return cmd
}

func (f *explainFlags) run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, explainFormats...); err != nil {
		return err
	}
	ask := flowLine{From: args[0], To: args[1], ToName: f.toName}
	if err := ask.ParseTraffic(args[2]); err != nil {
		return err
	}
	port := int32(f.sourcePort)
	ask.SourcePort = &port
	if _, err := ask.Flow(); err != nil {
		return err // before anything is read
	}
	s, err := f.read(ctx, in, errOut)
	if err == nil {
		s, err = f.staged.apply(s)
	}
	if err != nil {
		return err
	}
	e, err := verdict.Explain(s, ask, f.all)
	if err != nil {
		return err
	}
	if isObject(f.output) {
		return writeObject(out, f.output, e)
	}
	return printExplained(out, e)
}

// printExplained writes the answer for people.
func printExplained(out io.Writer, e verdict.Explained) error {
	needs := ""
	if len(e.Needs) > 0 {
		needs = fmt.Sprintf(" (unknown: %s; this is the strictest answer)", joined(e.Needs))
	}
	name := ""
	if e.ToName != "" {
		name = " by the name " + printable(e.ToName)
	}
	fmt.Fprintf(out, "%s → %s %s%s: %s%s\n", endText(e.From), endText(e.To), e.Traffic, name, e.Verdict, needs)
	if e.Staged != nil {
		what := "policy"
		if len(e.Staged.By) > 1 {
			what = "policies"
		}
		fmt.Fprintf(out, "With the staged %s %s: %s\n", what, strings.Join(e.Staged.By, ", "), e.Staged.Verdict)
	}
	for _, x := range []struct {
		name string
		end  verdict.End
		walk verdict.Walk
	}{{"Egress", e.From, e.Egress}, {"Ingress", e.To, e.Ingress}} {
		if err := printWalk(out, x.name, x.end, x.walk); err != nil {
			return err
		}
	}
	return nil
}

func endText(e verdict.End) string {
	if e.Asked == e.Address && e.Workload == "" {
		return e.Asked
	}
	if e.Asked == e.Address {
		return fmt.Sprintf("%s (%s)", e.Asked, e.Workload)
	}
	return fmt.Sprintf("%s (%s)", e.Asked, e.Address)
}

func printWalk(out io.Writer, name string, end verdict.End, w verdict.Walk) error {
	fmt.Fprintf(out, "\n%s at %s: %s\n", name, end.Asked, decisionText(w.Decision))
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
		printStep(t, st)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if w.Without != nil {
		fmt.Fprintf(out, "  Without it: %s\n", decisionText(*w.Without))
	}
	if w.Subject == "" || len(w.Listed) == 0 {
		if w.Others > 0 {
			fmt.Fprintf(out, "  %d other rules have no say here (--all lists them)\n", w.Others)
		}
		return nil
	}
	fmt.Fprintln(out, "  No say here:")
	for _, st := range w.Listed {
		printStep(t, st)
	}
	return t.Flush()
}

// decisionText says what decided.
func decisionText(d verdict.Decision) string {
	switch d.Reason {
	case policy.ByRule.String():
		return fmt.Sprintf("%s by %s %s", d.Verdict, d.PolicyID(), printable(d.Rule))
	case policy.ByIsolation.String():
		return fmt.Sprintf("%s by %s isolation", d.Verdict, d.PolicyID())
	}
	return d.Verdict + " (" + d.Reason + ")"
}

func printStep(out io.Writer, st verdict.Step) {
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
