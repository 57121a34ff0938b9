package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Ask the agent of this Node"}
	cmd.AddCommand(agentStatusCommand())
	return cmd
}

func agentStatusCommand() *cobra.Command {
	var addr, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How far this Node enforces its policies",
		Long: `Asks the agent that runs on this machine whether it knows its policies, how many of them the kernel
enforces, and what fails. Exit status 0 means that all are enforced as they are written; 2 that some are not,
or that it is not known; 1 that the agent could not be asked.`,
		Example: `  isobar agent status
  isobar agent status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %q: want json, or nothing", output)
			}
			client := http.Client{Timeout: 10 * time.Second}
			resp, err := client.Get("http://" + addr + "/status")
			if err != nil {
				return fmt.Errorf("the agent does not answer at %s: %w", addr, err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			if err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s: is that the agent? %w", addr, resp.Status, err)
			}
			return printAgentStatus(cmd.OutOrStdout(), text, output)
		},
	}
	cmd.Flags().StringVar(&addr, "health-addr", "127.0.0.1:10351", "address that the agent was given by --health-addr")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or empty for text")
	return cmd
}

func printAgentStatus(out io.Writer, text []byte, output string) error {
	var s struct {
		Node                     string
		Started, Known, Kept     bool
		Policies, Realized, Pods int
		LastGood, Since          time.Time
		Error                    string
		Refusals, Held           []string
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("the agent's answer cannot be read: %w", err)
	}
	if output == "json" {
		fmt.Fprintln(out, string(text))
	} else {
		state := "enforcing"
		switch {
		case !s.Started:
			state = "starting: Pods cannot be attached yet"
		case !s.Known:
			state = "waiting: it is not known yet which policies there are"
		case s.Error != "":
			state = fmt.Sprintf("failing since %s: %s", s.Since.Local().Format(time.DateTime), s.Error)
		case s.Kept:
			state = "enforcing what was kept: the controller has not been reached since the start"
		}
		fmt.Fprintf(out, "Node:      %s\nState:     %s\nPods:      %d\nPolicies:  %d, of which %d are enforced as written\n", s.Node, state, s.Pods, s.Policies, s.Realized)
		if !s.LastGood.IsZero() {
			fmt.Fprintf(out, "Last good: %s\n", s.LastGood.Local().Format(time.DateTime))
		}
		for _, p := range s.Held {
			fmt.Fprintf(out, "Closed:    %s\n", p)
		}
		for _, r := range s.Refusals {
			fmt.Fprintf(out, "Refused:   %s\n", r)
		}
	}
	if !s.Started || !s.Known || s.Error != "" || s.Realized < s.Policies {
		return exitStatus(2)
	}
	return nil
}
