package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"isobar.dev/policy"
)

// nameStatus is what an agent tells of how much it knows of DNS names.
type nameStatus struct {
	Names, Addresses                                       int
	Answers, Dropped                                       uint64
	LastDrop                                               string
	EvictedNames, EvictedNamesOfPatterns, EvictedAddresses uint64
}

func (n nameStatus) print(out io.Writer) {
	if n.Answers+n.Dropped == 0 && n.Names == 0 {
		return // as where no policy names any
	}
	fmt.Fprintf(out, "Names:     %d with %d addresses, %d answers seen\n", n.Names, n.Addresses, n.Answers)
	if n.Dropped > 0 {
		fmt.Fprintf(out, "Dropped:   %d answers, the last since: %s\n", n.Dropped, n.LastDrop)
	}
	if gone := n.EvictedNames + n.EvictedNamesOfPatterns; gone+n.EvictedAddresses > 0 {
		fmt.Fprintf(out, "Evicted:   %d names and %d addresses: more are asked for than are kept\n", gone, n.EvictedAddresses)
	}
}

var agentNamesFormats = []string{"table", "json", "yaml"}

func agentNamesCommand() *cobra.Command {
	var addr, output string
	cmd := &cobra.Command{
		Use:   "names [PATTERN]",
		Short: "At which addresses the Pods of this Node have found DNS names",
		Long: `Asks the agent that runs on this machine for the DNS names that its Pods have asked for and that policies
name, with the addresses that they were told and when each is forgotten. A pattern may have "*" for any
characters.`,
		Example: `  isobar agent names
  isobar agent names '*.example.com' -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(output, agentNamesFormats...); err != nil {
				return err
			}
			text, err := askAgent(addr, "/names", 64<<20)
			if err != nil {
				return err
			}
			return printAgentNames(cmd.OutOrStdout(), text, strings.Join(args, ""), output)
		},
	}
	cmd.Flags().StringVar(&addr, "health-addr", "127.0.0.1:10351", "address that the agent was given by --health-addr")
	addFormats(cmd, &output, agentNamesFormats...)
	return cmd
}

// knownName is a name as an agent tells it: bytes that are none of text are escaped.
type knownName struct {
	Name      string         `json:"name"`
	Addresses []knownAddress `json:"addresses"`
}

type knownAddress struct {
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
}

func printAgentNames(out io.Writer, text []byte, pattern, output string) error {
	all := []knownName{}
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("the agent's answer cannot be read: %w", err)
	}
	if pattern != "" {
		all = slices.DeleteFunc(all, func(n knownName) bool { return !policy.MatchesName(pattern, n.Name) })
	}
	if isObject(output) {
		return writeObject(out, output, all)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tUNTIL")
	for _, n := range all {
		for _, a := range n.Addresses {
			fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, a.Address, a.Until.Local().Format(time.DateTime))
		}
	}
	return w.Flush()
}
