package aws_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/sim/aws"
)

// serve runs Serve until the test calls stop, which returns what Serve returned.
func serve(t *testing.T, o aws.ServeOptions) (s *sim, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan *sim, 1), make(chan error, 1)
	o.Log = slog.New(slog.DiscardHandler)
	o.Ready = func(endpoint string, c *aws.Cloud) { ready <- &sim{Cloud: c, url: endpoint, now: time.Now()} }
	go func() { done <- aws.Serve(ctx, o) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	select {
	case s = <-ready:
		return s, stop
	case err := <-done:
		t.Fatalf("Serve: %v", err)
		return nil, nil
	}
}

// TestServeKeepsState restarts and finds what was made before.
func TestServeKeepsState(t *testing.T) {
	o := aws.ServeOptions{StateFile: filepath.Join(t.TempDir(), "state.json"), SaveEvery: time.Millisecond}
	s, stop := serve(t, o)
	g := newGroup(t, s.ec2("us-east-1"), shopVPC, "kept")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s, stop = serve(t, o)
	c := s.ec2("us-east-1")
	if err := allow(c, g, tcp(80, 80, "10.0.0.0/8")); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if other := newGroup(t, c, shopVPC, "new"); other == g {
		t.Errorf("the id %s was given again", g)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	e, err := aws.LoadEstate(o.StateFile)
	if err != nil || len(e.Accounts[0].Regions[1].Groups) != 6 {
		t.Errorf("state file: %v", err)
	}
}

func TestServeRefuses(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, o := range []aws.ServeOptions{
		{Listen: "0.0.0.0:0"}, {Listen: ":0"}, {Listen: "192.0.2.1:0"}, {Listen: "example.com:0"}, {Listen: "nonsense"},
		{EstateFile: filepath.Join(t.TempDir(), "none.json")}, {StateFile: "serve_test.go"},
	} {
		if err := aws.Serve(ctx, o); err == nil {
			t.Errorf("Serve(%+v): no error", o)
		}
	}
}

// TestTogether writes, reads and judges from many sides at once, for the race detector.
func TestTogether(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{NoThrottle: true})
	s.OnChange(func() { s.Reach(ask("203.0.113.7", "i-0a100000000000001", "tcp", 22)) })
	c := s.ec2("us-east-1")
	var wg sync.WaitGroup
	for w := range int32(4) {
		wg.Go(func() {
			for i := range int32(10) {
				if err := allow(c, shopSG, tcp(1000+w*100+i, 1000+w*100+i, "10.0.0.0/8")); err != nil {
					t.Error(err)
				}
				if err := forbid(c, shopSG, tcp(1000+w*100+i, 1000+w*100+i, "10.0.0.0/8")); err != nil {
					t.Error(err)
				}
				if err := errOf(c.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{shopVPC}, Tags: []types.Tag{{Key: sdk.String("k"), Value: sdk.String("v")}}})); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 10 {
				s.Estate()
				s.Calls()
				if id, err := s.AddFault(aws.Fault{Kind: aws.FaultStale, Action: "DescribeInstances"}); err == nil {
					instanceIDs(t, c, 5)
					s.ClearFaults(id)
				}
			}
		})
	}
	wg.Wait()
}
