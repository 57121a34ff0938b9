package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	simaws "isobar.dev/sim/aws"
	simazure "isobar.dev/sim/azure"
)

var reachFormats = []string{"table", "json", "yaml"}

func simReachCommand() *cobra.Command {
	var aws, azure, ca, output string
	cmd := &cobra.Command{
		Use:   "reach FROM TO TRAFFIC",
		Short: "Ask a simulated cloud whether a connection passes now",
		Long: `Asks a running simulated cloud, not Isobar, whether a new connection passes by the rules of that cloud.
FROM and TO are instance IDs, network interface IDs or addresses; with --azure IDs or names of virtual
machines and network interfaces, or addresses. TRAFFIC is PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE.`,
		Example: `  isobar sim reach --aws http://127.0.0.1:4566 i-0a100000000000001 i-0a100000000000004 TCP/8080
  isobar sim reach --azure https://127.0.0.1:4567 --ca azure-ca.pem web-1 app-1 TCP/8080`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(output, reachFormats...); err != nil {
				return err
			}
			f, err := reachFlow(args[0], args[1], args[2])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if azure != "" {
				client, err := trusting(ca)
				if err != nil {
					return err
				}
				v, err := askReach[simazure.Verdict](client, "simulated Azure", azure, simazure.Flow{
					From: f.From, To: f.To, Protocol: f.Protocol, Port: f.Port, ICMPType: f.ICMPType, ICMPCode: f.ICMPCode,
				})
				if err != nil {
					return err
				}
				return printReach(out, v, string(v.Result), v.Reason, azureSides(v), output)
			}
			v, err := askReach[simaws.Verdict](http.DefaultTransport, "simulated AWS", aws, f)
			if err != nil {
				return err
			}
			return printReach(out, v, string(v.Result), v.Reason, awsSides(v), output)
		},
	}
	cmd.Flags().StringVar(&aws, "aws", "http://127.0.0.1:4566", "endpoint of the simulated AWS")
	cmd.Flags().StringVar(&azure, "azure", "", "endpoint of the simulated Azure, to be asked in place of the simulated AWS")
	cmd.Flags().StringVar(&ca, "ca", "", "file with the certificate authority of the simulated Azure")
	addFormats(cmd, &output, reachFormats...)
	return cmd
}

// trusting is a way to servers with certificates of an authority; of those that the system trusts when
// no file is named.
func trusting(file string) (http.RoundTripper, error) {
	if file == "" {
		return http.DefaultTransport, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate", file)
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}, nil
}

// reachFlow is a flow of the simulator; its traffic is written as for evaluate.
func reachFlow(from, to, traffic string) (simaws.Flow, error) {
	var l flowLine
	if err := l.ParseTraffic(traffic); err != nil {
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
func askReach[V any](way http.RoundTripper, what, endpoint string, flow any) (V, error) {
	var none V
	body, err := json.Marshal([]any{flow})
	if err != nil {
		return none, err
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: way}
	answer, err := client.Post(strings.TrimSuffix(endpoint, "/")+"/_sim/reach", "application/json", bytes.NewReader(body))
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	if answer.StatusCode != http.StatusOK {
		return none, fmt.Errorf("%s at %s: %s: %s", what, endpoint, answer.Status, bytes.TrimSpace(text))
	}
	var verdicts []V
	if err := json.Unmarshal(text, &verdicts); err != nil || len(verdicts) != 1 {
		return none, fmt.Errorf("%s does not answer like a %s", endpoint, what)
	}
	return verdicts[0], nil
}

// reachSide is a line of the table: what an end says.
type reachSide struct{ name, result, where, why string }

func awsSides(v simaws.Verdict) []reachSide {
	return []reachSide{
		{"egress", string(v.Egress.Result), v.Egress.Interface, v.Egress.Group + " " + v.Egress.Rule},
		{"ingress", string(v.Ingress.Result), v.Ingress.Interface, v.Ingress.Group + " " + v.Ingress.Rule},
	}
}

func azureSides(v simazure.Verdict) []reachSide {
	why := func(s simazure.Side) string {
		var parts []string
		for _, p := range []struct{ group, rule string }{{"admin", s.AdminRule}, {path.Base(s.Group), s.Rule}, {path.Base(s.SubnetGroup), s.SubnetRule}} {
			if p.rule != "" {
				parts = append(parts, p.group+"/"+p.rule)
			}
		}
		return strings.Join(parts, " ")
	}
	return []reachSide{
		{"egress", string(v.Egress.Result), path.Base(v.Egress.Interface), why(v.Egress)},
		{"ingress", string(v.Ingress.Result), path.Base(v.Ingress.Interface), why(v.Ingress)},
	}
}

func printReach(out io.Writer, v any, result, reason string, sides []reachSide, output string) error {
	if isObject(output) {
		return writeObject(out, output, v)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s\n", result, reason)
	for _, s := range sides {
		if s.result != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.name, s.result, s.where, s.why)
		}
	}
	return w.Flush()
}
