//go:build unix

package compile_test

import (
	"syscall"
	"time"
)

// cpuSeconds returns the time that this process has had of all CPUs.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}
