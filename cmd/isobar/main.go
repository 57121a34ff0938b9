// Command isobar is one network policy for every workload: it evaluates
// policies, runs the demo estate, and talks to a running Isobar.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"isobar.dev/cmd/isobar-cni/plugin"
)

func main() {
	if filepath.Base(os.Args[0]) == plugin.Name { // as isobar lab has it
		plugin.Main()
		return
	}
	os.Exit(call(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the command without its process, for tests. It returns the exit status.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	return call(append([]string{"isobar"}, args...), in, out, errOut)
}

// call runs the command by the name that it is called by, which argv begins with.
func call(argv []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := root()
	args, byKubectl := calledAs(argv)
	if byKubectl {
		asPlugin(cmd)
	}
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	err := cmd.ExecuteContext(ctx)
	if status, ok := err.(exitStatus); ok {
		return int(status)
	}
	if err != nil {
		fmt.Fprintln(errOut, "isobar:", err)
		return 1
	}
	return 0
}

// exitStatus is what a command found, said by its exit status alone.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "isobar",
		Short: "One network policy for every workload",
		Long: `Isobar compiles network policies, in the dialects that you already use, and enforces
them on Pods, cloud VMs and machines of every kind.

Offline commands read manifests: files, folders or - for the standard input. Online ones ask the
API server of a kubeconfig.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(evaluateCommand(), planCommand(), statusCommand(), upCommand(), serverCommand(), labCommand(), sweepCommand(), agentCommand(), tokenCommand(), controllerCommand(), simCommand())
	cmd.AddCommand(explainCommand(), matrixCommand(), diffCommand(), consoleCommand())
	cmd.AddCommand(lintCommand(), topCommand())
	return cmd
}
