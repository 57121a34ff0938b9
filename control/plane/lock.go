package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockBuild takes the lock file at path, and calls waiting once when another process
// has it. The kernel lets go of it when a process dies.
func lockBuild(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	// flock cannot be interrupted, so it is asked again and again.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		}
	}
}
