// Package process runs the real programs for tests, in network namespaces. They end with the process that has started
// them, however that ends, and leave nothing on the disk.
package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netns"
)

// Launcher starts processes. The kernel kills them when the thread that has started them is gone, so
// there is one that stays.
type Launcher struct{ jobs chan func() }

// NewLauncher returns a Launcher, whose processes end with the test at the latest.
func NewLauncher(t testing.TB) *Launcher {
	l := &Launcher{make(chan func())}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		for f := range l.jobs {
			f()
		}
	}()
	t.Cleanup(func() { close(l.jobs) })
	return l
}

// Process is one that was started.
type Process struct {
	Cmd   *exec.Cmd
	Log   Log           // what it has written
	Ended chan struct{} // closed when it has
	Err   error         // of Wait; read after Ended
}

// Start runs a command in a network namespace, with mounts of its own. A nil stdin is empty.
func (l *Launcher) Start(space ns.NetNS, env []string, stdin io.Reader, name string, args ...string) (*Process, error) {
	p := &Process{Cmd: exec.Command(name, args...), Ended: make(chan struct{})}
	p.Cmd.Env, p.Cmd.Stdin, p.Cmd.Stdout, p.Cmd.Stderr = env, stdin, &p.Log, &p.Log
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	l.jobs <- func() {
		done <- func() error {
			own, err := netns.Get()
			if err != nil {
				return err
			}
			defer own.Close()
			if err := netns.Set(netns.NsHandle(space.Fd())); err != nil {
				return err
			}
			err = p.Cmd.Start()
			if back := netns.Set(own); back != nil {
				panic(back) // nothing may be done on this thread any more
			}
			return err
		}()
	}
	if err := <-done; err != nil {
		return nil, err
	}
	go func() { defer close(p.Ended); p.Err = p.Cmd.Wait() }()
	return p, nil
}

// Kill ends it as kill -9 does.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// IsOver says whether it has ended.
func (p *Process) IsOver() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Log is for a writer and a reader at once.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write is that of an io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Space makes a network namespace, which ends when it is closed.
func Space() (ns.NetNS, error) {
	type made struct {
		space ns.NetNS
		err   error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // for good: the thread, which is elsewhere then, ends with the goroutine
		handle, err := netns.New()
		if err != nil {
			done <- made{nil, err}
			return
		}
		defer handle.Close()
		space, err := ns.GetNS(fmt.Sprintf("/proc/self/fd/%d", handle))
		done <- made{space, err}
	}()
	m := <-done
	return m.space, m.err
}

// Programs builds commands of ours, by name, and returns paths to them. This process holds them open, and nothing of them
// is left on the disk.
func Programs(names ...string) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "isobar-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"build", "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "isobar.dev/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %v: %w\n%s", names, err, out)
	}
	paths := map[string]string{}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		paths[name] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
		held = append(held, f)
	}
	return paths, nil
}

// held are files that stay open. It is a package variable, since nothing else refers to them.
var held []*os.File
