package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/lint"
	"isobar.dev/policy/reach"
	"isobar.dev/source/manifest"
)

var (
	lintFormats    = []string{"table", "json", "yaml", "sarif", "markdown"}
	lintSeverities = []string{"error", "warning", "note"} // gravest first
	lintVias       = []string{"all", "aws", "azure", "nft"}
)

// statusFound is the exit status of lint --fail-on where something was found.
const statusFound exitStatus = 2

type lintFlags struct {
	worldFlags
	staged     stagedFlag
	via        []string
	only, skip []string
	failOn     string
	output     string
}

func lintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Find what is probably a mistake in policies: rules that decide nothing, selectors of nothing, contradictions",
		Long: `Lint finds what is probably a mistake in the policies of a world. What it says of flows is what
policies mean, over all pairs of workloads, all other addresses and all traffic: it is exact for this
world. With --via it also says what targets cannot enforce exactly.

Policies that are staged are not looked at: nothing enforces them. With --staged they are, as if they
were enforced, and so is what they make of the others.

The world is that of the cluster of the kubeconfig, which it reads as a whole, or with -f that of
manifests. It writes nothing.

With --fail-on the exit status says what was found:
  0  nothing as grave as that
  1  it cannot be said: an error
  2  something as grave as that, or graver

What it looks for:
` + checkList(),
		Example: `  isobar lint -f policies/
  isobar lint --skip dns-service-address --fail-on warning
  isobar lint -f world/ --via all --only refused-quota-exceeded,refused-names-need-dns
  isobar lint --staged=shop/closed
  isobar lint -f world/ -o sarif > isobar.sarif`,
		Args: cobra.ArbitraryArgs, // further paths: what a shell makes of -f new/*.yaml
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.files) == 0 {
				return fmt.Errorf("%s: manifests are read with -f", args[0])
			}
			f.files = append(f.files, args...)
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.add(cmd)
	f.staged.add(cmd, "as if these staged policies were enforced")
	flags.StringSliceVar(&f.via, "via", nil, "say what these targets cannot enforce, too: "+strings.Join(lintVias, ", "))
	flags.StringSliceVar(&f.only, "only", nil, "findings of these IDs alone")
	flags.StringSliceVar(&f.skip, "skip", nil, "no findings of these IDs")
	flags.StringVar(&f.failOn, "fail-on", "", "say by the exit status whether something as grave was found: "+strings.Join(lintSeverities, ", "))
	addFormats(cmd, &f.output, lintFormats...)
	for name, values := range map[string][]string{"via": lintVias, "only": checkIDs(), "skip": checkIDs(), "fail-on": lintSeverities} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func checkIDs() []string {
	var out []string
	for _, c := range lint.Checks {
		out = append(out, c.ID)
	}
	return out
}

