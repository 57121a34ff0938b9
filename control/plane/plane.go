package plane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options configure Start. DataDir is required.
type Options struct {
	// DataDir holds all state of the control plane. It is made when it is
	// missing, and one control plane at a time may use it.
	DataDir string

	// Listen is "host" or "host:port". Empty means 127.0.0.1 and the port of the
	// last start on this directory when it is free, else any free one.
	Listen string

	// Hosts are further DNS names and addresses of the server, in its certificate.
	Hosts []string

	// Authentication is the path of an AuthenticationConfiguration of
	// apiserver.config.k8s.io, by which OpenID Connect providers are believed. It is
	// read again when it changes. Empty means none.
	Authentication string

	// Wait is how long to wait for another control plane to let go of DataDir: that
	// of a process that was killed takes a few seconds to end.
	Wait time.Duration

	// Throwaway trades safety of the data and memory for speed: no waiting for
	// the disk, and a lazy garbage collector. For tests.
	Throwaway bool

	// Binary is the path of the control plane's binary. Empty means what Build
	// finds or builds, as Search says.
	Binary string
	Search Search
}

// A Plane is a running control plane, a child of this process. It ends with
// this process, however that ends.
type Plane struct {
	url        string
	kubeconfig string

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	done   chan struct{}
	err    error // of the process; read after done is closed
	stop   sync.Once
}

// maxReadyLine bounds what is read of the child's standard output, in bytes.
const maxReadyLine = 16 << 10

// Start runs a control plane and waits until it is ready, which takes about 3
// seconds, and minutes when the binary must be built. When ctx ends before that, what was
// started is stopped. Afterwards ctx has no effect: call Stop.
func Start(ctx context.Context, o Options) (*Plane, error) {
	if o.DataDir == "" {
		return nil, errors.New("start control plane: no data directory given")
	}
	binary := o.Binary
	if binary == "" {
		var err error
		if binary, err = Build(ctx, o.Search); err != nil {
			return nil, err
		}
	}
	o.Search.say("starting the control plane on %s", o.DataDir)
	p, ready, err := launch(binary, o)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	select {
	case line, ok := <-ready:
		if !ok {
			<-p.done
			return nil, fmt.Errorf("start control plane: %w", p.reason())
		}
		if p.url, p.kubeconfig, err = parseReady(line); err != nil {
			p.kill()
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		return p, nil
	case <-ctx.Done():
		p.kill()
		return nil, fmt.Errorf("start control plane: %w", ctx.Err())
	}
}

// launch starts the process. The channel gives the first line of its standard
// output, or is closed when there is none.
func launch(binary string, o Options) (*Plane, <-chan string, error) {
	args := []string{"--data-dir=" + o.DataDir, "--exit-with-parent"}
	if o.Listen != "" {
		args = append(args, "--listen="+o.Listen)
	}
	for _, h := range o.Hosts {
		args = append(args, "--host="+h)
	}
	if o.Authentication != "" {
		args = append(args, "--authentication-config="+o.Authentication)
	}
	if o.Wait > 0 {
		args = append(args, "--wait="+o.Wait.String())
	}
	p := &Plane{cmd: exec.Command(binary, args...), stderr: newTail(), done: make(chan struct{})}
	if o.Throwaway {
		p.cmd.Args = append(p.cmd.Args, "--unsafe-no-fsync")
		p.cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	}
	// A group of its own: Ctrl-C in a terminal is for us, and we stop it when
	// those who use it have ended.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = time.Second
	stdin, err := p.cmd.StdinPipe() // never written: its end tells the child that we are gone
	if err != nil {
		return nil, nil, err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, err
	}
	ready := make(chan string, 1)
	go func() {
		line, err := bufio.NewReaderSize(io.LimitReader(stdout, maxReadyLine), maxReadyLine).ReadString('\n')
		if err == nil {
			ready <- line
		}
		close(ready)
		_, _ = io.Copy(io.Discard, stdout)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, ready, nil
}

// parseReady parses "ready url=URL kubeconfig=PATH"; the path may have spaces.
func parseReady(line string) (url, kubeconfig string, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "ready url=")
	url, kubeconfig, ok2 := strings.Cut(rest, " kubeconfig=")
	if !ok || !ok2 || url == "" || kubeconfig == "" {
		return "", "", fmt.Errorf("unexpected first line %q", line)
	}
	return url, kubeconfig, nil
}

// reason says why the process ended, in its own words when it has any.
func (p *Plane) reason() error {
	text, stack, _ := strings.Cut(p.stderr.text(), "\ngoroutine ")
	if stack != "" {
		text = strings.TrimSpace(text) + " (the log is in its data directory)"
	}
	if text != "" {
		return errors.New(strings.TrimPrefix(text, BinaryName+": "))
	}
	if p.err == nil {
		return fmt.Errorf("%s ended", BinaryName)
	}
	return fmt.Errorf("%s: %w", BinaryName, p.err)
}

// URL is where the API server answers, on this machine.
func (p *Plane) URL() string { return p.url }

// Kubeconfig is the absolute path of an administrator's kubeconfig.
func (p *Plane) Kubeconfig() string { return p.kubeconfig }

// Config returns a new client configuration of an administrator, without a
// rate limit of its own.
func (p *Plane) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of control plane: %w", err)
	}
	config.QPS = -1 // client-go's five requests a second would be felt; the server has its own fairness
	return config, nil
}

// PID is the process id of the control plane.
func (p *Plane) PID() int { return p.cmd.Process.Pid }

// Done is closed when the control plane has ended, asked or not.
func (p *Plane) Done() <-chan struct{} { return p.done }

// Stop ends the control plane and waits for it, about a second. When ctx ends first
// it is killed, which loses nothing that was acknowledged, unless Throwaway.
// The error says what was not clean. Calling it again waits again.
func (p *Plane) Stop(ctx context.Context) error {
	p.stop.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		p.stdin.Close()
	})
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("stop control plane: %w; killed", ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("stop control plane: %w", p.reason())
	}
	return nil
}

func (p *Plane) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
