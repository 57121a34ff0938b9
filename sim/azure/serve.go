package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"isobar.dev/sim"
)

// ServeOptions configure Serve. The zero value serves the sample estate on a free loopback port.
type ServeOptions struct {
	Listen     string        // https: address and port on a loopback address; empty is 127.0.0.1:0
	ListenHTTP string        // the same without TLS, for who does not check tokens' way; empty is nowhere
	CAFile     string        // where the certificate of the authority is written, in PEM; empty is nowhere
	EstateFile string        // what to start from when there is no StateFile yet; empty is Sample
	StateFile  string        // loaded when it exists, and written after changes and at the end; empty keeps nothing
	SaveEvery  time.Duration // how long a change may wait to be written; 0 means 1 second
	Cloud      Options
	Log        *slog.Logger                // nil means slog.Default()
	Ready      func(e Endpoints, c *Cloud) // called once the endpoints answer
}

// Endpoints are where a simulated Azure answers.
type Endpoints struct {
	HTTPS string // as https://127.0.0.1:4567
	HTTP  string // empty when it is not served
	CA    []byte // the certificate of the authority that clients must trust, in PEM
}

// Serve runs a simulated Azure until ctx ends, then saves its state and returns nil.
// It refuses to listen elsewhere than on loopback addresses.
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
	e, err := o.estate()
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	c, err := New(e, o.Cloud)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	at, listeners, err := o.listen(ctx)
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
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		wg.Go(func() { served <- server.Serve(l) })
	}
	o.Log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("endpoint", at.HTTPS))
	if o.Ready != nil {
		o.Ready(at, c)
	}
	select {
	case err = <-served: // never nil
		err = fmt.Errorf("serve: %w", err)
		server.Close()
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

// listen opens the listeners, that of https first.
func (o ServeOptions) listen(ctx context.Context) (Endpoints, []net.Listener, error) {
	var at Endpoints
	for _, where := range []string{o.Listen, o.ListenHTTP} {
		if err := sim.CheckLoopback(where); where != "" && err != nil {
			return at, nil, err
		}
	}
	ca, serving, err := certificates(time.Now())
	if err != nil {
		return at, nil, err
	}
	at.CA = ca
	if o.CAFile != "" {
		if err := os.WriteFile(o.CAFile, ca, 0o644); err != nil {
			return at, nil, fmt.Errorf("write the authority's certificate: %w", err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return at, nil, err
	}
	at.HTTPS = "https://" + l.Addr().String()
	out := []net.Listener{tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12})}
	if o.ListenHTTP == "" {
		return at, out, nil
	}
	plain, err := lc.Listen(ctx, "tcp", o.ListenHTTP)
	if err != nil {
		return at, nil, errors.Join(err, l.Close())
	}
	at.HTTP = "http://" + plain.Addr().String()
	return at, append(out, plain), nil
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
