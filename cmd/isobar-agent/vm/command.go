package vm

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// offWait is for how long the cloud is waited for unless somebody says otherwise.
const offWait = 10 * time.Second

// OffCommand is the command "off" of a program whose command to undo it is on, as "isobar-agent on".
func OffCommand(on string) *cobra.Command {
	var state string
	var wait time.Duration
	var now bool
	cmd := &cobra.Command{
		Use:   "off",
		Short: "Take the rules off this VM, until they are switched on",
		Long: `Takes away Isobar's table of nftables, and nothing else, whether the agent runs or not, and whether its server can be reached or
not. It stays so over restarts of the agent and of the machine, until "` + on + `".

Where the agent runs, it first tells its server, and the rules stay until the answer says that the cloud enforces on this machine, or that it is in
no cloud; but for --wait at most, and not where the server has been away for half a minute. --now waits for nobody.`,
		Example: fmt.Sprintf(`  %[1]s
  %[1]s --now`, strings.TrimSuffix(on, "on")+"off"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if wait < 0 || wait > LeaveMost {
				return fmt.Errorf("--wait %s: want 0 to %s", wait, LeaveMost)
			}
			if now {
				wait = 0
			}
			why, err := Leave(cmd.Context(), state, 0, wait, func(text string) { fmt.Fprintln(out, text) })
			if err != nil {
				return rooted(err)
			}
			fmt.Fprintf(out, "off: no policy is enforced by Isobar's agent on this machine until %s (%s)\n", on, why)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state-dir", DefaultStateDir, "that of the agent")
	cmd.Flags().DurationVar(&wait, "wait", offWait, "for how long the rules may stay until the cloud enforces")
	cmd.Flags().BoolVar(&now, "now", false, "wait for nobody")
	return cmd
}

// OnCommand is the command "on" of a program, of which it is called as on, as "isobar-agent on".
func OnCommand(on string) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "on",
		Short: "Undo off",
		Long: `Has the agent of this VM enforce policies again, within a second where it runs, and else when it does. What was asked for by off and
has not come to be yet is taken back.`,
		Example: "  " + on,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := On(state); err != nil {
				return rooted(err)
			}
			text := "on: the agent enforces policies again"
			if !IsRunning(state) {
				text = "on: policies are enforced again when the agent runs"
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state-dir", DefaultStateDir, "that of the agent")
	return cmd
}

// rooted says who may do what has failed.
func rooted(err error) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w (this needs root)", err)
	}
	return err
}
