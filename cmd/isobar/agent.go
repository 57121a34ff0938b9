package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isobar.dev/cmd/isobar-agent/vm"
)

func agentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Ask the agent of this Node or VM, or end the identity of a VM's"}
	cmd.AddCommand(agentStatusCommand(), agentNamesCommand(), vm.OffCommand("isobar agent on"), vm.OnCommand("isobar agent on"), agentRevokeCommand())
	return cmd
}

var agentStatusFormats = []string{"text", "json", "yaml"}

func agentStatusCommand() *cobra.Command {
	var addr, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How far this Node, or VM, enforces its policies",
		Long: `Asks the agent that runs on this machine whether it knows its policies, how many of them the kernel
enforces, and what fails. Exit status 0 means that all are enforced as they are written; 2 that some are not,
or that it is not known; 1 that the agent could not be asked.`,
		Example: `  isobar agent status
  isobar agent status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(output, agentStatusFormats...); err != nil {
				return err
			}
			text, err := askAgent(addr, "/status", 1<<20)
			if err != nil {
				return err
			}
			if r, isVM, err := vm.ParseReply(text); err == nil && isVM {
				if !isObject(output) {
					r.Print(cmd.OutOrStdout())
				} else if err := writeObject(cmd.OutOrStdout(), output, json.RawMessage(text)); err != nil {
					return err
				}
				if !r.IsWhole() {
					return exitStatus(2)
				}
				return nil
			}
			return printAgentStatus(cmd.OutOrStdout(), text, output)
		},
	}
	cmd.Flags().StringVar(&addr, "health-addr", "127.0.0.1:10351", "address that the agent was given by --health-addr")
	addFormats(cmd, &output, agentStatusFormats...)
	return cmd
}

// askAgent returns what the agent answers, of at most so many bytes.
func askAgent(addr, path string, most int64) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		return nil, fmt.Errorf("the agent does not answer at %s: %w", addr, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the agent at %s: %w", addr, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: is that the agent?", addr, resp.Status)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s answers with more than %d bytes: is that the agent?", addr, most)
	}
	return text, nil
}

func printAgentStatus(out io.Writer, text []byte, output string) error {
	var s struct {
		Node                     string
		Started, Known, Kept     bool
		Policies, Realized, Pods int
		LastGood, Since          time.Time
		WentBack                 time.Time
		Error, StateError        string
		Refusals, Held, Lacks    []string
		Names                    nameStatus
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("the agent's answer cannot be read: %w", err)
	}
	if isObject(output) {
		if err := writeObject(out, output, json.RawMessage(text)); err != nil {
			return err
		}
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
		if len(s.Lacks) > 0 && s.Error == "" {
			state += "; the controller lags behind that in " + strings.Join(s.Lacks, ", ")
		}
		fmt.Fprintf(out, "Node:      %s\nState:     %s\nPods:      %d\nPolicies:  %d, of which %d are enforced as written\n", s.Node, state, s.Pods, s.Policies, s.Realized)
		if !s.LastGood.IsZero() {
			fmt.Fprintf(out, "Last good: %s\n", s.LastGood.Local().Format(time.DateTime))
		}
		if s.StateError != "" {
			fmt.Fprintf(out, "Not kept:  %s\n", s.StateError)
		}
		for _, p := range s.Held {
			fmt.Fprintf(out, "Closed:    %s\n", p)
		}
		if !s.WentBack.IsZero() {
			fmt.Fprintf(out, "Went back: %s, to something older, since no replica of the controller had read as much\n", s.WentBack.Local().Format(time.DateTime))
		}
		s.Names.print(out)
		for _, r := range s.Refusals {
			fmt.Fprintf(out, "Refused:   %s\n", r)
		}
	}
	if !s.Started || !s.Known || s.Error != "" || s.Realized < s.Policies {
		return exitStatus(2)
	}
	return nil
}
