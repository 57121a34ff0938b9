package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	simaws "isobar.dev/sim/aws"
)

func simCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate clouds, over their own protocols",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(simAWSCommand(), simAzureCommand(), simReachCommand(), simNodesCommand())
	return cmd
}

func simAWSCommand() *cobra.Command {
	o := simaws.ServeOptions{}
	var settle bool
	cmd := &cobra.Command{
		Use:   "aws",
		Short: "Simulate EC2 and STS on a loopback address until interrupted",
		Long: `Simulates EC2 and STS with accounts, regions, quotas, throttling and faults. Any client of AWS can
drive it; without --estate it has the account of the sample estate.

Its own interface is under /_sim/: reach (POST a list of flows), state, faults, calls.`,
		Example: `  isobar sim aws --listen 127.0.0.1:4566 --state cloud.json
  export AWS_ACCESS_KEY_ID=` + simaws.SampleKeyID + ` AWS_SECRET_ACCESS_KEY=` + simaws.SampleKeySecret + `
  aws --endpoint-url http://127.0.0.1:4566 --region us-east-1 ec2 describe-instances --output table`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if settle {
				o.Cloud.GroupHiddenCalls = 1
			}
			o.Ready = func(endpoint string, _ *simaws.Cloud) {
				fmt.Fprintln(cmd.OutOrStdout(), "ready", endpoint)
			}
			return simaws.Serve(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:4566", "loopback address and port; port 0 is any free one")
	flags.StringVar(&o.EstateFile, "estate", "", "JSON file with the estate to start from (default: the sample estate)")
	flags.StringVar(&o.StateFile, "state", "", "JSON file that keeps the state over a restart")
	flags.BoolVar(&o.Cloud.NoThrottle, "no-throttle", false, "let API token buckets never run dry")
	flags.BoolVar(&settle, "eventual", false, "let a new security group be unknown to the first call that names it")
	return cmd
}
