package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	simaws "isobar.dev/sim/aws"
)

func simReachCommand() *cobra.Command {
	var endpoint, output string
	cmd := &cobra.Command{
		Use:   "reach FROM TO TRAFFIC",
		Short: "Ask a simulated AWS whether a connection passes now",
		Long: `Asks a running simulated AWS, not Isobar, whether a new connection passes by the rules of EC2.
FROM and TO are instance IDs, network interface IDs or addresses, TRAFFIC is PROTO/PORT, ICMP, ICMP/TYPE
or ICMP/TYPE/CODE.`,
		Example: "  isobar sim reach --aws http://127.0.0.1:4566 i-0a100000000000001 i-0a100000000000004 TCP/8080",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := reachFlow(args[0], args[1], args[2])
			if err != nil {
				return err
			}
			v, err := askReach(endpoint, f)
			if err != nil {
				return err
			}
			return printReachVerdict(cmd.OutOrStdout(), v, output)
		},
	}
	cmd.Flags().StringVar(&endpoint, "aws", "http://127.0.0.1:4566", "endpoint of the simulated AWS")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// reachFlow is a flow of the simulator; its traffic is written as for evaluate.
func reachFlow(from, to, traffic string) (simaws.Flow, error) {
	var l flowLine
	if err := l.parseTraffic(traffic); err != nil {
		return simaws.Flow{}, err
	}
	f := simaws.Flow{From: from, To: to, Protocol: strings.ToLower(l.Protocol)}
	for _, x := range []struct {
		in  *int32
		out *int
		max int32
	}{{l.Port, &f.Port, 65535}, {l.ICMPType, &f.ICMPType, 255}, {l.ICMPCode, &f.ICMPCode, 255}} {
		if x.in == nil {
			continue
		}
		if *x.in < 0 || *x.in > x.max {
			return f, fmt.Errorf("%q: %d is not from 0 to %d", traffic, *x.in, x.max)
		}
		*x.out = int(*x.in)
	}
	return f, nil
}

// askReach asks the simulator's own interface.
func askReach(endpoint string, f simaws.Flow) (simaws.Verdict, error) {
	body, err := json.Marshal([]simaws.Flow{f})
	if err != nil {
		return simaws.Verdict{}, err
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Post(strings.TrimSuffix(endpoint, "/")+"/_sim/reach", "application/json", bytes.NewReader(body))
	if err != nil {
		return simaws.Verdict{}, fmt.Errorf("simulated AWS: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return simaws.Verdict{}, fmt.Errorf("simulated AWS: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return simaws.Verdict{}, fmt.Errorf("simulated AWS at %s: %s: %s", endpoint, answer.Status, bytes.TrimSpace(text))
	}
	var verdicts []simaws.Verdict
	if err := json.Unmarshal(text, &verdicts); err != nil || len(verdicts) != 1 {
		return simaws.Verdict{}, fmt.Errorf("%s does not answer like a simulated AWS", endpoint)
	}
	return verdicts[0], nil
}

func printReachVerdict(out io.Writer, v simaws.Verdict, output string) error {
	switch output {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "table":
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "%s\t%s\n", v.Result, v.Reason)
		for _, s := range []struct {
			name string
			side simaws.Side
		}{{"egress", v.Egress}, {"ingress", v.Ingress}} {
			if s.side.Result != "" {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\n", s.name, s.side.Result, s.side.Interface, s.side.Group, s.side.Rule)
			}
		}
		return w.Flush()
	}
	return fmt.Errorf("--output %q: want table or json", output)
}
