package aws

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"isobar.dev/sim"
)

// ServeOptions configure Serve. The zero value serves the sample estate on a free loopback port.
type ServeOptions struct {
	Listen     string        // address and port on a loopback address; empty is 127.0.0.1:0
	EstateFile string        // what to start from when there is no StateFile yet; empty is Sample
	StateFile  string        // loaded when it exists, and written after changes and at the end; empty keeps nothing
	SaveEvery  time.Duration // how long a change may wait to be written; 0 means 1 second
	Cloud      Options
	Log        *slog.Logger                    // nil means slog.Default()
	Ready      func(endpoint string, c *Cloud) // called once the endpoint ("http://127.0.0.1:4566") answers
}

// Serve runs a simulated AWS until ctx ends, then saves its state and returns nil.
// It refuses to listen elsewhere than on a loopback address.
func Serve(ctx context.Context, o ServeOptions) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.SaveEvery == 0 {
		o.SaveEvery = time.Second
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if err := sim.CheckLoopback(o.Listen); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	e, err := o.estate()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	c, err := New(e, o.Cloud)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	server := &http.Server{
		Handler: c.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	sim.Hurry(server)
	var wg sync.WaitGroup
	saving, stopSaving := context.WithCancel(context.WithoutCancel(ctx))
	var saveErr error
	changed := make(chan struct{}, 1)
	c.OnChange(func() {
		select {
		case changed <- struct{}{}:
		default: // a save is due already
		}
	})
	if o.StateFile != "" {
		save := func() error { return c.Estate().Save(o.StateFile) }
		wg.Go(func() { saveErr = sim.Keep(saving, o.SaveEvery, changed, save, o.Log) })
	}
	served := make(chan error, 1)
	wg.Go(func() { served <- server.Serve(l) })
	endpoint := "http://" + l.Addr().String()
	o.Log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("endpoint", endpoint))
	if o.Ready != nil {
		o.Ready(endpoint, c)
	}
	select {
	case err = <-served: // never nil
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		if err = server.Shutdown(grace); err != nil {
			err = server.Close() // a client that hangs must not hold the end up
		}
		cancel()
	}
	stopSaving()
	wg.Wait()
	return errors.Join(err, saveErr)
}

// estate is the saved state if there is one, else the start. A state that cannot be read is an
// error: to start over would throw it away.
func (o ServeOptions) estate() (Estate, error) {
	if o.StateFile != "" {
		e, err := LoadEstate(o.StateFile)
		if !errors.Is(err, fs.ErrNotExist) {
			return e, err
		}
	}
	if o.EstateFile != "" {
		return LoadEstate(o.EstateFile)
	}
	return Sample(), nil
}
