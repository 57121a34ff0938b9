package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	simazure "isobar.dev/sim/azure"
)

func simAzureCommand() *cobra.Command {
	o := simazure.ServeOptions{}
	cmd := &cobra.Command{
		Use:   "azure",
		Short: "Simulate Azure Resource Manager on a loopback address until interrupted",
		Long: `Simulates Microsoft Entra's tokens and Azure Resource Manager with networks and virtual machines, quotas,
throttling, long-running operations and faults. Any client of Azure can drive it that trusts the
certificate authority in --ca; without --estate it has the subscription of the sample estate.

Its own interface is under /_sim/: reach (POST a list of flows), state, faults, calls.`,
		Example: `  isobar sim azure --listen 127.0.0.1:4567 --ca azure-ca.pem --state azure.json
  curl --cacert azure-ca.pem https://127.0.0.1:4567/` + simazure.SampleTenant + `/oauth2/v2.0/token \
    -d grant_type=client_credentials -d scope=https://management.azure.com/.default \
    -d client_id=` + simazure.SampleClientID + ` -d client_secret=` + simazure.SampleSecret,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			o.Ready = func(e simazure.Endpoints, _ *simazure.Cloud) {
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace("ready "+e.HTTPS+" "+e.HTTP))
			}
			return simazure.Serve(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:4567", "loopback address and port for https; port 0 is any free one")
	flags.StringVar(&o.ListenHTTP, "listen-http", "", "the same for plain http, which clients take for Resource Manager only when told to (default: nowhere)")
	flags.StringVar(&o.CAFile, "ca", "", "PEM file to write the certificate authority to that clients must trust")
	flags.StringVar(&o.EstateFile, "estate", "", "JSON file with the estate to start from (default: the sample estate)")
	flags.StringVar(&o.StateFile, "state", "", "JSON file that keeps the state over a restart")
	flags.BoolVar(&o.Cloud.NoThrottle, "no-throttle", false, "let API token buckets never run dry")
	flags.DurationVar(&o.Cloud.Settle, "settle", 0, "how long an operation lasts; less than 0 is not at all (default 1s)")
	return cmd
}
