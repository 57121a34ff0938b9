package acceptance_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"isobar.dev/cloud/aws"
	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

const (
	// scaleProvider is the environment variable that says in which cloud the estate is: aws,
	// azure, or mixed, with half of the networks in each. Empty means aws.
	scaleProvider = "ISOBAR_SCALE_PROVIDER"
	// scaleCloud names the provider, and the estate that a process of the measurement is
	// the cloud of, as provider=file.
	scaleCloud = "ISOBAR_SCALE_CLOUD"
)

// serveScale is a cloud without token buckets, in a process of its own, so that what it
// needs is not counted. It prints where it is and, as base64, whom to trust, and ends with
// its standard input.
func serveScale(what string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	provider, estate, _ := strings.Cut(what, "=")
	var err error
	switch provider {
	case "azure":
		err = azuresim.Serve(ctx, azuresim.ServeOptions{
			EstateFile: estate, Cloud: azuresim.Options{NoThrottle: true, Settle: -1}, Log: slog.New(slog.DiscardHandler),
			Ready: func(e azuresim.Endpoints, _ *azuresim.Cloud) {
				fmt.Println(e.HTTPS, base64.StdEncoding.EncodeToString(e.CA))
			},
		})
	default:
		err = sim.Serve(ctx, sim.ServeOptions{
			EstateFile: estate, Cloud: sim.Options{NoThrottle: true}, Log: slog.New(slog.DiscardHandler),
			Ready: func(endpoint string, _ *sim.Cloud) { fmt.Println(endpoint) },
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cloudOfScale is a cloud of a measurement.
type cloudOfScale struct {
	*scale
	provider, url, ca string
	client            *http.Client
}

// serve starts a cloud with an estate.
func (s *scale) serve(provider string, save func(file string) error) *cloudOfScale {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), provider+".json")
	if err := save(file); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), scaleCloud+"="+provider+"="+file)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	c := &cloudOfScale{scale: s, provider: provider, client: http.DefaultClient}
	c.url, c.ca, _ = strings.Cut(strings.TrimSpace(line), " ")
	if c.ca != "" {
		pem, err := base64.StdEncoding.DecodeString(c.ca)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			s.t.Fatalf("whom to trust: %v", err)
		}
		c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	}
	return c
}

// serveAll starts the clouds of the provider with the estate's networks, which it may share out.
func (s *scale) serveAll(provider string, networks []network) {
	s.t.Helper()
	s.aws = aws.Options{Unlimited: true}
	inAWS, inAzure := networks, networks[:0]
	switch provider {
	case "azure":
		inAWS, inAzure = nil, networks
	case "mixed":
		inAWS, inAzure = networks[:len(networks)/2], networks[len(networks)/2:]
	}
	if len(inAWS) > 0 {
		c := s.serve("aws", estate(inAWS...).Save)
		s.world.url = c.url
		s.clouds = append(s.clouds, c)
	}
	if len(inAzure) > 0 {
		c := s.serve("azure", azureEstate(inTwoRegions(inAzure)...).Save)
		s.world.azure = &azureCloud{nil, c.url, c.ca}
		s.clouds = append(s.clouds, c)
	}
}

// inTwoRegions are networks as Azure has them.
func inTwoRegions(networks []network) []vnet {
	out := vnets(networks)
	for i := range out {
		out[i].location = []string{location1, location2}[i%2]
	}
	return out
}

// cloudOf is the cloud that an app is in.
func (s *scale) cloudOf(a int) *cloudOfScale {
	if len(s.clouds) == 2 && a%20 >= 10 {
		return s.clouds[1]
	}
	return s.clouds[0]
}

// vm is what the cloud calls a VM of an app.
func (s *scale) vm(a int, name string) string {
	if s.cloudOf(a).provider == "azure" {
		return vnet{name: fmt.Sprintf("vpc-%02d", a%20)}.vm(appName(a) + name)
	}
	return "i-" + appName(a) + name
}

// entity is what the ExternalEntity of a VM of an app is called.
func (s *scale) entity(a int, name string) string {
	id := s.vm(a, name)
	if s.cloudOf(a).provider == "azure" {
		id = object(id)
	}
	return "virtualmachine-" + id
}

// call is what attaches groups to an interface of an app's VMs.
func (s *scale) attach(a int) string {
	if s.cloudOf(a).provider == "azure" {
		return "NetworkInterfaces_CreateOrUpdate"
	}
	return "ModifyNetworkInterfaceAttribute"
}

// isRead says whether a call changes nothing.
func isRead(call string) bool {
	for _, word := range []string{"Describe", "_List", "_Get", "ListNetworkManager"} {
		if strings.Contains(call, word) {
			return true
		}
	}
	return strings.HasPrefix(call, "Operation")
}

// ask asks the cloud's own interface.
func (c *cloudOfScale) ask(method, path string, body io.Reader, answer any) {
	c.t.Helper()
	q, err := http.NewRequestWithContext(context.Background(), method, c.url+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := c.client.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	if answer != nil {
		if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
			c.t.Fatal(err)
		}
	}
}

// callCount is what a cloud says of one kind of call, in a region where it tells of it.
type callCount struct {
	Action, Operation string
	Calls             int
}

func (c callCount) name() string { return c.Action + c.Operation }

func (c *cloudOfScale) counts() []callCount {
	c.t.Helper()
	var l struct{ Counts []callCount }
	c.ask(http.MethodGet, "/_sim/calls", nil, &l)
	return l.Counts
}

// floor is how long the calls take at least by the cloud's token buckets: of EC2, which each
// region has for each action; of Azure, those of Microsoft.Network and of Resource Manager, which
// the simulator has for the subscription.
func (c *cloudOfScale) floor() time.Duration {
	var most time.Duration
	at := func(calls int, burst, perSecond float64) {
		most = max(most, time.Duration(max(0, float64(calls)-burst)/perSecond*float64(time.Second)))
	}
	if c.provider == "azure" {
		reads, writes := 0, 0
		for _, x := range c.counts() {
			if isRead(x.name()) {
				reads += x.Calls
			} else {
				writes += x.Calls
			}
		}
		at(writes, 1000, 1000.0/300)
		at(writes, 200, 10)
		at(reads, 250, 25)
		return most
	}
	for _, x := range c.counts() {
		burst, perSecond := 50.0, 5.0
		switch {
		case x.Action == "ModifyNetworkInterfaceAttribute":
			burst = 100
		case x.Action == "CreateTags":
			burst, perSecond = 100, 10
		case isRead(x.Action):
			burst, perSecond = 100, 20
		}
		at(x.Calls, burst, perSecond)
	}
	return most
}
