package vms_test

import (
	"bytes"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netns"
)

// launcher starts processes that end with this one, however that ends: the kernel kills
// them when the thread that has started them is gone, so there is one that stays.
type launcher struct{ jobs chan func() }

func newLauncher(t testing.TB) *launcher {
	l := &launcher{make(chan func())}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		for f := range l.jobs {
			f()
		}
	}()
	t.Cleanup(func() { close(l.jobs) })
	return l
}

// process is one that was started.
type process struct {
	cmd   *exec.Cmd
	log   safeBuffer
	ended chan struct{}
	err   error // after ended
}

// start runs a command in a network namespace, with mounts of its own.
func (l *launcher) start(space ns.NetNS, env []string, stdin, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = env, strings.NewReader(stdin), &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
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
			err = p.cmd.Start()
			if back := netns.Set(own); back != nil {
				panic(back) // nothing may be done on this thread any more
			}
			return err
		}()
	}
	if err := <-done; err != nil {
		return nil, err
	}
	go func() { defer close(p.ended); p.err = p.cmd.Wait() }()
	return p, nil
}

// kill ends it as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) isOver() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// safeBuffer is for a writer and a reader at once.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
