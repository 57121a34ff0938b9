package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/control/enroll"
)

type joinFlags struct {
	servers, hashes []string
	tokenFile, dir  string
	again           bool
	timeout         time.Duration
}

func joinCommand() *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Let this machine join, by a token",
		Long: `Makes a key for this machine, which never leaves it, and has a server issue a certificate of it for a join token. The server is
verified by the hash of its authority before it is sent the token.

isobar token create prints the whole command. The machine's namespace and name are in the token.`,
		Example: `  isobar-agent join --server https://isobar.example.com:10443 --ca-hash sha256:0123... --token-file /root/token

  # In place of an identity that has ended or was revoked
  isobar-agent join --again --server https://isobar.example.com:10443 --ca-hash sha256:0123... --token-file -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return join(cmd.Context(), f, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.servers, "server", nil, "URL of a server, as https://isobar.example.com:10443; may be given often")
	fl.StringSliceVar(&f.hashes, "ca-hash", nil, "sha256: and the hash of the key of the server's authority; may be given often, and any will do")
	fl.StringVar(&f.tokenFile, "token-file", "", "file with the join token; - for the standard input")
	fl.StringVar(&f.dir, "identity-dir", identityDir, "folder that keeps the identity")
	fl.BoolVar(&f.again, "again", false, "replace the identity that is there, once the new one has come")
	fl.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to try")
	return cmd
}

func join(ctx context.Context, f joinFlags, in io.Reader, out io.Writer) error {
	for flag, missing := range map[string]bool{"--server": len(f.servers) == 0, "--ca-hash": len(f.hashes) == 0, "--token-file": f.tokenFile == ""} {
		if missing {
			return fmt.Errorf("%s is missing: isobar token create prints the whole command", flag)
		}
	}
	token, err := readToken(f.tokenFile, in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	id, err := enroll.Join(ctx, enroll.Request{Servers: f.servers, Token: token, CAHashes: f.hashes, Dir: f.dir, Again: f.again}, joinOptions())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "joined as %s; the certificate is good until %s, and is renewed by the agent\n", id.Of(), id.Status().Expires.Local().Format(time.DateTime))
	return nil
}

// joinOptions are those of who joins: rules that this machine may have already are not asked of root.
func joinOptions() enroll.Options {
	if os.Geteuid() != 0 {
		return enroll.Options{}
	}
	return enroll.Options{Dial: node.Dial}
}

// maxTokenFile bounds what is read for a token.
const maxTokenFile = 4096

func readToken(name string, in io.Reader) (enroll.Token, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return enroll.Token{}, fmt.Errorf("--token-file: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTokenFile+1))
	if err == nil && len(text) > maxTokenFile {
		err = errors.New("this is no token: it is too long")
	}
	if err != nil {
		return enroll.Token{}, fmt.Errorf("--token-file: %w", err)
	}
	token, err := enroll.ParseToken(strings.TrimSpace(string(text)))
	if err != nil {
		return enroll.Token{}, fmt.Errorf("--token-file: %w", err)
	}
	return token, nil
}
