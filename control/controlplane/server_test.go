package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/compile"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	"isobar.dev/control/feed/feedtest"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

// serverVariable is set in a process that is a server and nothing else, so that what it takes is its own.
const serverVariable = "ISOBAR_TEST_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(serverVariable); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	planetest.Main(m)
}

// serverOptions are what a server of a world is told.
type serverOptions struct {
	Kubeconfig, Dir, Listen string
	// The world is feedtest's Cluster, on 1,000 Nodes.
	Namespaces, Pods, Policies, Alike int
}

// serverStats are what a server says of itself, with what it has used since it began.
type serverStats struct {
	Heap       uint64 // after garbage collection, in bytes
	Stacks     uint64
	Goroutines int
	Mallocs    uint64
	CPU        time.Duration
}

// serve is what a server's process does: the Server of the control plane, with its authentication and authorization by the
// API server of a kubeconfig, over a world in memory. It answers lines of its standard input: "flip" changes the label of
// a Pod there and back, "stats", "profile FILE" and "end".
func serve(text string) error {
	var o serverOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig) // with client-go's own limits, as `isobar controller` has it
	if err != nil {
		return err
	}
	worlds := worldsOf(feedtest.Cluster(o.Namespaces, o.Pods, o.Policies, o.Alike).Snapshot(), o.Alike)
	f := feed.New(compile.NewEngine())
	f.Update(worlds[0])
	service := controlplane.New(controlplane.Options{Feed: f, Reports: controlplane.NewReports(nil), World: func() (policy.Snapshot, bool) { return worlds[0], true }})
	server, err := apiserver.New(config, inventory{}, apiserver.Options{Dir: o.Dir, Groups: service.Groups()})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, l) }()
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(readyLine{l.Addr().String(), server.CABundle()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for n := 1; lines.Scan(); n++ {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "flip":
			f.Update(worlds[1])
			worlds[0], worlds[1] = worlds[1], worlds[0]
		case "cpu":
			err = answers.Encode(serverStats{CPU: cpuTime()})
		case "stats":
			err = answers.Encode(statsNow())
		case "profile":
			err = profile(rest)
		case "end":
			cancel()
			return <-ended
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), errors.New("nobody wants anything any more"))
}

// readyLine is what a server says first.
type readyLine struct {
	Address string
	CA      []byte
}

// worldsOf returns a world, and the same with another label of one Pod.
func worldsOf(s policy.Snapshot, alike int) [2]policy.Snapshot {
	out := [2]policy.Snapshot{s, s}
	for _, w := range s.Workloads.All() {
		other := *w
		other.Labels = policy.Labels{{Key: "app", Value: "app-7"}}
		out[1].Workloads = s.Workloads.Put(other.ID, &other)
		return out
	}
	return out
}

func statsNow() serverStats {
	cpu := cpuTime() // before the collections of garbage that are for us
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return serverStats{m.HeapAlloc, m.StackInuse, runtime.NumGoroutine(), m.Mallocs, cpu}
}

// process is a server in a process of its own.
type process struct {
	t       testing.TB
	o       serverOptions
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	address string
	config  *rest.Config // of no user
}

// startServer starts a server. It is killed when t ends.
func startServer(t testing.TB, o serverOptions) *process {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, o: o, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serverVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	p.out = json.NewDecoder(out)
	var ready readyLine
	if err := p.out.Decode(&ready); err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	p.address = ready.Address
	p.config = &rest.Config{Host: "https://" + ready.Address, TLSClientConfig: rest.TLSClientConfig{CAData: ready.CA, ServerName: apiserver.DefaultTarget.Host()}}
	return p
}

// say tells the server to do something.
func (p *process) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("the server ended: %v", err)
	}
}

// stats asks the server for all that it says of itself.
func (p *process) stats() serverStats {
	p.t.Helper()
	return p.ask("stats")
}

// cpu asks the server for the CPU that it has used, without the collections of garbage that stats makes.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	return p.ask("cpu").CPU
}

func (p *process) ask(what string) (s serverStats) {
	p.t.Helper()
	p.say(what)
	if err := p.out.Decode(&s); err != nil {
		p.t.Fatalf("the server ended: %v", err)
	}
	return s
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// restart kills the server, as a crash would, and starts it again where it was.
func (p *process) restart() *process {
	p.t.Helper()
	p.kill()
	o := p.o
	o.Listen = p.address
	return startServer(p.t, o)
}
