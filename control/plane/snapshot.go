package plane

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Snapshot writes to a new file, mode 0600, what the control plane that runs on a directory
// has stored at one moment. Certificates and keys are no part of it.
func Snapshot(ctx context.Context, s Search, dataDir, file string) error {
	return runTool(ctx, s, "snapshot", dataDir, file)
}

// Restore makes the directory of a control plane, which must be empty or not there, with what a file of
// Snapshot has. Its resourceVersions go on beyond all that clients may have seen since, and who
// watches from one of before is told to list anew.
func Restore(ctx context.Context, s Search, dataDir, file string) error {
	return runTool(ctx, s, "restore", dataDir, file)
}

// runTool runs a command of the binary to its end.
func runTool(ctx context.Context, s Search, name, dataDir, file string) error {
	binary, err := Build(ctx, s)
	if err != nil {
		return err
	}
	said := newTail()
	cmd := exec.CommandContext(ctx, binary, name, "--data-dir="+dataDir, "--file="+file)
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	p := &Plane{stderr: said}
	if p.err = cmd.Run(); p.err != nil {
		return fmt.Errorf("%s: %w", name, p.reason())
	}
	return nil
}
