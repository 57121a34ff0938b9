package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isobar.dev/policy"
	"isobar.dev/source/manifest"
)

var evaluateFormats = []string{"table", "json", "yaml"}

type evaluateFlags struct {
	files         []string
	flow          string
	flows         string
	allPairs      bool
	port          string
	via           string
	output        string
	ignoreUnknown bool
	staged        stagedFlag
}

func evaluateCommand() *cobra.Command {
	var f evaluateFlags
	cmd := &cobra.Command{
		Use:   "evaluate -f PATH... (--flow FROM,TO,PROTO/PORT | --flows FILE | --all-pairs --port PROTO/PORT)",
		Short: "Say which flows the policies in manifests allow, without any server",
		Long: `Evaluate reads a world from manifests (Namespace, Pod, Node, Service, every policy kind, Tier,
Group, ClusterGroup, ExternalEntity, VirtualMachine, List) and says what happens to flows in it, and
which policy and rule decides at each end.

FROM and TO are namespace/pod, node:name, vm:namespace/name, ee:namespace/name or an IP address.
A flows file has one JSON object a line: {"from","to","protocol","port","sourcePort","icmpType",
"icmpCode","toName"}; the answer is the same line, whatever else it has, with "verdict",
"ingress" and "egress" added.

Staged policies are not enforced, and count with --staged alone.

The exit status is 0 when every flow was evaluated, whatever the verdicts.`,
		Example: `  isobar evaluate -f world/ --flow shop/web,shop/db,TCP/5432
  kubectl get ns,pods,netpol -A -o yaml | isobar evaluate -f - --all-pairs --port TCP/80
  isobar evaluate -f world.yaml --flows flows.jsonl -o json --via compiled`,
		Args: cobra.ArbitraryArgs, // further paths: what a shell makes of -f world/*.yaml
		RunE: func(cmd *cobra.Command, args []string) error {
			f.files = append(f.files, args...)
			return f.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file, folder or - with manifests; may be repeated")
	flags.StringVar(&f.flow, "flow", "", "one flow: FROM,TO,PROTO/PORT (ICMP, ICMP/TYPE or ICMP/TYPE/CODE)")
	flags.StringVar(&f.flows, "flows", "", "file of flows as JSON lines, or -")
	flags.BoolVar(&f.allPairs, "all-pairs", false, "every workload to every other; needs --port")
	flags.StringVar(&f.port, "port", "", "PROTO/PORT for --all-pairs")
	flags.StringVar(&f.via, "via", "meaning", "what answers: "+strings.Join(viaNames(), ", "))
	addFormats(cmd, &f.output, evaluateFormats...)
	flags.Lookup("output").Usage += "; json is a line for each flow, yaml a document"
	flags.BoolVar(&f.ignoreUnknown, "ignore-unknown", false, "skip kinds that are not known, with a warning")
	f.staged.add(cmd, "as if staged policies were enforced")
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	cmd.MarkFlagsOneRequired("flow", "flows", "all-pairs")
	cmd.MarkFlagsMutuallyExclusive("flow", "flows", "all-pairs")
	cmd.MarkFlagsRequiredTogether("all-pairs", "port")
	_ = cmd.RegisterFlagCompletionFunc("via", cobra.FixedCompletions(viaNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *evaluateFlags) run(in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, evaluateFormats...); err != nil {
		return err
	}
	if f.flows == "-" && slices.Contains(f.files, "-") {
		return fmt.Errorf("--flows and --filename cannot both read the standard input")
	}
	world, err := manifest.Read(f.files, manifest.Options{Stdin: in, IgnoreUnknown: f.ignoreUnknown})
	if err != nil {
		return err
	}
	for _, w := range world.Warnings {
		fmt.Fprintln(errOut, "warning:", w)
	}
	if world.Snapshot, err = f.staged.apply(world.Snapshot); err != nil {
		return err
	}
	answer, err := newAnswerer(f.via, world.Snapshot)
	if err != nil {
		return err
	}
	questions, err := f.questions(world.Snapshot, in)
	if err != nil {
		return err
	}
	for i := range questions {
		q := &questions[i]
		if q.verdict, err = answer(q.flow); err != nil {
			return fmt.Errorf("%s: %w", q.where, err)
		}
	}
	if isObject(f.output) {
		return writeObjects(out, f.output, questions)
	}
	if f.allPairs {
		return writeMatrix(out, questions)
	}
	return writeTable(out, questions)
}

// questions returns the flows to evaluate, in order.
func (f *evaluateFlags) questions(s policy.Snapshot, in io.Reader) ([]question, error) {
	switch {
	case f.flow != "":
		q, err := parseFlow(f.flow)
		return []question{q}, err
	case f.allPairs:
		return allPairs(s, f.port)
	case f.flows == "-":
		return readFlows("-", in)
	}
	file, err := os.Open(f.flows)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readFlows(f.flows, file)
}