func checkList() string {
	var b strings.Builder
	for _, c := range lint.Checks {
		fmt.Fprintf(&b, "  %-33s %-8s %s\n", c.ID, c.Severity, c.Title)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// has says whether list has name, or all.
func has(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, "all")
}

func (f *lintFlags) check() error {
	if err := checkFormat(f.output, lintFormats...); err != nil {
		return err
	}
	for _, x := range []struct {
		flag         string
		values, want []string
	}{{"--via", f.via, lintVias}, {"--only", f.only, checkIDs()}, {"--skip", f.skip, checkIDs()}, {"--fail-on", strings.Fields(f.failOn), lintSeverities}} {
		for _, v := range x.values {
			if !slices.Contains(x.want, v) {
				return fmt.Errorf("%s %s: want %s", x.flag, v, strings.Join(x.want, ", "))
			}
		}
	}
	return nil
}

func (f *lintFlags) run(ctx context.Context, in io.Reader, out, errOut io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	world, err := f.world(ctx, in, errOut)
	if err != nil {
		return err
	}
	report, err := lint.Run(world.Snapshot)
	if err != nil {
		return err
	}
	report.Unchecked = append(report.Unchecked, unenforced(world.Snapshot)...)
	if len(f.via) > 0 {
		refused, unchecked := refusals(world.Snapshot, f.via)
		report.Findings = append(report.Findings, lint.Refused(refused)...)
		report.Unchecked = append(report.Unchecked, unchecked...)
		lint.Sort(report.Findings)
	}
	report.Findings = slices.DeleteFunc(report.Findings, func(x lint.Finding) bool {
		return len(f.only) > 0 && !slices.Contains(f.only, x.ID) || slices.Contains(f.skip, x.ID)
	})
	a := linted(world, report)
	switch f.output {
	case "json", "yaml":
		err = writeObject(out, f.output, a)
	case "sarif":
		err = writeObject(out, "json", sarifOf(a))
	case "markdown":
		err = a.markdown(out)
	default:
		err = a.table(out)
	}
	if err != nil {
		return err
	}
	if i := slices.Index(lintSeverities, f.failOn); i >= 0 && slices.ContainsFunc(a.Findings, func(x lintFinding) bool { return slices.Index(lintSeverities, x.Severity) <= i }) {
		return statusFound
	}
	return nil
}

// world returns the world, and where it is written if it is manifests.
func (f *lintFlags) world(ctx context.Context, in io.Reader, errOut io.Writer) (world manifest.World, err error) {
	if len(f.files) > 0 {
		world, err = f.written(f.files, in)
	} else {
		world.Snapshot, err = f.live(ctx, errOut)
	}
	if err == nil {
		world.Snapshot, err = f.staged.apply(world.Snapshot)
	}
	if err != nil {
		return world, err
	}
	for _, w := range world.Warnings {
		if !looksAt(world.Snapshot, w.Lacking) { // else it is a finding
			fmt.Fprintln(errOut, "warning:", w)
		}
	}
	return world, nil
}

// looksAt says whether id is a policy or a group that lint looks at.
func looksAt(s policy.Snapshot, id string) bool {
	_, isPolicy := s.Policies.Get(id)
	_, isGroup := s.Groups.Get(id)
	return isPolicy || isGroup
}

// unenforced names the policies that are still staged.
func unenforced(s policy.Snapshot) []string {
	var ids []string
	for id := range s.Staged.All() {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("what is staged, which --staged takes as if it were enforced: %s", brief(ids))}
}

// lintAnswer is the answer, as -o json has it.
type lintAnswer struct {
	Findings  []lintFinding  `json:"findings"`
	Totals    map[string]int `json:"totals"`              // by severity
	Unchecked []string       `json:"unchecked,omitempty"` // what could not be looked at
}

type lintFinding struct {
	ID        string       `json:"id"`
	Severity  string       `json:"severity"`
	Object    string       `json:"object"` // ID of a policy, or of a group
	Rule      *lintRule    `json:"rule,omitempty"`
	Field     string       `json:"field,omitempty"`
	File      string       `json:"file,omitempty"`
	Line      int          `json:"line,omitempty"`
	Message   string       `json:"message"`
	Fix       string       `json:"fix"`
	Others    []lintRule   `json:"others,omitempty"` // that it is about besides
	Workloads []string     `json:"workloads,omitempty"`
	Targets   []string     `json:"targets,omitempty"` // that refuse
	Witness   *lintWitness `json:"witness,omitempty"`
	// Removable, of a rule that decides nothing: no verdict changes when it alone is deleted.
	Removable *bool `json:"removable,omitempty"`
}

type lintRule struct {
	Policy    string `json:"policy"`
	Rule      string `json:"rule"` // its name, or its place; "isolation"
	Direction string `json:"direction"`
	Index     int    `json:"index"` // -1 of the isolation
}

// lintWitness is a flow that shows it.
type lintWitness struct {
	From      string           `json:"from"`
	To        string           `json:"to"`
	Traffic   string           `json:"traffic"`
	Verdict   string           `json:"verdict"`
	Direction string           `json:"direction"` // of the end that it is about
	Egress    verdict.Decision `json:"egress"`
	Ingress   verdict.Decision `json:"ingress"`
}

// decision is that at the end that it is about.
func (w lintWitness) decision() verdict.Decision {
	if w.Direction == policy.Egress.String() {
		return w.Egress
	}
	return w.Ingress
}

func (w lintWitness) String() string {
	return fmt.Sprintf("%s → %s %s: %s", w.From, w.To, w.Traffic, decisionText(w.decision()))
}

func linted(world manifest.World, report lint.Report) lintAnswer {
	s := world.Snapshot
	places := placesOf(world.Objects)
	var lines manifest.Lines
	a := lintAnswer{Findings: []lintFinding{}, Totals: map[string]int{}, Unchecked: report.Unchecked}
	for _, name := range lintSeverities {
		a.Totals[name] = 0
	}
	ruleOf := func(r reach.Rule) lintRule {
		return lintRule{r.Policy, lint.RuleName(s, r), r.Direction.String(), r.Index}
	}
	for _, f := range report.Findings {
		out := lintFinding{ID: f.ID, Severity: f.Severity.String(), Object: f.Object, Field: f.Field, Message: f.Message, Fix: f.Fix, Targets: f.Targets}
		if o, ok := places[f.Object]; ok {
			out.File, out.Line = o.File, lines.Of(o, f.Field)
		}
		if f.Rule != nil {
			out.Rule = new(ruleOf(*f.Rule))
		}
		for _, r := range f.Others {
			out.Others = append(out.Others, ruleOf(r))
		}
		for _, id := range f.Workloads {
			out.Workloads = append(out.Workloads, verdict.EndOfID(id))
		}
		if w := f.Witness; w != nil {
			out.Witness = &lintWitness{endName(w.Flow.From), endName(w.Flow.To), reach.Say(w.Flow), w.Verdict.Action.String(), w.Direction.String(),
				verdict.DecisionOf(w.Verdict.Egress, policy.Egress), verdict.DecisionOf(w.Verdict.Ingress, policy.Ingress)}
		}
		if slices.Contains([]string{"shadowed", "unreachable", "contradicted"}, f.ID) {
			out.Removable = new(f.IsRemovable)
		}
		a.Findings = append(a.Findings, out)
		a.Totals[out.Severity]++
	}
	return a
}

func endName(e policy.Endpoint) string {
	if e.Workload == "" {
		return e.Addr.String()
	}
	return verdict.EndOfID(e.Workload)
}

// dialects are the IDs of policies by apiVersion and kind.
var dialects = map[string]policy.Dialect{
	"networking.k8s.io/v1 NetworkPolicy":                           policy.KubernetesNetworkPolicy,
	"crd.antrea.io/v1beta1 NetworkPolicy":                          policy.AntreaNetworkPolicy,
	"crd.antrea.io/v1beta1 ClusterNetworkPolicy":                   policy.AntreaClusterNetworkPolicy,
	"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy":       policy.ClusterNetworkPolicy,
	"policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy":         policy.AdminNetworkPolicy,
	"policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy": policy.BaselineAdminNetworkPolicy,
}

// placesOf returns the objects that policies and groups are written as, by their IDs.
func placesOf(objects []manifest.Object) map[string]manifest.Object {
	out := map[string]manifest.Object{}
	for _, o := range objects {
		switch d, ok := dialects[o.APIVersion+" "+o.Kind]; {
		case ok:
			out[policy.PolicyID(d, o.Namespace, o.Name)] = o
		case o.Kind == "Group" || o.Kind == "ClusterGroup":
			out[policy.GroupID(o.Namespace, o.Name)] = o
		}
	}
	return out
}
