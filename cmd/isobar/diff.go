package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
	"isobar.dev/source/kube"
	"isobar.dev/source/manifest"
)

var (
	diffFormats = []string{"table", "json", "yaml", "markdown"}
	diffFailOn  = []string{"gained", "lost"}
)

// statusDiffers is the exit status of diff --exit-code where access differs.
const statusDiffers exitStatus = 2

type diffFlags struct {
	worldFlags
	against  []string
	common   []string
	staged   stagedFlag
	exitCode bool
	failOn   []string
	output   string
}

func diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff (-f PATH... [--against PATH...] | --staged)",
		Short: "Show which access a change of manifests gives and takes",
		Long: `Diff says who may reach whom by what after a change and could not before, and the other way: for
each pair of workloads, and of workloads and other addresses, all ports and protocols. It compares what
manifests mean, not how they are written; so labels, namespaces, groups and workloads that change count
as much as policies do, and a policy that is written otherwise and means the same is no difference.

With --against both sides are whole worlds of manifests, and what is in one alone is added or removed;
--common is read as a part of both. Without it, the manifests are laid over the cluster of the
kubeconfig as if they were written there, and nothing is removed. It writes nothing.

With --staged both sides are one world, of the cluster or, with -f, of manifests: as it is, and as if
its staged policies, or with --staged=NAME one of them, were enforced.

With --exit-code, or --fail-on, the exit status says what was found:
  0  no difference, or none of --fail-on
  1  it cannot be said: an error
  2  access differs`,
		Example: `  isobar diff -f policies/
  isobar diff -f new/ --against old/ --common cluster.yaml
  isobar diff --staged=annp/shop/db
  isobar diff -f new/ --against old/ --fail-on gained -o markdown >> $GITHUB_STEP_SUMMARY`,
		Args: cobra.ArbitraryArgs, // further paths: what a shell makes of -f new/*.yaml
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
	flags.Lookup("filename").Usage = "file, folder or - with the manifests as they will be; may be repeated"
	flags.StringArrayVar(&f.against, "against", nil, "file, folder or - with the manifests as they are; may be repeated (default: the cluster)")
	flags.StringArrayVar(&f.common, "common", nil, "with --against: manifests of both sides; may be repeated")
	flags.BoolVar(&f.exitCode, "exit-code", false, "say by the exit status whether access differs")
	flags.StringSliceVar(&f.failOn, "fail-on", nil, "say by the exit status whether access is "+strings.Join(diffFailOn, " or "))
	addFormats(cmd, &f.output, diffFormats...)
	f.staged.add(cmd, "compare what is with what would be if staged policies were enforced")
	cmd.MarkFlagsOneRequired("filename", "staged")
	cmd.MarkFlagsMutuallyExclusive("against", "staged")
	cmd.MarkFlagsMutuallyExclusive("common", "staged")
	_ = cmd.MarkFlagFilename("against", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("common", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(diffFailOn, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *diffFlags) run(ctx context.Context, in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, diffFormats...); err != nil {
		return err
	}
	for _, x := range f.failOn {
		if !slices.Contains(diffFailOn, x) {
			return fmt.Errorf("--fail-on %s: want %s", x, strings.Join(diffFailOn, " or "))
		}
	}
	before, after, err := f.worlds(ctx, in, errOut)
	if err != nil {
		return err
	}
	changes, err := reach.Diff(before, after)
	if err != nil {
		return err
	}
	d := diffAnswer(verdict.DiffOf(changes))
	switch f.output {
	case "json", "yaml":
		err = writeObject(out, f.output, d)
	case "markdown":
		err = d.markdown(out)
	default:
		err = d.table(out)
	}
	if err != nil {
		return err
	}
	return f.status(d.Totals)
}

// status is the exit status that was asked for.
func (f *diffFlags) status(t verdict.Totals) error {
	any := f.exitCode && t.Gained+t.Lost+t.Changed > 0
	if any && len(f.failOn) == 0 || slices.Contains(f.failOn, "gained") && t.Gained > 0 || slices.Contains(f.failOn, "lost") && t.Lost > 0 {
		return statusDiffers
	}
	return nil
}

// worlds returns both sides.
func (f *diffFlags) worlds(ctx context.Context, in io.Reader, errOut io.Writer) (before, after policy.Snapshot, err error) {
	if f.staged.isSet() {
		if before, err = f.read(ctx, in, errOut); err == nil {
			after, err = f.staged.apply(before)
		}
		return before, after, err
	}
	if len(f.against) == 0 {
		if len(f.common) > 0 {
			return before, after, errors.New("--common needs --against")
		}
		if before, err = f.live(ctx, errOut); err == nil {
			after, err = f.lay(before, in, errOut)
		}
		return before, after, err
	}
	stdin := 0
	for _, p := range slices.Concat(f.files, f.against, f.common) {
		if p == "-" {
			stdin++
		}
	}
	if stdin > 1 || slices.Contains(f.common, "-") {
		return before, after, errors.New("only one side can read the standard input")
	}
	if before, err = f.manifests(slices.Concat(f.common, f.against), in, errOut); err != nil {
		return before, after, fmt.Errorf("--against: %w", err)
	}
	after, err = f.manifests(slices.Concat(f.common, f.files), in, errOut)
	return before, after, err
}

// lay returns the world as it would be if the manifests were written. What of them cannot
// be taken is an error: the difference would be that of something else.
func (f *diffFlags) lay(s policy.Snapshot, in io.Reader, errOut io.Writer) (policy.Snapshot, error) {
	objects, warnings, err := manifest.Objects(f.files, manifest.Options{Stdin: in, IgnoreUnknown: f.ignoreUnknown, Namespace: f.namespace})
	if err != nil {
		return s, err
	}
	for _, w := range warnings {
		fmt.Fprintln(errOut, "warning:", w)
	}
	layer, err := kube.NewLayer(kube.Networks{Pods: f.podNetwork, Nodes: f.nodeNetwork})
	if err != nil {
		return s, err
	}
	var writes []kube.Write
	for _, o := range objects {
		m, err := o.Manifest()
		if err != nil {
			return s, err
		}
		text, err := json.Marshal(m)
		if err != nil {
			return s, fmt.Errorf("%s: %w", o.Where(), err)
		}
		writes = append(writes, kube.Write{Manifest: text})
	}
	after, notices := layer.Lay(s, writes)
	var errs []error
	for i, n := range notices {
		if n == nil {
			continue
		}
		if n.Unread && len(n.Problems) == 0 {
			errs = append(errs, fmt.Errorf("%s: it cannot be taken", objects[i].Where()))
		}
		for _, p := range n.Problems {
			if p.Warning {
				fmt.Fprintf(errOut, "warning: %s: %s: %s\n", objects[i].Where(), p.Field, p.Message)
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %s: %s", objects[i].Where(), p.Field, p.Message))
		}
	}
	return f.keepClouds(s, after), errors.Join(errs...)
}

// keepClouds gives ExternalEntities that were laid anew the cloud's side that they had.
func (f *diffFlags) keepClouds(before, after policy.Snapshot) policy.Snapshot {
	for id, w := range after.Workloads.All() {
		if was, ok := before.Workloads.Get(id); ok && was != w && w.Kind == policy.KindExternal && len(was.Interfaces) > 0 {
			c := *w
			c.Target, c.Network, c.Interfaces, c.Isolation = was.Target, was.Network, was.Interfaces, was.Isolation
			after.Workloads = after.Workloads.Put(id, &c)
		}
	}
	return after
}

// diffAnswer is the answer, as -o json has it.
type diffAnswer verdict.Diff

// maxNames is how many ends a line names.
const maxNames = 4

func sideText(s verdict.Side) string {
	var parts []string
	if text := brief(s.Workloads); text != "" {
		parts = append(parts, text)
	}
	if text := brief(s.Prefixes); text != "" {
		parts = append(parts, "others in "+text)
	}
	text := strings.Join(parts, ", ")
	switch {
	case s.Added:
		text += " (added)"
	case s.Removed:
		text += " (removed)"
	}
	return text
}

// brief returns the first names of a list, and how many more there are.
func brief(names []string) string {
	text := strings.Join(names[:min(maxNames, len(names))], ", ")
	if n := len(names) - maxNames; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// itemLines are items in words, those of one change of state together.
func itemLines(items []verdict.Item) []string {
	var out []string
	for len(items) > 0 {
		first := items[0]
		var traffic []string
		rest := slices.DeleteFunc(slices.Clone(items), func(i verdict.Item) bool {
			same := i.Before == first.Before && i.After == first.After
			if same {
				traffic = append(traffic, i.Traffic)
			}
			return same
		})
		text := strings.Join(traffic, ", ")
		if text == "TCP, UDP, SCTP, ICMP, IGMP, OTHER" {
			text = "all traffic"
		}
		out = append(out, fmt.Sprintf("%s (%s → %s)", text, first.Before, first.After))
		items = rest
	}
	return out
}

// lines yields each change in words.
func (d diffAnswer) lines(yield func(mark, text string) bool) {
	for _, c := range d.Changes {
		for _, x := range []struct {
			mark  string
			items []verdict.Item
		}{{"+", c.Gained}, {"-", c.Lost}, {"~", c.Changed}} {
			for _, line := range itemLines(x.items) {
				if !yield(x.mark, fmt.Sprintf("%v → %v: %s", sideText(c.From), sideText(c.To), line)) {
					return
				}
			}
		}
	}
}

func (d diffAnswer) table(out io.Writer) error {
	if len(d.Changes) == 0 {
		_, err := fmt.Fprintln(out, "No access is gained or lost.")
		return err
	}
	for mark, text := range d.lines {
		fmt.Fprintln(out, mark, printable(text))
	}
	_, err := fmt.Fprintf(out, "\n%s\n", totalsText(d.Totals))
	return err
}

func totalsText(t verdict.Totals) string {
	return fmt.Sprintf("Groups of pairs whose access is gained: %d, lost: %d, otherwise changed: %d.", t.Gained, t.Lost, t.Changed)
}

func (d diffAnswer) markdown(out io.Writer) error {
	if len(d.Changes) == 0 {
		_, err := fmt.Fprintln(out, "No access is gained or lost.")
		return err
	}
	fmt.Fprint(out, "| | from | to | traffic |\n|---|---|---|---|\n")
	for _, c := range d.Changes {
		for _, x := range []struct {
			name  string
			items []verdict.Item
		}{{"gained", c.Gained}, {"lost", c.Lost}, {"changed", c.Changed}} {
			for _, line := range itemLines(x.items) {
				fmt.Fprintf(out, "| %s | %s | %s | %s |\n", x.name, inMarkdown(sideText(c.From)), inMarkdown(sideText(c.To)), inMarkdown(line))
			}
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n", totalsText(d.Totals))
	return err
}
